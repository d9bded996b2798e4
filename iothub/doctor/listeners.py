"""The hub's listeners: are the ports free or used by the hub itself, do certificates and keys match, and when do they expire?

Knows no connection.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from iothub.base.errors import ConfigError
from iothub.config.check import check_start
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.doctor.findings import Check, Finding, State
from iothub.hub.from_settings import certificate_files, links_by_process
from iothub.peers import certificates
from iothub.peers.link_files import LinkFiles
from iothub_services.metrics import probes

_DAY_S = 86400.0


def checks(data_dir: DataDir, settings: Config) -> list[Check]:
    """One check for each port, one for the files that the configuration names, one for each certificate."""
    links = links_by_process(settings, data_dir)
    ours = data_dir.read_hub() if data_dir.holder() is not None else None
    return [
        Check("configuration", lambda: _files(settings)),
        *(Check(name, partial(_port, name, bind, port, ours or {})) for name, bind, port in _ports(settings)),
        *(
            Check(f"certificate {name}", partial(certificate, name, file, settings, time.time()))
            for name, file in certificate_files(settings, data_dir).items()
            if name not in links
        ),
        *(
            Check(f"certificate {name}", partial(link_certificate, name, files, node, settings))
            for name, (files, node) in links.items()
        ),
    ]


def _files(settings: Config) -> Iterator[Finding]:
    warnings = check_start(settings)
    for warning in warnings:
        yield Finding("configuration", State.WARN, warning)
    if not warnings:
        yield Finding("configuration", State.OK, "valid, and its files can be used")


def _ports(settings: Config) -> Iterator[tuple[str, str, int]]:
    addresses = {
        **{f"listener {name}": (each.bind, each.port) for name, each in settings.listeners.by_name().items()},
        "http": (settings.http.bind, settings.http.port),
    }
    for name, (bind, port) in addresses.items():
        if port:
            yield name, bind, port


def _port(name: str, bind: str, port: int, ours: Mapping[str, object]) -> Iterator[Finding]:
    """Bind as the hub would. `ours`: what the running hub wrote in `hub.json`."""
    where = f"{bind} port {port}"
    if ours.get(name.removeprefix("listener ")) == f"{bind}:{port}":
        yield Finding(name, State.OK, f"{where}: the running hub listens there")
        return
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as error:
            yield Finding(name, State.FAIL, f"{where}: {error.strerror}", _advice(error, port))
            return
    yield Finding(name, State.OK, f"{where} is free")


def _advice(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"stop the program that uses it (`ss -ltnp sport = :{port}`) or choose another port"
    if error.errno == errno.EACCES:
        return "ports below 1024 need the capability CAP_NET_BIND_SERVICE; grant it or choose another port"
    return "set an address of this machine"


def link_certificate(name: str, files: LinkFiles, node: int, settings: Config) -> Iterator[Finding]:
    """Check whether the links of a node can use these files, as its start does, and how long its certificate is valid."""
    try:
        certificates.load(files, node)
    except ConfigError as error:
        yield Finding(f"certificate {name}", State.FAIL, str(error), "see docs/guide/cluster.md#certificates")
        return
    yield from certificate(name, files.certificate, settings, time.time())


def certificate(name: str, file: Path, settings: Config, now: float) -> Iterator[Finding]:
    """Check how long a listener's certificate is valid."""
    shown = f"certificate {name}"
    try:
        left_s = probes.certificate_end(file) - now
    except (OSError, ValueError) as error:
        yield Finding(shown, State.FAIL, f"{file}: {error}", "set a PEM file with the server's certificate")
        return
    if left_s <= 0:
        yield Finding(shown, State.FAIL, f"{file}: expired {-left_s / _DAY_S:.0f} days ago", "renew it")
    elif left_s < settings.alarms.cert_expiry_s:
        yield Finding(shown, State.WARN, f"{file}: expires in {left_s / _DAY_S:.0f} days", "renew it")
    else:
        yield Finding(shown, State.OK, f"{file}: valid for {left_s / _DAY_S:.0f} days")
