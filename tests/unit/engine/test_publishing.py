"""Identifiers of QoS 2 in every state, and waiting without having done anything."""

from __future__ import annotations

import pytest

from iothub.engine.inbound_qos2 import STORING, UNSTORED
from iothub.engine.limits import PlaneLimits
from iothub.engine.publishing import REASONS
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


def test_publishing_a_repeat_waits_while_routes_may_be_missing() -> None:
    """As any PUBLISH does: a queue at another hub may be missing among those that get it."""
    bench = Bench()
    publisher = bench.client("p", queue_id=9)
    bench.settle()
    bench.store.fails = False
    publisher.send(publish(b"a", b"x", 2, 1))
    bench.store.commit()
    bench.store.fails = None
    bench.plane.hold_publishers_of(bench.tenant, True)
    again = bench.client("p", queue_id=9)

    again.send(publish(b"a", b"x", 2, 1, dup=True))
    bench.pass_time(0.1)
    assert again.transport.is_paused
    assert again.session.inbound == {1: UNSTORED}

    bench.client("kept", queue_id=7).subscribe(b"a", 2)
    bench.plane.hold_publishers_of(bench.tenant, False)
    bench.pass_time(0.1)
    bench.settle()
    assert again.take() == ack(0x50, 1)
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


def test_publishing_waits_for_the_disk_while_a_reader_makes_room() -> None:
    """What is acknowledged was stored, and what was held back is stored when there is room, in its order; what needs no store goes on."""
    bench = Bench()
    kept = bench.client("kept", queue_id=7)
    kept.subscribe(b"a", 1)
    bench.settle()
    publisher, other = bench.client("p"), bench.client("other")
    publisher.send(publish(b"a", b"1", 1, 1))
    bench.settle()
    assert publisher.take() == ack(0x40, 1)
    assert len(packets(kept.take())) == 1

    bench.plane.turn.note_disk(True)
    publisher.send(publish(b"a", b"2", 1, 2) + publish(b"a", b"3", 1, 3))
    assert other.send(publish(b"elsewhere", b"4", 1, 4)) == ack(0x40, 4)
    kept.send(ack(0x40, 1))
    bench.settle()
    bench.pass_time(2.0)
    assert (publisher.take(), kept.take()) == (b"", b"")
    assert (bench.store.queue(7).head, bench.store.queue(7).tail) == (1, 1)

    bench.plane.turn.note_disk(False)
    bench.pass_time(1.0)
    bench.settle()

    assert publisher.take() == ack(0x40, 2) + ack(0x40, 3)
    assert bench.store.queue(7).tail == 3


@pytest.mark.parametrize(("version", "qos"), [(5, 0), (5, 1), (5, 2), (4, 0), (4, 1)])
def test_publishing_that_has_waited_long_for_the_disk_is_refused_where_there_is_an_answer(
    version: int, qos: int
) -> None:
    """Clients of 3.x wait: closed, they would come back at once with the same message, and never get to their acknowledgements."""
    bench = Bench()
    bench.client("kept", queue_id=7).subscribe(b"a", 1)
    bench.settle()
    publisher = bench.client("p", version=version)
    bench.plane.turn.note_disk(True)
    ping, properties = b"\xc0\x00", b"" if version == 5 else None

    publisher.send(publish(b"a", b"1", qos, 1, retain=True, properties=properties) + ping)
    bench.pass_time(9.5)
    assert publisher.take() == b""
    bench.pass_time(1.0)

    answer = {(5, 1): ack(0x40, 1, 0x97), (5, 2): ack(0x50, 1, 0x97)}.get((version, qos), b"")
    assert publisher.take() == (answer + b"\xd0\x00" if version == 5 else b"")
    assert (bench.store.queue(7).tail, publisher.connection.is_closing) == (0, False)
    bench.plane.turn.note_disk(False)
    bench.pass_time(0.2)
    bench.settle()
    assert publisher.take().endswith(b"" if version == 5 else b"\xd0\x00" if qos == 0 else ack(0x40, 1))


def test_publishing_behind_what_was_refused_for_the_disk_does_not_wait_again() -> None:
    """From then on what needs the disk is refused at once, whatever comes in between; when it is short again, it waits again."""
    bench = Bench()
    bench.client("kept", queue_id=7).subscribe(b"a", 1)
    bench.settle()
    publisher = bench.client("p", version=5)
    turn = bench.plane.turn
    durable, other = publish(b"a", b"x", 1, 2, properties=b""), publish(b"b", b"x", 0, properties=b"")
    turn.note_disk(True)
    bench.pass_time(10.5)

    assert publisher.send(durable + other + durable + b"\xc0\x00") == ack(0x40, 2, 0x97) * 2 + b"\xd0\x00"
    turn.note_disk(False)
    publisher.send(durable)
    bench.settle()
    assert publisher.take() == ack(0x40, 2)
    turn.note_disk(True)
    assert publisher.send(durable) == b""


@pytest.mark.parametrize("version", [4, 5])
def test_publishing_that_waits_for_the_disk_keeps_no_acknowledgement_waiting(version: int) -> None:
    """They make room; and a client of 3.x sends its open PUBLISH before everything else when it comes back."""
    bench = Bench()
    device = bench.client("kept", queue_id=7, version=version)
    device.subscribe(b"a", 1)
    properties = b"" if version == 5 else None
    device.send(publish(b"a", b"0", 1, 1, properties=properties))
    bench.settle()
    device.take()
    bench.plane.turn.note_disk(True)

    device.send(publish(b"a", b"x", 1, 2, properties=properties) + ack(0x40, 1))
    bench.pass_time(0.2)
    bench.settle()

    assert bench.store.queue(7).head == 1
    assert device.take() == b""


def test_publishing_of_old_clients_goes_on_with_the_answers_and_not_with_the_clock() -> None:
    """3.x has no Receive Maximum: what waits for the store is bounded by not reading on, and no tick is waited for."""
    bench = Bench()
    bench.client("kept", queue_id=7).subscribe(b"a", 1)
    bench.settle()
    publisher = bench.client("p", inbound_maximum=4)

    answers = publisher.send(b"".join(publish(b"a", b"x", 1, number) for number in range(1, 41)))
    assert (publisher.connection.unstored, publisher.transport.is_paused) == (4, True)
    for _ in range(10):
        bench.store.commit()
        answers += publisher.take()

    assert answers == b"".join(ack(0x40, number) for number in range(1, 41))
    assert not publisher.transport.is_paused


@pytest.mark.parametrize("queue_id", [0, 9])
@pytest.mark.parametrize("version", [3, 4])
def test_publishing_qos2_of_old_clients_may_run_ahead_of_their_pubrel(version: int, queue_id: int) -> None:
    """A 3.x client knows no bound, so it breaks none: every identifier that 16 bits can name may be open."""
    bench = Bench()
    publisher = bench.client("p", queue_id=queue_id, version=version, inbound_maximum=4)
    bench.settle()
    publisher.take()

    answers = publisher.send(b"".join(publish(b"a", b"x", 2, number) for number in range(1, 101)))
    for _ in range(25):
        bench.store.commit()
        answers += publisher.take()
    assert answers == b"".join(ack(0x50, number) for number in range(1, 101))
    answers = publisher.send(b"".join(ack(0x62, number) for number in range(1, 101)))
    bench.settle()

    assert answers + publisher.take() == b"".join(ack(0x70, number) for number in range(1, 101))
    assert publisher.session.inbound in (None, {})
    assert bench.observer.limits == []
