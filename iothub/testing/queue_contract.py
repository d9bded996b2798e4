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


def purged(store: QueueStore, queue_id: int) -> int:
    """Drop all that is stored now, call after call; return how much that was."""
    messages, upto = store.purge(queue_id)
    while upto:
        more, upto = store.purge(queue_id, upto)
        messages += more
    return messages


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
    assert purged(store, 1) == 1
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
    store.append([one(1, number, body=b"x" * size) for number, size in ((6, 10), (7, 1), (8, 1), (9, 1))])
    exact = store.read(1, claim.epoch, 5, 10, 12)
    assert ([record.position for record in exact.records], exact.upto, exact.is_short) == ([6, 7, 8], 8, False)
    last = store.read(1, claim.epoch, 7, 2, MANY)
    assert ([record.position for record in last.records], last.upto, last.is_short) == ([8, 9], 9, True)


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

    assert purged(store, 1) == 2
    claim = store.claim(1, b"b")
    assert (claim.head, claim.tail, claim.released) == (0, 2, (1,))


def purge_spares_what_comes_while_it_goes_on(store: QueueStore) -> None:
    """It ends, whoever publishes meanwhile; a queue that is gone is not there to be emptied."""
    claim = made(store, 1)
    store.append([one(1, 1), one(1, 2)])
    upto = store.stats(1).tail
    store.append([one(1, 3)])

    dropped, left = store.purge(1, upto)
    while left:
        assert left == upto
        more, left = store.purge(1, left)
        dropped += more

    if dropped == 2:  # a driver may drop what came since with the first call, but no more than that
        assert positions(store, 1, claim.epoch) == [3]
    assert dropped in {2, 3}
    assert store.purge(1, upto) in {(0, 0), (1, 0)}
    store.drop(1)
    with pytest.raises(NotFoundError):
        store.purge(1, upto)


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
    purge_spares_what_comes_while_it_goes_on,
    reserve_is_stored_as_told_also_lower,
    inbound_identifier_is_recorded_with_its_append,
    inbound_identifier_twice_in_one_batch_is_a_duplicate,
    inbound_of_a_fenced_or_dropped_publisher_writes_nothing,
    inbound_that_goes_to_no_queue_is_recorded,
    dropped_queue_is_gone_for_everybody,
    queue_that_was_dropped_and_made_anew_starts_empty,
    create_refuses_a_queue_that_exists,
    tenant_is_dropped_with_all_its_queues,
    stats_tails_and_lists_agree,
    group_makes_one_of_many_verbs,
)
