"""A publisher that lives through a hub's deaths and resends what a client must.

Knows the client's side of QoS 1 and 2 towards the hub; judges the order of acknowledgements and their codes.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from dataclasses import dataclass

from tests.support.clients import packets
from tests.support.clients.ledger import Stream
from tests.support.clients.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Packet
from tests.support.clients.survivor import RETRY_S, Client, Plan, Wire

ID_SPAN = 60  # Packet Identifiers of a publisher


def mark(topic: str, counter: int) -> bytes:
    """How a payload begins: found again in whatever the hub writes."""
    return f"{counter:08d}|{topic}|".encode()


@dataclass
class Outgoing:
    """One PUBLISH that has not been answered to the end."""

    stream: Stream
    counter: int
    is_received: bool = False  # PUBREC seen


class Publisher(Client):
    """Publishes on one topic per QoS at a steady rate and resends as the specification demands [MQTT-4.4.0-1].

    A persistent one resends with the original Packet Identifier and DUP; a transient one has no session to resume, so
    what was not acknowledged is published anew. One that is deaf at times misses answers that were given, and resends
    what the hub has long stored: the hub's memory of inbound QoS 2 is tried by it.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        version: int,
        *,
        is_persistent: bool,
        qualities: tuple[int, ...] = (1, 2),
        rate_per_s: float = 20.0,
        window: int = 20,
        is_retained: bool = False,
        is_deaf_at_times: bool = False,
        size_bytes: int = 200,
    ) -> None:
        super().__init__(plan, name, version, is_persistent=is_persistent)
        self.is_deaf_at_times = is_deaf_at_times
        self.is_deaf = False
        root = "state" if is_retained else "load"
        self.streams = [
            plan.ledger.stream(f"{root}/{name}/q{qos}", qos, is_persistent=is_persistent) for qos in qualities
        ]
        self.rate_per_s = rate_per_s
        self.limit = self.window = window
        self.is_retained = is_retained
        self.size_bytes = size_bytes
        self.open: dict[int, Outgoing] = {}  # by Packet Identifier, oldest first
        self.expected: dict[int, deque[int]] = {PUBACK: deque(), PUBREC: deque()}
        self.last_id = 0
        self.is_up = False

    async def run(self) -> None:
        """Publish until told to stop, then stay until everything is answered."""
        while not self.plan.is_over and (self.plan.is_publishing or self.open):
            if not await self.connect():
                await asyncio.sleep(RETRY_S)
                continue
            assert self.wire is not None
            producing = asyncio.ensure_future(self._produce(self.wire))
            await self.wire.is_lost.wait()
            self.is_up = self.is_deaf = False
            producing.cancel()
            self.wire = None
            await asyncio.sleep(self.plan.random.uniform(0, RETRY_S))

    async def _produce(self, wire: Wire) -> None:
        turn = 0
        while self.plan.is_publishing or self.open:
            if self.plan.is_over:
                break
            await asyncio.sleep(1 / self.rate_per_s)
            if self.plan.is_publishing and self.is_up and len(self.open) < self.limit:
                self._publish(self.streams[turn % len(self.streams)])
                turn += 1
        wire.send(packets.packet(0xE0, b""))
        wire.close(is_abrupt=False)

    def _publish(self, stream: Stream) -> None:
        self.last_id = self._free_id()
        stream.published += 1
        self.open[self.last_id] = Outgoing(stream, stream.published)
        self._send(self.last_id, dup=False)

    def _free_id(self) -> int:
        """Identifiers come again soon: a hub that does not forget a completed one would take the next message for it."""
        found = self.last_id % ID_SPAN + 1
        while found in self.open:
            found = found % ID_SPAN + 1
        return found

    def _send(self, packet_id: int, *, dup: bool) -> None:
        outgoing = self.open[packet_id]
        qos = outgoing.stream.qos
        body = (
            packets.string(outgoing.stream.topic) + struct.pack(">H", packet_id) + (b"\0" if self.version == 5 else b"")
        )
        payload = mark(outgoing.stream.topic, outgoing.counter).ljust(self.size_bytes, b".")
        self.expected[PUBACK if qos == 1 else PUBREC].append(packet_id)
        self.send(packets.packet(0x30 | (8 if dup else 0) | qos << 1 | self.is_retained, body + payload))

    def on_connected(self, connack: Packet) -> None:
        if connack.code:
            return
        self.is_up = True
        announced = connack.property(0x21) if self.version == 5 else None
        self.limit = min(self.window, announced) if isinstance(announced, int) else self.window
        for expected in self.expected.values():
            expected.clear()
        if not self.is_persistent:
            self.open = {key: outgoing for key, outgoing in self.open.items() if not outgoing.is_received}
        for packet_id, outgoing in self.open.items():
            if outgoing.is_received:
                self.answer(PUBREL, packet_id)
            else:
                self._send(packet_id, dup=self.is_persistent)
        if self.is_deaf_at_times and not self.plan.is_draining and self.wire is not None:
            asyncio.get_running_loop().call_later(self.plan.random.uniform(0.2, 3.0), self._turn_deaf, self.wire)

    def _turn_deaf(self, wire: Wire) -> None:
        """Hear nothing more on this connection, and end it some time later."""
        if wire is self.wire:
            self.is_deaf = True
            asyncio.get_running_loop().call_later(self.plan.random.uniform(0.5, 4.0), wire.close, True)

    def on_packet(self, packet: Packet) -> None:
        if self.is_deaf:
            return
        if packet.kind in (PUBACK, PUBREC):
            self._acknowledged(packet)
        elif packet.kind == PUBCOMP:
            outgoing = self.open.pop(packet.packet_id, None)
            if outgoing is None or not outgoing.is_received:
                self.wrong(f"PUBCOMP for {packet.packet_id}, which was not released")
            if packet.code not in (0, 0x92):
                self.wrong(f"PUBCOMP with code {packet.code:#x}")
        else:
            self.wrong(f"unexpected {packet}")

    def _acknowledged(self, packet: Packet) -> None:
        """PUBACK and PUBREC come in the order of the PUBLISHes [MQTT-4.6.0-2, -3]; either means: it is safe."""
        outgoing = self.open.get(packet.packet_id)
        expected = self.expected[packet.kind]
        if outgoing is None or not expected or expected[0] != packet.packet_id:
            self.wrong(f"{packet.kind} for {packet.packet_id}, expected {list(expected)[:3]}")
            return
        expected.popleft()
        if packet.code >= 0x80:
            self.wrong(f"{outgoing.stream.topic} {outgoing.counter} refused with {packet.code:#x}")
            del self.open[packet.packet_id]
            return
        outgoing.stream.acknowledged.add(outgoing.counter)
        if packet.kind == PUBACK:
            del self.open[packet.packet_id]
        else:
            outgoing.is_received = True
            self.answer(PUBREL, packet.packet_id)
