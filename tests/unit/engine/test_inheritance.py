"""What a member of a shared group leaves to the others."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Drop
from iothub.engine.inheritance import Left
from iothub.engine.limits import TenantLimits
from iothub.engine.outbox import RETAIN_FLAG, SHARED_FLAG, QueueTarget
from iothub.testing.engine import Bench, Client, ack, packets, publish


def queued(bench: Bench, queue_id: int) -> list[tuple[bytes, int]]:
    """Payload and QoS of what is in a queue."""
    rows = bench.store.queue(queue_id)
    return [(rows.records[position].message.payload, rows.records[position].qos) for position in sorted(rows.records)]


def end(bench: Bench, heir: Client) -> list[Left]:
    """End a session as the session manager does; the list has one entry when everything is durable, but what this one names."""
    done: list[Left] = []
    rows = bench.store.queue(heir.session.queue_id)
    records = [rows.records[position] for position in sorted(rows.records)]
    assert bench.plane.leave_groups(heir.session)
    bench.plane.bequeath(heir.session, records, set(), set(), done.append)
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


@pytest.mark.parametrize("heir_queue", [0, 8])
def test_inheritance_goes_to_another_member(heir_queue: int) -> None:
    """QoS 1 finds another member, QoS 2 begun or not dies with its session; done when it is durable. §4.8.2, [MQTT-4.8.2-5]."""
    bench = Bench()
    leaving = away(bench, "leaving", 7, b"a")
    publisher = bench.client("p")
    for number, qos in enumerate((1, 2, 1), 1):
        publisher.send(publish(b"a", b"%d" % number, qos, number))
    bench.settle()
    heir = bench.client("heir", queue_id=heir_queue)
    heir.subscribe(b"a", 1, group=b"g")
    bench.settle()
    heir.take()

    done = end(bench, leaving)
    assert done == ([Left()] if heir_queue == 0 else [])
    bench.settle()

    assert done == [Left()]
    assert [body[-1:] for _, body in packets(heir.take())] == [b"1", b"3"]


@pytest.mark.parametrize("is_written", [False, True])
def test_inheritance_that_the_store_gave_up_is_told(is_written: bool) -> None:
    """Whoever ends the session hears which records are not durable elsewhere; a queue that is full is a limit's word and no failure."""
    bench = Bench()
    leaving = away(bench, "leaving", 7, b"a")
    for number in (1, 2):
        bench.client("p").send(publish(b"a", b"%d" % number, 1, number))
    bench.settle()
    away(bench, "heir", 8, b"a")

    bench.store.fails = is_written
    done = end(bench, leaving)
    bench.settle()

    assert [[record.message.payload for record in left.again] for left in done] == [[b"1", b"2"]]


def test_inheritance_that_no_store_will_ever_take_is_not_kept() -> None:
    """It is counted as dropped; nobody waits for it."""
    bench = Bench()
    leaving = away(bench, "leaving", 7, b"a")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()
    away(bench, "heir", 8, b"a")

    bench.store.fails, bench.store.fails_for_good = False, True
    done = end(bench, leaving)
    bench.settle()

    assert done == [Left()]
    assert bench.tenant.counters.dropped == {Drop.STORE_FAILED: 1}


def test_inheritance_of_a_queue_that_cannot_be_read_is_told() -> None:
    """With the queue, so that somebody can say whose it is."""
    bench = Bench()
    leaving = away(bench, "leaving", 7, b"a")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()
    away(bench, "heir", 8, b"a")

    bench.store.unreadable = {8}
    done = end(bench, leaving)
    bench.settle()

    assert [([record.message.payload for record in left.unwilling], left.heirs) for left in done] == [([b"x"], {8})]


def test_member_that_is_leaving_inherits_nothing() -> None:
    """Two whose time has come would pass it to each other; what is new it gets all the same if there is nobody else."""
    bench = Bench()
    leaving = away(bench, "leaving", 7, b"a")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()
    other = away(bench, "other", 8, b"a")
    other.session.is_leaving = leaving.session.is_leaving = True

    done = end(bench, leaving)
    bench.client("p").send(publish(b"a", b"new", 1, 2))
    bench.settle()

    assert [len(left.nobody) for left in done] == [1]
    assert queued(bench, 8) == [(b"new", 1)]


def test_member_that_is_leaving_gets_nothing_while_another_is_there() -> None:
    bench = Bench()
    for number in range(4):
        away(bench, f"leaving{number}", 10 + number, b"a").session.is_leaving = True
    away(bench, "staying", 8, b"a")

    for number in range(1, 6):
        bench.client(f"p{number}").send(publish(b"a", b"x", 1, number))
    bench.settle()

    assert len(queued(bench, 8)) == 5


def test_inheritance_of_the_last_member_is_told() -> None:
    bench = Bench()
    leaving = away(bench, "leaving", 7, b"a")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()

    assert [len(left.nobody) for left in end(bench, leaving)] == [1]


def test_inheritance_is_what_was_shared_alone() -> None:
    """A plain subscription's copy, and one of a group that was left before, are nobody else's."""
    bench = Bench()
    leaving = away(bench, "leaving", 7, b"left", b"kept")
    leaving.subscribe(b"plain", 1)
    heir = away(bench, "heir", 8, b"left", b"kept", b"plain")
    bench.plane.unsubscribe(heir.session, b"g", b"plain")
    heir_only = bench.store.queue(8).tail
    for number, topic in enumerate((b"left", b"kept", b"plain"), 1):
        bench.plane.unsubscribe(heir.session, b"g", topic)
        bench.client("p").send(publish(topic, topic, 1, number))
    bench.settle()
    for topic in (b"left", b"kept"):
        heir.subscribe(topic, 1, group=b"g")
    bench.plane.unsubscribe(leaving.session, b"g", b"left")

    end(bench, leaving)
    bench.settle()

    assert queued(bench, 8)[heir_only:] == [(b"kept", 1)]


def test_inheritance_of_two_groups_reaches_both() -> None:
    """One message, a record for each group that had chosen the session: each group gets its copy back."""
    bench = Bench()
    leaving = away(bench, "leaving", 7, b"a", b"+")
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    bench.settle()
    assert len(queued(bench, 7)) == 2
    away(bench, "exact", 8, b"a")
    away(bench, "wild", 9, b"+")

    end(bench, leaving)
    bench.settle()

    assert (queued(bench, 8), queued(bench, 9)) == ([(b"x", 1)], [(b"x", 1)])


def test_who_shared_nothing_leaves_nothing() -> None:
    bench = Bench()
    client = bench.client("c", queue_id=7)
    client.subscribe(b"a", 1)

    assert not bench.plane.leave_groups(client.session)


def test_transient_member_leaves_what_it_did_not_acknowledge() -> None:
    """§4.8.2: sent or not, QoS 1 goes to another member, in order; what was acknowledged and QoS 2 do not [MQTT-4.8.2-5]."""
    bench = Bench()
    leaving = bench.client("leaving", receive_maximum=3)
    leaving.subscribe(b"a", 2, group=b"g")
    publisher = bench.client("p")
    for number, qos in enumerate((1, 1, 2, 1, 1), 1):
        publisher.send(publish(b"a", b"%d" % number, qos, number))
    leaving.send(ack(0x40, 2))  # one more is sent
    heir = bench.client("heir")
    heir.subscribe(b"a", 1, group=b"g")

    leaving.drop()
    bench.plane.discard(leaving.session)

    assert [body[-1:] for _, body in packets(heir.take())] == [b"2", b"4", b"5"]
    heir.drop()
    bench.plane.discard(heir.session)
    assert bench.tenant.buffered_bytes == 0


def test_what_is_kept_for_other_members_is_bounded() -> None:
    """It is on the tenant's books; when they are full, or it was acknowledged, nothing is kept."""
    bench = Bench()
    member = bench.client("c")
    member.subscribe(b"a", 1, group=b"g")
    publisher = bench.client("p")
    publisher.send(publish(b"a", b"x", 1, 1))
    assert bench.tenant.buffered_bytes > 0
    member.send(ack(0x40, 2))
    assert bench.tenant.buffered_bytes == 0

    bench.tenant.limits = TenantLimits(buffered_bytes=0)
    publisher.send(publish(b"a", b"x", 1, 1))

    assert bench.tenant.buffered_bytes == 0
    assert len(packets(member.take())) == 1
