"""Who gets the unacknowledged messages of a shared group's member that ends."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Drop
from iothub.engine.limits import TenantLimits
from iothub.engine.outbox import RETAIN_FLAG, SHARED_FLAG, QueueTarget
from iothub.testing.engine import Bench, Client, ack, packets, publish


def queued(bench: Bench, queue_id: int) -> list[tuple[bytes, int]]:
    """Payload and QoS of what is in a queue."""
    rows = bench.store.queue(queue_id)
    return [(rows.records[position].message.payload, rows.records[position].qos) for position in sorted(rows.records)]


def end(bench: Bench, client: Client) -> list[tuple[int, int]]:
    """End a session as the session manager does; the list has one entry, (redistributed, failed), when what other members get is durable."""
    done: list[tuple[int, int]] = []
    rows = bench.store.queue(client.session.queue_id)
    records = [rows.records[position].delivery() for position in sorted(rows.records)]
    assert bench.plane.leave_groups(client.session)
    bench.plane.redistribute(
        client.session, records, lambda redistributed, failed: done.append((redistributed, failed))
    )
    return done


def away(bench: Bench, client_id: str, queue_id: int, *filters: bytes, group: bytes | None = b"g") -> Client:
    """A persistent session that is offline."""
    client = bench.client(client_id, queue_id=queue_id)
    for filter in filters:
        client.subscribe(filter, 2, group=group)
    bench.settle()
    client.drop()
    bench.settle()
    return client


def test_record_says_that_it_was_shared() -> None:
    """Flags of a record are its own two bits."""
    session = Bench().client("c").session

    assert [
        QueueTarget(session, 1, retain, (), is_shared).flags()
        for retain, is_shared in ((False, False), (True, False), (False, True), (True, True))
    ] == [0, RETAIN_FLAG, SHARED_FLAG, RETAIN_FLAG | SHARED_FLAG]


@pytest.mark.parametrize("queue_id", [0, 8])
def test_message_goes_to_another_member(queue_id: int) -> None:
    """QoS 1 finds another member, QoS 2 begun or not dies with its session; done when it is durable. §4.8.2, [MQTT-4.8.2-5]."""
    bench = Bench()
    ending = away(bench, "ending", 7, b"a")
    publisher = bench.client("p")
    for number, qos in enumerate((1, 2, 1), 1):
        publisher.send(publish(b"a", b"%d" % number, qos, number))
    bench.settle()
    successor = bench.client("successor", queue_id=queue_id)
    successor.subscribe(b"a", 1, group=b"g")
    bench.settle()
    successor.take()

    done = end(bench, ending)
    assert done == ([(2, 0)] if queue_id == 0 else [])
    bench.settle()

    assert done == [(2, 0)]
    assert [body[-1:] for _, body in packets(successor.take())] == [b"1", b"3"]


def test_persistent_members_come_first() -> None:
    """Those online before those offline, and transient ones last; but not who would get it with QoS 0, which no store keeps."""
    bench = Bench()
    ending = away(bench, "ending", 7, b"a")
    for number in range(4):
        bench.client(f"p{number}").send(publish(b"a", b"x", 1, 1))
    bench.settle()
    transient, at_most_once, online = (
        bench.client(name, queue_id=queue_id) for name, queue_id in (("t", 0), ("0", 9), ("online", 8))
    )
    transient.subscribe(b"a", 1, group=b"g")
    at_most_once.subscribe(b"a", 0, group=b"g")
    online.subscribe(b"a", 1, group=b"g")
    away(bench, "offline", 10, b"a")

    end(bench, ending)
    bench.settle()

    assert len(queued(bench, 8)) == 4


@pytest.mark.parametrize("is_written", [False, True])
def test_store_that_failed_is_reported(is_written: bool) -> None:
    """Whoever ends the session hears how many records are not durable elsewhere."""
    bench = Bench()
    ending = away(bench, "ending", 7, b"a")
    for number in (1, 2):
        bench.client("p").send(publish(b"a", b"%d" % number, 1, number))
    bench.settle()
    away(bench, "successor", 8, b"a")

    bench.store.fails = is_written
    done = end(bench, ending)
    bench.settle()

    assert done == [(0, 2)]


def test_queue_that_is_full_drops_by_its_own_name() -> None:
    """It is a limit's word and no failure."""
    bench = Bench()
    ending = away(bench, "ending", 7, b"a")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()
    away(bench, "successor", 8, b"a")

    bench.store.full = {8}
    done = end(bench, ending)
    bench.settle()

    assert done == [(1, 0)]
    assert bench.tenant.counters.dropped == {Drop.QUEUE_FULL: 1}


def test_message_that_no_store_will_ever_take_is_dropped() -> None:
    """Nobody waits for it."""
    bench = Bench()
    ending = away(bench, "ending", 7, b"a")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()
    away(bench, "successor", 8, b"a")

    bench.store.fails, bench.store.fails_for_good = False, True
    done = end(bench, ending)
    bench.settle()

    assert done == [(1, 0)]
    assert bench.tenant.counters.dropped == {Drop.STORE_FAILED: 1}


def test_messages_of_the_last_member_are_for_nobody() -> None:
    bench = Bench()
    ending = away(bench, "ending", 7, b"a")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()

    assert end(bench, ending) == [(0, 0)]


def test_what_was_shared_alone_is_redistributed() -> None:
    """A plain subscription's copy, and one of a group that was left before, are nobody else's."""
    bench = Bench()
    ending = away(bench, "ending", 7, b"left", b"kept")
    ending.subscribe(b"plain", 1)
    successor = away(bench, "successor", 8, b"left", b"kept", b"plain")
    bench.plane.unsubscribe(successor.session, b"g", b"plain")
    before = bench.store.queue(8).tail
    for number, topic in enumerate((b"left", b"kept", b"plain"), 1):
        bench.plane.unsubscribe(successor.session, b"g", topic)
        bench.client("p").send(publish(topic, topic, 1, number))
    bench.settle()
    for topic in (b"left", b"kept"):
        successor.subscribe(topic, 1, group=b"g")
    bench.plane.unsubscribe(ending.session, b"g", b"left")

    end(bench, ending)
    bench.settle()

    assert queued(bench, 8)[before:] == [(b"kept", 1)]


def test_copies_of_two_groups_reach_both() -> None:
    """One message, a record for each group that had chosen the session: each group gets its copy back."""
    bench = Bench()
    ending = away(bench, "ending", 7, b"a", b"+")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()
    assert len(queued(bench, 7)) == 2
    away(bench, "exact", 8, b"a")
    away(bench, "wild", 9, b"+")

    end(bench, ending)
    bench.settle()

    assert (queued(bench, 8), queued(bench, 9)) == ([(b"x", 1)], [(b"x", 1)])


def test_session_without_a_shared_subscription_leaves_no_group() -> None:
    bench = Bench()
    client = bench.client("c", queue_id=7)
    client.subscribe(b"a", 1)

    assert not bench.plane.leave_groups(client.session)


def test_unacknowledged_messages_of_a_transient_member_are_redistributed() -> None:
    """§4.8.2: sent or not, QoS 1 goes to another member, in order; what was acknowledged and QoS 2 do not [MQTT-4.8.2-5]."""
    bench = Bench()
    ending = bench.client("ending", receive_maximum=3)
    ending.subscribe(b"a", 2, group=b"g")
    publisher = bench.client("p")
    for number, qos in enumerate((1, 1, 2, 1, 1), 1):
        publisher.send(publish(b"a", b"%d" % number, qos, number))
    ending.send(ack(0x40, 1))  # one more is sent
    successor = bench.client("successor")
    successor.subscribe(b"a", 1, group=b"g")

    ending.drop()
    bench.plane.discard(ending.session)

    assert [body[-1:] for _, body in packets(successor.take())] == [b"2", b"4", b"5"]
    successor.drop()
    bench.plane.discard(successor.session)
    assert bench.tenant.buffered_bytes == 0


def test_what_is_kept_for_other_members_is_bounded() -> None:
    """It is on the tenant's books; when they are full, or it was acknowledged, nothing is kept."""
    bench = Bench()
    member = bench.client("c")
    member.subscribe(b"a", 1, group=b"g")
    publisher = bench.client("p")
    publisher.send(publish(b"a", b"x", 1, 1))
    assert bench.tenant.buffered_bytes > 0
    member.send(ack(0x40, 1))
    assert bench.tenant.buffered_bytes == 0

    bench.tenant.limits = TenantLimits(buffered_bytes=0)
    publisher.send(publish(b"a", b"x", 1, 1))

    assert bench.tenant.buffered_bytes == 0
    assert len(packets(member.take())) == 1
