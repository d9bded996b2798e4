"""Settings as the values that packages take: bounds of the plane, listeners, authentication.

Knows no object of a running hub. One function per package, so that a setting's effect is found at the first guess.
"""

from __future__ import annotations

from pathlib import Path

from iothub.base import log
from iothub.config.datadir import DataDir
from iothub.config.sections import Auth, Config, Listener, Log, TlsListener
from iothub.config.workers import node_numbers
from iothub.engine.limits import PlaneLimits
from iothub.net.listener_info import ListenerInfo, listener_info
from iothub.peers.addresses import UNIX
from iothub.peers.link_files import CA_FILE, CERTIFICATE_FILE, KEY_FILE, LinkFiles
from iothub_services.auth.authenticator import AuthSettings
from iothub_services.auth.check_pool import CheckSettings
from iothub_services.auth.directory import DirectorySettings
from iothub_services.auth.failures import FailureSettings
from iothub_services.auth.lru import LruSettings
from iothub_services.connections.log import ConnectionLines, LineRate

NEVER = 1 << 30


def plane_limits(settings: Config) -> PlaneLimits:
    """The message plane's bounds."""
    listeners = settings.listeners.by_name().values()
    return PlaneLimits(
        connections=sum(listener.max_connections for listener in listeners if listener.port is not None) or 1,
        connect_timeout_s=settings.mqtt.connect_timeout_s,
        connect_bytes=settings.mqtt.connect_bytes,
        out_hard_bytes=settings.overload.connection_buffer_bytes,
        buffered_bytes=settings.overload.buffered_bytes,
        unstored_bytes=settings.queues.pending_bytes,
    )


def auth_settings(settings: Config) -> AuthSettings:
    """The authenticator's caches, pool and ban rule."""
    auth = settings.auth
    devices = LruSettings(entries=auth.cache_entries, ttl_s=auth.cache_s)
    return AuthSettings(
        directory=DirectorySettings(
            LruSettings(entries=max(auth.cache_entries // 10, 16), ttl_s=auth.cache_s), devices
        ),
        checks=CheckSettings(threads=auth.hash_pool, pending=auth.hash_waiting),
        failures=_failures(auth),
    )


def _failures(auth: Auth) -> FailureSettings:
    if auth.failures is None:
        return FailureSettings(failures=NEVER)
    return FailureSettings(int(auth.failures.count), auth.failures.seconds, auth.ban_s)


def connection_lines(settings: Log) -> ConnectionLines:
    """Which lines about connections are written."""
    rate = settings.rate_limit
    limit = None if rate is None else LineRate(int(rate.count), rate.seconds)
    return ConnectionLines(limit, is_written=settings.connections == "on")


def listener_infos(settings: Config) -> list[ListenerInfo]:
    """The listeners that have a port."""
    listeners = settings.listeners.by_name().items()
    return [_info(settings, name, listener) for name, listener in listeners if listener.port is not None]


def certificate_files(settings: Config, data_dir: DataDir) -> dict[str, Path]:
    """The certificates that are in use, by listener; `cluster`: that of the links."""
    files = {
        name: listener.cert_file
        for name, listener in settings.listeners.by_name().items()
        if isinstance(listener, TlsListener) and listener.port is not None and listener.cert_file is not None
    }
    link = link_files(settings, data_dir)
    return files if link is None else {**files, "cluster": link.certificate}


def link_files(settings: Config, data_dir: DataDir) -> LinkFiles | None:
    """The files of the links' certificates; None: links need none, or there are no links."""
    cluster, directory = settings.cluster, data_dir.cluster_files
    if not cluster.listen or cluster.insecure or cluster.listen.startswith(UNIX):
        return None
    return LinkFiles(
        cluster.ca_file or directory / CA_FILE,
        cluster.certificate_file or directory / CERTIFICATE_FILE,
        cluster.key_file or directory / KEY_FILE,
    )


def links_by_process(settings: Config, data_dir: DataDir) -> dict[str, tuple[LinkFiles, int]]:
    """The files of links' certificates with their node number, of each process that serves clients: `cluster`, `cluster w2`, and so on.

    `settings`, `data_dir`: those of the whole.
    """
    found: dict[str, tuple[LinkFiles, int]] = {}
    for worker, node in enumerate(node_numbers(settings, data_dir), 1):
        own = data_dir if worker == 1 else DataDir.of_worker(data_dir.path, worker)
        if (files := link_files(settings, own)) is not None:
            found["cluster" if worker == 1 else f"cluster w{worker}"] = files, node
    return found


def _info(settings: Config, name: str, listener: Listener) -> ListenerInfo:
    options: dict[str, object] = {
        "bind": listener.bind,
        "port": listener.port,
        "max_connections": listener.max_connections,
        "max_handshakes": listener.max_handshakes,
        "backlog": listener.backlog,
        "accept_rate_per_s": listener.accept_rate.count / listener.accept_rate.seconds if listener.accept_rate else 0.0,
        "receive_buffer_bytes": listener.receive_buffer_bytes,
        "send_buffer_bytes": listener.send_buffer_bytes,
        "connect_timeout_s": settings.mqtt.connect_timeout_s,
        "proxy_trusted": tuple(str(network) for network in listener.proxy_trusted),
        "allow": tuple(str(network) for network in listener.allow),
        "deny": tuple(str(network) for network in listener.deny),
        "is_port_shared": settings.node.workers > 1,
    }
    for key in ("path", "min_tls", "client_certificates"):
        if hasattr(listener, key):
            options[key] = getattr(listener, key)
    for key in ("cert_file", "key_file", "client_ca_file"):
        if getattr(listener, key, None) is not None:
            options[key] = str(getattr(listener, key))
    return listener_info(name, **options)


def configure_log(settings: Log) -> None:
    """Write the log by these settings from now on."""
    rate = settings.rate_limit
    limit = None if rate is None else (int(rate.count), rate.seconds)
    log.configure(level=settings.level, form=settings.format, rate=limit)
