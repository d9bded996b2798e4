"""A message plane that speaks no MQTT: it echoes, records, and does to its transport what a test asks for.

Knows no sockets; transports are tested against it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from iothub.base.reasons import Reason
from iothub.net.listener_info import ListenerInfo
from iothub.net.ports import Channel, EngineConnection


class EchoTenant:
    """What the poller keeps of a tenant."""

    def __init__(self) -> None:
        self.share: object = None


class EchoConnection:
    """One client of an `EchoPlane`."""

    def __init__(
        self, plane: EchoPlane, transport: Channel, listener: ListenerInfo, peer: str, subject: str | None
    ) -> None:
        self.plane = plane
        self.transport = transport
        self.listener = listener
        self.peer = peer
        self.certificate_subject = subject
        self.out = bytearray()
        self.session: object | None = object() if plane.has_sessions else None
        self.tenant = EchoTenant()
        self.partial: bytearray | None = None
        self.since = time.monotonic()
        self.chunks: list[int] = []
        self.received = 0
        self.lost_for: list[Reason] = []

    def feed(self, data: bytes) -> None:
        self.chunks.append(len(data))
        self.received += len(data)
        self.plane.on_feed(self, data)

    def lost(self, reason: Reason) -> None:
        self.lost_for.append(reason)
        self.plane.on_lost(self)

    def send(self, data: bytes) -> None:
        self.out += data
        self.plane.dirty.append(self)


class EchoPlane:
    """Fulfils `EnginePlane`. `on_feed` and `on_lost` may be replaced."""

    def __init__(self) -> None:
        self.has_sessions = True
        self.is_full = False
        self.connections: list[EchoConnection] = []
        self.dirty: list[EchoConnection] = []
        self.closed: list[tuple[EchoConnection, Reason]] = []
        self.ticks = 0
        self.on_feed: Callable[[EchoConnection, bytes], None] = EchoConnection.send
        self.on_lost: Callable[[EchoConnection], None] = lambda _connection: None

    def accept(
        self, transport: Channel, listener: ListenerInfo, peer: str, subject: str | None
    ) -> EchoConnection | None:
        if self.is_full:
            return None
        connection = EchoConnection(self, transport, listener, peer, subject)
        self.connections.append(connection)
        return connection

    def close(self, connection: EngineConnection, reason: Reason) -> None:
        if isinstance(connection, EchoConnection) and connection not in [closed for closed, _ in self.closed]:
            self.closed.append((connection, reason))
            connection.transport.close()

    def is_routing(self) -> bool:
        return False

    def unwritten(self) -> int:
        return len(self.dirty)

    def end_batch(self) -> None:
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            connection.transport.wake()

    def tick(self) -> None:
        """Like the plane: whoever has not connected in time is closed."""
        self.ticks += 1
        now = time.monotonic()
        for connection in self.connections:
            if connection.session is None and now - connection.since > connection.listener.connect_timeout_s:
                self.close(connection, Reason.CONNECT_TIMEOUT)
