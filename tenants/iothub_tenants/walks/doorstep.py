"""Who has sent CONNECT and has no answer yet: none of them waits for a store longer than clients wait for a CONNACK.

Knows no session and no packet but CONNACK's name: it says who has waited too long. What a walk still does afterwards it does by itself; it
finds its connection closed, and undoes what it has made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from iothub.clock import Clock
from iothub.engine.connection import Connection

SHARE = 0.9  # of the time in which a client must have connected: beyond it the message plane closes without a word


class Waiting(NamedTuple):
    """One CONNECT that waits. `answer` refuses it."""

    deadline: float
    answer: Callable[[], None]


class Doorstep:
    """CONNECTs under way. Invariant: a connection is here only while its walk waits for something of the hub's own."""

    def __init__(self, clock: Clock, connect_timeout_s: float, give_up_s: float) -> None:
        self._clock = clock
        self._patience_s = min(connect_timeout_s * SHARE, give_up_s)
        self._waiting: dict[Connection, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, connection: Connection, answer: Callable[[], None]) -> None:
        """The walk of this connection's CONNECT begins to wait."""
        self._waiting[connection] = Waiting(self._clock.monotonic() + self._patience_s, answer)

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
