"""Parts of the queue drivers on HBase by themselves: repeats, room of tenants, regions, bodies, index."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import TENANT, made, one
from iothub_services.hbase.calls import Call, Pin
from iothub_services.hbase.tables import split_keys
from iothub_services.queues.damage import DamagedQueues, no_alarm
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.bodies import CACHE_BYTES, PIECE_BYTES, Bodies, Wanted, is_apart
from iothub_services.queues.hbase.index import QueueIndex, all_of
from iothub_services.queues.hbase.moves import require
from iothub_services.queues.hbase.regions import REQUEST_BYTES, Regions
from iothub_services.queues.hbase.requests import Status
from iothub_services.queues.port import Appended, QueueLimits
from iothub_services.queues.remote.repeats import Repeats
from iothub_services.queues.remote.room import TenantRoom
from iothub_services.queues.remote.tenant import Tenant
from tests.support.hbase.hbase_calls import FakeCaller, Fault
from tests.support.hbase.hbase_gateway import RefusedError
from tests.support.hbase.hbase_queues import TABLES, HBase

# --- repeats


class Op:
    """Whatever is repeated."""


def test_operation_is_kept_until_a_group_with_it_ends_well() -> None:
    """Alone, it is forgotten as soon as it is answered."""
    repeats: Repeats[Op, str] = Repeats()
    op, other = Op(), Op()
    repeats.keep(op, "done")
    repeats.answered(op)
    assert repeats.get(op) is None

    def failing_group() -> None:
        with repeats.group():
            repeats.keep(op, "done")
            repeats.answered(op)
            repeats.begin([other], ["done too"], 10)
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        failing_group()
    assert repeats.all_of([op, other, Op()]) == ["done", "done too", None]

    with repeats.group():
        repeats.answered(op)
        with repeats.group():
            repeats.begin([other], ["done too"], 10)
        assert repeats.get(op) == "done"
    assert len(repeats) == 0


def test_oldest_operations_are_forgotten_when_there_are_too_many() -> None:
    """By number and by bytes; who keeps them is told."""
    forgotten: list[str] = []
    repeats: Repeats[Op, str] = Repeats(forgotten.append, most=2, most_bytes=100)
    ops = [Op() for _ in range(3)]
    for number, op in enumerate(ops):
        with repeats.group():
            repeats.keep(op, f"{number}", 10)
    assert forgotten == ["0"]
    last = Op()
    with repeats.group():
        repeats.keep(last, "last", 95)

    assert forgotten == ["0", "1", "2"]
    assert repeats.get(last) == "last"


def test_last_group_that_failed_is_kept_whole() -> None:
    """However large it is: its operations come again, and forgetting one would do it twice."""
    forgotten: list[str] = []
    repeats: Repeats[Op, str] = Repeats(forgotten.append, most=2, most_bytes=100)
    old, ops = Op(), [Op() for _ in range(4)]
    repeats.keep(old, "old", 10)

    def failing_group() -> None:
        with repeats.group():
            repeats.begin(ops[:1], ["0"], 90)
            repeats.begin(ops[1:], ["1", "2", "3"], 900)
            raise ValueError("failed")

    for _ in range(2):
        with pytest.raises(ValueError, match="failed"):
            failing_group()
        assert forgotten == ["old"]
        assert repeats.all_of(ops) == ["0", "1", "2", "3"]


# --- room


def room(*, messages: int = 0, size_bytes: int = 0) -> TenantRoom:
    tenant = Tenant()
    tenant.max_messages, tenant.max_bytes = messages, size_bytes
    return TenantRoom(tenant)


def test_what_fits_goes_out_together_and_the_rest_waits() -> None:
    """The third message may not fit: it waits until the first two are answered."""
    left = room(messages=2)

    assert [left.admits(queue_id, 10) for queue_id in (1, 2, 3, 1)] == [True, True, False, False]
    assert left.of(1) == (2, -1)


def test_what_cannot_fit_goes_out_together_without_room() -> None:
    """All of it is refused, or makes room in its own queue."""
    left = room(messages=5, size_bytes=9)

    assert [left.admits(queue_id, 10) for queue_id in (1, 2, 1, 3)] == [True] * 4
    assert (left.of(1), left.of(2), left.of(3)) == ((2, 9), (1, 0), (1, 0))
    assert not left.admits(4, 9)  # this one would fit alone
    assert not left.admits(4, 10)


def test_tenant_without_room_for_messages_hands_out_bytes_once() -> None:
    """So that dropping in one queue cannot lift the sum above the bound."""
    tenant = Tenant()
    tenant.messages, tenant.max_messages, tenant.max_bytes = 9, 3, 15
    left = TenantRoom(tenant)

    assert [left.admits(queue_id, 10) for queue_id in (1, 2, 3)] == [True] * 3
    assert (left.of(1), left.of(2), left.of(3)) == ((0, 10), (0, 5), (0, 0))


def test_what_is_open_takes_its_room_first() -> None:
    """It may be stored already, or not."""
    left = room(messages=2)
    left.reserve(1, 10)

    assert [left.admits(queue_id, 10) for queue_id in (1, 2)] == [True, False]


# --- regions


def test_operations_are_grouped_by_region_and_cut_by_size() -> None:
    """One call for each region, more only where frames would grow too large; outcomes in the order of the operations."""
    harness = HBase()
    store, caller = harness.store()
    for queue_id in (1, 2, 3):
        made(store, queue_id)
    regions = Regions(caller, TABLES.queues, DamagedQueues(no_alarm))
    regions.load()
    caller.made.clear()
    size = REQUEST_BYTES // 2
    large = [requests.sized(b"\1\1\0\0" + bytes(8) + size.to_bytes(4) + bytes(2), size), b"x" * size]
    steps = [
        requests.append(keys.queue_key(queue_id, TENANT), 5, number, (-1, -1), large)
        for number, queue_id in enumerate((1, 2, 1, 3, 1), 1)
    ]

    results = require(regions.send_steps(steps))

    assert len(caller.made) == 5
    assert [requests.appended_run(octets, 1)[2] for _, octets in results] == [1, 1, 2, 1, 3]


def test_calls_for_all_regions_are_done_side_by_side() -> None:
    """Calls with the same pin are done one after the other; numbers take all connections."""
    harness = HBase()
    store, caller = harness.store()
    for queue_id in range(1, 9):
        made(store, queue_id)
    harness.coprocessor.starts = [b"", *split_keys(8)]
    store.append([one(queue_id, 1) for queue_id in range(1, 9)])
    pins: list[Pin] = []

    def note(call: Call[object]) -> Fault:
        pins.append(call.pin)
        return Fault.NONE

    caller.fault = note
    store.append([one(queue_id, 1) for queue_id in range(1, 9)])

    assert sorted(pins) == list(range(8))


def test_regions_that_are_others_now_are_read_again() -> None:
    """The refusal says that nothing was done: the same operations go to where their queues are."""
    harness = HBase()
    store, caller = harness.store()
    for queue_id in range(1, 9):
        made(store, queue_id)
    harness.coprocessor.starts = [b"", *split_keys(8)]

    assert store.append([one(queue_id, 1) for queue_id in range(1, 9)]) == [Appended((1,))] * 8
    assert "getTableRegions" in caller.made


def test_regions_that_cannot_be_read_again_are_asked_for_later() -> None:
    """What was refused as a whole was not written; what the other regions did is not forgotten."""
    harness = HBase()
    store, caller = harness.store()
    for queue_id in range(1, 9):
        made(store, queue_id)
    harness.coprocessor.starts = [b"", *split_keys(8)]
    caller.fault = lambda call: Fault.UNSENT if call.verb.name == "getTableRegions" else Fault.NONE
    batch = [one(queue_id, 1) for queue_id in range(1, 9)]
    with pytest.raises(BackendError) as failure, store.group():
        store.append(batch)
    caller.fault = lambda _: Fault.NONE

    assert failure.value.retryable
    with store.group():
        assert store.append(batch) == [Appended((1,))] * 8


def test_answer_of_another_table_is_refused() -> None:
    """An append without our coprocessor answers with the cell: nobody takes that for positions."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    harness.coprocessor.name = b"another"
    harness.gateway.tables[TABLES.queues] = {}

    with pytest.raises(BackendError, match="the queue coprocessor") as failure:
        store.append([one(1, 1)])
    assert not failure.value.retryable
    assert caller.made


def test_error_that_will_not_pass_comes_first() -> None:
    """Then a batch is taken apart, and those that are well are served."""
    passing = BackendError("busy", retryable=True, is_written=True)
    final = BackendError("no such table", retryable=False)

    with pytest.raises(BackendError, match="no such table") as failure:
        require([passing, (Status.DONE, b""), final])
    assert (failure.value.retryable, failure.value.is_written) == (False, True)
    with pytest.raises(BackendError, match="busy"):
        all_of([1, passing])


def test_error_of_a_part_says_that_something_may_be_written() -> None:
    """Because another part is done, or because one of them may be."""
    lost = BackendError("lost", retryable=True, is_written=True)
    unsent = BackendError("not sent", retryable=True)

    for outcomes, is_written in (
        ([unsent, (Status.DONE, b"")], True),
        ([unsent, lost], True),
        ([unsent, unsent], False),
    ):
        with pytest.raises(BackendError) as failure:
            require(outcomes)
        assert failure.value.is_written is is_written


# --- bodies


def bodies(cache_bytes: int = CACHE_BYTES) -> tuple[Bodies, FakeCaller]:
    harness = HBase()
    caller = FakeCaller(harness.gateway)
    return Bodies(caller, TABLES.bodies, 9, ManualClock(wall=1.5), cache_bytes), caller


def test_body_ids_rise_and_carry_the_writer() -> None:
    """Golden bytes: microseconds, then the writer; never the same twice, even if the clock stands."""
    made_bodies, _ = bodies()

    assert made_bodies.new_id().hex() == f"{1_500_000:016x}{9:016x}"
    assert made_bodies.new_id().hex() == f"{1_500_001:016x}{9:016x}"


def test_bodies_are_fetched_together_and_kept() -> None:
    """One multi-get for a page; a second reader of the same message costs nothing."""
    store, caller = bodies()
    stored = [(TENANT, store.new_id(), b"%d" % number * 300) for number in range(5)]
    store.put(stored)
    caller.made.clear()
    wanted = [Wanted(tenant_id, body_id, len(octets)) for tenant_id, body_id, octets in stored]

    first, second = store.fetch(wanted), store.fetch(wanted)

    assert first == second == {body_id: octets for _, body_id, octets in stored}
    assert caller.made == ["getRowsWithColumns"]


def test_cache_of_bodies_is_bounded() -> None:
    """The one that was not asked for longest goes first."""
    store, caller = bodies(cache_bytes=1000)
    stored = [(TENANT, store.new_id(), bytes(250)) for _ in range(5)]
    store.put(stored)
    wanted = [Wanted(tenant_id, body_id, 250) for tenant_id, body_id, _ in stored]
    store.fetch(wanted[:4])
    store.fetch(wanted[:1])
    store.fetch(wanted[4:])
    caller.made.clear()

    store.fetch(wanted[:1])
    assert caller.made == []
    store.fetch(wanted[1:2])
    assert caller.made == ["getRowsWithColumns"]


def test_body_that_is_not_whole_is_left_out() -> None:
    """Of another size, of another version, or with a piece missing."""
    store, caller = bodies()
    stored = [(TENANT, store.new_id(), bytes(size)) for size in (10, 10, PIECE_BYTES + 1)]
    store.put(stored)
    rows = [keys.body_key(body_id, TENANT) for _, body_id, _ in stored]
    table = caller.gateway.table(TABLES.bodies)
    table[rows[1]] = {b"b:0": (b"\2" + bytes(10), 1)}
    del table[rows[2]][b"b:1"]

    wanted = [Wanted(TENANT, stored[0][1], 11), *(Wanted(TENANT, each[1], len(each[2])) for each in stored[1:])]
    assert store.fetch(wanted) == {}
    assert store.fetch([Wanted(TENANT, stored[0][1], 10)]) == {stored[0][1]: bytes(10)}


def test_which_bodies_are_stored_apart() -> None:
    """Large ones, and those that many queues get; small ones never."""
    assert [is_apart(size, queues) for size, queues in ((100, 1000), (1000, 4), (1000, 5), (65_537, 1))] == [
        False,
        False,
        True,
        True,
    ]


# --- index


def test_dropped_queue_that_is_told_of_late_counts_for_nobody() -> None:
    """An answer that was on its way when the queue went must not come back into its tenant's sum."""
    index = QueueIndex(FakeCaller(HBase().gateway), TABLES.queue_index, TABLES.queues)
    known = index.add(TENANT, 1)
    known.holds(3, 30)
    assert index.usage(TENANT) == (3, 30)

    index.forget(1)
    known.holds(5, 50)

    assert index.usage(TENANT) == (0, 0)
    assert index.get(1) is None


def test_scanners_that_cannot_be_closed_do_no_harm() -> None:
    """They run out in the gateway by themselves."""
    harness = HBase()
    first, _ = harness.store(1)
    other, caller = harness.store(2)
    other.open()
    made(first, 1, QueueLimits())

    def fault(call: Call[object]) -> Fault:
        return Fault.UNSENT if call.verb.name == "scannerClose" else Fault.NONE

    caller.fault = fault
    assert other.tails([1, 2]) == {1: 0}


def test_queue_is_found_though_the_scanner_is_lost_with_its_connection() -> None:
    """Between opening and reading: it is opened anew."""
    harness = HBase()
    first, _ = harness.store(1)
    other, caller = harness.store(2)
    other.open()
    made(first, 1, QueueLimits())
    moves = iter((Fault.MOVED, Fault.MOVED))
    caller.fault = lambda call: next(moves, Fault.NONE) if call.scanner is not None else Fault.NONE

    assert other.tails([1, 2]) == {1: 0}


def test_refusal_names_its_reason_once() -> None:
    """What HBase says of a request that is refused whole is not tried again."""
    harness = HBase()
    store, _ = harness.store()
    made(store, 1)

    def refuse(arguments: dict[int, object]) -> None:
        raise RefusedError("org.apache.hadoop.hbase.security.AccessDeniedException: no", 1, False)

    harness.gateway.verbs["append"] = refuse
    with pytest.raises(BackendError, match="AccessDeniedException") as failure:
        store.append([one(1, 1)])
    assert (failure.value.retryable, failure.value.is_written) == (False, False)


def test_outcomes_are_kept_until_their_group_ends_well() -> None:
    """What was done before a failure is not done again, also when it came to nothing."""
    moves: Repeats[tuple[int], bool] = Repeats()
    first, second = (1_000,), (2_000,)

    def fail() -> None:
        with moves.group():
            assert moves.settle([first], [False]) == [False]
            raise RuntimeError("a failure")

    with pytest.raises(RuntimeError):
        fail()

    with moves.group():
        assert moves.new_of([first, second]) == [second]
        assert moves.settle([first, second], [True]) == [False, True]

    assert len(moves) == 0
