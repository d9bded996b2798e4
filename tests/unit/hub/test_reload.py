"""A reload: the configuration is applied as a whole or refused as a whole, and log, metric and alarm say which."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from twisted.internet.defer import Deferred

from iothub.base.errors import ConfigError, IotHubError, UnavailableError
from iothub.config.check import Checked
from iothub.config.loader import Loaded
from iothub.config.sections import Config, Listeners, Mqtt, Node, TlsListener
from iothub.hub import reload as reloading
from iothub.hub.monitoring.telemetry import Telemetry
from iothub.hub.phase import Phase
from iothub.hub.reload import Reloader
from iothub.records.admin_commands import Json
from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import AlarmName, Alarms

BAD = ConfigError("iothub.toml, line 3: unknown setting 'mqtt.max_inflght'")
BAD.details = ("iothub.toml, line 4: log.level: expected one of debug, info",)


class Harness:
    """The parts that a reload works with. `wanted`: what the sources say now, or what is wrong with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.phase = Phase()
        self.alarms = Alarms(self.clock)
        self.telemetry = Telemetry(self.alarms)
        self.wanted: Config | IotHubError = Config()
        self.warnings: list[str] = []
        self.certificates: list[str] = []
        self.applied: list[Config] = []
        self.reads = self.looks = 0
        monkeypatch.setattr(reloading, "prepare", self._prepare)
        some = SimpleNamespace
        parts: Any = some(
            process=some(
                phase=self.phase,
                clock=self.clock,
                settings=Config(),
                threads=some(run=self._run),
                data_dir=some(note_reload=lambda: None),
            ),
            monitoring=some(alarms=self.alarms, telemetry=self.telemetry, watch=some(look_at_certificates=self._look)),
            sockets=some(listeners=some(with_certificates=lambda: self.certificates[:])),
            control=some(links=some(has_certificate=False)),
        )
        self.links = parts.control.links
        self.told: list[str] = []
        manager: Any = some(reloading=lambda: self.told.append("reloading"), ready=self.told.append)
        self.reloader = Reloader(parts, self._read, manager)

    async def rows(self, rows: Sequence[Json]) -> None:
        self.answered = list(rows)

    def _prepare(self, _parts: object, new: Config) -> list[Any]:
        return [lambda: self.applied.append(new)]

    async def _run(self, _name: str, read: Any) -> Any:
        return read()

    def _read(self) -> Checked:
        self.reads += 1
        if isinstance(self.wanted, IotHubError):
            raise self.wanted
        return Checked(Loaded(self.wanted, {}, None), self.warnings)

    def _look(self) -> None:
        self.looks += 1


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    made = Harness(monkeypatch)
    made.phase.become_ready()
    return made


def result(work: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine that waits for nobody returns, or raise what it raises."""
    found: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(found.append)
    (answer,) = found
    if hasattr(answer, "raiseException"):
        answer.raiseException()
    return answer


def test_changes_are_applied_or_named(harness: Harness) -> None:
    """What needs a restart keeps its value, and is named each time."""
    harness.wanted = Config(mqtt=Mqtt(max_inflight=7, sys_interval_s=5.0))

    with capture_logs() as lines:
        answer = result(harness.reloader.answer(harness))
        result(harness.reloader.answer(harness))

    assert harness.answered == [{"name": "mqtt.sys_interval", "value": '"5s"', "reload": "restart"}]
    assert answer == {"warnings": [], "certificates": []}
    assert [applied.mqtt for applied in harness.applied] == [Mqtt(max_inflight=7)] * 2
    assert [(line["event"], line.get("applied", line.get("settings"))) for line in lines] == [
        ("configuration reloaded", ["mqtt.max_inflight"]),
        ("changed settings need a restart", ["mqtt.sys_interval"]),
        ("configuration reloaded", []),
        ("changed settings need a restart", ["mqtt.sys_interval"]),
    ]
    assert (harness.telemetry.is_reload_good, harness.telemetry.reloaded_at) == (True, harness.clock.wall())


def test_certificates_are_named_only_where_there_are_any(harness: Harness) -> None:
    """A hub without TLS says nothing of certificates."""
    with capture_logs() as without:
        harness.reloader.signalled()
    harness.certificates = ["tls"]
    with capture_logs() as with_some:
        harness.reloader.signalled()

    harness.links.has_certificate = True
    with capture_logs() as with_links:
        harness.reloader.signalled()

    assert [line["event"] for line in without] == ["configuration reloaded"]
    assert with_links[1]["certificates"] == ["tls", "cluster"]
    assert with_some[1] == {
        "event": "certificates read again; new handshakes use them",
        "certificates": ["tls"],
        "log_level": "info",
        "source": "iothub.hub.reload",
    }


def test_configuration_with_a_mistake_is_refused_as_a_whole(harness: Harness) -> None:
    """Each mistake is in the log, the first in the alarm; a good configuration clears it."""
    harness.wanted = BAD

    with capture_logs() as lines:
        harness.reloader.signalled()

    assert harness.applied == []
    assert [line["mistake"] for line in lines if line["log_level"] == "error"] == [str(BAD), *BAD.details]
    (alarm,) = harness.alarms.active()
    assert (alarm.name, alarm.detail) == (AlarmName.CONFIG_REFUSED, f"{BAD} (and 1 more)")
    assert (harness.telemetry.is_reload_good, harness.telemetry.reloaded_at, harness.looks) == (False, 0.0, 1)

    harness.wanted = Config()
    harness.reloader.signalled()

    assert (harness.alarms.active(), harness.telemetry.is_reload_good) == ([], True)


def test_alarm_of_a_refused_configuration_stays_until_one_is_taken(harness: Harness) -> None:
    """A second refusal is no end of the first: the alarm is raised once, and says what is wrong now."""
    harness.wanted = BAD
    with capture_logs() as lines:
        harness.reloader.signalled()
        harness.clock.advance(60.0)
        harness.wanted = ConfigError("iothub.toml: not valid TOML")
        harness.reloader.signalled()

    assert [line["event"] for line in lines if "alarm" in line["event"]] == ["alarm raised"]
    (alarm,) = harness.alarms.active()
    assert (alarm.detail, alarm.since) == ("iothub.toml: not valid TOML", harness.clock.wall() - 60.0)


def test_service_manager_hears_of_a_reload_and_of_its_end(harness: Harness) -> None:
    """Also of one that is refused: until its end nothing else may be done with the unit."""
    harness.reloader.signalled()
    harness.wanted = BAD
    harness.reloader.signalled()

    refused = "reload refused: the settings are as before, the log says why"
    assert harness.told == ["reloading", "configuration reloaded", "reloading", refused]


def test_refusal_reaches_whoever_asked(harness: Harness) -> None:
    harness.wanted = BAD

    with pytest.raises(ConfigError) as caught:
        result(harness.reloader.answer(harness))

    assert caught.value.details == BAD.details


def test_hub_that_is_not_ready_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start has read the configuration; and whoever asks hears of it."""
    harness = Harness(monkeypatch)

    with capture_logs() as lines:
        harness.reloader.signalled()
    with pytest.raises(UnavailableError, match="the hub is not ready"):
        result(harness.reloader.answer(harness))

    assert (harness.reads, [line["event"] for line in lines]) == (0, ["reload ignored: the hub is not ready"])
    assert harness.told == []  # for whoever starts it, it is still starting


def test_reload_that_a_stop_overtakes_changes_nothing(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are closing when the configuration has been read."""
    harness.wanted = Config(mqtt=Mqtt(max_inflight=7))

    async def run(_name: str, read: Any) -> Any:
        harness.phase.end_ready()
        return read()

    monkeypatch.setattr(harness.reloader._parts.process.threads, "run", run)
    with capture_logs() as lines, pytest.raises(UnavailableError, match="the hub is not ready"):
        result(harness.reloader.answer(harness))

    assert (harness.applied, harness.alarms.active()) == ([], [])
    assert [line["event"] for line in lines] == ["reload ignored: the hub is not ready"]


def test_two_reloads_do_not_overlap(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one reads when the first has been applied."""
    waiting: list[Deferred[None]] = []

    async def run(_name: str, read: Any) -> Any:
        gate: Deferred[None] = Deferred()
        waiting.append(gate)
        await gate
        return read()

    monkeypatch.setattr(harness.reloader._parts.process.threads, "run", run)
    harness.reloader.signalled()
    harness.reloader.signalled()
    assert (len(waiting), harness.reads) == (1, 0)

    waiting[0].callback(None)
    assert (len(waiting), harness.reads, len(harness.applied)) == (2, 1, 1)
    waiting[1].callback(None)

    assert (harness.reads, len(harness.applied)) == (2, 2)


def test_values_are_given_as_they_are_written_in_a_file(harness: Harness) -> None:
    harness.wanted = replace(Config(), node=Node(name="other"), listeners=Listeners(tls=TlsListener(port=8883)))

    result(harness.reloader.answer(harness))

    assert harness.answered == [
        {"name": "node.name", "value": '"other"', "reload": "restart"},
        {"name": "listeners.tls.port", "value": "8883", "reload": "restart"},
    ]
