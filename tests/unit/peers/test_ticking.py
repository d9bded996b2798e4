"""When the links of a hub tick."""

from __future__ import annotations

import math

from iothub.peers.ticking import TICK_S, Ticking
from iothub.testing.clock import ManualClock


class Hub:
    """Has `due` to do; its timer is `timers[-1]`, times are since the begin."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.begun = self.clock.boottime()
        self.due = math.inf
        self.ticks: list[float] = []
        self.timers: list[float] = []
        self.ticking = Ticking(self.clock, self._tick, lambda at: self.timers.append(round(at - self.begun, 3)))

    def _tick(self, now: float) -> float:
        self.ticks.append(round(now - self.begun, 3))
        return self.begun + self.due

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 1000)):
            self.clock.advance(0.001)
            if self.clock.boottime() >= self.ticking.at:
                self.ticking.run()


def test_nothing_ticks_before_anything_has_happened() -> None:
    hub = Hub()

    hub.pass_time(1)

    assert (hub.ticks, hub.timers) == ([], [])


def test_whatever_happens_is_followed_by_one_tick() -> None:
    hub = Hub()

    for _ in range(3):
        hub.ticking.changed()
    hub.pass_time(1)

    assert (len(hub.ticks), len(hub.timers)) == (1, 1)
    assert TICK_S <= hub.ticks[0] <= TICK_S + 0.002


def test_next_tick_is_when_the_last_one_said() -> None:
    hub = Hub()
    hub.due = 0.7
    hub.ticking.changed()
    hub.pass_time(0.6)
    assert len(hub.ticks) == 1

    hub.due = 5.0
    hub.pass_time(0.2)

    assert 0.7 <= hub.ticks[1] <= 0.702
    assert hub.timers == [0.02, 0.7, 5.0]


def test_what_happens_before_the_next_tick_is_due_moves_it() -> None:
    hub = Hub()
    hub.due = 0.7
    hub.ticking.changed()
    hub.pass_time(0.1)

    hub.ticking.changed()
    hub.pass_time(0.1)

    assert 0.12 <= hub.ticks[1] <= 0.122


def test_what_happens_right_before_a_tick_does_not_delay_it() -> None:
    hub = Hub()
    hub.due = 0.7
    hub.ticking.changed()
    hub.pass_time(0.69)

    hub.ticking.changed()
    hub.pass_time(0.015)

    assert 0.7 <= hub.ticks[1] <= 0.702


def test_what_is_always_due_is_not_ticked_more_often_than_that() -> None:
    hub = Hub()
    hub.due = -math.inf
    hub.ticking.changed()

    hub.pass_time(1)

    assert 45 <= len(hub.ticks) <= 50


def test_what_a_tick_changes_is_followed_by_a_tick() -> None:
    hub = Hub()
    ticking = Ticking(hub.clock, lambda _now: ticking.changed() or math.inf, hub.timers.append)  # type: ignore[func-returns-value]

    ticking.run()

    assert ticking.at == hub.timers[-1] == hub.clock.boottime() + TICK_S
