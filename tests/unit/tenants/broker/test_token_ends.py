"""Connections end with their tokens: in time, in slices, and nothing is kept of those that have gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from iothub.engine.state import Connection
from iothub.testing.clock import ManualClock
from iothub_tenants.broker.token_ends import SLICE, TICK_S, TokenEnds


class Desk:
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
def desk() -> Desk:
    return Desk()


def test_connection_is_closed_soon_after_its_end_and_not_before(desk: Desk) -> None:
    """Within half a second, each in its turn."""
    first, second = desk.connection(3.1), desk.connection(10.0)

    desk.pass_time(3.0)
    assert desk.closed == []
    desk.pass_time(0.5)
    assert desk.closed == [first]
    desk.pass_time(7.0)
    assert desk.closed == [first, second]
    assert (len(desk.ends), desk.timers) == (0, [])


def test_end_that_is_over_is_obeyed_at_once(desk: Desk) -> None:
    """CONNECT took longer than the token was valid; also when the timer runs already, or the moment is long ago."""
    desk.connection(100.0)
    desk.pass_time(5.0)
    late, very_late = desk.connection(-0.1), desk.connection(-1e9)

    desk.pass_time(TICK_S)

    assert set(desk.closed) == {late, very_late}


def test_wall_clock_has_no_say(desk: Desk) -> None:
    """An hour forwards or back."""
    desk.connection(3.0)
    desk.clock.jump_wall(3600)
    desk.pass_time(2.5)
    assert desk.closed == []
    desk.clock.jump_wall(-7200)
    desk.pass_time(1.0)
    assert len(desk.closed) == 1


def test_connection_that_has_gone_leaves_nothing(desk: Desk) -> None:
    """A client that reconnects all day does not fill the memory."""
    for _ in range(1000):
        desk.ends.forget(desk.connection(86_400.0))
    kept = desk.connection(1.0)
    desk.ends.forget(cast("Connection", Named()))

    assert len(desk.ends) == 1
    assert desk.ends._buckets.keys() == {desk.ends._ticks[kept]}
    desk.pass_time(2.0)
    assert desk.closed == [kept]


def test_new_end_replaces_the_old_one(desk: Desk) -> None:
    """Watched again: one place each."""
    connection = desk.connection(1.0)
    desk.ends.watch(connection, desk.clock.monotonic() + 5.0)

    desk.pass_time(4.0)
    assert desk.closed == []
    desk.pass_time(1.5)
    assert desk.closed == [connection]


def test_fleet_that_ends_together_is_closed_in_slices(desk: Desk) -> None:
    """Others get their turn in between, and all is done in the same moment."""
    for _ in range(2 * SLICE + 10):
        desk.connection(1.0)
    desk.clock.advance(1.25)

    counts = []
    while desk.fire():
        counts.append(len(desk.closed))

    assert counts == [SLICE, 2 * SLICE, 2 * SLICE + 10]


def test_nothing_ticks_while_there_is_no_token(desk: Desk) -> None:
    """A hub without tokens pays nothing; after a pause the count goes on from now."""
    assert desk.timers == []
    desk.connection(1.0)
    desk.pass_time(2.0)
    assert desk.timers == []

    desk.clock.advance(1e6)
    later: Any = desk.connection(1.0)
    desk.pass_time(1.5)
    assert desk.closed[-1] is later


def test_hub_that_was_stopped_closes_what_ended_meanwhile(desk: Desk) -> None:
    """SIGSTOP for a day: the first tick finds everything."""
    for hours in range(24):
        desk.connection(3600.0 * hours)
    desk.clock.advance(86_400)
    while desk.fire():
        pass

    assert len(desk.closed) == 24


def test_connection_whose_end_fails_keeps_no_other_open(desk: Desk) -> None:
    """A defect behind the end of one connection must not leave others in with dead tokens."""
    bad, same, later = desk.connection(1.0), desk.connection(1.0), desk.connection(2.0)
    close = desk._close

    def fail(connection: Connection) -> None:
        if connection is bad:
            raise ValueError("defect")
        close(connection)

    desk.ends = TokenEnds(desk.clock, desk._later, fail)
    desk.timers.clear()
    for connection, lasts_s in ((bad, 1.0), (same, 1.0), (later, 2.0)):
        desk.ends.watch(connection, desk.clock.monotonic() + lasts_s)

    with pytest.raises(ValueError, match="defect"):
        desk.pass_time(1.5)
    desk.pass_time(3.0)

    assert set(desk.closed) == {same, later}
    assert len(desk.ends) == 0
