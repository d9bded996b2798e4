"""The contract suite of the queue port: what every driver must do, as functions that take a fresh store.

Knows no driver: `tests/contract` runs `CASES` over all of them.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.base.errors import ConflictError, NotFoundError
from iothub_services.queues.port import (
    Append,
    Appended,
    Claim,
    Delivery,
    DueRecord,
    Expired,
    Inbound,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
    QueueStore,
    Refused,
    StaleEpochError,
    TenantUsage,
)

TENANT = 7
MANY = 1_000_000
FULL = int(Refused.FULL)
GONE = int(Refused.GONE)

Case = Callable[[QueueStore], None]


def identified(number: int) -> bytes:
    """Return a message id."""
    return number.to_bytes(16)


def one(  # as terse as a table
    queue_id: int,
    number: int,
    qos: int = 1,
    *,
    body: bytes = b"",
    expires_at_ms: int = 0,
    inbound: Inbound | None = None,
) -> Append:
    """Build one message for one queue."""
    return Append(identified(number), body or b"m%d" % number, expires_at_ms, (Delivery(queue_id, qos),), inbound)


def made(store: QueueStore, queue_id: int, limits: QueueLimits | None = None, tenant_id: int = TENANT) -> Claim:
    """Create a queue and claim it."""
    store.create(tenant_id, queue_id, limits or QueueLimits())
    return store.claim(queue_id, b"worker")


def positions(store: QueueStore, queue_id: int, epoch: int) -> list[int]:
    """Return what is stored."""
    return [record.position for record in store.read(queue_id, epoch, 0, MANY, MANY).records]


def due(queue_id: int, position: int) -> DueRecord:
    """Name a record whose time has come."""
    return DueRecord(TENANT, queue_id, position)


def moved(store: QueueStore, kind: MoveKind, queue_id: int, epoch: int, value: int) -> bool:
    """Do one move."""
    return store.apply([Move(kind, queue_id, epoch, value)])[0]


def positions_begin_at_one_and_are_dense(store: QueueStore) -> None:
    """Each queue counts for itself."""
    made(store, 1)
    made(store, 2)

    answers = store.append([one(1, 1), one(2, 2), one(1, 3)])

    assert answers == [Appended((1,)), Appended((1,)), Appended((2,))]


def positions_go_on_after_the_queue_was_emptied(store: QueueStore) -> None:
    """A position is never issued again: the reader would take the new message for one that it has acknowledged."""
    claim = made(store, 1)
    store.append([one(1, 1), one(1, 2)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 2)

    assert store.append([one(1, 3)]) == [Appended((3,))]
    assert store.purge(1) == 1
    assert store.append([one(1, 4)]) == [Appended((4,))]


def message_for_many_queues_gets_a_position_in_each(store: QueueStore) -> None:
    """Fan-out: answers in the order of the deliveries, each with its own QoS, flags and identifiers."""
    first, second = made(store, 1), made(store, 2)
    deliveries = (Delivery(2, 0, 1, (5, 9)), Delivery(1, 2))

    assert store.append([Append(identified(1), b"body", 77, deliveries)]) == [Appended((1, 1))]

    (record,) = store.read(2, second.epoch, 0, 10, MANY).records
    assert (record.qos, record.flags, record.subscription_ids) == (0, 1, (5, 9))
    assert (record.expires_at_ms, record.body) == (77, b"body")
    assert store.read(1, first.epoch, 0, 10, MANY).records[0].qos == 2


def append_to_an_unknown_queue_says_gone_and_creates_nothing(store: QueueStore) -> None:
    """`gone` never re-creates a queue; the other queues of the message get it."""
    claim = made(store, 1)

    answer = store.append([Append(identified(1), b"b", 0, (Delivery(9, 1), Delivery(1, 1)))])

    assert answer == [Appended((GONE, 1))]
    assert positions(store, 1, claim.epoch) == [1]
    with pytest.raises(NotFoundError):
        store.stats(9)


def qos2_message_id_that_the_queue_has_seen_is_answered_with_its_first_position(store: QueueStore) -> None:
    """De-duplication, within a batch and across batches; QoS 1 is not de-duplicated."""
    claim = made(store, 1)

    assert store.append([one(1, 1, qos=2), one(1, 1, qos=2)]) == [Appended((1,)), Appended((1,))]
    assert store.append([one(1, 1, qos=2), one(1, 2, qos=1), one(1, 2, qos=1)]) == [
        Appended((1,)),
        Appended((2,)),
        Appended((3,)),
    ]
    assert positions(store, 1, claim.epoch) == [1, 2, 3]


def claim_makes_the_next_epoch_and_fences_the_reader_before(store: QueueStore) -> None:
    """Smaller epochs are refused from then on: an earlier reader must not remove messages of the present one."""
    store.create(TENANT, 1, QueueLimits(), first_epoch=41)
    old = store.claim(1, b"a")
    store.append([one(1, 1)])
    new = store.claim(1, b"b")

    assert (old.epoch, new.epoch) == (41, 42)
    with pytest.raises(StaleEpochError):
        store.read(1, old.epoch, 0, 10, MANY)
    for kind in MoveKind:
        assert not moved(store, kind, 1, old.epoch, 1)
    assert new == store.claim(1, b"b").__class__(42, 0, 1, 0)
    assert positions(store, 1, 43) == [1]


def epochs_are_exact_to_the_last_bit(store: QueueStore) -> None:
    """Epochs begin at the queue's id, shifted. They need 64 bits; a driver that rounds one makes two readers' epochs equal."""
    first_epoch = ((1 << 39) - 1) << 24
    store.create(TENANT, 1, QueueLimits(), first_epoch=first_epoch)
    old = store.claim(1, b"a")
    store.append([one(1, 1)])
    new = store.claim(1, b"b")

    assert (old.epoch, new.epoch) == (first_epoch, first_epoch + 1)
    assert not moved(store, MoveKind.ACK, 1, old.epoch, 1)
    with pytest.raises(StaleEpochError):
        store.read(1, old.epoch, 0, 10, MANY)
    assert positions(store, 1, new.epoch) == [1]


def claim_of_an_unknown_queue_is_not_found(store: QueueStore) -> None:
    """So is every other verb that names it, but drop and new limits."""
    with pytest.raises(NotFoundError):
        store.claim(1, b"a")
    with pytest.raises(NotFoundError):
        store.read(1, 1, 0, 1, 1)
    with pytest.raises(NotFoundError):
        store.purge(1)
    assert not moved(store, MoveKind.ACK, 1, 1, 1)
    assert store.tails([1]) == {}
    store.set_limits([(1, QueueLimits())])
    store.drop(1)


def page_ends_at_count_or_bytes_and_says_how_far_it_scanned(store: QueueStore) -> None:
    """A page is never empty while something is there, however small the byte bound."""
    claim = made(store, 1)
    store.append([one(1, number, body=b"x" * 10) for number in range(1, 6)])

    by_count = store.read(1, claim.epoch, 0, 2, MANY)
    by_bytes = store.read(1, claim.epoch, 2, 10, 15)
    least = store.read(1, claim.epoch, 0, 10, 1)
    rest = store.read(1, claim.epoch, 4, 10, MANY)
    none = store.read(1, claim.epoch, 5, 10, MANY)

    assert ([record.position for record in by_count.records], by_count.upto, by_count.is_short) == ([1, 2], 2, False)
    assert ([record.position for record in by_bytes.records], by_bytes.upto, by_bytes.is_short) == ([3, 4], 4, False)
    assert [record.position for record in least.records] == [1]
    assert ([record.position for record in rest.records], rest.upto, rest.is_short) == ([5], 5, True)
    assert (none.records, none.upto, none.is_short) == ([], 5, True)


def page_moves_over_positions_that_are_gone(store: QueueStore) -> None:
    """`upto` is how far the scan went, not the last record: neither a purge nor expired messages at the end strand the reader."""
    claim = made(store, 1)
    store.append([one(1, 1), one(1, 2)])
    store.purge(1)

    page = store.read(1, claim.epoch, 0, 10, MANY)

    assert (page.records, page.upto, page.is_short) == ([], 2, True)
    store.append([one(1, 3), one(1, 4, expires_at_ms=10)])
    store.expire(10, 10)
    page = store.read(1, claim.epoch, 0, 10, MANY)
    assert ([record.position for record in page.records], page.upto, page.is_short) == ([3], 4, True)


def ack_removes_up_to_a_position_and_never_goes_back(store: QueueStore) -> None:
    """Delete is always up to a position; an acknowledgement from before changes nothing."""
    claim = made(store, 1)
    store.append([one(1, number) for number in range(1, 6)])

    assert moved(store, MoveKind.ACK, 1, claim.epoch, 3)
    assert moved(store, MoveKind.ACK, 1, claim.epoch, 2)

    assert positions(store, 1, claim.epoch) == [4, 5]
    stats = store.stats(1)
    assert (stats.messages, stats.bytes, stats.head, stats.tail) == (2, 4, 3, 5)
    assert store.claim(1, b"b").head == 3


def ack_beyond_the_tail_stops_there(store: QueueStore) -> None:
    """The head never passes what was issued: the next message would vanish."""
    claim = made(store, 1)
    store.append([one(1, 1)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 9)

    assert store.stats(1).head == 1
    assert store.append([one(1, 2)]) == [Appended((2,))]
    assert positions(store, 1, claim.epoch) == [2]


def released_positions_are_claimed_until_the_head_has_passed_them(store: QueueStore) -> None:
    """A release stays until the durable head passes it: removed at PUBCOMP, a crash would send the PUBLISH again."""
    claim = made(store, 1)
    store.append([one(1, number, qos=2) for number in range(1, 4)])
    for position in (3, 1):
        assert moved(store, MoveKind.RELEASE, 1, claim.epoch, position)
        assert moved(store, MoveKind.RELEASE, 1, claim.epoch, position)

    second = store.claim(1, b"b")
    assert second.released == (1, 3)
    moved(store, MoveKind.ACK, 1, second.epoch, 1)
    moved(store, MoveKind.RELEASE, 1, second.epoch, 1)
    assert store.claim(1, b"c").released == (3,)


def purge_keeps_what_was_released(store: QueueStore) -> None:
    """The client waits for PUBREL of these; their records are not needed for it."""
    claim = made(store, 1)
    store.append([one(1, 1, qos=2), one(1, 2, qos=2)])
    moved(store, MoveKind.RELEASE, 1, claim.epoch, 1)

    assert store.purge(1) == 2
    claim = store.claim(1, b"b")
    assert (claim.head, claim.tail, claim.released) == (0, 2, (1,))


def reserve_is_stored_as_told_also_lower(store: QueueStore) -> None:
    """A clean end lowers it to the exact position."""
    claim = made(store, 1)
    assert moved(store, MoveKind.RESERVE, 1, claim.epoch, 1024)
    assert store.claim(1, b"b").reserved == 1024
    assert moved(store, MoveKind.RESERVE, 1, claim.epoch + 1, 3)
    assert store.claim(1, b"c").reserved == 3


def inbound_identifier_is_recorded_with_its_append(store: QueueStore) -> None:
    """A repeated PUBLISH writes nothing; after PUBREL the identifier is free again."""
    reader, publisher = made(store, 1), made(store, 2)
    inbound = Inbound(2, publisher.epoch, 77)

    assert store.append([one(1, 1, qos=2, inbound=inbound)]) == [Appended((1,))]
    assert store.append([one(1, 1, qos=2, inbound=inbound)]) == [Appended((), is_duplicate=True)]
    claim = store.claim(2, b"b")
    assert claim.inbound == (77,)
    assert moved(store, MoveKind.FINISH_INBOUND, 2, claim.epoch, 77)
    assert moved(store, MoveKind.FINISH_INBOUND, 2, claim.epoch, 77)
    assert store.append([one(1, 2, qos=2, inbound=Inbound(2, claim.epoch, 77))]) == [Appended((2,))]
    assert positions(store, 1, reader.epoch) == [1, 2]


def inbound_identifier_twice_in_one_batch_is_a_duplicate(store: QueueStore) -> None:
    """A resend that catches up with its original."""
    reader, publisher = made(store, 1), made(store, 2)
    inbound = Inbound(2, publisher.epoch, 5)

    answers = store.append([one(1, 1, qos=2, inbound=inbound), one(1, 2, qos=2, inbound=inbound)])

    assert answers == [Appended((1,)), Appended((), is_duplicate=True)]
    assert positions(store, 1, reader.epoch) == [1]


def inbound_of_a_fenced_or_dropped_publisher_writes_nothing(store: QueueStore) -> None:
    """The intent is guarded by the epoch."""
    reader, publisher = made(store, 1), made(store, 2)
    store.claim(2, b"b")
    stale = one(1, 1, qos=2, inbound=Inbound(2, publisher.epoch, 5))
    unknown = one(1, 2, qos=2, inbound=Inbound(3, 1, 5))

    assert store.append([stale, unknown]) == [Appended((), is_stale=True)] * 2
    assert positions(store, 1, reader.epoch) == []
    assert store.claim(2, b"c").inbound == ()


def inbound_that_goes_to_no_queue_is_recorded(store: QueueStore) -> None:
    """By an append without deliveries or by a move."""
    publisher = made(store, 2)

    assert store.append([Append(identified(1), b"b", 0, (), Inbound(2, publisher.epoch, 1))]) == [Appended(())]
    assert moved(store, MoveKind.RECORD_INBOUND, 2, publisher.epoch, 2)
    assert store.claim(2, b"b").inbound == (1, 2)


def limits_of_many_queues_change_together(store: QueueStore) -> None:
    """A queue that has gone meanwhile, or never was, keeps none of the others from theirs."""
    for queue_id in (1, 2, 3, 4):
        made(store, queue_id)
    store.drop(3)

    new = {queue_id: QueueLimits(queue_id, 100 * queue_id, Overflow.REJECT) for queue_id in (1, 3, 4, 9)}
    with store.group():
        store.set_limits(list(new.items()))
    store.set_limits([])

    assert [stats.limits for stats in store.list_queues(TENANT)] == [new[1], QueueLimits(), new[4]]
    assert store.append([one(1, 1), one(1, 2)]) == [Appended((1,)), Appended((FULL,))]


def reject_refuses_the_newest(store: QueueStore) -> None:
    """By messages and by bytes; what is there stays."""
    claim = made(store, 1, QueueLimits(2, 100, Overflow.REJECT))

    assert store.append([one(1, number) for number in (1, 2, 3)]) == [Appended((1,)), Appended((2,)), Appended((FULL,))]
    store.set_limits([(1, QueueLimits(0, 10, Overflow.REJECT))])
    assert store.append([one(1, 4, body=b"x" * 7), one(1, 5, body=b"x" * 6)]) == [Appended((FULL,)), Appended((3,))]
    assert positions(store, 1, claim.epoch) == [1, 2, 3]


def drop_oldest_makes_room_and_reports_what_it_dropped(store: QueueStore) -> None:
    """As many as the new message needs, oldest first."""
    claim = made(store, 1, QueueLimits(0, 30, Overflow.DROP_OLDEST))
    store.append([one(1, number, body=b"x" * 10) for number in (1, 2, 3)])

    answers = store.append([one(1, 4, body=b"x" * 15)])

    assert answers == [Appended((4,), dropped=((1, 1), (1, 2)))]
    assert positions(store, 1, claim.epoch) == [3, 4]
    assert store.stats(1).bytes == 25


def drop_oldest_drops_messages_of_the_same_batch(store: QueueStore) -> None:
    """They are as old as their order says."""
    claim = made(store, 1, QueueLimits(2, 0, Overflow.DROP_OLDEST))

    answers = store.append([one(1, number) for number in (1, 2, 3, 4)])

    assert answers == [
        Appended((1,)),
        Appended((2,)),
        Appended((3,), dropped=((1, 1),)),
        Appended((4,), dropped=((1, 2),)),
    ]
    assert positions(store, 1, claim.epoch) == [3, 4]


def limit_that_was_lowered_makes_room_with_the_next_message(store: QueueStore) -> None:
    """All that is too much goes at once."""
    claim = made(store, 1)
    store.append([one(1, number) for number in range(1, 6)])
    store.set_limits([(1, QueueLimits(3, 0, Overflow.DROP_OLDEST))])

    assert store.append([one(1, 6)]) == [Appended((6,), dropped=((1, 1), (1, 2), (1, 3)))]
    store.set_limits([(1, QueueLimits(0, 4, Overflow.DROP_OLDEST))])
    assert store.append([one(1, 7)]) == [Appended((7,), dropped=((1, 4), (1, 5)))]
    assert positions(store, 1, claim.epoch) == [6, 7]


def message_larger_than_the_queue_is_refused_and_drops_nothing(store: QueueStore) -> None:
    """All that is needed, or nothing."""
    claim = made(store, 1, QueueLimits(0, 30, Overflow.DROP_OLDEST))
    store.append([one(1, 1)])

    assert store.append([one(1, 2, body=b"x" * 31)]) == [Appended((FULL,))]
    assert positions(store, 1, claim.epoch) == [1]


def drop_qos0_first_refuses_the_newest_when_no_qos0_is_left(store: QueueStore) -> None:
    """The default policy: an acknowledged QoS 1 message is never dropped for a newer one."""
    claim = made(store, 1, QueueLimits(3, 0))
    store.append([one(1, 1, 1), one(1, 2, 0), one(1, 3, 0)])

    answers = store.append([one(1, 4, 1), one(1, 5, 1), one(1, 6, 1)])

    assert answers == [Appended((4,), dropped=((1, 2),)), Appended((5,), dropped=((1, 3),)), Appended((FULL,))]
    assert positions(store, 1, claim.epoch) == [1, 4, 5]
    made(store, 2, QueueLimits(1, 0))
    assert store.append([one(2, 7, 0), one(2, 8, 0)]) == [Appended((1,)), Appended((2,), dropped=((2, 1),))]


def drop_policies_spare_what_may_have_been_sent(store: QueueStore) -> None:
    """Positions up to `reserved` stay: the client may have them already."""
    claim = made(store, 1, QueueLimits(3, 0, Overflow.DROP_OLDEST))
    store.append([one(1, number) for number in (1, 2, 3)])
    moved(store, MoveKind.RESERVE, 1, claim.epoch, 2)

    assert store.append([one(1, 4)]) == [Appended((4,), dropped=((1, 3),))]
    moved(store, MoveKind.RESERVE, 1, claim.epoch, 4)
    assert store.append([one(1, 5)]) == [Appended((FULL,))]
    assert positions(store, 1, claim.epoch) == [1, 2, 4]


def limits_of_a_tenant_bound_the_sum_of_its_queues(store: QueueStore) -> None:
    """Exact, and no other tenant's business."""
    made(store, 1)
    made(store, 2)
    made(store, 3, tenant_id=8)
    store.set_tenant_limits(TENANT, 3, 0)

    answers = store.append([one(1, 1), one(2, 2), one(1, 3), one(2, 4), one(3, 5)])

    assert [answer.positions[0] for answer in answers] == [1, 1, 2, FULL, 1]
    assert store.tenant_usage(TENANT) == TenantUsage(3, 6)
    store.set_tenant_limits(TENANT, 0, 7)
    assert store.append([one(2, 4)]) == [Appended((FULL,))]
    store.set_tenant_limits(TENANT, 0, 8)
    assert store.append([one(2, 4)]) == [Appended((2,))]


def limits_of_a_tenant_make_room_by_the_policy_of_the_queue(store: QueueStore) -> None:
    """In the queue that the message is for, as much as it needs."""
    claim = made(store, 1, QueueLimits(0, 0, Overflow.DROP_OLDEST))
    made(store, 2)
    store.append([one(2, 1), *[one(1, number) for number in range(1, 6)]])
    store.set_tenant_limits(TENANT, 6, 0)

    assert store.append([one(1, 6)]) == [Appended((6,), dropped=((1, 1),))]
    store.set_tenant_limits(TENANT, 0, 12)
    assert store.append([one(1, 7, body=b"xyz")]) == [Appended((7,), dropped=((1, 2), (1, 3)))]
    assert positions(store, 1, claim.epoch) == [4, 5, 6, 7]
    assert store.tenant_usage(TENANT) == TenantUsage(5, 11)


def limit_behind_each_refusal_and_drop_is_named(store: QueueStore) -> None:
    """The queue's own limits first, then its tenant's; one name for each message that is lost."""
    made(store, 1, QueueLimits(2, 10, Overflow.REJECT))
    made(store, 2, QueueLimits(0, 20, Overflow.DROP_OLDEST))
    store.set_tenant_limits(TENANT, 4, 40)

    def hit(*batch: Append) -> list[tuple[str, ...]]:
        return [answer.hit for answer in store.append(list(batch))]

    assert hit(one(1, 1, body=b"x" * 11), one(1, 2), one(1, 3)) == [("session_queued_bytes",), (), ()]
    assert hit(one(1, 4), one(2, 5, body=b"x" * 10), one(2, 6, body=b"x" * 10)) == [
        ("session_queued_messages",),
        (),
        (),
    ]
    assert hit(one(2, 7, body=b"x" * 20)) == [("session_queued_bytes", "session_queued_bytes")]
    store.set_limits([(2, QueueLimits(0, 0, Overflow.REJECT))])
    assert hit(one(2, 8), one(2, 9)) == [(), ("queued_messages",)]
    store.set_tenant_limits(TENANT, 0, 1)
    assert hit(one(2, 8)) == [("queued_bytes",)]
    store.set_tenant_limits(TENANT, 0, 0)
    for queue_id in (3, 4):
        made(store, queue_id, QueueLimits(1, 0, Overflow.DROP_OLDEST))
    many = [Append(identified(number), b"b", 0, (Delivery(3, 1), Delivery(4, 1))) for number in (10, 11)]
    assert hit(*many) == [(), ("session_queued_messages",) * 2]


def usage_of_a_tenant_follows_every_way_out(store: QueueStore) -> None:
    """Acknowledged, purged, expired, dropped with the queue: all leave the sum."""
    claim = made(store, 1)
    for queue_id in (2, 3):
        made(store, queue_id)
    store.append([Append(identified(1), b"1234", 5, (Delivery(1, 1), Delivery(2, 1), Delivery(3, 1)))])
    store.append([one(1, 2, body=b"12"), one(2, 3, body=b"12")])
    assert store.tenant_usage(TENANT) == TenantUsage(5, 16)

    moved(store, MoveKind.ACK, 1, claim.epoch, 1)
    assert store.tenant_usage(TENANT) == TenantUsage(4, 12)
    assert store.expire(5, 10) == Expired((due(2, 1), due(3, 1)))
    assert store.tenant_usage(TENANT) == TenantUsage(2, 4)
    assert store.purge(1) == 1
    store.drop(2)
    assert store.tenant_usage(TENANT) == TenantUsage(0, 0)


def dropped_queue_is_gone_for_everybody(store: QueueStore) -> None:
    """And dropping is idempotent, and says what went with it; its tenant's other queues stay."""
    claim = made(store, 1)
    made(store, 2)
    store.append([one(1, 1), one(1, 2), one(1, 3)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 1)
    assert store.drop(1) == 2
    assert store.drop(1) == 0

    assert store.append([one(1, 2)]) == [Appended((GONE,))]
    assert not moved(store, MoveKind.ACK, 1, claim.epoch, 1)
    with pytest.raises(NotFoundError):
        store.read(1, claim.epoch, 0, 1, 1)
    assert [stats.queue_id for stats in store.list_queues(TENANT)] == [2]


def queue_that_was_dropped_and_made_anew_starts_empty(store: QueueStore) -> None:
    """Nothing of the predecessor shows, although its records may be removed later; that removes nothing of the new one."""
    claim = made(store, 1)
    store.append([one(1, 1, qos=2), one(1, 2)])
    moved(store, MoveKind.RELEASE, 1, claim.epoch, 1)
    moved(store, MoveKind.RECORD_INBOUND, 1, claim.epoch, 7)
    with store.group():
        store.drop(1)
        claim = made(store, 1)
        assert store.append([one(1, 1, qos=2)]) == [Appended((1,))]

    assert (claim.head, claim.tail, claim.released, claim.inbound) == (0, 0, (), ())
    assert store.append([one(1, 3)]) == [Appended((2,))]
    assert positions(store, 1, claim.epoch) == [1, 2]


def create_refuses_a_queue_that_exists(store: QueueStore) -> None:
    """A queue id belongs to one incarnation of one session."""
    made(store, 1)
    with pytest.raises(ConflictError):
        store.create(8, 1, QueueLimits())


def tenant_is_dropped_with_all_its_queues(store: QueueStore) -> None:
    """Idempotent; other tenants keep theirs."""
    made(store, 1)
    made(store, 2)
    made(store, 3, tenant_id=8)
    store.append([one(queue_id, queue_id) for queue_id in (1, 2, 3)])

    assert store.drop_tenant(TENANT) == 2
    assert store.drop_tenant(TENANT) == 0
    assert store.list_queues(TENANT) == []
    assert store.tenant_usage(TENANT) == TenantUsage(0, 0)
    assert store.stats(3).messages == 1


def stats_tails_and_lists_agree(store: QueueStore) -> None:
    """What operators and the once-a-second poll see."""
    limits = QueueLimits(5, 50, Overflow.DROP_OLDEST)
    made(store, 2, limits)
    made(store, 1)
    store.append([one(2, 1, body=b"abc"), one(2, 2, body=b"de")])

    stats = store.stats(2)
    assert (stats.tenant_id, stats.messages, stats.bytes, stats.head, stats.tail) == (TENANT, 2, 5, 0, 2)
    assert (stats.epoch, stats.limits) == (1, limits)
    assert [each.queue_id for each in store.list_queues(TENANT)] == [1, 2]
    assert store.tails([1, 2, 3]) == {1: 0, 2: 2}
    assert store.existing([1, 2, 3]) == {1, 2}
    assert store.stats_of([1, 2, 3]) == {each.queue_id: each for each in store.list_queues(TENANT)}


def group_makes_one_of_many_verbs(store: QueueStore) -> None:
    """A refusal inside a group fails that verb alone."""
    with store.group():
        claim = made(store, 1)
        store.append([one(1, 1)])
        with pytest.raises(NotFoundError):
            store.claim(9, b"x")
        moved(store, MoveKind.ACK, 1, claim.epoch, 1)
        store.append([one(1, 2)])

    assert positions(store, 1, claim.epoch) == [2]


CASES: tuple[Case, ...] = (
    positions_begin_at_one_and_are_dense,
    positions_go_on_after_the_queue_was_emptied,
    message_for_many_queues_gets_a_position_in_each,
    append_to_an_unknown_queue_says_gone_and_creates_nothing,
    qos2_message_id_that_the_queue_has_seen_is_answered_with_its_first_position,
    claim_makes_the_next_epoch_and_fences_the_reader_before,
    epochs_are_exact_to_the_last_bit,
    claim_of_an_unknown_queue_is_not_found,
    page_ends_at_count_or_bytes_and_says_how_far_it_scanned,
    page_moves_over_positions_that_are_gone,
    ack_removes_up_to_a_position_and_never_goes_back,
    ack_beyond_the_tail_stops_there,
    released_positions_are_claimed_until_the_head_has_passed_them,
    purge_keeps_what_was_released,
    reserve_is_stored_as_told_also_lower,
    inbound_identifier_is_recorded_with_its_append,
    inbound_identifier_twice_in_one_batch_is_a_duplicate,
    inbound_of_a_fenced_or_dropped_publisher_writes_nothing,
    inbound_that_goes_to_no_queue_is_recorded,
    limits_of_many_queues_change_together,
    reject_refuses_the_newest,
    drop_oldest_makes_room_and_reports_what_it_dropped,
    drop_oldest_drops_messages_of_the_same_batch,
    limit_that_was_lowered_makes_room_with_the_next_message,
    message_larger_than_the_queue_is_refused_and_drops_nothing,
    drop_qos0_first_refuses_the_newest_when_no_qos0_is_left,
    drop_policies_spare_what_may_have_been_sent,
    limits_of_a_tenant_bound_the_sum_of_its_queues,
    limits_of_a_tenant_make_room_by_the_policy_of_the_queue,
    limit_behind_each_refusal_and_drop_is_named,
    usage_of_a_tenant_follows_every_way_out,
    dropped_queue_is_gone_for_everybody,
    queue_that_was_dropped_and_made_anew_starts_empty,
    create_refuses_a_queue_that_exists,
    tenant_is_dropped_with_all_its_queues,
    stats_tails_and_lists_agree,
    group_makes_one_of_many_verbs,
)
