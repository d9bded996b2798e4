"""The parts of driver `hbase-plain`: bytes of the meta row, runs of positions, what a queue knows, which bodies are referred to."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iothub.base.errors import BackendError, CorruptRecordError, FutureRecordError
from iothub.records.queue_batch import Batch, Known, decode_batch
from iothub.records.queued import encode_record
from iothub.testing.queue_contract import TENANT, identified, made, one
from iothub_services.hbase.calls import Call
from iothub_services.queues.hbase.bodies import inline
from iothub_services.queues.hbase_plain.doomed import MOST, Doomed
from iothub_services.queues.hbase_plain.limits import full, may_drop, victims
from iothub_services.queues.hbase_plain.meta import (
    Consumed,
    Meta,
    Open,
    Run,
    decode_meta,
    decode_remembered,
    encode_meta,
    encode_remembered,
)
from iothub_services.queues.hbase_plain.queue import LogQueue, cut, holds, joined
from iothub_services.queues.hbase_plain.references import referenced
from iothub_services.queues.hbase_plain.slots import Course, Moving, Slots
from iothub_services.queues.port import Append, Delivery, Inbound, Overflow, QueueLimits
from iothub_services.queues.remote.index import KnownQueue, Tenant
from tests.support.hbase_calls import Fault
from tests.support.hbase_plain import TABLES, PlainHBase

ID = bytes(range(16))
META = Meta(
    born=0x0A,
    epoch=2,
    limits=QueueLimits(3, 4, Overflow.DROP_OLDEST),
    revision=5,
    token=6,
    head=7,
    reserved=8,
    top=9,
    top_bytes=10,
    top_qos0=11,
    gone_messages=12,
    gone_bytes=13,
    gone_qos0=14,
    owner=b"w1",
    remembers=True,
    holes=((12, 12),),
    vacated=((1, 9), (15, 16)),
    released=(11,),
    inbound={77: Open(True, ID)},
    consumed={0x63: Consumed(21, 22)},
)
OCTETS = (
    "0101"
    + "".join(f"{number:016x}" for number in (5, 10, 6, 2, 7, 8, 9, 10, 11, 12, 13, 14, 3, 4))
    + "01"
    + "02"
    + "7731"
    + "00000001"
    + "000000000000000c" * 2
    + "00000002"
    + "00000000000000010000000000000009"
    + "000000000000000f0000000000000010"
    + "00000001"
    + "000000000000000b"
    + "00000001"
    + "004d01"
    + ID.hex()
    + "00000001"
    + "000000000000006300000000000000150000000000000016"
)


def test_meta_row_has_these_bytes() -> None:
    """Version 1."""
    assert encode_meta(META).hex() == OCTETS
    assert decode_meta(bytes.fromhex(OCTETS)) == META
    plain = Meta(1, 0, QueueLimits())
    assert decode_meta(encode_meta(plain)) == plain


def test_remembered_id_has_these_bytes() -> None:
    """Version 1."""
    assert encode_remembered(7, 8).hex() == "01" + "0000000000000007" + "0000000000000008"
    assert decode_remembered(encode_remembered(7, 8)) == (7, 8)
    with pytest.raises(CorruptRecordError, match="18 bytes"):
        decode_remembered(encode_remembered(7, 8) + b"x")


def test_meta_row_of_the_future_is_refused_by_name() -> None:
    """A newer hub is at work."""
    with pytest.raises(FutureRecordError, match="meta row of a queue of format version 2"):
        decode_meta(b"\2" + bytes.fromhex(OCTETS)[1:])


@given(st.integers(0, len(OCTETS) // 2 - 1))
def test_meta_row_that_is_cut_is_refused(size: int) -> None:
    """Never misread."""
    with pytest.raises(CorruptRecordError):
        decode_meta(bytes.fromhex(OCTETS)[:size])


runs = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)).map(lambda run: (run[0], sum(run))), max_size=6)


def _positions(found: tuple[Run, ...] | list[Run]) -> set[int]:
    return {position for first, last in found for position in range(first, last + 1)}


@given(runs, runs)
def test_runs_are_sets_of_positions(first: list[Run], second: list[Run]) -> None:
    """Joined they hold the same and never touch; cut they lose exactly what is taken."""
    found = joined(first)
    assert _positions(found) == _positions(first)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(found))
    assert {position for position in range(60) if holds(found, position)} == _positions(first)
    assert _positions(cut(found, second)) == _positions(first) - _positions(second)


def _queue(*counts: int) -> LogQueue:
    """Return a queue with one row for each count, all known."""
    meta = Meta(1, 0, QueueLimits())
    queue = LogQueue(KnownQueue(1, TENANT, Tenant()), meta, encode_meta(meta))
    for number, count in enumerate(counts, 1):
        records = tuple([Known(10, each % 2, 0, b"") for each in range(count)])
        batch = Batch(1, 9, number, queue.tail + 1, queue.tail_bytes, queue.tail_qos0, records)
        assert queue.learn(batch)
    return queue


def test_row_is_vacated_when_all_of_it_is_gone() -> None:
    """Acknowledged or removed, in any order; its writer's sequence is noted, and its sums."""
    queue = _queue(2, 3, 1)

    queue.adopt(queue.removed(queue.meta, [4, 3, 5], 1000), b"1")
    assert (queue.meta.vacated, queue.meta.holes, queue.meta.top) == (((3, 5),), (), 5)
    queue.adopt(queue.acknowledged(queue.meta, 1, 1000), b"2")
    assert (queue.meta.vacated, queue.meta.holes) == (((3, 5),), ())
    queue.adopt(queue.acknowledged(queue.meta, 9, 1000), b"3")

    meta = queue.meta
    assert (meta.head, meta.vacated, meta.holes, queue.firsts) == (6, ((1, 6),), (), [])
    assert meta.consumed == {9: Consumed(3, 1000)}
    assert (queue.messages, queue.size_bytes, queue.qos0, queue.tail) == (0, 0, 0, 6)
    assert (meta.gone_messages, meta.gone_bytes, meta.top_bytes) == (6, 60, 60)


def test_hole_in_a_row_stays_until_the_head_has_passed() -> None:
    """The row is there as long as something of it is."""
    queue = _queue(3)
    queue.adopt(queue.removed(queue.meta, [2], 1000), b"1")
    assert (queue.meta.holes, queue.meta.vacated, queue.messages) == (((2, 2),), (), 2)
    assert [position for position, _ in queue.stored(0)] == [1, 3]
    queue.adopt(queue.acknowledged(queue.meta, 2, 1000), b"2")
    assert (queue.meta.holes, queue.meta.vacated, queue.messages) == ((), (), 1)


def test_writers_that_have_long_been_silent_are_forgotten() -> None:
    """Not those of the last ten minutes, whose batches may still be repeated."""
    queue = _queue(*[1] * 30)
    batches = {first: replace(batch, writer=first) for first, batch in queue.batches.items()}
    queue.batches = batches
    for position in range(1, 21):
        queue.adopt(queue.acknowledged(queue.meta, position, 1000), b"")
    assert len(queue.meta.consumed) == 20
    queue.adopt(queue.acknowledged(queue.meta, 21, 700_000), b"")
    assert len(queue.meta.consumed) == 8
    assert 21 in queue.meta.consumed


def test_queue_is_full_by_the_first_limit_that_one_more_would_break() -> None:
    """The queue's own before the tenant's; what is on its way counts."""
    queue = _queue(2)
    tenant = queue.known.tenant
    queue.known.holds(2, 20)
    for limits, bounds, name in (
        (QueueLimits(2, 0), (0, 0), "session_queued_messages"),
        (QueueLimits(3, 24), (1, 0), "session_queued_bytes"),
        (QueueLimits(0, 0), (2, 1), "queued_messages"),
        (QueueLimits(0, 0), (0, 24), "queued_bytes"),
        (QueueLimits(3, 25), (3, 25), ""),
    ):
        queue.meta = replace(queue.meta, limits=limits)
        tenant.max_messages, tenant.max_bytes = bounds
        assert full(queue, 5) == name
    queue.coming_messages = 1
    assert full(queue, 5) == "session_queued_messages"


def test_policy_drops_all_that_is_needed_or_nothing() -> None:
    """The oldest first, behind the head and what may have been sent; only QoS 0 where the policy says so."""
    queue = _queue(6)
    for overflow, reserved, size, found in (
        (Overflow.DROP_OLDEST, 0, 15, [1, 2]),
        (Overflow.DROP_OLDEST, 4, 15, [5, 6]),
        (Overflow.DROP_OLDEST, 4, 25, []),
        (Overflow.DROP_QOS0_FIRST, 0, 25, [1, 3, 5]),
        (Overflow.DROP_QOS0_FIRST, 1, 25, []),
    ):
        queue.meta = replace(queue.meta, limits=QueueLimits(0, 60, overflow), reserved=reserved)
        assert may_drop(queue)
        assert victims(queue, size) == found
    queue.meta = replace(queue.meta, limits=QueueLimits(0, 60, Overflow.REJECT))
    assert not may_drop(queue)


def test_rows_are_deleted_until_it_works() -> None:
    """Nobody waits for it, unless the slot is needed; what cannot be deleted is kept up to a bound."""
    hbase = PlainHBase()
    _, caller = hbase.store()
    doomed = Doomed(caller, TABLES.queues_plain)
    caller.fault = lambda _: Fault.UNSENT
    for number in range(MOST + 5):
        doomed.add(b"%d" % number)

    doomed.delete()
    with pytest.raises(BackendError):
        doomed.delete(is_needed=True)
    caller.fault, caller.made = lambda _: Fault.NONE, []
    doomed.delete()
    doomed.delete()

    assert len(caller.made) == MOST // 500


def test_slot_is_put_looked_at_and_gone_on_behind() -> None:
    """One row on its way, round by round, while another hub has taken its slot."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    made(store, 1)
    log = store._log
    queue = log.existing(1)
    other, _ = hbase.store(2)
    other.append([one(1, 1)])
    record = encode_record(1, 0, (), 0, b"", inline(b"abc"))
    row = Moving(queue, Batch(queue.meta.born, 1, 1, 1, 0, 0, (Known(3, 1, 0, b""),)), [record])
    slots = Slots(log)

    courses = []
    while not row.is_over:
        slots.round([row])
        courses.append((row.course, row.batch.first))

    assert courses == [(Course.LOOK, 1), (Course.PUT, 2), (Course.PLACED, 2)]
    assert decode_batch(hbase.rows[row.row][b"d:b"][0]) == queue.batches[2]
    assert caller.made.count("checkAndPut") == 4  # a queue made, one claimed, and two slots


def test_scanner_that_is_lost_with_its_connection_is_opened_anew() -> None:
    """Between opening and reading: a queue is loaded all the same."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    made(store, 1)
    store.append([one(1, 1)])
    other, caller = hbase.store(2)
    log = other._log
    log.index.find((1,))
    caller.made.clear()
    moves = iter((Fault.MOVED, Fault.MOVED))
    caller.fault = lambda call: next(moves, Fault.NONE) if call.scanner is not None else Fault.NONE

    assert log.existing(1).tail == 1
    assert [verb for verb in caller.made if verb.startswith("scanner")] == 2 * [
        "scannerOpenWithScan",
        "scannerGetList",
        "scannerClose",
    ]


def test_gaps_of_what_is_known_are_found() -> None:
    """Rows in the middle that this hub has not seen; the nearest place where one begins."""
    whole = _queue(2, 3, 1, 4)
    queue = _queue()
    for first in (1, 7):
        queue.learn(whole.batches[first])

    assert queue.missing(10) == 3
    assert (queue.boundary(4), queue.boundary(8), queue.boundary(11)) == (3, 7, 11)
    queue.learn(whole.batches[3])
    queue.learn(whole.batches[6])
    assert queue.missing(10) is None
    queue.forget_rows()
    assert (queue.missing(10), queue.boundary(5), queue.tail) == (1, 1, 10)


def test_bodies_that_lie_apart_are_marked_where_they_are_referred_to() -> None:
    """By records, by intents that are open; not by those that are over."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    for queue_id in range(1, 7):
        made(store, queue_id)
    publisher = made(store, 9)
    wide = tuple(Delivery(queue_id, 2) for queue_id in range(1, 7))
    store.append([Append(identified(1), b"w" * 500, 0, wide)])
    store.append([one(1, 2, qos=2, body=b"l" * 70_000, inbound=Inbound(9, publisher.epoch, 1)), one(1, 3)])
    dying, other = hbase.store(2)
    swaps: list[int] = []

    def dies(call: Call[object]) -> Fault:
        swaps.extend([1] * (call.verb.name == "checkAndPut"))
        return Fault.UNSENT if len(swaps) > 1 else Fault.NONE

    other.fault = dies
    with pytest.raises(BackendError):
        dying.append([one(1, 4, qos=2, body=b"o" * 70_000, inbound=Inbound(9, publisher.epoch, 2))])

    marked = {
        body
        for of_intents in (True, False)
        for page in referenced(caller, TABLES.queues_plain, of_intents=of_intents)
        for body in page
    }

    assert len(marked) == 3
    assert {tenant_id for tenant_id, _ in marked} == {TENANT}
    assert len(hbase.gateway.tables[TABLES.bodies]) == 3
