"""A client that lives through a hub's deaths: asyncio over raw packets, apart from the hub's codec.

Knows connections and what a CONNACK may say; what is published and received is its subclasses'. Nothing here raises for the
hub's faults: everything a connection proves or breaks goes into the `Ledger`.
"""

from __future__ import annotations

import asyncio
import random
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass

from tests.support.clients import packets
from tests.support.clients.ledger import Ledger
from tests.support.clients.packets import CONNACK, DISCONNECT, PINGRESP, PUBREL, Packet

USERNAME = "acme/dev1"
RETRY_S = 0.1
CONNACK_TIMEOUT_S = 15.0
KEEP_ALIVE_S = 30
PING_S = 10.0
SESSION_EXPIRY_S = 3600


@dataclass
class Plan:
    """What all clients of one load share."""

    port: int
    ledger: Ledger
    random: random.Random
    is_publishing: bool = True  # False: finish what is under way
    is_draining: bool = False  # True: subscribers stay and answer everything
    is_over: bool = False
    connack_s: float = CONNACK_TIMEOUT_S
    moving: frozenset[int] = (
        frozenset()
    )  # codes of CONNACK and DISCONNECT that send a client to another hub, and are no fault


class Wire(asyncio.Protocol):
    """One connection: bytes to packets and back."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.buffer = b""
        self.is_lost = asyncio.Event()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (taken := self._take()) is not None:
            self.client.packet(taken)

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_lost.set()

    def send(self, data: bytes) -> None:
        if self.transport is not None and not self.is_lost.is_set():
            self.transport.write(data)

    def close(self, is_abrupt: bool) -> None:
        if self.transport is not None:
            if is_abrupt:
                self.transport.abort()
            else:
                self.transport.close()

    def _take(self) -> Packet | None:
        buffer, length, shift = self.buffer, 0, 0
        for index in range(1, min(len(buffer), 5)):
            length |= (buffer[index] & 0x7F) << shift
            shift += 7
            if buffer[index] < 0x80:
                start = index + 1
                if len(buffer) < start + length:
                    return None
                self.buffer = buffer[start + length :]
                return packets.parse(buffer[0], buffer[start : start + length], self.client.version)
        return None


class Client(ABC):
    """One Client Identifier over any number of connections.

    Invariants: `has_session` is None only after a CONNECT without a CONNACK while there was no session.
    """

    def __init__(self, plan: Plan, client_id: str, version: int, *, is_persistent: bool) -> None:
        self.plan = plan
        self.client_id = client_id
        self.version = version
        self.is_persistent = is_persistent
        self.receive_maximum = 65535
        self.has_session: bool | None = False
        self.wire: Wire | None = None
        self.connects = 0
        self._connack: asyncio.Future[Packet] | None = None

    # --- for subclasses

    @abstractmethod
    def on_connected(self, connack: Packet) -> None:
        """A CONNACK came, be it a refusal."""

    @abstractmethod
    def on_packet(self, packet: Packet) -> None:
        """Anything else came but PINGRESP."""

    # --- one connection

    async def connect(self) -> bool:
        """Try once. True: connected, with the session present flag judged."""
        loop = asyncio.get_running_loop()
        self._connack = loop.create_future()
        try:
            _, wire = await loop.create_connection(lambda: Wire(self), "127.0.0.1", self.plan.port)
        except OSError:
            return False
        self.wire = wire
        wire.send(self._connect_bytes())
        lost = asyncio.ensure_future(wire.is_lost.wait())
        await asyncio.wait((lost, self._connack), timeout=self.plan.connack_s, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if not self._connack.done():
            if not wire.is_lost.is_set():
                self.wrong(f"no CONNACK within {self.plan.connack_s:g} s")
            if self.is_persistent and self.has_session is False:
                self.has_session = None
            await self._closed(wire, is_abrupt=True)
            return False
        loop.call_later(PING_S, self._ping, wire)
        return True

    def _ping(self, wire: Wire) -> None:
        if wire is self.wire and not wire.is_lost.is_set():
            wire.send(b"\xc0\0")
            asyncio.get_running_loop().call_later(PING_S, self._ping, wire)

    def packet(self, packet: Packet) -> None:
        if packet.kind == PINGRESP or (packet.kind == DISCONNECT and packet.code in self.plan.moving):
            return
        if packet.kind == CONNACK:
            assert self._connack is not None
            self.connects += 1
            self._judge(packet)
            self._connack.set_result(packet)
            self.on_connected(packet)
        else:
            self.on_packet(packet)

    async def leave(self, *, is_abrupt: bool) -> None:
        wire = self.wire
        if wire is None:
            return
        if not is_abrupt:
            wire.send(packets.packet(0xE0, b""))
        await self._closed(wire, is_abrupt=is_abrupt)

    async def _closed(self, wire: Wire, *, is_abrupt: bool) -> None:
        wire.close(is_abrupt=is_abrupt)
        await wire.is_lost.wait()
        self.wire = None

    def send(self, data: bytes) -> None:
        if self.wire is not None:
            self.wire.send(data)

    def answer(self, kind: int, packet_id: int) -> None:
        self.send(packets.packet(kind << 4 | (2 if kind == PUBREL else 0), struct.pack(">H", packet_id)))

    def wrong(self, what: str) -> None:
        self.plan.ledger.wrong(self.client_id, f"{what} (connection {self.connects})")

    def _judge(self, connack: Packet) -> None:
        if connack.code in self.plan.moving:
            self.has_session = self.has_session or None  # whether the hub has begun one is unknown
            return
        if connack.code:
            self.wrong(f"CONNACK with code {connack.code:#x}")
            return
        if self.has_session is not None and connack.session_present != self.has_session:
            self.wrong(f"session present is {connack.session_present}, expected {self.has_session}")
        self.has_session = self.is_persistent

    def _connect_bytes(self) -> bytes:
        flags = 0xC0 | (0 if self.is_persistent else 2)
        body = packets.string("MQTT") + bytes([self.version, flags]) + struct.pack(">H", KEEP_ALIVE_S)
        if self.version == 5:
            props: list[tuple[int, object]] = [(0x11, SESSION_EXPIRY_S)] if self.is_persistent else []
            if self.receive_maximum != 65535:
                props.append((0x21, self.receive_maximum))
            body += packets.properties(props)
        return packets.packet(
            0x10, body + packets.string(self.client_id) + packets.string(USERNAME) + packets.string("secret")
        )
