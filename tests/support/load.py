"""Publishers and subscribers that live through a hub's deaths and keep a ledger: asyncio over raw packets, apart from the hub's codec.

Knows the client's side of MQTT sessions (what a client resends, what it remembers) and nothing of the hub's inside.
Everything a connection proves or breaks goes into the `Ledger`; nothing here raises for the hub's faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from tests.support import packets
from tests.support.ledger import Ledger, Receipt, Stream
from tests.support.packets import CONNACK, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, Packet

USERNAME = "acme/dev1"
RETRY_S = 0.1
CONNACK_TIMEOUT_S = 15.0
KEEP_ALIVE_S = 30
PING_S = 10.0
SESSION_EXPIRY_S = 3600
ID_SPAN = 60  # Packet Identifiers of a publisher


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


@dataclass
class Plan:
    """What all clients of one load share."""

    port: int
    ledger: Ledger
    random: random.Random
    is_publishing: bool = True  # False: finish what is under way
    is_draining: bool = False  # True: subscribers stay and answer everything
    is_over: bool = False


def mark(topic: str, counter: int) -> bytes:
    """How a payload begins: found again in whatever the hub writes."""
    return f"{counter:08d}|{topic}|".encode()


class Client:
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

    def on_connected(self, connack: Packet) -> None:
        raise NotImplementedError

    def on_packet(self, packet: Packet) -> None:
        raise NotImplementedError

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
        await asyncio.wait((lost, self._connack), timeout=CONNACK_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if not self._connack.done():
            if not wire.is_lost.is_set():
                self.wrong(f"no CONNACK within {CONNACK_TIMEOUT_S} s")
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
        if packet.kind == PINGRESP:
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


class Subscriber(Client):
    """Receives, answers, remembers what a client must, and judges identifiers, DUP and flow control.

    `open`: Packet Identifiers whose PUBLISH came and that are not complete on our side, with their message.
    `held`: at QoS 2, identifiers that were delivered to the application and wait for PUBREL (method A, §4.3.3).
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        version: int,
        *,
        is_persistent: bool = True,
        filters: tuple[str, ...] = ("load/#",),
        receive_maximum: int = 65535,
        stay_s: tuple[float, float] | None = None,
        is_withholding: bool = False,
    ) -> None:
        super().__init__(plan, name, version, is_persistent=is_persistent)
        self.filters = filters
        self.receive_maximum = receive_maximum
        self.stay_s = stay_s
        self.is_withholding = is_withholding
        prefixes = tuple(topic_filter.removesuffix("#") for topic_filter in filters)
        self.receipt: Receipt = plan.ledger.receipt(name, prefixes, is_durable=is_persistent)
        self.is_subscribed = asyncio.Event()
        self.open: dict[int, tuple[str, int]] = {}
        self.held: set[int] = set()
        self.ids: dict[tuple[str, int], int] = {}  # QoS 2 of persistent publishers: one message, one identifier
        self.here: set[int] = set()  # PUBLISHes of this connection that we have not completed
        self.withheld: tuple[int, ...] = ()

    async def run(self) -> None:
        while not self.plan.is_over:
            if not await self.connect():
                await asyncio.sleep(RETRY_S)
                continue
            assert self.wire is not None
            await self._stay(self.wire)
            self.wire = None
            if not self.plan.is_over:
                await asyncio.sleep(self.plan.random.uniform(0.05, 0.1 if self.stay_s is None else 1.0))

    async def _stay(self, wire: Wire) -> None:
        end = None if self.stay_s is None or self.plan.is_draining else self.plan.random.uniform(*self.stay_s)
        while not wire.is_lost.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wire.is_lost.wait(), 0.1)
            if end is not None:
                end -= 0.1
            is_tired = end is not None and end <= 0 and self.is_subscribed.is_set()
            is_stuck = self.plan.is_draining and bool(self.withheld)
            if self.plan.is_over or is_tired or is_stuck:
                await self.leave(is_abrupt=self.plan.random.random() < 0.5)
                return

    def on_connected(self, connack: Packet) -> None:
        if connack.code:
            return
        self.here = set()
        choices = ((PUBREC, PUBACK), (PUBCOMP,), ())
        is_free = not self.is_withholding or self.plan.is_draining
        self.withheld = () if is_free else self.plan.random.choice(choices)
        if not self.is_persistent:
            self.open, self.held, self.ids = {}, set(), {}
            self.receipt.got.clear()
        if not connack.session_present:
            body = struct.pack(">H", 1) + (b"\0" if self.version == 5 else b"")
            self.send(packets.packet(0x82, body + b"".join(packets.string(one) + b"\x02" for one in self.filters)))

    def on_packet(self, packet: Packet) -> None:
        if packet.kind == PUBLISH:
            self._published(packet)
        elif packet.kind == PUBREL:
            self._released(packet.packet_id)
        elif packet.kind == SUBACK:
            if packet.codes != [2] * len(self.filters):
                self.wrong(f"SUBACK {packet.codes}")
            self.is_subscribed.set()
        else:
            self.wrong(f"unexpected {packet}")

    def _published(self, packet: Packet) -> None:
        message = (packet.topic, int(packet.payload.split(b"|", 1)[0]))
        packet_id = packet.packet_id
        self._judge_publish(packet, message)
        self.here.add(packet_id)
        if len(self.here) > self.receive_maximum:
            self.wrong(f"{len(self.here)} in flight, Receive Maximum is {self.receive_maximum} [MQTT-3.3.4-9]")
        if packet_id not in self.held:
            self.receipt.got[packet.topic].append(message[1])
        self.open[packet_id] = message
        if packet.qos == 2:
            self.held.add(packet_id)
            self._reply(PUBREC, packet_id)
        else:
            self._reply(PUBACK, packet_id)

    def _judge_publish(self, packet: Packet, message: tuple[str, int]) -> None:
        """A resend has DUP and the original identifier [MQTT-3.3.1-1] [MQTT-4.4.0-1]."""
        if packet.packet_id in self.here:
            self.wrong(f"{packet.packet_id} used or sent twice on one connection")
        earlier = self.open.get(packet.packet_id)
        if earlier is not None and earlier != message:
            self.wrong(f"{packet.packet_id} carries {message}, but {earlier} is not complete")
        if earlier == message and not packet.dup:
            self.wrong(f"{message} resent as {packet.packet_id} without DUP")
        stream = self.plan.ledger.streams.get(packet.topic)
        if packet.qos == 2 and stream is not None and stream.is_persistent:
            original = self.ids.setdefault(message, packet.packet_id)
            if original != packet.packet_id:
                self.wrong(f"{message} resent as {packet.packet_id}, was {original}")

    def _released(self, packet_id: int) -> None:
        self.held.discard(packet_id)
        self._reply(PUBCOMP, packet_id)

    def _reply(self, kind: int, packet_id: int) -> None:
        if kind in self.withheld:
            return
        self.answer(kind, packet_id)
        if kind in (PUBACK, PUBCOMP):
            self.open.pop(packet_id, None)
            self.here.discard(packet_id)


async def settle(ready: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until `ready()`, at most this long."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not ready():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def drained(ledger: Ledger, subscribers: list[Subscriber], timeout_s: float) -> bool:
    """Wait until nothing acknowledged is missing and deliveries have stood still for a second.

    What was published and not acknowledged may still come, hence the standstill.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    still, last = 0.0, -1
    while asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.25)
        still = still + 0.25 if ledger.delivered == last else 0.0
        last = ledger.delivered
        if still >= 1.0 and not ledger.missing() and not any(one.held for one in subscribers if one.is_persistent):
            return True
    return False


def spawn(*coroutines: Coroutine[None, None, None]) -> list[asyncio.Task[None]]:
    return [asyncio.ensure_future(coroutine) for coroutine in coroutines]
