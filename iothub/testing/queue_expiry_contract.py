"""The contract suite of the queue port, what expiry does: more cases in the form of `iothub.testing.queue_contract`.

Knows no driver.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from iothub.testing.queue_contract import FULL, MANY, TENANT, Case, due, made, moved, one, positions
from iothub_services.queues.port import Appended, Expired, ExpiryMark, MoveKind, Overflow, QueueLimits, QueueStore


def expire_removes_what_is_due_and_not_sent(store: QueueStore) -> None:
    """The oldest deadline goes first. Positions up to `reserved` stay: the client may have them already."""
    claim = made(store, 1)
    store.append([one(1, number, expires_at_ms=100 * number) for number in range(1, 5)] + [one(1, 5)])
    moved(store, MoveKind.RESERVE, 1, claim.epoch, 1)

    assert store.expire(99, 10) == Expired()
    assert store.expire(300, 10) == Expired((due(1, 2), due(1, 3)), spared=(due(1, 1),))
    assert positions(store, 1, claim.epoch) == [1, 4, 5]


def expire_goes_on_behind_its_mark(store: QueueStore) -> None:
    """At most `count` records are looked at: what is spared does not keep a later look from what lies behind it."""
    claim = made(store, 1)
    made(store, 2)
    store.append([one(1, number, expires_at_ms=10) for number in range(1, 4)])
    store.append([one(2, 8, expires_at_ms=20), one(2, 9, expires_at_ms=30)])
    moved(store, MoveKind.RESERVE, 1, claim.epoch, 2)

    first = store.expire(50, 2)
    assert first == Expired((), (due(1, 1), due(1, 2)), ExpiryMark(10, 1, 2))
    assert first.after is not None
    second = store.expire(50, 2, first.after)
    assert second == Expired((due(1, 3), due(2, 1)), (), ExpiryMark(20, 2, 1))
    assert second.after is not None
    assert store.expire(50, 2, second.after) == Expired((due(2, 2),))

    moved(store, MoveKind.RESERVE, 1, claim.epoch, 0)
    assert store.expire(50, 10) == Expired((due(1, 1), due(1, 2)))


def expire_unsent_removes_what_the_hub_has_reserved_and_not_sent(store: QueueStore) -> None:
    """Only what is still there and due; what it removes leaves the sums, and only that is returned."""
    claim = made(store, 1)
    store.append([one(1, 1, expires_at_ms=10), one(1, 2, expires_at_ms=99), one(1, 3), one(1, 4, expires_at_ms=10)])
    moved(store, MoveKind.RESERVE, 1, claim.epoch, 1024)
    spared = store.expire(10, 10).spared
    assert spared == (due(1, 1), due(1, 4))
    moved(store, MoveKind.ACK, 1, claim.epoch, 1)

    assert store.expire_unsent(10, [*spared, due(1, 2), due(1, 3), due(9, 1)]) == (due(1, 4),)
    assert positions(store, 1, claim.epoch) == [2, 3]
    assert store.tenant_usage(TENANT).messages == 2
    assert store.append([one(1, 5)]) == [Appended((5,))]


def expiry_makes_room_and_leaves_positions_empty(store: QueueStore) -> None:
    """A full queue takes messages again; positions go on, and a page passes over the hole."""
    claim = made(store, 1, QueueLimits(messages=2, overflow=Overflow.REJECT))
    store.append([one(1, 1), one(1, 2, expires_at_ms=10)])
    assert store.append([one(1, 3)])[0].positions == (FULL,)

    store.expire(10, 10)

    assert store.append([one(1, 4)]) == [Appended((3,))]
    page = store.read(1, claim.epoch, 0, MANY, MANY)
    assert [record.position for record in page.records] == [1, 3]
    assert (page.upto, page.is_short) == (3, True)
    assert store.stats(1).messages == 2


def expired_qos2_id_is_forgotten_with_its_record(store: QueueStore) -> None:
    """The same message id may come again after its record has expired, and gets a position of its own."""
    claim = made(store, 1)
    store.append([one(1, 1, 2, expires_at_ms=10)])
    store.expire(10, 10)

    assert store.append([one(1, 1, 2)]) == [Appended((2,))]
    assert positions(store, 1, claim.epoch) == [2]


def expire_looks_into_no_dropped_queue(store: QueueStore) -> None:
    """Its records go with the queue, without a tenant to count them for; those behind them are looked at."""
    made(store, 1)
    made(store, 2)
    store.append([one(1, 1, expires_at_ms=10), one(2, 2, expires_at_ms=20)])
    with store.group():
        store.drop(1)

        assert store.expire(20, 10).removed == (due(2, 1),)


CASES: tuple[Case, ...] = (
    expire_removes_what_is_due_and_not_sent,
    expire_goes_on_behind_its_mark,
    expire_unsent_removes_what_the_hub_has_reserved_and_not_sent,
    expiry_makes_room_and_leaves_positions_empty,
    expired_qos2_id_is_forgotten_with_its_record,
    expire_looks_into_no_dropped_queue,
)
