"""The watch over disk, memory, certificates and ticks: alarms begin at their level and end with some relief."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.sections import AlarmLevels
from iothub_services.metrics.alarms import Alarms
from iothub_services.metrics.watch import (
    CALM_S,
    CERTIFICATE_INTERVAL_S,
    LATE_TICKS,
    LATE_WINDOW_S,
    VERY_LATE_S,
    Probes,
    Watch,
)

GIB = 1 << 30


class World:
    """A machine whose figures the test decides."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.memory = 0
        self.disk: int | None = 10 * GIB
        self.is_read_only = False
        self.end: float | None = 1000.0 + 90 * 86400
        self.alarms = Alarms(self)
        probes = Probes(lambda: self.memory, self._disk, self._end, lambda _path: self.is_read_only)
        files = {"tls": Path("cert.pem")}
        self.watch = Watch(self.alarms, AlarmLevels(), GIB, Path("/data"), files, self, probes)

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def raised(self) -> set[str]:
        return {alarm.name.word for alarm in self.alarms.active()}

    def _disk(self, _path: Path) -> int:
        if self.disk is None:
            raise OSError(2, "No such file or directory")
        return self.disk

    def _end(self, _path: Path) -> float:
        if self.end is None:
            raise ValueError("no certificate")
        return self.end


@pytest.fixture
def world() -> World:
    return World()


def test_healthy_machine_raises_nothing(world: World) -> None:
    world.watch.sample()
    world.watch.ticked(0.001)

    assert world.raised() == set()
    assert world.watch.disk_free_bytes == 10 * GIB
    assert world.watch.certificate_ends == {"tls": world.end}


def test_disk_without_room_to_speak_of_is_full_before_somebody_writes(world: World) -> None:
    """An idle hub knows it too."""
    world.disk = (1 << 20) - 1
    world.watch.sample()
    assert world.raised() == {"disk_low", "disk_full"}
    assert world.watch.no_writes == "the disk is full"

    world.disk = 10 * GIB
    world.watch.sample()

    assert (world.raised(), world.watch.no_writes) == (set(), "")


def test_file_system_that_became_read_only_is_an_alarm(world: World) -> None:
    """That is what a kernel does when a disk fails."""
    world.is_read_only = True
    world.watch.sample()
    assert world.raised() == {"store_failed"}
    assert "read-only" in world.watch.no_writes

    world.is_read_only = False
    world.watch.sample()

    assert (world.raised(), world.watch.no_writes) == (set(), "")


def test_data_directory_that_is_gone_takes_no_writes(world: World) -> None:
    world.disk = None
    world.watch.sample()

    assert "/data" in world.watch.no_writes


def test_low_disk_is_raised_and_cleared_with_relief(world: World) -> None:
    world.disk = GIB - 1
    world.watch.sample()
    assert world.raised() == {"disk_low"}
    assert [alarm.detail for alarm in world.alarms.active()] == ["1024.0 MiB free"]

    world.disk = GIB + 1
    world.watch.sample()
    assert world.raised() == {"disk_low"}

    world.disk = 2 * GIB
    world.watch.sample()
    assert world.raised() == set()


def test_data_directory_that_is_gone_is_an_alarm(world: World) -> None:
    world.disk = None

    world.watch.sample()

    assert world.raised() == {"disk_low"}


def test_memory_warns_then_refuses_then_recovers(world: World) -> None:
    world.memory = int(0.8 * GIB)
    world.watch.sample()
    assert (world.raised(), world.watch.is_overloaded) == ({"memory_high"}, False)

    world.memory = GIB
    world.watch.sample()
    assert (world.raised(), world.watch.is_overloaded) == ({"memory_high", "overload"}, True)

    world.memory = int(0.95 * GIB)
    world.watch.sample()
    assert world.watch.is_overloaded

    world.memory = int(0.5 * GIB)
    world.watch.sample()
    assert (world.raised(), world.watch.is_overloaded) == (set(), False)


def test_one_late_tick_is_no_alarm(world: World) -> None:
    """A pause of 0.4 s happens once in a while; nobody should be called for it."""
    world.watch.ticked(0.4)

    assert (world.raised(), world.watch.lag_s) == (set(), 0.4)


def test_late_ticks_far_apart_are_no_alarm(world: World) -> None:
    for _ in range(10):
        world.watch.ticked(0.4)
        world.now += LATE_WINDOW_S / 2

    assert world.raised() == set()


def test_lag_that_lasts_is_an_alarm_until_ticks_have_been_in_time_for_a_while(world: World) -> None:
    for _ in range(LATE_TICKS):
        world.now += 1.0
        world.watch.ticked(0.3)
    assert world.raised() == {"reactor_lag"}

    world.watch.ticked(-0.01)
    assert (world.raised(), world.watch.lag_s) == ({"reactor_lag"}, 0.0)

    world.now += CALM_S
    world.watch.ticked(0.0)
    assert world.raised() == set()


def test_one_tick_that_is_late_by_seconds_is_an_alarm(world: World) -> None:
    world.watch.ticked(VERY_LATE_S)

    assert world.raised() == {"reactor_lag"}


def test_late_tick_in_a_calm_time_begins_the_calm_time_anew(world: World) -> None:
    world.watch.ticked(VERY_LATE_S)
    world.now += CALM_S - 1
    world.watch.ticked(0.3)
    world.now += 1
    world.watch.ticked(0.0)
    assert world.raised() == {"reactor_lag"}

    world.now += CALM_S
    world.watch.ticked(0.0)
    assert world.raised() == set()


def test_certificate_that_ends_soon_is_reported_once_an_hour(world: World) -> None:
    world.end = world.now + 10 * 86400
    world.watch.sample()
    assert world.raised() == {"certificate_expiring"}

    world.end = world.now + 90 * 86400
    world.watch.sample()
    assert world.raised() == {"certificate_expiring"}

    world.now += CERTIFICATE_INTERVAL_S
    world.watch.sample()
    assert world.raised() == set()


@pytest.mark.parametrize(("days", "text"), [(10, "expires in 10 days"), (-3, "expired 3 days ago")])
def test_alarm_says_when_a_certificate_expires_or_did(world: World, days: int, text: str) -> None:
    world.end = world.now + days * 86400

    world.watch.sample()

    assert [alarm.detail for alarm in world.alarms.active()] == [f"cert.pem {text}"]


def test_certificate_that_cannot_be_read_is_an_alarm(world: World) -> None:
    world.end = None

    world.watch.sample()

    assert world.raised() == {"certificate_bad"}


def test_limit_below_what_the_hub_itself_uses_is_refused(world: World) -> None:
    """Nobody would ever get in: it says what is used, and what to change."""
    world.memory = GIB - 1
    world.watch.require_room()

    world.memory = GIB + 1
    with pytest.raises(ConfigError) as caught:
        world.watch.require_room()

    assert str(caught.value) == (
        "overload.memory_limit: 1GiB, but the hub uses 1025MiB before the first client, so nobody could connect: "
        "set it well above that"
    )
    assert world.raised() == set()
