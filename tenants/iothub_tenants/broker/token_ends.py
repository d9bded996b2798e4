"""Closes connections when the token that let them in ends: within half a second, in slices, and at no cost for all others.

Knows no token and no session: a connection, a moment in monotonic time, and what to do then. Removed keys and deleted devices are `obey`'s.

Theory. Connections stand in buckets a quarter of a second wide, so that a million of them cost no timer each, and one that leaves is
taken out at once. While there are any, one timer runs; when a whole fleet's tokens end together, others get their turn between slices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from iothub.base.clock import Clock
from iothub.engine.state import Connection

TICK_S = 0.25
SLICE = 200  # connections closed before others get their turn

Later: TypeAlias = Callable[[float, Callable[[], None]], object]


class TokenEnds:
    """All of one worker; must be used on the reactor thread.

    Invariants: a connection is in at most one bucket; every tick before `_next` has been looked at; a timer runs while anything is waited for.
    """

    def __init__(self, clock: Clock, later: Later, close: Callable[[Connection], None]) -> None:
        self._clock = clock
        self._later = later
        self._close = close
        self._ticks: dict[Connection, int] = {}
        self._buckets: dict[int, set[Connection]] = {}
        self._next = 0
        self._is_ticking = False

    def __len__(self) -> int:
        return len(self._ticks)

    def watch(self, connection: Connection, ends_at: float) -> None:
        """Close the connection at this moment (monotonic), or soon if that is over. O(1)."""
        self.forget(connection)
        if not self._is_ticking:
            self._next = self._tick_now()
            self._wait(TICK_S)
        tick = max(math.ceil(ends_at / TICK_S), self._next)
        self._ticks[connection] = tick
        self._buckets.setdefault(tick, set()).add(connection)

    def forget(self, connection: Connection) -> None:
        """The connection has gone. O(1)."""
        tick = self._ticks.pop(connection, None)
        if tick is None:
            return
        bucket = self._buckets[tick]
        bucket.discard(connection)
        if not bucket:
            del self._buckets[tick]

    def _tick_now(self) -> int:
        return math.floor(self._clock.monotonic() / TICK_S)

    def _wait(self, seconds: float) -> None:
        self._is_ticking = True
        self._later(seconds, self._turn)

    def _turn(self) -> None:
        self._is_ticking = is_done = False
        try:
            is_done = self._close_due()
        finally:  # whatever a connection's end brings about: the others' tokens end too
            if self._ticks and not self._is_ticking:
                self._wait(TICK_S if is_done else 0.0)

    def _close_due(self) -> bool:
        """Close who is due, up to a slice; say whether that was all."""
        closed = 0
        now = self._tick_now()
        while self._next <= now:
            bucket = self._buckets.get(self._next)
            if bucket is None:
                self._next += 1
                continue
            if closed == SLICE:
                return False
            connection = next(iter(bucket))
            self.forget(connection)
            self._close(connection)
            closed += 1
        return True
