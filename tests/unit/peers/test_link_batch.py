"""Messages of a turn on their way to a link."""

from __future__ import annotations

from iothub.engine.message import Message
from iothub.engine.routed import encode_routed
from iothub.peers.frames import FrameType
from iothub.peers.link_batch import LinkBatch
from iothub.testing.engine import Bench


class Link:
    """Notes what it is sent."""

    batch_bytes = 1000

    def __init__(self) -> None:
        self.sent: list[tuple[FrameType, bytes]] = []

    def send(self, frame_type: FrameType, body: bytes) -> int:
        self.sent.append((frame_type, body))
        return len(self.sent)

    def is_full(self) -> bool:
        return False

    def is_half_full(self) -> bool:
        return False


class Batch(LinkBatch):
    """Counts how often something else was sent."""

    more = 0

    def flush_more(self) -> None:
        self.more += 1


def test_what_else_waits_for_the_end_of_the_turn_goes_behind_the_messages_once() -> None:
    bench, link = Bench(), Link()
    batch = Batch(bench.plane.turn, link)

    batch.send(bench.tenant, Message(b"t", b""))
    bench.plane.end_batch()
    batch.has_more = True
    batch.send(bench.tenant, Message(b"t", b""))
    bench.plane.end_batch()
    batch.send(bench.tenant, Message(b"t", b""))
    bench.plane.end_batch()

    record = encode_routed(bench.tenant.tenant_id, Message(b"t", b""))
    assert (link.sent, batch.more) == ([(FrameType.PUBLISH, record)] * 3, 1)
