"""A subscriber that lives through a hub's deaths, remembers what a client must, and judges what it gets.

Knows the client's side of QoS 1 and 2 from the hub; what should arrive is the `Ledger`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct

from tests.support.clients import packets
from tests.support.clients.ledger import Receipt
from tests.support.clients.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, Packet
from tests.support.clients.survivor import RETRY_S, Client, Plan, Wire


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
