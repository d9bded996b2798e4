"""Control packets in line: what the control plane is handed in one turn is bounded, and tenants take turns.

Knows no packet's meaning but DISCONNECT's haste. A connection has at most one packet here: its parser stands still until it is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from iothub.engine.ports import Control
from iothub.engine.state import Connection

if TYPE_CHECKING:
    from iothub.engine.state import TenantPlane

TURN_UNITS = 64  # of work in one turn; one is a packet with a Topic Filter, some 0.1 ms
_UNIT_SHIFT = 4  # every 16 bytes more are another Topic Filter's worth
_WINDOW_S = 0.005  # a turn's allowance also comes back with time
_CONNECT = 0x10  # with its flags, which are fixed
_DISCONNECT = 14

_Packet = tuple[Connection, int, bytes]


class Desk:
    """Hands packets to `control`, at once while the turn's allowance lasts. Invariant: within a tenant they go in the order in which they came."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.spent = 0
        self._fresh_at = 0.0
        self._lines: dict[TenantPlane | None, deque[_Packet]] = {}  # the next tenant first

    @property
    def is_empty(self) -> bool:
        return not self._lines

    def hand(self, connection: Connection, header: int, body: bytes, now: float) -> None:
        """Hand a packet over, or put it in line. A goodbye never waits: its connection may be gone in a moment."""
        if now >= self._fresh_at:
            self._fresh_at = now + _WINDOW_S
            self.spent = 0
        tenant = connection.tenant
        if (self.spent < TURN_UNITS and tenant not in self._lines) or header >> 4 == _DISCONNECT:
            self._hand(connection, header, body)
        elif tenant in self._lines:
            self._lines[tenant].append((connection, header, body))
        else:
            self._lines[tenant] = deque([(connection, header, body)])

    def serve(self) -> bool:
        """Hand over one packet of the next tenant; False: nobody waits, or the turn's allowance is used up."""
        if not self._lines or self.spent >= TURN_UNITS:
            return False
        tenant = next(iter(self._lines))
        line = self._lines.pop(tenant)
        packet = line.popleft()
        if line:
            self._lines[tenant] = line  # behind the others
        if not packet[0].is_closing:
            self._hand(*packet)
        return True

    def give_up(self, is_late: Callable[[Connection], bool]) -> list[tuple[Connection, bytes]]:
        """Take out of the line, and return with its body, every CONNECT whose connection has waited too long. O(CONNECTs in line)."""
        line = self._lines.get(None)
        if line is None:
            return []
        kept: deque[_Packet] = deque()
        late = []
        for packet in line:
            connection, header, body = packet
            if header == _CONNECT and is_late(connection):
                late.append((connection, body))
            else:
                kept.append(packet)
        if kept:
            self._lines[None] = kept
        else:
            del self._lines[None]
        return late

    def _hand(self, connection: Connection, header: int, body: bytes) -> None:
        self.spent += 1 + (len(body) >> _UNIT_SHIFT)
        self.control.packet(connection, header, body)
