"""Mark and sweep of the bodies in HBase, on a gateway in memory: what goes, what stays, who holds the lease.

Of `body_sweep`, `references` and `sweep_lease` in `iothub_services.queues.hbase`.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from iothub.base.errors import BackendError, ConflictError, CorruptRecordError, NotFoundError
from iothub.records import keys
from iothub.testing.queue_contract import TENANT, identified, made, one
from iothub_services.hbase import calls
from iothub_services.queues.hbase.bodies import LARGE_BYTES
from iothub_services.queues.hbase.body_sweep import Swept, dry_sweep, sweep, sweep_leased
from iothub_services.queues.hbase.references import Marked
from iothub_services.queues.hbase.sweep_lease import LEASE_MS, SweepLease
from iothub_services.queues.port import Append, Delivery, Inbound, QueueStore
from tests.support.hbase.hbase_calls import FakeCaller, Fault
from tests.support.hbase.hbase_queues import TABLES, HBase

LARGE = b"l" * (LARGE_BYTES + 1)
HOUR_MS = 3_600_000
AGE_S = 7200.0


def stored(harness: HBase) -> set[bytes]:
    return set(harness.gateway.tables[TABLES.bodies])


def all_of(harness: HBase, *, is_dry_run: bool = False) -> Swept:
    """Sweep whatever its age."""
    _, caller = harness.store(98)
    return sweep(caller, TABLES, harness.gateway.now + 1, lambda _: None, is_dry_run=is_dry_run)


def ignore(_: Swept) -> None:
    """Watch nothing."""


def leave_an_intent(store: QueueStore, caller: FakeCaller, *queue_ids: int) -> None:
    """A publisher's message is durable, and its hub dies before it is in a queue."""
    epoch = made(store, queue_ids[0]).epoch
    made(store, queue_ids[1])
    done: list[str] = []

    def fault(call: calls.Call[object]) -> Fault:
        done.extend(["append"] * (call.verb.name == "append"))
        return Fault.UNSENT if len(done) > 1 else Fault.NONE

    caller.fault = fault
    with pytest.raises(BackendError):
        store.append([one(queue_ids[1], 1, qos=2, body=LARGE, inbound=Inbound(queue_ids[0], epoch, 9))])


def test_body_goes_with_its_last_reference() -> None:
    """A body that a queue still refers to stays."""
    harness = HBase()
    store, _ = harness.store()
    for queue_id in (1, 2, 3):
        made(store, queue_id)
    store.append([one(1, 1, body=LARGE), one(2, 2, body=LARGE), one(3, 3, body=LARGE)])
    assert all_of(harness) == Swept(references=3, bodies=3, referenced=3)

    store.purge(1)
    assert all_of(harness) == Swept(references=2, bodies=3, referenced=2, loose=1, deleted=1)
    store.purge(2)
    store.purge(3)
    assert all_of(harness).deleted == 2
    assert stored(harness) == set()


def test_body_of_many_queues_stays_for_the_last_of_them() -> None:
    """It was stored once for all of them."""
    harness = HBase()
    store, _ = harness.store()
    for queue_id in range(1, 7):
        made(store, queue_id)
    store.append([Append(identified(1), b"w" * 500, 0, tuple(Delivery(queue_id, 1) for queue_id in range(1, 7)))])
    for queue_id in range(1, 6):
        store.purge(queue_id)

    assert all_of(harness).deleted == 0
    store.drop(6)
    assert all_of(harness).deleted == 1


def test_open_intent_keeps_its_body() -> None:
    """Whoever claims the publisher's queue finishes it, however late."""
    harness = HBase()
    store, caller = harness.store()
    leave_an_intent(store, caller, 1, 2)
    assert len(stored(harness)) == 1

    assert all_of(harness).deleted == 0


def test_intent_that_is_finished_meanwhile_is_seen_among_the_records() -> None:
    """Intents are read first: its reference has moved by the time that records are read."""
    harness = HBase()
    store, caller = harness.store()
    leave_an_intent(store, caller, 1, 2)
    caller.fault = lambda _: Fault.NONE
    finished: list[int] = []

    def finish(_: Swept) -> None:
        if not finished:
            finished.append(store.claim(1, b"successor").epoch)

    _, own = harness.store(98)
    swept = sweep(own, TABLES, harness.gateway.now + 1000, finish)

    assert (swept.deleted, swept.bodies, store.stats(2).messages) == (0, 1, 1)


def test_young_body_is_spared_by_the_clock_of_hbase() -> None:
    """Its references may be on their way; what the hub's own clock says about its age counts for nothing."""
    harness = HBase()
    harness.clock.jump_wall(-1e9)
    store, caller = harness.store()
    made(store, 1)
    store.append([one(1, 1, body=LARGE)])
    store.purge(1)
    put_at = harness.gateway.now
    harness.gateway.now += 2 * HOUR_MS
    store.append([one(1, 2, body=LARGE)])
    store.purge(1)

    swept = sweep(caller, TABLES, put_at + HOUR_MS, ignore)

    assert (swept.deleted, swept.young) == (1, 1)


def test_body_put_while_the_sweep_reads_is_spared() -> None:
    """A hub puts a body at every page of the sweep, and refers to it later."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    _, own = harness.store(98)
    puts: list[int] = []

    def put(_: Swept) -> None:
        if len(puts) < 5:
            puts.append(1)
            store.append([one(1, len(puts), body=LARGE)])

    swept = sweep_leased(own, TABLES, AGE_S, put, harness.clock.monotonic)

    assert swept is not None
    assert swept.deleted == 0
    assert len(stored(harness)) == len(puts)
    assert [len(record.body) for record in store.read(1, 1, 0, 9, 1 << 30).records] == [len(LARGE)] * len(puts)
    assert caller.made


def test_damaged_record_and_intent_keep_nobody_from_sweeping() -> None:
    """Readers pass them over: what they referred to goes, unless another record does, too."""
    harness = HBase()
    store, _ = harness.store()
    made(store, 3)
    store.append([one(3, 1, body=LARGE), one(3, 2, body=b"m" + LARGE)])
    table = harness.gateway.tables[TABLES.queues]
    for key, cells in table.items():
        if b"d:b" in cells:
            table[key] = {b"d:b": (b"\x09" + cells[b"d:b"][0][1:], cells[b"d:b"][1])}
            break
    table[keys.intent_row(keys.queue_key(3, TENANT), 5)] = {b"m:p": (b"\x09nonsense", 1)}
    harness.gateway.now += 3 * HOUR_MS

    assert all_of(harness).references == 1
    assert len(stored(harness)) == 1


def test_dry_run_deletes_nothing() -> None:
    """It counts, and takes no lease."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    store.append([one(1, 1, body=LARGE)])
    store.purge(1)
    harness.gateway.now += 3 * HOUR_MS
    assert SweepLease(caller, TABLES.queue_index).acquire()

    swept = dry_sweep(caller, TABLES, AGE_S, ignore)

    assert (swept.loose, swept.deleted, len(stored(harness))) == (1, 0, 1)


@pytest.mark.parametrize("table", [TABLES.bodies, TABLES.queues])
def test_sweep_without_tables_says_which_is_missing(table: bytes) -> None:
    """Without the table of queues every body would look loose."""
    harness = HBase()
    del harness.gateway.tables[table]
    _, caller = harness.store()

    with pytest.raises(NotFoundError, match=f"^missing in HBase: {table.decode()};"):
        dry_sweep(caller, TABLES, AGE_S, ignore)


def test_sweep_after_a_failure_deletes_the_rest() -> None:
    """What was deleted stays so; the lease is free again."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    for number in range(1, 31):
        store.append([one(1, number, body=LARGE)])
    store.purge(1)
    harness.gateway.now += 3 * HOUR_MS
    lost: list[str] = []

    def fault(call: calls.Call[object]) -> Fault:
        lost.extend(["mutateRows"] * (call.verb.name == "mutateRows"))
        return Fault.UNSENT if len(lost) == 2 and call.verb.name == "mutateRows" else Fault.NONE

    caller.fault = fault
    with pytest.raises(BackendError):
        sweep_leased(caller, TABLES, AGE_S, ignore, harness.clock.monotonic)
    assert 0 < len(stored(harness)) < 30

    assert sweep_leased(caller, TABLES, AGE_S, ignore, harness.clock.monotonic) is not None
    assert stored(harness) == set()


# --- the lease


def test_lease_is_one_process_s_at_a_time() -> None:
    """Who asks for it now hears why not; whose it is by the clock just goes without."""
    harness = HBase()
    _, caller = harness.store()
    first, second = SweepLease(caller, TABLES.queue_index), SweepLease(caller, TABLES.queue_index)
    assert first.acquire()

    with pytest.raises(ConflictError, match=r"another sweep is running \(last heartbeat 0 s ago\)"):
        second.acquire()
    assert second.acquire(24 * HOUR_MS) == 0
    first.release(is_done=False)
    assert second.acquire(24 * HOUR_MS)


def test_sweep_that_was_done_comes_again_when_it_is_time() -> None:
    """By the clock of HBase; a person need not wait for it."""
    harness = HBase()
    _, caller = harness.store()
    lease = SweepLease(caller, TABLES.queue_index)
    assert lease.acquire(24 * HOUR_MS)
    lease.release(is_done=True)

    harness.gateway.now += 23 * HOUR_MS
    assert SweepLease(caller, TABLES.queue_index).acquire(24 * HOUR_MS) == 0
    harness.gateway.now += HOUR_MS
    assert SweepLease(caller, TABLES.queue_index).acquire(24 * HOUR_MS)


def test_lease_of_a_dead_process_is_taken_and_the_dead_one_hears_it() -> None:
    """It was silent for a lease; renewing would have kept it."""
    harness = HBase()
    _, caller = harness.store()
    silent, successor = SweepLease(caller, TABLES.queue_index), SweepLease(caller, TABLES.queue_index)
    assert silent.acquire()
    harness.gateway.now += LEASE_MS - 1000
    silent.renew()
    harness.gateway.now += LEASE_MS - 1000
    with pytest.raises(ConflictError):
        successor.acquire()

    harness.gateway.now += 2000
    assert successor.acquire()
    with pytest.raises(ConflictError, match="another sweep took over the lease"):
        silent.renew()
    silent.release(is_done=True)
    with pytest.raises(ConflictError):
        silent.acquire()


def test_long_sweep_keeps_its_lease() -> None:
    """It renews it while it reads."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    for number in range(1, 40):
        store.append([one(1, number, body=LARGE)])
    refused: list[str] = []

    def slow(_: Swept) -> None:
        harness.clock.advance(300)
        harness.gateway.now += 300_000
        with suppress(NotFoundError):
            try:
                SweepLease(caller, TABLES.queue_index).acquire()
            except ConflictError:
                refused.append("taken")

    sweep_leased(caller, TABLES, AGE_S, slow, harness.clock.monotonic)

    assert len(refused) > 3


def test_cell_of_another_version_is_refused() -> None:
    harness = HBase()
    _, caller = harness.store()
    harness.gateway.tables[TABLES.queue_index][keys.META] = {b"i:w": (b"\x09future", 1)}

    with pytest.raises(CorruptRecordError, match="the last sweep has version 09"):
        SweepLease(caller, TABLES.queue_index).acquire()


# --- what is marked


@given(some.sets(some.tuples(some.integers(1, 1 << 31), some.binary(min_size=16, max_size=16)), max_size=300))
def test_marked_forgets_nothing(bodies: set[tuple[int, bytes]]) -> None:
    """However full it is: this one has room for a dozen."""
    marked = Marked(16)
    for body in bodies:
        marked.add(*body)

    assert all(body in marked for body in bodies)


def test_marked_finds_little_that_it_was_not_told() -> None:
    """One in a hundred at ten bits each."""
    marked = Marked(1 << 14, b"salt")
    for number in range((1 << 17) // 10):
        marked.add(1, number.to_bytes(16))

    found = sum((2, number.to_bytes(16)) in marked for number in range(10_000))

    assert found < 200
