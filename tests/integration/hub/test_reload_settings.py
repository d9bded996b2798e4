"""What a reload does with every setting: one with `now` reaches the part of the hub that works by it, any other is named as needing a restart."""

from __future__ import annotations

import dataclasses
import re
import shutil
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.epollreactor import EPollReactor

from iothub.base import log
from iothub.base.clock import SystemClock
from iothub.base.errors import ConfigError
from iothub.config.changes import changes_between
from iothub.config.datadir import DataDir
from iothub.config.loader import Setting, load, sections, value_of
from iothub.config.sections import Config, Reload
from iothub.engine.state import TenantPlane
from iothub.hub.composition.compose import compose
from iothub.hub.parts import Parts
from iothub.hub.reload import prepare
from iothub.net.acceptor import Acceptor
from iothub.net.tls import VERSIONS
from iothub.testing.certificates import Authority
from iothub_services.auth.port import TenantRecord
from iothub_tenants.broker.allowance import Allowance
from tests.architecture.tree import ROOT
from tests.support.hubs.composed import close_parts

SETTINGS = {setting.name: setting for section in sections() for setting in section.settings}
NOW = {name for name, setting in SETTINGS.items() if setting.key.reload is Reload.NOW}

# Settings that the hub does not read at all: each command or job reads the configuration when it runs.
OF_COMMANDS = {name for name in SETTINGS if name.startswith(("spark.", "tenancy."))} - {"tenancy.operator"} | {
    "jobs.max_runtime",
    "hbase.admin_program",
}

Probe = Callable[[Parts], object]
_RAW = (
    *(
        7,
        5000,
        "7s",
        "2m",
        "2h",
        "2d",
        "11s",
        "64KiB",
        "3MiB",
        "3GiB",
        "512MiB",
        "500ms",
        "71%",
        "5/1s",
        "03:30",
        "x",
        "/x",
        ["127.0.0.1:1"],
        "127.0.0.2",
    ),
    *(
        [{"driver": "redis"}],
        ["usage"],
        ["5"],
        ["127.0.0.0/8"],
        ["x"],
        "debug",
        "text",
        "json",
        "equal",
        "redis",
        "kafka",
        "hbase",
        "reject",
        "off",
    ),
    *("memory", "optional", "tls", "SSL", "PLAIN", "1.3", "127.0.0.1:7883", True, False),
    *("https://id.example.com", ["staff=viewer"]),
)


def other_value(setting: Setting) -> Any:
    """Return a value that a person may give and that is not the default."""
    for raw in _RAW:
        try:
            value = setting.key.kind.read(raw)
        except ValueError:
            continue
        if value != setting.default:
            return value
    raise AssertionError(f"no value for {setting.name}")


def with_value(section: Any, name: str, value: object) -> Any:
    """Return a copy of a configuration with one setting changed."""
    first, _, rest = name.partition(".")
    attribute = first if hasattr(section, first) else f"{first}_s"
    new = with_value(getattr(section, attribute), rest, value) if rest else value
    return dataclasses.replace(section, **{attribute: new})


def acceptor_of(parts: Parts, name: str) -> Acceptor:
    return next(each for each in parts.sockets.listeners._acceptors if each.listener.name == name)


def of_hub(name: str) -> Probe:
    """The packet handlers read `hub.settings` at every packet."""
    return lambda parts: value_of(parts.control.hub.settings, name)


def of_levels(name: str) -> Probe:
    return lambda parts: getattr(parts.monitoring.watch._levels, name)


def of_limits(name: str) -> Probe:
    return lambda parts: (getattr(parts.control.plane.limits, name), getattr(parts.control.plane.turn.limits, name))


def of_jobs(name: str) -> Probe:
    return lambda parts: getattr(parts.tasks.accounts.jobs.watch, name)


def of_gate(listener: str, probe: Callable[[Any], object]) -> Probe:
    return lambda parts: probe(acceptor_of(parts, listener).gate)


def of_filters(listener: str, probe: Callable[[Any], object]) -> Probe:
    return lambda parts: probe(acceptor_of(parts, listener).filters)


def written_at_debug(_parts: Parts) -> object:
    """What level the log begins at, by what it writes."""
    shown = Shown()
    log.get("test").debug("seen at debug level")
    return "debug" if "seen at debug level" in shown.text() else "info"


def written_form(_parts: Parts) -> object:
    shown = Shown()
    log.get("test").error("seen in some form")
    return "json" if shown.text().startswith("{") else "text"


def written_of_ten(_parts: Parts) -> object:
    shown = Shown()
    for _ in range(10):
        log.get("test").warning("seen ten times")
    return shown.text().count("seen ten times")


class Shown:
    """What is written to standard error from now on (pytest has put a file there)."""

    def __init__(self) -> None:
        self._before = len(self._all())

    def text(self) -> str:
        return self._all()[self._before :]

    @staticmethod
    def _all() -> str:
        return cast("Any", sys.stderr).getvalue()


def twice(value: object) -> object:
    return value, value


def of_caches(name: str) -> Probe:
    def probe(parts: Parts) -> object:
        directory = parts.control.hub.authenticator.directory
        return tuple(getattr(each._settings, name) for each in (directory._devices, directory._tenants))

    return probe


def connect_timeouts(parts: Parts) -> object:
    """Of the message plane, and of a handshake before it."""
    return parts.control.plane.limits.connect_timeout_s, acceptor_of(parts, "wss").listener.connect_timeout_s


def backlog(parts: Parts) -> object:
    """Of a tenant that is there."""
    (broker,) = parts.control.hub.brokers
    return broker.allowance.plane.limits.backlog_bytes


def per_second(rate: Any) -> object:
    return rate.count / rate.seconds


def texts(networks: Any) -> object:
    return tuple(map(str, networks))


def networks(gate_networks: Any) -> object:
    return tuple(map(str, gate_networks._networks))


def same(value: object) -> object:
    return value


# For each setting: what a hub works by, and how its value looks there.
REACHED: dict[str, tuple[Probe, Callable[[Any], object]]] = {
    "log.level": (written_at_debug, same),
    "log.format": (written_form, same),
    "log.rate_limit": (written_of_ten, lambda rate: rate.count),
    "log.connections": (lambda parts: parts.monitoring.connection_log._is_written, lambda value: value == "on"),
    "mqtt.versions": (of_hub("mqtt.versions"), same),
    "mqtt.max_inflight": (of_hub("mqtt.max_inflight"), same),
    "mqtt.max_keepalive": (of_hub("mqtt.max_keepalive"), same),
    "mqtt.connect_timeout": (connect_timeouts, twice),
    "mqtt.connect_bytes": (of_limits("connect_bytes"), twice),
    "mqtt.events_rate": (lambda parts: parts.control.event_topics._rate, same),
    "webhooks.allow_networks": (lambda parts: parts.control.webhooks.deliverer._delivery.networks, same),
    "webhooks.timeout": (lambda parts: parts.control.webhooks.deliverer._delivery.timeout_s, same),
    "webhooks.give_up": (lambda parts: parts.control.webhooks.deliverer._delivery.give_up_s, same),
    "webhooks.queue_bytes": (lambda parts: parts.control.webhooks.deliverer._delivery.queue_bytes, same),
    "auth.failure_reply_ms": (of_hub("auth.failure_reply_ms"), same),
    "auth.cache": (of_caches("ttl_s"), twice),
    "auth.cache_entries": (of_caches("entries"), lambda value: (value, max(value // 10, 16))),
    "auth.hash_waiting": (lambda parts: parts.control.hub.authenticator.checks.settings.pending, same),
    "auth.failures": (
        lambda parts: parts.control.hub.authenticator.failures.settings.failures,
        lambda rate: rate.count,
    ),
    "auth.ban": (lambda parts: parts.control.hub.authenticator.failures.settings.ban_s, same),
    "alarms.memory_high": (of_levels("memory_high"), same),
    "alarms.disk_free": (of_levels("disk_free"), same),
    "alarms.reactor_lag": (of_levels("reactor_lag_s"), same),
    "alarms.cert_expiry": (of_levels("cert_expiry_s"), same),
    "alarms.checkpoint_age": (of_jobs("_age_s"), same),
    "alarms.job_mark_age": (of_jobs("_mark_age_s"), same),
    "overload.memory_limit": (lambda parts: parts.monitoring.watch._memory_limit, same),
    "overload.buffered_bytes": (of_limits("buffered_bytes"), twice),
    "overload.connection_buffer_bytes": (lambda parts: parts.control.plane.turn.out_hard_bytes, same),
    "overload.session_backlog_bytes": (backlog, same),
    "metrics.tenant_series_max": (lambda parts: parts.sockets.health.tenants._pages._series_max, same),
    "jobs.at": (of_jobs("_is_scheduled"), lambda _: True),
    "jobs.nightly": (of_jobs("_is_scheduled"), lambda _: False),
}
for _name in ("tcp", "tls", "ws", "wss"):
    _section = f"listeners.{_name}"
    REACHED |= {
        f"{_section}.max_connections": (of_gate(_name, lambda gate: gate._most), same),
        f"{_section}.max_handshakes": (of_gate(_name, lambda gate: gate.listener.max_handshakes), same),
        f"{_section}.accept_rate": (of_gate(_name, lambda gate: gate._rate_per_s), per_second),
        f"{_section}.proxy_trusted": (of_gate(_name, lambda gate: networks(gate.proxies)), texts),
        f"{_section}.allow": (of_gate(_name, lambda gate: networks(gate._allow)), texts),
        f"{_section}.deny": (of_gate(_name, lambda gate: networks(gate._deny)), texts),
    }
    if _name.endswith("s") and _name != "ws":
        REACHED |= {
            f"{_section}.cert_file": (of_filters(_name, lambda each: each._files._listener.cert_file), str),
            f"{_section}.key_file": (of_filters(_name, lambda each: each._files._listener.key_file), str),
            f"{_section}.client_ca_file": (
                of_filters(_name, lambda each: len(each._files.context.get_ca_certs())),
                lambda _: 1,
            ),
            f"{_section}.client_certificates": (
                of_filters(_name, lambda each: each._files.context.verify_mode),
                lambda _: ssl.CERT_OPTIONAL,
            ),
            f"{_section}.min_tls": (of_filters(_name, lambda each: each._files.context.minimum_version), VERSIONS.get),
        }
    if _name.startswith("ws"):
        REACHED[f"{_section}.path"] = (of_filters(_name, lambda each: each._listener.path), same)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def flags(authority: Authority) -> list[str]:
    """All listeners on, and a named one."""
    pair = authority.issue("first")
    flags = ["listeners.tcp.port=0", "listeners.ws.port=0", "listeners.tls.partners.port=0"]
    for name in ("tls", "wss"):
        flags += [f"listeners.{name}.port=0"]
        flags += [f"listeners.{name}.{word}={getattr(pair, word)}" for word in ("cert_file", "key_file")]
    return flags


@pytest.fixture(scope="module")
def settings(flags: list[str]) -> Config:
    return load(flags=flags).config


@pytest.fixture(scope="module")
def parts(settings: Config, initialised: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    path = tmp_path_factory.mktemp("composed") / "hub"
    shutil.copytree(initialised, path)
    reactor = EPollReactor()  # type: ignore[no-untyped-call]
    made = compose(settings, DataDir(path), reactor, SystemClock())
    made.control.hub.brokers._brokers[1] = cast("Any", tenant_of(made))
    yield made
    close_parts(made, reactor)


def tenant_of(parts: Parts) -> object:
    """Stand in for the broker of a tenant: making one needs a reactor that runs."""
    plane, observer = TenantPlane(1, "acme"), parts.monitoring.telemetry
    record = TenantRecord(1, "acme")
    return SimpleNamespace(allowance=Allowance(record, plane, parts.process.clock, observer, parts.stores.usage))


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    yield
    log.begin()


def reload(parts: Parts, running: Config, wanted: Config) -> list[str]:
    """Apply what may be applied; returns the settings that need a restart."""
    changes = changes_between(running, wanted)
    for use in prepare(parts, changes.config):
        use()
    return changes.names(Reload.RESTART)


def test_every_setting_that_is_applied_now_has_a_proof() -> None:
    assert REACHED.keys() | OF_COMMANDS == NOW
    assert not REACHED.keys() & OF_COMMANDS


@pytest.mark.parametrize("name", sorted(REACHED))
def test_a_reload_reaches_the_running_part(
    name: str, parts: Parts, settings: Config, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And back again: the part works by the last configuration."""
    probe, shown = REACHED[name]
    running = with_value(settings, "jobs.at", 60) if name == "jobs.nightly" else settings
    if name.endswith(".client_certificates"):
        running = with_value(settings, f"{name.rpartition('.')[0]}.client_ca_file", Path(authority.ca_file))
    reload(parts, running, running)
    before = probe(parts)
    value = new_value(name, settings, authority, tmp_path)

    assert reload(parts, running, with_value(running, name, value)) == []
    assert probe(parts) == shown(value) != before

    assert reload(parts, running, running) == []
    assert probe(parts) == before


def new_value(name: str, settings: Config, authority: Authority, tmp_path: Path) -> Any:
    if name.endswith((".cert_file", ".key_file")):  # the pair must fit
        return Path(shutil.copy(cast("Path", value_of(settings, name)), tmp_path / "copy.pem"))
    if name.endswith(".client_ca_file"):
        return Path(authority.ca_file)
    return other_value(SETTINGS[name])


def test_a_reload_reaches_a_named_listener(parts: Parts, flags: list[str]) -> None:
    """Its own access list, and one that it takes from its kind."""
    running = load(flags=flags).config

    for key in ("listeners.tls.partners.deny", "listeners.tls.deny"):
        assert reload(parts, running, load(flags=[*flags, f"{key}=10.0.0.0/8"]).config) == []
        assert networks(acceptor_of(parts, "tls.partners").gate._deny) == ("10.0.0.0/8",)
        reload(parts, running, running)
        assert networks(acceptor_of(parts, "tls.partners").gate._deny) == ()


@pytest.mark.parametrize("name", sorted(SETTINGS.keys() - NOW))
def test_any_other_setting_is_named_as_needing_a_restart(name: str, settings: Config) -> None:
    """It keeps its value, and is named at every reload until the hub is restarted."""
    wanted = with_value(settings, name, other_value(SETTINGS[name]))

    for _ in range(2):
        changes = changes_between(settings, wanted)
        assert changes.names(Reload.RESTART) == [name]
        assert changes.names(Reload.NOW) == []
        assert changes.config == settings


@pytest.mark.parametrize("word", [r"tenancy\.(?!operator\b)\w+", "spark", "max_runtime_s", "admin_program"])
def test_settings_of_commands_are_not_read_by_the_hub(word: str) -> None:
    """They need nobody who applies them: every command reads the configuration anew."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "iothub/hub").glob("*.py")}

    assert [name for name, text in sources.items() if re.search(rf"\.{word}\b", text)] == []


def test_a_listener_that_moves_keeps_everything_until_the_restart(settings: Config) -> None:
    """It is another listener: what is changed with its port is not applied to the one that is open."""
    wanted = with_value(with_value(settings, "listeners.tcp.port", None), "listeners.tcp.max_connections", 5)

    changes = changes_between(settings, wanted)

    assert changes.names(Reload.RESTART) == ["listeners.tcp.port", "listeners.tcp.max_connections"]
    assert changes.config == settings


def test_a_certificate_that_cannot_be_used_changes_nothing(parts: Parts, settings: Config, tmp_path: Path) -> None:
    """Not even what is right in the same configuration."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    wanted = with_value(with_value(settings, "listeners.wss.cert_file", broken), "mqtt.max_inflight", 9)
    before = [acceptor.filters._files for acceptor in parts.sockets.listeners._acceptors]

    with pytest.raises(ConfigError, match=r"broken\.pem"):
        reload(parts, settings, wanted)

    assert [acceptor.filters._files for acceptor in parts.sockets.listeners._acceptors] == before
    assert parts.control.hub.settings.mqtt.max_inflight == settings.mqtt.max_inflight
