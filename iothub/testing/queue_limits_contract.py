"""The contract suite of the queue port, what limits do: more cases in the form of `iothub.testing.queue_contract`.

Knows no driver.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from iothub.testing.queue_contract import FULL, TENANT, Case, due, identified, made, moved, one, positions, purged
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Expired,
    MoveKind,
    Overflow,
    QueueLimits,
    QueueStore,
    TenantUsage,
)


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
    assert purged(store, 1) == 1
    store.drop(2)
    assert store.tenant_usage(TENANT) == TenantUsage(0, 0)


CASES: tuple[Case, ...] = (
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
)
