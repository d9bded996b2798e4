"""Rejects a CONNECT that the hub has not answered in time, before the client gives up by itself.

Knows no session and no packet: it finds the connections that have waited too long, for a store or in the control queue, and calls what rejects
them. The packet handler of such a CONNECT runs on; it finds its connection closed and undoes what it has made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from iothub.base.clock import Clock
from iothub.engine.plane import Plane
from iothub.engine.state import Connection

MARGIN = 0.1  # of the connect timeout: when all of it is over, the message plane closes without a CONNACK
_TICKS_PER_S = 10  # of the message plane's timers

Reject = Callable[[Connection, bytes], None]


class Waiting(NamedTuple):
    """One CONNECT that waits. `reject` answers it."""

    deadline: float
    reject: Callable[[], None]


class ConnectTimeouts:
    """The CONNECTs that are not answered yet. Invariant: a connection is here only while its packet handler waits."""

    def __init__(self, plane: Plane, clock: Clock, give_up_s: float, reject_overload: Reject) -> None:
        """`reject_overload` rejects a CONNECT, given with its body, that is still in the control queue."""
        self._plane = plane
        self._clock = clock
        self._give_up_s = give_up_s
        self._reject_unread = reject_overload
        self._waiting: dict[Connection, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def watch(self, connection: Connection, reject: Callable[[], None]) -> None:
        """The packet handler of this connection's CONNECT begins to wait."""
        gives_up_at = self._clock.monotonic() + self._give_up_s
        self._waiting[connection] = Waiting(min(gives_up_at, self._latest(connection)), reject)

    def forget(self, connection: Connection) -> None:
        """The CONNECT is answered, or its connection has closed. Idempotent."""
        self._waiting.pop(connection, None)

    async def reject_overdue(self) -> None:
        """Reject the CONNECTs that have waited too long."""
        now = self._clock.monotonic()
        overdue = [(connection, waiting) for connection, waiting in self._waiting.items() if waiting.deadline <= now]
        for connection, waiting in overdue:
            self.forget(connection)
            waiting.reject()
        for connection, body in self._plane.control_queue.take_late_connects(
            lambda connection: self._latest(connection) <= now
        ):
            self._reject_unread(connection, body)

    def _latest(self, connection: Connection) -> float:
        """Return when it must be answered. The connect timeout runs from `accept`, not from the CONNECT."""
        if connection.timer is None:
            return 0.0  # it is closing
        closes_at: float = self._plane.wheel.origin + connection.timer.tick / _TICKS_PER_S
        return closes_at - self._plane.limits.connect_timeout_s * MARGIN
