"""Publishers that wait for memory or for the store, and owe acknowledgements themselves: they are read on, a little at each tick.

Knows no packets: `inbound` takes what it finds behind a blocked PUBLISH. What fills the worker may wait for the PUBACKs of those very clients;
without this neither would ever continue.
"""

from __future__ import annotations

from itertools import chain

from iothub.base.reasons import Reason
from iothub.engine.state import Connection
from iothub.engine.turn import PAUSES_PUBLISHERS, Turn
from iothub.engine.wire import Wire

READ_AHEAD_BYTES = 64 << 10  # behind a blocked PUBLISH; a chunk more at most


class StarvedPublishers:
    """Reads publishers of `turn.starved`, and those that wait for a sink.

    Invariant: a publisher that has sent all it may, and holds memory, is closed when its pause is over.
    """

    def __init__(self, turn: Turn, wire: Wire) -> None:
        self.turn = turn
        self.wire = wire
        self._silent: dict[Connection, float] = {}  # nothing more of them is read, since then

    def read_on(self) -> None:
        """Read a chunk more of each; close those that have kept the worker full for longer than a publisher may be left unread."""
        turn = self.turn
        is_full = turn.overload_level() >= PAUSES_PUBLISHERS
        silent: dict[Connection, float] = {}
        for connection in chain(turn.starved, *turn.before_sinks.values()):
            if connection.is_closing or not _owes(connection):
                continue
            if self._may_read(connection):
                if connection.is_paused:
                    connection.is_paused = False
                    connection.last_seen = turn.now  # keep alive stood still
                    connection.transport.resume()
            elif is_full and connection.tenant is not None:
                since = silent[connection] = self._silent.get(connection, turn.now)
                if turn.now - since > connection.tenant.limits.max_pause_s:
                    turn.close(connection, Reason.OVERLOAD)
        self._silent = silent

    def _may_read(self, connection: Connection) -> bool:
        partial = connection.partial
        if partial is None or connection.is_held_up:
            return not connection.is_held_up
        blocked = self.wire.measure(bytes(partial[:5]), 0, 5, connection.version == 5)
        return len(partial) - blocked < READ_AHEAD_BYTES and len(partial) <= connection.packet_bytes


def _owes(connection: Connection) -> bool:
    """Whether something waits for this client's acknowledgements."""
    session = connection.session
    return session is not None and session.window is not None and session.window.in_flight > 0
