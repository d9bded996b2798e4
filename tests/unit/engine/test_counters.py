"""Counters by the names that metrics use."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Drop, Reason
from iothub.engine.counters import Counters
from iothub.engine.limits import TenantLimits
from iothub.engine.message import Message, blocks
from iothub.testing.engine import Bench, ack, publish


def test_counters_name_every_packet_type_and_every_drop() -> None:
    """Known label sets are complete, zeros too."""
    counters = Counters()
    counters.drop(Drop.QUOTA, 3)

    assert len(counters.packets_received()) == len(counters.packets_sent()) == 15
    assert counters.drops()["quota"] == 3
    assert set(counters.drops()) == {reason.value for reason in Drop}


def test_counters_count_what_passes() -> None:
    """Packets, messages and bytes of both directions, for the plane and for the tenant."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a", 2)
    publisher = bench.client("p")

    publisher.send(publish(b"a", b"x") + publish(b"a", b"x", 1, 1) + publish(b"a", b"x", 2, 2) + ack(0x62, 2))
    subscriber.send(ack(0x40, 1) + ack(0x50, 2) + ack(0x70, 2))

    plane = bench.plane.counters
    assert plane.messages_received() == bench.tenant.counters.messages_received() == (1, 1, 1)
    assert plane.messages_delivered() == bench.tenant.counters.messages_delivered() == (1, 1, 1)
    received = plane.packets_received()
    sent = plane.packets_sent()
    assert [received[word] for word in ("publish", "puback", "pubrec", "pubrel", "pubcomp")] == [3, 1, 1, 1, 1]
    assert [sent[word] for word in ("connack", "publish", "puback", "pubrec", "pubrel", "pubcomp")] == [
        2,
        3,
        1,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize(("payload", "expected"), [(0, 1), (4095, 1), (4096, 2), (9_000, 3)])
def test_blocks_are_counted_by_the_size_of_the_message(payload: int, expected: int) -> None:
    """Topic Name (one byte here), payload and properties; each block of 4 KiB that was begun."""
    bench = Bench()
    bench.client("s").subscribe(b"a", 0)

    bench.client("p").send(publish(b"a", b"x" * payload))

    counters = bench.tenant.counters
    assert (counters.blocks_received, counters.blocks_delivered) == (expected, expected)
    assert blocks(Message(b"a", b"x" * payload)) == expected


def test_fanout_counts_receivers_whether_they_are_there_or_not() -> None:
    """Two who are connected, one whose queue gets it; a message for nobody counts nothing."""
    bench = Bench()
    away = bench.client("away", queue_id=7)
    away.subscribe(b"a", 1)
    bench.settle()
    bench.plane.close(away.connection, Reason.NETWORK)
    bench.client("s").subscribe(b"a", 0)
    bench.client("t").subscribe(b"a", 0)

    bench.client("p").send(publish(b"a", b"x", 1, 1) + publish(b"nobody", b"x"))

    assert bench.tenant.counters.fanout == 3


def test_fanout_counts_no_more_than_may_receive() -> None:
    """What the limit leaves out is a drop."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(fanout=2)
    for name in "stu":
        bench.client(name).subscribe(b"a", 0)

    bench.client("p").send(publish(b"a", b"x"))

    assert bench.tenant.counters.fanout == 2
