"""Who has sent CONNECT and has no answer yet: none of them waits for the hub longer than clients wait for a CONNACK.

Knows no session and no packet but CONNACK's name: it says who has waited too long, for a store or in the line before the front desk. What a
walk still does afterwards it does by itself; it finds its connection closed, and undoes what it has made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from iothub.base.clock import Clock
from iothub.engine.plane import Plane
from iothub.engine.state import Connection

MARGIN = 0.1  # of the time in which a client must have connected: at its end the message plane closes without a word
_TICKS_PER_S = 10  # of the message plane's timers

TurnAway = Callable[[Connection, bytes], None]


class Waiting(NamedTuple):
    """One CONNECT that waits. `answer` refuses it."""

    deadline: float
    answer: Callable[[], None]


class Doorstep:
    """CONNECTs under way. Invariant: a connection is here only while its walk waits for something of the hub's own."""

    def __init__(
        self, plane: Plane, clock: Clock, connect_timeout_s: float, give_up_s: float, turn_away: TurnAway
    ) -> None:
        """`turn_away` refuses a CONNECT, given with its body, that nobody has looked at yet."""
        self._plane = plane
        self._clock = clock
        self._margin_s = connect_timeout_s * MARGIN
        self._give_up_s = give_up_s
        self._turn_away = turn_away
        self._waiting: dict[Connection, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, connection: Connection, answer: Callable[[], None]) -> None:
        """The walk of this connection's CONNECT begins to wait."""
        gives_up_at = self._clock.monotonic() + self._give_up_s
        self._waiting[connection] = Waiting(min(gives_up_at, self._latest(connection)), answer)

    def leave(self, connection: Connection) -> None:
        """It is answered, or has gone. Idempotent."""
        self._waiting.pop(connection, None)

    async def look(self) -> None:
        """Refuse those who have waited too long."""
        now = self._clock.monotonic()
        overdue = [(connection, one) for connection, one in self._waiting.items() if one.deadline <= now]
        for connection, one in overdue:
            self.leave(connection)
            one.answer()
        for connection, body in self._plane.control_queue.take_late_connects(
            lambda connection: self._latest(connection) <= now
        ):
            self._turn_away(connection, body)

    def _latest(self, connection: Connection) -> float:
        """When it must have had its answer. The time to connect began when it was accepted, not with its CONNECT."""
        if connection.timer is None:
            return 0.0  # it is closing
        closes_at: float = self._plane.wheel.origin + connection.timer.tick / _TICKS_PER_S
        return closes_at - self._margin_s
