"""Connections end with their tokens: in time, in slices, and nothing is kept of those that have gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from iothub.engine.state import Connection
from iothub.testing.clock import ManualClock
from iothub_tenants.broker.token_ends import SLICE, TICK_S, TokenEnds


class Harness:
    """A reactor whose timers fire when time passes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.closed: list[object] = []
        self.ends = TokenEnds(self.clock, self._later, self._close)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.append((self.clock.monotonic() + seconds, call))

    def _close(self, connection: Connection) -> None:
        self.closed.append(connection)
        self.ends.forget(connection)  # as the control plane does when it hears of it

    def connection(self, lasts_s: float) -> Connection:
        made = cast("Connection", Named())
        self.ends.watch(made, self.clock.monotonic() + lasts_s)
        return made

    def fire(self) -> int:
        """Run what is due; returns how many timers were."""
        now = self.clock.monotonic()
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for _, call in due:
            call()
        return len(due)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.clock.advance(TICK_S)
            while self.fire():
                pass


class Named:
    """Stands for a connection."""


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_connection_is_closed_soon_after_its_end_and_not_before(harness: Harness) -> None:
    """Within half a second, each in its turn."""
    first, second = harness.connection(3.1), harness.connection(10.0)

    harness.pass_time(3.0)
    assert harness.closed == []
    harness.pass_time(0.5)
    assert harness.closed == [first]
    harness.pass_time(7.0)
    assert harness.closed == [first, second]
    assert (len(harness.ends), harness.timers) == (0, [])


def test_end_that_is_over_closes_at_once(harness: Harness) -> None:
    """CONNECT took longer than the token was valid; also when the timer runs already, or the moment is long ago."""
    harness.connection(100.0)
    harness.pass_time(5.0)
    late, very_late = harness.connection(-0.1), harness.connection(-1e9)

    harness.pass_time(TICK_S)

    assert set(harness.closed) == {late, very_late}


def test_wall_clock_has_no_say(harness: Harness) -> None:
    """An hour forwards or back."""
    harness.connection(3.0)
    harness.clock.jump_wall(3600)
    harness.pass_time(2.5)
    assert harness.closed == []
    harness.clock.jump_wall(-7200)
    harness.pass_time(1.0)
    assert len(harness.closed) == 1


def test_connection_that_has_gone_leaves_nothing(harness: Harness) -> None:
    """A client that reconnects all day does not fill the memory."""
    for _ in range(1000):
        harness.ends.forget(harness.connection(86_400.0))
    kept = harness.connection(1.0)
    harness.ends.forget(cast("Connection", Named()))

    assert len(harness.ends) == 1
    assert harness.ends._buckets.keys() == {harness.ends._ticks[kept]}
    harness.pass_time(2.0)
    assert harness.closed == [kept]


def test_new_end_replaces_the_old_one(harness: Harness) -> None:
    """Watched again: one place each."""
    connection = harness.connection(1.0)
    harness.ends.watch(connection, harness.clock.monotonic() + 5.0)

    harness.pass_time(4.0)
    assert harness.closed == []
    harness.pass_time(1.5)
    assert harness.closed == [connection]


def test_fleet_that_ends_together_is_closed_in_slices(harness: Harness) -> None:
    """Others get their turn in between, and all is done in the same moment."""
    for _ in range(2 * SLICE + 10):
        harness.connection(1.0)
    harness.clock.advance(1.25)

    counts = []
    while harness.fire():
        counts.append(len(harness.closed))

    assert counts == [SLICE, 2 * SLICE, 2 * SLICE + 10]


def test_nothing_ticks_while_there_is_no_token(harness: Harness) -> None:
    """A hub without tokens pays nothing; after a pause the count goes on from now."""
    assert harness.timers == []
    harness.connection(1.0)
    harness.pass_time(2.0)
    assert harness.timers == []

    harness.clock.advance(1e6)
    later: Any = harness.connection(1.0)
    harness.pass_time(1.5)
    assert harness.closed[-1] is later


def test_hub_that_was_stopped_closes_what_ended_meanwhile(harness: Harness) -> None:
    """SIGSTOP for a day: the first tick finds everything."""
    for hours in range(24):
        harness.connection(3600.0 * hours)
    harness.clock.advance(86_400)
    while harness.fire():
        pass

    assert len(harness.closed) == 24


def test_connection_whose_end_fails_keeps_no_other_open(harness: Harness) -> None:
    """A defect behind the end of one connection must not leave others in with dead tokens."""
    bad, same, later = harness.connection(1.0), harness.connection(1.0), harness.connection(2.0)
    close = harness._close

    def fail(connection: Connection) -> None:
        if connection is bad:
            raise ValueError("defect")
        close(connection)

    harness.ends = TokenEnds(harness.clock, harness._later, fail)
    harness.timers.clear()
    for connection, lasts_s in ((bad, 1.0), (same, 1.0), (later, 2.0)):
        harness.ends.watch(connection, harness.clock.monotonic() + lasts_s)

    with pytest.raises(ValueError, match="defect"):
        harness.pass_time(1.5)
    harness.pass_time(3.0)

    assert set(harness.closed) == {same, later}
    assert len(harness.ends) == 0
