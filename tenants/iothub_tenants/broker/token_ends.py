"""Closes connections when the token that authenticated them ends: within half a second, in slices, at no cost for other connections.

Knows no token and no session: a connection, a moment in monotonic time, and what to do then. Removed keys and deleted devices are handled by
`background/apply_changes.py`.

Theory. Connections are in buckets a quarter of a second wide, so that a million of them need no timer each and a closed one is removed at once.
While there are any, one timer runs; when the tokens of a whole fleet end together, the reactor runs other work between slices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from iothub.base.clock import Clock
from iothub.engine.state import Connection

TICK_S = 0.25
SLICE = 200  # connections closed before the reactor runs other work

Later: TypeAlias = Callable[[float, Callable[[], None]], object]


class TokenEnds:
    """The token ends of one worker; must be used on the reactor thread.

    Invariants: a connection is in at most one bucket; every bucket before `_next` is done; a timer runs while there is any connection.
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
        """Close the connection at this moment (monotonic), or soon if it is past. O(1)."""
        self.forget(connection)
        if not self._is_ticking:
            self._next = self._tick_now()
            self._schedule(TICK_S)
        tick = max(math.ceil(ends_at / TICK_S), self._next)
        self._ticks[connection] = tick
        self._buckets.setdefault(tick, set()).add(connection)

    def forget(self, connection: Connection) -> None:
        """The connection has closed. O(1)."""
        tick = self._ticks.pop(connection, None)
        if tick is None:
            return
        bucket = self._buckets[tick]
        bucket.discard(connection)
        if not bucket:
            del self._buckets[tick]

    def _tick_now(self) -> int:
        return math.floor(self._clock.monotonic() / TICK_S)

    def _schedule(self, seconds: float) -> None:
        self._is_ticking = True
        self._later(seconds, self._tick)

    def _tick(self) -> None:
        self._is_ticking = is_done = False
        try:
            is_done = self._close_due()
        finally:  # whatever closing one connection raises, the others must be closed too
            if self._ticks and not self._is_ticking:
                self._schedule(TICK_S if is_done else 0.0)

    def _close_due(self) -> bool:
        """Close the connections that are due, a slice at most; return whether that was all."""
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
