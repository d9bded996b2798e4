# cython: annotation_typing=False
"""What the message plane counts: plain integers, one set for the whole plane and one per tenant.

Knows no metric names and no exposition format: an exporter reads the attributes or calls `packets`, `messages` and `drops`.
"""

from __future__ import annotations

from iothub.base.reasons import Drop
from iothub.mqtt.constants import PacketType

_WORDS = {kind: kind.name.lower() for kind in PacketType}


class Counters:
    """One set of counters. The plane's does not count blocks and fan-out; a tenant's does not count turns and packets by type."""

    def __init__(self) -> None:
        self.bytes_received = 0
        self.bytes_sent = 0
        self.publish_received = 0
        self.puback_received = 0
        self.publish_sent = 0
        self.puback_sent = 0
        self.received_0 = 0  # messages accepted from clients, by QoS
        self.received_1 = 0
        self.received_2 = 0
        self.delivered_0 = 0  # messages written to clients, by QoS of the delivery
        self.delivered_1 = 0
        self.delivered_2 = 0
        self.blocks_received = 0  # message equivalents of what was accepted (`iothub.engine.message.blocks`)
        self.blocks_delivered = 0  # and of what was written to clients
        self.fanout = 0  # receivers that messages were routed to, whether they were there or not
        self.turns = 0  # batches ended
        self.others_received = [0] * 16  # packets that are neither PUBLISH nor PUBACK, by packet type
        self.others_sent = [0] * 16
        self.dropped: dict[Drop, int] = {}

    def drop(self, reason: Drop, count: int) -> None:
        """Count messages, or deliveries of one, that were dropped."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def packets_received(self) -> dict[str, int]:
        """Packets received by the name of their type."""
        return self._packets(self.others_received, self.publish_received, self.puback_received)

    def packets_sent(self) -> dict[str, int]:
        """Packets sent by the name of their type."""
        return self._packets(self.others_sent, self.publish_sent, self.puback_sent)

    def messages_received(self) -> tuple[int, int, int]:
        """Messages accepted from clients: QoS 0, 1, 2."""
        return (self.received_0, self.received_1, self.received_2)

    def messages_delivered(self) -> tuple[int, int, int]:
        """Messages written to clients: QoS 0, 1, 2."""
        return (self.delivered_0, self.delivered_1, self.delivered_2)

    def drops(self) -> dict[str, int]:
        """Drops by the label of their reason; every reason is there, zeros too."""
        return {reason.value: self.dropped.get(reason, 0) for reason in Drop}

    def _packets(self, others: list[int], publish: int, puback: int) -> dict[str, int]:
        packets = {word: others[kind] for kind, word in _WORDS.items()}
        packets["publish"] += publish
        packets["puback"] += puback
        return packets
