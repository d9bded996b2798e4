"""The queue driver `hbase` on the real HBase: the port's contract, what rows hold, two hubs on the same tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TypeVar

import pytest

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub.testing import queue_contract, queue_expiry_contract, queue_limits_contract
from iothub.testing.queue_contract import MANY, TENANT, Case, identified, made, moved, one, positions
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase.bodies import PIECE_BYTES
from iothub_services.queues.hbase.body_sweep import sweep
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.port import Append, Appended, Delivery, Inbound, MoveKind, Overflow, QueueLimits
from ops.services.services import Services
from tests.support.hbase.own_tables import caller_of, own_tables

T = TypeVar("T")

REGIONS = 8
FAR_AHEAD_MS = 1 << 50
TENANTS = (TENANT, 8)
CASES = queue_contract.CASES + queue_expiry_contract.CASES + queue_limits_contract.CASES


@pytest.fixture(scope="module")
def _tables(_servers: Services) -> Iterator[Tables]:
    _servers.up()
    with own_tables(_servers, REGIONS, "queues", "queue_index", "bodies") as tables:
        yield tables


@pytest.fixture
def tables(_tables: Tables, services: Services) -> Iterator[Tables]:
    """The same tables for all tests; the tenants' queues are dropped behind each."""
    yield _tables
    with caller_of(services) as caller, closing(HBaseQueues(caller, _tables)) as store:
        for tenant_id in TENANTS:
            store.drop_tenant(tenant_id)


@pytest.fixture
def store(tables: Tables, services: Services) -> Iterator[HBaseQueues]:
    with caller_of(services) as caller, closing(HBaseQueues(caller, tables)) as store:
        yield store


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract(case: Case, store: HBaseQueues) -> None:
    """What every driver does, through the gateway and the coprocessor, over several regions."""
    case(store)


def test_damaged_record_is_passed_over_and_makes_room(store: HBaseQueues, tables: Tables, services: Services) -> None:
    """It is named, counts as a message of no bytes, and goes as the oldest ones do."""
    store.create(TENANT, 1, QueueLimits(3, 0, Overflow.DROP_OLDEST), 1)
    epoch = store.claim(1, b"reader").epoch
    store.append([one(1, number) for number in range(1, 4)])
    row = keys.record_row(keys.queue_key(1, TENANT), 2)
    with caller_of(services) as caller:
        caller.call(calls.mutate_row(tables.queues, row, {b"d:b": b"\7" * 30}))

    page = store.read(1, epoch, 0, 10, MANY)
    assert [record.position for record in page.records] == [1, 3]
    assert ([position for position, _ in page.damaged], page.upto) == ([2], 3)
    with store.group():
        answers = store.append([one(1, number) for number in (4, 5)])

    assert [(answer.positions, answer.dropped) for answer in answers] == [((4,), ((1, 1),)), ((5,), ((1, 2),))]
    assert positions(store, 1, epoch) == [3, 4, 5]


def test_message_for_many_queues_is_stored_once(store: HBaseQueues, tables: Tables, services: Services) -> None:
    """A body row that the records refer to; a large one lies in pieces; each reader gets all of it."""
    queues = range(1, 21)
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in queues}
    deliveries = tuple(Delivery(queue_id, 2) for queue_id in queues)
    wide, large = b"w" * 1000, b"l" * (PIECE_BYTES + 5)

    store.append([Append(identified(1), wide, 0, deliveries), one(3, 2, body=large)])

    for queue_id in queues:
        assert store.read(queue_id, epochs[queue_id], 0, 1, MANY).records[0].body == wide
    assert store.read(3, epochs[3], 1, 10, MANY).records[0].body == large
    with caller_of(services) as caller:
        stored = caller.call(calls.get_row(tables.queues, keys.record_row(keys.queue_key(3, TENANT), 1), (b"d:b",)))
        swept = sweep(caller, tables, FAR_AHEAD_MS, lambda _: None, is_dry_run=True)
    assert stored is not None
    assert len(stored.cells[b"d:b"].value) < 100
    assert (swept.references, swept.referenced) == (21, 2)


def test_second_hub_appends_to_queues_of_the_first(store: HBaseQueues, tables: Tables, services: Services) -> None:
    """It was there before they were made; the first one reads what it appended, its own claim fences the first."""
    with caller_of(services) as caller:
        other = HBaseQueues(caller, tables)
        other.open()
        first = made(store, 1)

        assert other.append([one(1, 1), one(9, 2)]) == [Appended((1,)), Appended((-2,))]
        assert store.append([one(1, 3)]) == [Appended((2,))]
        assert positions(store, 1, first.epoch) == [1, 2]
        assert other.claim(1, b"other").epoch == first.epoch + 1
        assert not moved(store, MoveKind.ACK, 1, first.epoch, 1)
        assert other.tenant_usage(TENANT) == store.tenant_usage(TENANT)


def test_usage_is_known_after_a_restart(store: HBaseQueues, tables: Tables, services: Services) -> None:
    """From the index and the queues' states."""
    made(store, 1)
    made(store, 2)
    store.append([one(1, 1, body=b"abc"), one(2, 2, body=b"de")])

    with caller_of(services) as caller:
        restarted = HBaseQueues(caller, tables)
        restarted.open()
        assert restarted.tenant_usage(TENANT) == store.tenant_usage(TENANT) == (2, 5)


class DiedError(Exception):
    """The hub was killed before this call."""


class DyingCaller(Caller):
    """Makes so many changes of queues, then no call at all."""

    def __init__(self, caller: Caller, changes: int) -> None:
        self._caller = caller
        self._left = changes

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        changes = sum(call.verb.name == "append" for call in calls)
        if changes > self._left:
            raise DiedError
        self._left -= changes
        return self._caller.call_many(calls)


def test_open_intent_is_finished_by_the_next_claim(store: HBaseQueues, tables: Tables, services: Services) -> None:
    """The hub dies between intent and append: whoever claims routes the message; the client's repeat is a duplicate."""
    reader, publisher = made(store, 1), made(store, 2)
    with caller_of(services) as caller:
        dying = HBaseQueues(DyingCaller(caller, 1), tables)
        with pytest.raises(DiedError):
            dying.append([one(1, 1, qos=2, inbound=Inbound(2, publisher.epoch, 77))])
    assert positions(store, 1, reader.epoch) == []

    claim = store.claim(2, b"later")

    assert claim.inbound == (77,)
    assert positions(store, 1, reader.epoch) == [1]
    repeated = one(1, 2, qos=2, inbound=Inbound(2, claim.epoch, 77))
    assert store.append([repeated]) == [Appended((), is_duplicate=True)]
    assert positions(store, 1, reader.epoch) == [1]


def test_probe_writes(store: HBaseQueues) -> None:
    """Twice: the queue of nobody is made, then it is there."""
    store.probe()
    store.probe()

    assert store.list_queues(0) == []
