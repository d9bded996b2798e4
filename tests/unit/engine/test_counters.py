"""Counters by the names that metrics use."""

from __future__ import annotations

from iothub.engine.counters import Counters
from iothub.reasons import Drop
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
    subscriber.send(ack(0x40, 2) + ack(0x50, 3) + ack(0x70, 3))

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
