"""The time that a hub among others goes by, when its clock or another one's is wrong."""

from __future__ import annotations

import pytest

from iothub.peers.cluster_clock import LIMIT_S, ClusterClock
from iothub.testing.clock import ManualClock

HOUR_S = 3600.0


class Machines:
    """Machines whose clocks the test sets; each hub knows those of the others as its links tell it. All agree at first."""

    def __init__(self, count: int) -> None:
        self.clocks = [ManualClock(monotonic=1000.0 * (number + 1)) for number in range(count)]
        self.hubs = [ClusterClock(clock, clock.boottime) for clock in self.clocks]
        self.true_time = self.clocks[0].wall()
        self.look()

    def look(self) -> None:
        """A second passes, in which every hub hears of the others' clocks."""
        self.true_time += 1.0
        for clock in self.clocks:
            clock.advance(1.0)
        for own, hub in zip(self.clocks, self.hubs, strict=True):
            hub.judge([other.wall() - own.boottime() for other in self.clocks if other is not own])

    def errors(self) -> list[float]:
        """How far each hub's time is ahead of the true one."""
        return [round(hub.wall() - self.true_time) for hub in self.hubs]

    def wrong(self) -> list[bool]:
        return [not hub.is_right for hub in self.hubs]


def test_without_other_hubs_it_is_the_machines_clock() -> None:
    machines = Machines(1)

    machines.clocks[0].jump_wall(HOUR_S)

    assert machines.errors() == [HOUR_S]
    machines.look()
    assert (machines.errors(), machines.wrong(), machines.hubs[0].offset_s) == ([HOUR_S], [False], 0.0)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("count", [3, 4, 5])
def test_hub_whose_clock_jumps_goes_on_by_the_time_of_the_others(count: int, jump_s: float) -> None:
    """Before any hub has looked, too."""
    machines = Machines(count)

    machines.clocks[0].jump_wall(jump_s)

    assert machines.errors() == [0] * count
    machines.look()
    assert machines.errors() == [0] * count
    assert machines.wrong() == [True, *[False] * (count - 1)]
    assert machines.hubs[0].offset_s == pytest.approx(jump_s)
    machines.clocks[0].jump_wall(-jump_s)
    machines.look()
    assert (machines.errors(), machines.wrong()) == ([0] * count, [False] * count)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_of_two_hubs_neither_follows_the_clock_that_jumps(jump_s: float) -> None:
    """Which of the two clocks is wrong cannot be known: time goes on as it was when they agreed."""
    machines = Machines(2)

    machines.clocks[0].jump_wall(jump_s)

    for _ in range(3):
        machines.look()
        assert (machines.errors(), machines.wrong()) == ([0, 0], [True, True])
    assert [hub.offset_s for hub in machines.hubs] == pytest.approx([jump_s, -jump_s])
    assert not machines.hubs[0].has_majority


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_hub_whose_clock_is_wrong_keeps_the_time_when_the_other_one_leaves(jump_s: float) -> None:
    """Or a restart of the other one would end whatever has its deadline within an hour. Once its clock is right, it is the machine's."""
    machines = Machines(2)
    clock, hub = machines.clocks[0], machines.hubs[0]
    clock.jump_wall(jump_s)
    machines.look()

    hub.judge([])

    assert (machines.errors()[0], hub.is_right, hub.has_majority) == (0, False, False)
    assert hub.offset_s == pytest.approx(jump_s)
    clock.jump_wall(-jump_s)
    hub.judge([])
    assert (machines.errors()[0], hub.is_right, hub.offset_s) == (0, True, 0.0)
    clock.jump_wall(jump_s)
    assert machines.errors()[0] == jump_s


def test_hub_that_starts_with_another_time_than_the_only_other_one_is_wrong_and_changes_nothing_there() -> None:
    machines = Machines(2)
    machines.hubs[1] = ClusterClock(machines.clocks[1], machines.clocks[1].boottime)
    machines.clocks[1].jump_wall(HOUR_S)

    machines.look()

    assert machines.errors() == [0, HOUR_S]
    assert machines.wrong() == [True, True]


def test_clocks_of_all_machines_that_are_corrected_are_followed() -> None:
    """One after the other: those that are corrected first wait for most of the others."""
    machines = Machines(3)

    errors = []
    for clock in machines.clocks:
        clock.jump_wall(60.0)
        machines.look()
        errors.append(machines.errors())

    assert errors == [[0, 0, 0], [60, 60, 60], [60, 60, 60]]
    assert machines.wrong() == [False] * 3


def test_clock_that_drifts_is_followed_as_far_as_the_limit() -> None:
    machines = Machines(3)

    worst = 0.0
    for _ in range(100):
        machines.clocks[0].jump_wall(0.1)
        machines.look()
        worst = max(worst, machines.hubs[0].wall() - machines.true_time)

    assert worst == pytest.approx(LIMIT_S, abs=0.2)
    assert machines.errors() == [0, 0, 0]
    assert machines.wrong() == [True, False, False]


def test_monotonic_is_the_machines() -> None:
    clock = ManualClock()

    assert ClusterClock(clock, clock.boottime).monotonic() == clock.monotonic()
