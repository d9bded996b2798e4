"""The queue driver `hbase-plain` on the real HBase: the port's contract, what rows hold, two hubs on the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from iothub.records import keys
from iothub.testing import queue_contract, queue_expiry_contract
from iothub.testing.queue_contract import MANY, TENANT, Case, identified, made, moved, one, positions
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Scan
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase_plain.meta import BATCH
from iothub_services.queues.hbase_plain.store import PlainHBaseQueues
from iothub_services.queues.port import Append, Appended, Delivery, MoveKind
from ops.services.house import Services
from tests.support.own_tables import caller_of, own_tables

REGIONS = 8
TENANTS = (TENANT, 8)
CASES = queue_contract.CASES + queue_expiry_contract.CASES


@pytest.fixture(scope="module")
def _tables(_house: Services) -> Iterator[Tables]:
    _house.up()
    with own_tables(_house, REGIONS, "queues_plain", "queue_index", "bodies") as tables:
        yield tables


@pytest.fixture
def tables(_tables: Tables, services: Services) -> Iterator[Tables]:
    """The same tables for all tests; the tenants' queues are dropped behind each."""
    yield _tables
    with caller_of(services) as caller, closing(PlainHBaseQueues(caller, _tables)) as store:
        for tenant_id in TENANTS:
            store.drop_tenant(tenant_id)


@pytest.fixture
def store(tables: Tables, services: Services) -> Iterator[PlainHBaseQueues]:
    with caller_of(services) as caller, closing(PlainHBaseQueues(caller, tables)) as store:
        yield store


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract(case: Case, store: PlainHBaseQueues) -> None:
    """What every driver does, through the gateway alone, over several regions."""
    case(store)


def test_dropped_queues_leave_nothing(store: PlainHBaseQueues, tables: Tables, services: Services) -> None:
    """No row of the queue, none of the index."""
    claim = made(store, 1)
    store.append([one(1, number, qos=2) for number in range(1, 5)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 2)

    assert store.drop(1) == 2
    with caller_of(services) as caller:
        key = keys.queue_key(1, TENANT)
        assert list(caller.scan(Scan(tables.queues_plain, key, keys.prefix_end(key)))) == []
        assert list(caller.scan(Scan(tables.queue_index))) == []


def test_rows_are_deleted_behind_the_head(store: PlainHBaseQueues, tables: Tables, services: Services) -> None:
    """One row for each call and queue; a row goes when all of it is acknowledged."""
    claim = made(store, 1)
    for number in range(1, 4):
        store.append([one(1, 2 * number), one(1, 2 * number + 1)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 3)

    with caller_of(services) as caller:
        found = caller.call(
            calls.get_rows(
                tables.queues_plain, [keys.record_row(keys.queue_key(1, TENANT), first) for first in range(1, 7)]
            )
        )
        assert [keys.position_of(row.key) for row in found] == [3, 5]
    assert positions(store, 1, claim.epoch) == [4, 5, 6]


def test_owner_changes_in_the_middle(store: PlainHBaseQueues, tables: Tables, services: Services) -> None:
    """Each hub finds what the other has written and acknowledged; the reader before is refused."""
    first = made(store, 1)
    store.append([one(1, 1), one(1, 2, qos=2)])
    with caller_of(services) as caller:
        other = PlainHBaseQueues(caller, tables)
        second = other.claim(1, b"other")
        assert (second.epoch, second.head, second.tail) == (first.epoch + 1, 0, 2)
        assert other.append([one(1, 3), one(1, 2, qos=2)]) == [Appended((3,)), Appended((2,))]
        assert moved(other, MoveKind.ACK, 1, second.epoch, 3)

        assert not moved(store, MoveKind.ACK, 1, first.epoch, 1)
        assert store.tails([1]) == {1: 3}
        assert store.append([one(1, 4)]) == [Appended((4,))]
        assert positions(other, 1, second.epoch) == [4]
        assert store.stats(1) == other.stats(1)


def test_large_and_wide_messages_lie_apart(store: PlainHBaseQueues) -> None:
    """A body of 5 MiB, and one for many queues, is read whole."""
    queues = range(1, 21)
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in queues}
    wide, large = b"w" * 1000, b"l" * (5 << 20)
    store.append([Append(identified(1), wide, 0, tuple(Delivery(queue_id, 2) for queue_id in queues))])
    store.append([one(3, 2, body=large)])

    for queue_id in queues:
        assert store.read(queue_id, epochs[queue_id], 0, 1, MANY).records[0].body == wide
    assert store.read(3, epochs[3], 1, 10, MANY).records[0].body == large


def test_usage_is_known_some_idle_time_after_a_restart(
    store: PlainHBaseQueues, tables: Tables, services: Services
) -> None:
    """Read in slices from meta rows and last rows."""
    made(store, 1)
    made(store, 2)
    store.append([one(1, 1, body=b"abc"), one(2, 2, body=b"de")])

    with caller_of(services) as caller:
        restarted = PlainHBaseQueues(caller, tables)
        while restarted.idle():
            pass
        assert restarted.tenant_usage(TENANT) == store.tenant_usage(TENANT) == (2, 5)


def test_last_row_of_a_newer_hub_is_its_own_queues_alone(
    store: PlainHBaseQueues, tables: Tables, services: Services
) -> None:
    """The only row, one behind rows that are gone, one behind rows that wait: tails, lists and pages of a hub that has just started."""
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in range(1, 5)}
    for queue_id, count in ((1, 1), (2, 3), (3, 3), (4, 2)):
        for number in range(1, count + 1):
            store.append([one(queue_id, number)])
    moved(store, MoveKind.ACK, 2, epochs[2], 2)
    with caller_of(services) as caller, closing(PlainHBaseQueues(caller, tables)) as fresh:
        for queue_id, position in ((1, 1), (2, 3), (3, 3)):
            row = keys.record_row(keys.queue_key(queue_id, TENANT), position)
            (found,) = caller.call(calls.get_rows(tables.queues_plain, [row], (BATCH,)))
            caller.call(calls.mutate_row(tables.queues_plain, row, {BATCH: b"\7" + found.cells[BATCH].value[1:]}))

        assert fresh.tails([1, 2, 3, 4]) == {1: 1, 2: 3, 3: 3, 4: 2}
        listed = [(stats.tail, stats.messages) for stats in fresh.list_queues(TENANT)]
        assert listed == [(0, 0), (2, 0), (2, 2), (2, 2)]
        for queue_id, read, position in ((1, 0, 1), (2, 0, 3), (3, 2, 3)):
            stats = fresh.stats(queue_id)
            page = fresh.read(queue_id, stats.epoch, stats.head, 10, MANY)
            assert (len(page.records), page.unreadable and page.unreadable.position) == (read, position)
        assert fresh.drop_tenant(TENANT) == 4
