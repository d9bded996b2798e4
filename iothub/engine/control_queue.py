# cython: annotation_typing=False
"""Control packets that wait for the control plane: what it gets in one turn is bounded, and tenants take turns.

Knows no packet's meaning, but that a DISCONNECT does not wait and a CONNECT may be late. A connection has at most one packet here: its
parser stands still until the control plane answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from iothub.engine.ports import Control
from iothub.engine.state import Connection, TenantPlane
from iothub.engine.wire import CONNECT, DISCONNECT

TURN_UNITS = 64  # of work in one turn; one is a packet with a Topic Filter, some 0.1 ms
_UNIT_SHIFT = 4  # every 16 bytes more are another Topic Filter's worth
_CONNECT_SHIFT = 8  # its names and secret are one unit; User Properties take up to 2 ms, and anybody may send them
_WINDOW_S = 0.005  # a turn's allowance also comes back with time

_Packet = tuple[Connection, int, bytes]


class ControlQueue:
    """Passes packets to `control`, at once while the turn's allowance lasts. Invariant: within a tenant they keep their order."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.spent = 0
        self._allowance_until = 0.0
        self._queues: dict[TenantPlane | None, deque[_Packet]] = {}  # the next tenant first

    @property
    def is_empty(self) -> bool:
        return not self._queues

    def put(self, connection: Connection, header: int, body: bytes, now: float) -> None:
        """Pass a packet on, or queue it. A DISCONNECT never waits: its connection may be gone in a moment, and its Will would be sent."""
        if now >= self._allowance_until:
            self._allowance_until = now + _WINDOW_S
            self.spent = 0
        tenant = connection.tenant
        if (self.spent < TURN_UNITS and tenant not in self._queues) or header >> 4 == DISCONNECT:
            self._pass_on(connection, header, body)
        elif tenant in self._queues:
            self._queues[tenant].append((connection, header, body))
        else:
            self._queues[tenant] = deque([(connection, header, body)])

    def serve_next(self) -> bool:
        """Pass on one packet of the next tenant; False: none waits, or the turn's allowance is used up."""
        if not self._queues or self.spent >= TURN_UNITS:
            return False
        tenant = next(iter(self._queues))
        queue = self._queues.pop(tenant)
        connection, header, body = queue.popleft()
        if queue:
            self._queues[tenant] = queue  # after the others
        if not connection.is_closing:
            self._pass_on(connection, header, body)
        return True

    def take_late_connects(self, is_late: Callable[[Connection], bool]) -> list[tuple[Connection, bytes]]:
        """Remove every CONNECT whose connection has waited too long; return connections and bodies. O(CONNECTs that wait)."""
        queue = self._queues.get(None)
        if queue is None:
            return []
        kept: deque[_Packet] = deque()
        late = []
        for packet in queue:
            connection, header, body = packet
            if header >> 4 == CONNECT and is_late(connection):
                late.append((connection, body))
            else:
                kept.append(packet)
        if kept:
            self._queues[None] = kept
        else:
            del self._queues[None]
        return late

    def _pass_on(self, connection: Connection, header: int, body: bytes) -> None:
        self.spent += 1 + (len(body) >> (_CONNECT_SHIFT if header >> 4 == CONNECT else _UNIT_SHIFT))
        self.control.packet(connection, header, body)
