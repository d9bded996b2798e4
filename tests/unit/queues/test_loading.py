"""Records of a page become deliveries; a damaged one is named."""

from __future__ import annotations

import pytest

from iothub.engine.outbox import RETAIN_FLAG, SHARED_FLAG
from iothub.records.message import encode_fields
from iothub_services.queues.loading import deliveries_of
from iothub_services.queues.port import Damaged, QueuedRecord

BODY = encode_fields(b"a/b", b"hi", 1, False, b"", 0, b"i" * 16, "pub")


@pytest.mark.parametrize(
    ("flags", "is_retained", "is_shared"),
    [
        (0, False, False),
        (RETAIN_FLAG, True, False),
        (SHARED_FLAG, False, True),
        (RETAIN_FLAG | SHARED_FLAG, True, True),
    ],
)
def test_record_becomes_a_delivery(flags: int, is_retained: bool, is_shared: bool) -> None:
    damaged: list[Damaged] = []
    (delivery,) = deliveries_of([QueuedRecord(1 << 40, 2, flags, (5, 1 << 31), 0, BODY)], damaged)

    assert (delivery.position, delivery.qos, delivery.identifiers) == (1 << 40, 2, (5, 1 << 31))
    assert (delivery.retain, delivery.is_shared, delivery.group) == (is_retained, is_shared, None)
    assert (delivery.message.topic, delivery.message.payload, delivery.message.message_id) == (b"a/b", b"hi", b"i" * 16)
    assert damaged == []


def test_damaged_record_is_named_beside_what_the_store_has_named() -> None:
    damaged = [Damaged(1, "lost")]
    records = [QueuedRecord(2, 1, 0, (), 0, BODY[:-1]), QueuedRecord(3, 1, 0, (), 0, BODY)]

    assert [each.position for each in deliveries_of(records, damaged)] == [3]
    assert damaged == [Damaged(1, "lost"), Damaged(2, "damaged message: the checksum differs")]
