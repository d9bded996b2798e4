"""The time that a hub among others goes by, when its clock or another one's is wrong."""

from __future__ import annotations

import pytest

from iothub.peers.cluster_clock import LIMIT_S, ClusterClock, HubClock
from iothub.testing.clock import ManualClock

HOUR_S = 3600.0


class Machines:
    """Machines whose clocks the test sets; each hub knows those of the others as its links tell it. All agree at first, and serve clients.

    `serving`: the numbers of those that do; `gone`: of hubs that nobody hears of.
    """

    def __init__(self, count: int) -> None:
        self.clocks = [ManualClock(monotonic=1000.0 * (number + 1)) for number in range(count)]
        self.hubs = [ClusterClock(clock, clock.boottime) for clock in self.clocks]
        self.serving = set(range(count))
        self.gone: set[int] = set()
        self.true_time = self.clocks[0].wall()
        self.look()

    def start(self, number: int, ahead_s: float = 0.0) -> None:
        """Begin anew, as a hub that does not serve yet, on a machine whose clock is wrong by this."""
        clock = self.clocks[number]
        clock.jump_wall(self.true_time + ahead_s - clock.wall())
        self.hubs[number] = ClusterClock(clock, clock.boottime)
        self.serving.discard(number)
        self.gone.discard(number)

    def look(self) -> None:
        """A second passes, in which every hub hears of the others' clocks."""
        self.true_time += 1.0
        for clock in self.clocks:
            clock.advance(1.0)
        told = [hub.tell() for hub in self.hubs]
        for number, hub in enumerate(self.hubs):
            heard = {
                other: HubClock(said.machine - self._boottime(number), said.goes_by - self._boottime(number))
                for other, said in enumerate(told)
                if other not in {number, *self.gone}
            }
            hub.judge(
                [heard[other] for other in heard if other in self.serving],
                [heard[other] for other in heard if other not in self.serving],
                serves=number in self.serving,
            )

    def tell_third(self, ahead_s: float = 0.0) -> None:
        for number, hub in enumerate(self.hubs):
            hub.note_third(self.true_time + ahead_s - self._boottime(number))

    def _boottime(self, number: int) -> float:
        return self.clocks[number].boottime()

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
    machines.gone.add(1)

    machines.look()

    assert (machines.errors()[0], hub.is_right, hub.has_majority) == (0, False, False)
    assert hub.offset_s == pytest.approx(jump_s)
    clock.jump_wall(-jump_s)
    machines.look()
    assert (machines.errors()[0], hub.is_right, hub.offset_s) == (0, True, 0.0)
    clock.jump_wall(jump_s)
    assert machines.errors()[0] == jump_s


def test_hub_that_starts_with_another_time_than_the_only_other_one_is_wrong_and_changes_nothing_there() -> None:
    machines = Machines(2)
    machines.start(1, HOUR_S)

    machines.look()

    assert machines.errors() == [0, 0]
    assert machines.wrong() == [False, True]
    assert machines.hubs[1].offset_s == pytest.approx(HOUR_S)
    assert not machines.hubs[1].needs_third


@pytest.mark.parametrize("starting", [1, 2, 3])
def test_hubs_that_start_with_the_same_wrong_time_change_nothing_at_one_that_serves(starting: int) -> None:
    """However many they are: what it has acknowledged would expire an hour too early."""
    machines = Machines(1 + starting)
    for number in range(1, 1 + starting):
        machines.start(number, HOUR_S)

    for _ in range(3):
        machines.look()

    assert machines.errors() == [0] * (1 + starting)
    assert machines.wrong() == [False, *[True] * starting]


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_hub_that_starts_goes_by_what_the_serving_hubs_go_by_and_not_by_their_machines(jump_s: float) -> None:
    """The clock of one of the two has jumped; the third one says which, once it serves."""
    machines = Machines(3)
    machines.gone.add(2)
    machines.clocks[0].jump_wall(jump_s)
    machines.look()
    machines.start(2)

    machines.look()
    assert machines.wrong() == [True, True, False]
    machines.serving.add(2)
    machines.look()

    assert machines.wrong() == [True, False, False]
    assert machines.errors() == [0, 0, 0]


def test_of_hubs_that_start_together_most_are_right_whatever_somebody_else_says() -> None:
    """As when a whole room has power again."""
    machines = Machines(3)
    for number in range(3):
        machines.start(number, HOUR_S if number == 2 else 0.0)
    machines.tell_third(HOUR_S)

    machines.look()

    assert machines.wrong() == [False, False, True]
    assert not any(hub.needs_third for hub in machines.hubs)


@pytest.mark.parametrize(("third_s", "wrong"), [(0.0, [False, True]), (HOUR_S, [True, False]), (60.0, [True, True])])
def test_of_two_hubs_that_start_together_a_third_clock_says_which_is_right(third_s: float, wrong: list[bool]) -> None:
    """Nobody's deadlines have changed by then, whoever serves first."""
    machines = Machines(2)
    machines.start(0)
    machines.start(1, HOUR_S)
    machines.look()
    assert machines.wrong() == [True, True]
    assert all(hub.needs_third for hub in machines.hubs)
    machines.tell_third(third_s)

    machines.look()

    assert machines.wrong() == wrong
    machines.serving.update(number for number in range(2) if not wrong[number])
    machines.look()
    assert machines.wrong() == wrong


def test_hub_that_starts_does_not_serve_with_a_wrong_clock_because_the_last_one_that_served_restarts() -> None:
    """The others may come back first."""
    machines = Machines(2)
    machines.start(1, HOUR_S)
    machines.look()
    machines.gone.add(0)

    machines.look()

    assert machines.hubs[1].needs_third
    assert (machines.wrong()[1], machines.errors()[1]) == (True, 0)
    machines.start(0)
    machines.look()
    assert machines.wrong()[1]


def test_hub_that_is_right_by_a_third_clock_serves_after_one_that_was_wrong_has_left() -> None:
    """And keeps its time against others that start with the wrong one."""
    machines = Machines(3)
    machines.start(0, HOUR_S)
    machines.gone.update((1, 2))
    machines.serving = {0}
    machines.look()
    machines.start(1)
    machines.look()
    assert machines.wrong()[:2] == [False, True]
    machines.gone.add(0)
    machines.tell_third()
    machines.look()
    assert machines.wrong()[1] is False

    machines.start(2, HOUR_S)
    machines.start(0, HOUR_S)
    machines.look()

    assert machines.wrong()[1] is False
    machines.serving.add(1)
    machines.look()
    assert machines.wrong() == [True, False, True]
    assert machines.errors() == [0, 0, 0]


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
