"""SIGHUP: certificates are read again, and one that cannot be used is an alarm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from iothub.base.errors import ConfigError
from iothub.hub.phase import Phase
from iothub.hub.reload import reload
from iothub.hub.telemetry import Telemetry
from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import AlarmName, Alarms


class Hub:
    """The parts that a reload works with; `error`: why the certificates cannot be used."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.phase = Phase()
        self.alarms = Alarms(self.clock)
        self.telemetry = Telemetry(self.alarms)
        self.error: ConfigError | None = None
        self.reads = self.looks = 0
        some = SimpleNamespace
        self.parts: Any = some(
            process=some(phase=self.phase, clock=self.clock),
            monitoring=some(alarms=self.alarms, telemetry=self.telemetry, watch=some(look_at_certificates=self.look)),
            sockets=some(listeners=some(reload=self.read)),
        )

    def read(self) -> None:
        self.reads += 1
        if self.error is not None:
            raise self.error

    def look(self) -> None:
        self.looks += 1


def test_certificates_are_read_once_the_hub_is_ready() -> None:
    hub = Hub()
    reload(hub.parts)
    assert hub.reads == 0

    hub.phase.become_ready()
    reload(hub.parts)

    assert (hub.reads, hub.looks, hub.telemetry.reloaded_at) == (1, 1, hub.clock.wall())


def test_certificate_that_cannot_be_used_is_an_alarm_until_one_can() -> None:
    hub = Hub()
    hub.phase.become_ready()
    hub.error = ConfigError("tls.pem: no certificate")

    reload(hub.parts)
    (alarm,) = hub.alarms.active()
    assert (alarm.name, alarm.subject, alarm.detail) == (AlarmName.CERTIFICATE_BAD, "reload", "tls.pem: no certificate")
    assert (hub.telemetry.is_reload_good, hub.looks) == (False, 0)
    hub.error = None
    reload(hub.parts)

    assert (list(hub.alarms.active()), hub.telemetry.is_reload_good, hub.looks) == ([], True, 1)
