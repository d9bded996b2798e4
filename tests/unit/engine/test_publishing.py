"""Identifiers of QoS 2 in every state, and waiting without having done anything."""

from __future__ import annotations

from iothub.engine.limits import PlaneLimits
from iothub.engine.publishing import REASONS
from iothub.engine.session import STORING, UNSTORED
from iothub.testing.engine import Bench, ack, packets, publish


def test_publishing_names_the_reason_of_every_code() -> None:
    """The code that is sent is the code of the reason that is logged."""
    assert all(reason.code == code for code, reason in REASONS.items())


def test_publishing_repeats_only_the_store_after_a_failure() -> None:
    """Transient receivers have it already; the queue gets it, once."""
    bench = Bench()
    kept = bench.client("kept", queue_id=7)
    kept.subscribe(b"a", 2)
    online = bench.client("online")
    online.subscribe(b"a", 2)
    bench.settle()
    publisher = bench.client("p", queue_id=9)
    bench.settle()
    bench.store.fails = False
    publisher.send(publish(b"a", b"x", 2, 1))
    bench.store.commit()
    assert publisher.transport.is_closed
    assert publisher.session.inbound == {1: UNSTORED}
    bench.store.fails = None

    again = bench.client("p", queue_id=9)
    again.send(publish(b"a", b"x", 2, 1, dup=True))
    assert again.session.inbound == {1: STORING}
    bench.settle()

    assert again.take() == ack(0x50, 1)
    assert len(packets(online.take())) == 1
    assert bench.store.queue(7).tail == 1


def test_publishing_a_repeat_on_the_same_connection_waits_for_the_first() -> None:
    """One PUBREC, when the commit is done."""
    bench = Bench()
    bench.client("kept", queue_id=7).subscribe(b"a", 2)
    bench.settle()
    publisher = bench.client("p")

    assert publisher.send(publish(b"a", b"x", 2, 1) + publish(b"a", b"x", 2, 1, dup=True)) == b""
    bench.settle()

    assert publisher.take() == ack(0x50, 1)
    assert bench.store.queue(7).tail == 1


def test_publishing_that_waits_has_done_nothing() -> None:
    """A PUBLISH held back is parsed again as if it had just come: delivered once, counted once."""
    bench = Bench(PlaneLimits(unstored_messages=1))
    bench.client("kept", queue_id=7).subscribe(b"a", 1)
    online = bench.client("online")
    online.subscribe(b"a", 1)
    bench.settle()
    publisher = bench.client("p")

    publisher.send(publish(b"a", b"1", 1, 1) + publish(b"a", b"2", 1, 2))
    assert len(packets(online.take())) == 1
    bench.settle()
    bench.settle()

    assert len(packets(online.take())) == 1
    assert bench.tenant.counters.received_1 == 2
    assert publisher.take() == ack(0x40, 1) + ack(0x40, 2)
