"""The queue drivers on servers while calls get lost on the way there and back: nothing doubled, nothing acknowledged lost."""

from __future__ import annotations

from typing import TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import BackendError
from iothub_services.queues.port import Append, Delivery, Inbound, QueueLimits, QueueStore, Refused
from tests.support.hbase import hbase_calls
from tests.support.hbase.hbase_queues import HBase
from tests.support.night import by_day
from tests.support.operated_queues import Operated
from tests.support.servers import redis_queues
from tests.support.servers.redis_queues import RedisHarness
from tests.support.waiting import until_answered

TENANT = 7
QUEUES = range(1, 7)  # over four regions of HBase
PUBLISHER = 8
MANY = 1 << 20

T = TypeVar("T")

faults = st.lists(
    st.integers(0, 7), max_size=60
)  # of a driver's kinds of faults; 0, and what it has not: the call is answered
targets = st.lists(st.sampled_from(QUEUES), min_size=1, max_size=6, unique=True)
messages = st.tuples(targets, st.integers(0, 2), st.booleans())  # queues, QoS, long enough for HBase to store it apart
batches = st.lists(
    st.tuples(st.lists(messages, min_size=1, max_size=5), st.integers(0, 3)),  # messages, tries before it is given up
    min_size=1,
    max_size=6,
)


class OnHBase:
    """`played`: what becomes of the next calls; then everything passes."""

    def __init__(self) -> None:
        self._harness = HBase()
        self.played: list[int] = []

    def store(self, incarnation: int = 1) -> QueueStore:
        store, caller = self._harness.store(incarnation)
        caller.fault = lambda _: _fault(list(hbase_calls.Fault), self.played)
        return store


class OnRedis:
    """The same."""

    def __init__(self) -> None:
        self._harness = RedisHarness()
        self._harness.fault = lambda _: _fault(list(redis_queues.Fault), self.played)
        self.played: list[int] = []

    def store(self, incarnation: int = 1) -> QueueStore:
        return self._harness.store(incarnation)


class OnHBaseByOperations(OnHBase):
    """The same, as the writer hands messages over."""

    def store(self, incarnation: int = 1) -> QueueStore:
        return cast("QueueStore", Operated(super().store(incarnation)))


class OnRedisByOperations(OnRedis):
    """The same."""

    def store(self, incarnation: int = 1) -> QueueStore:
        return cast("QueueStore", Operated(super().store(incarnation)))


Server = OnHBase | OnRedis
on_both = pytest.mark.parametrize("kind", [OnHBase, OnRedis, OnHBaseByOperations, OnRedisByOperations])


def _fault(kinds: list[T], played: list[int]) -> T:
    number = played.pop(0) if played else 0
    return kinds[number if number < len(kinds) else 0]


def hub(server: Server) -> QueueStore:
    store = server.store()
    for queue_id in (*QUEUES, PUBLISHER):
        store.create(TENANT, queue_id, QueueLimits())
    return store


def bodies(store: QueueStore, queue_id: int) -> dict[int, bytes]:
    epoch = store.claim(queue_id, b"reader").epoch
    return {record.position: record.body for record in store.read(queue_id, epoch, 0, MANY, MANY).records}


@on_both
@settings(max_examples=by_day(20, 40), deadline=None)
@given(batches, faults)
def test_appends_are_done_once_whatever_is_lost(
    kind: type[Server], planned: list[tuple[list[tuple[list[int], int, bool]], int]], played: list[int]
) -> None:
    """A batch is repeated as the writer's thread repeats it, and given up now and then: positions stay dense, in order, once."""
    server = kind()
    store = hub(server)
    server.played = list(played)
    acknowledged: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in QUEUES}
    sent: dict[int, list[bytes]] = {queue_id: [] for queue_id in QUEUES}
    number = 0
    for batch, patience in planned:
        ops = []
        for queue_ids, qos, is_long in batch:
            number += 1
            body = b"%d" % number + b"." * (300 if is_long else 0)
            ops.append(Append(number.to_bytes(16), body, 0, tuple(Delivery(queue_id, qos) for queue_id in queue_ids)))
            for queue_id in queue_ids:
                sent[queue_id].append(body)
        for attempt in range(patience + 1):
            try:
                with store.group():
                    answers = store.append(ops)
            except BackendError as error:
                if not error.retryable:
                    raise
                ops = ops[attempt:]  # those that have waited longest are given up first
                continue
            for op, answer in zip(ops, answers, strict=True):
                for delivery, position in zip(op.deliveries, answer.positions, strict=True):
                    assert position > 0
                    assert position not in acknowledged[delivery.queue_id]
                    acknowledged[delivery.queue_id][position] = op.body
            break
    server.played = []

    for queue_id in QUEUES:
        found = bodies(store, queue_id)
        assert list(found) == list(range(1, len(found) + 1))
        assert len(set(found.values())) == len(found)
        assert found.items() >= acknowledged[queue_id].items()
        order = [sent[queue_id].index(body) for body in acknowledged[queue_id].values()]
        assert order == sorted(order)


@on_both
@settings(max_examples=by_day(20, 40), deadline=None)
@given(targets, faults, faults, st.booleans())
def test_inbound_qos2_is_routed_once_whatever_is_lost(
    kind: type[Server], queue_ids: list[int], first: list[int], second: list[int], is_other_hub: bool
) -> None:
    """The hub is killed with an intent open; whoever claims finishes it, and the client's repeat doubles nothing."""
    server = kind()
    store = hub(server)
    epoch = store.claim(PUBLISHER, b"hub").epoch
    deliveries = tuple(Delivery(queue_id, 2) for queue_id in queue_ids)
    server.played = list(first)
    answer = None
    try:
        (answer,) = store.append([Append(b"i" * 16, b"once", 0, deliveries, Inbound(PUBLISHER, epoch, 5))])
    except BackendError as error:
        if not error.retryable:
            raise
    server.played = []

    if is_other_hub:
        store = server.store(2)
    server.played = list(second)
    epoch = until_answered(lambda: store.claim(PUBLISHER, b"later")).epoch
    repeated = Append(b"j" * 16, b"once", 0, deliveries, Inbound(PUBLISHER, epoch, 5))
    (again,) = until_answered(lambda: store.append([repeated]))
    server.played = []

    assert answer is None or again.is_duplicate
    assert not again.is_stale
    assert [list(bodies(store, queue_id).values()) for queue_id in queue_ids] == [[b"once"]] * len(queue_ids)
    assert store.claim(PUBLISHER, b"last").inbound == (5,)


@on_both
@settings(max_examples=by_day(15, 30), deadline=None)
@given(st.lists(targets, min_size=1, max_size=8), faults, st.integers(1, 12))
def test_tenant_never_holds_more_than_its_bound(
    kind: type[Server], planned: list[list[int]], played: list[int], most: int
) -> None:
    """Whatever is lost, whichever region is asked when: the sum stays within the bound, and what was refused did not fit."""
    server = kind()
    store = hub(server)
    store.set_tenant_limits(TENANT, most, 0)
    server.played = list(played)
    ops = [
        Append(number.to_bytes(16), b"b", 0, tuple(Delivery(queue_id, 1) for queue_id in queue_ids))
        for number, queue_ids in enumerate(planned, 1)
    ]

    def append() -> list[tuple[int, ...]]:
        with store.group():
            return [answer.positions for answer in store.append(ops)]

    positions = [position for each in until_answered(append) for position in each]
    server.played = []

    held = sum(len(bodies(store, queue_id)) for queue_id in QUEUES)
    assert held == min(most, len(positions)) == store.tenant_usage(TENANT).messages
    assert [position > 0 for position in positions] == [number < held for number in range(len(positions))]
    assert {position for position in positions if position < 0} <= {Refused.FULL}
