"""The queue driver `hbase` while calls get lost on the way there and on the way back: nothing doubled, nothing acknowledged lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import BackendError
from iothub_services.hbase.calls import Call
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.port import Append, Delivery, Inbound, QueueLimits, Refused
from tests.support.hbase_calls import Fault
from tests.support.hbase_queues import HBase

TENANT = 7
QUEUES = range(1, 7)  # over four regions
PUBLISHER = 8
MANY = 1 << 20

faults = st.lists(st.sampled_from([*[Fault.NONE] * 3, *list(Fault)]), max_size=60)
targets = st.lists(st.sampled_from(QUEUES), min_size=1, max_size=6, unique=True)
messages = st.tuples(targets, st.integers(0, 2), st.booleans())  # queues, QoS, long enough to be stored apart
batches = st.lists(
    st.tuples(st.lists(messages, min_size=1, max_size=5), st.integers(0, 3)),  # messages, tries before it is given up
    min_size=1,
    max_size=6,
)


@dataclass
class Faults:
    """Plays what hypothesis chose, then lets everything pass."""

    played: list[Fault] = field(default_factory=list)

    def __call__(self, call: Call[object]) -> Fault:
        assert call
        return self.played.pop(0) if self.played else Fault.NONE


def bodies(store: HBaseQueues, queue_id: int) -> dict[int, bytes]:
    epoch = store.claim(queue_id, b"reader").epoch
    return {record.position: record.body for record in store.read(queue_id, epoch, 0, MANY, MANY).records}


def hub(harness: HBase) -> tuple[HBaseQueues, Faults]:
    store, caller = harness.store()
    for queue_id in (*QUEUES, PUBLISHER):
        store.create(TENANT, queue_id, QueueLimits())
    faulty = Faults()
    caller.fault = faulty
    return store, faulty


@settings(max_examples=40, deadline=None)
@given(batches, faults)
def test_appends_are_done_once_whatever_is_lost(
    planned: list[tuple[list[tuple[list[int], int, bool]], int]], played: list[Fault]
) -> None:
    """A batch is repeated as the writer's thread repeats it, and given up now and then: positions stay dense, in order, once."""
    harness = HBase()
    store, faulty = hub(harness)
    faulty.played = list(played)
    acknowledged: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in QUEUES}
    sent: dict[int, list[bytes]] = {queue_id: [] for queue_id in QUEUES}
    number = 0
    for batch, patience in planned:
        ops = []
        for queue_ids, qos, is_long in batch:
            number += 1
            body = b"%d" % number + b"." * (300 if is_long else 0)
            deliveries = tuple(Delivery(queue_id, qos) for queue_id in queue_ids)
            ops.append(Append(number.to_bytes(16), body, 0, deliveries))
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
    faulty.played = []

    for queue_id in QUEUES:
        found = bodies(store, queue_id)
        assert list(found) == list(range(1, len(found) + 1))
        assert len(set(found.values())) == len(found)
        assert found.items() >= acknowledged[queue_id].items()
        order = [sent[queue_id].index(body) for body in acknowledged[queue_id].values()]
        assert order == sorted(order)


@settings(max_examples=30, deadline=None)
@given(targets, faults, faults, st.booleans())
def test_inbound_qos2_is_routed_once_whatever_is_lost(
    queue_ids: list[int], first: list[Fault], second: list[Fault], is_other_hub: bool
) -> None:
    """The hub is killed with an intent open; whoever claims finishes it, and the client's repeat doubles nothing."""
    harness = HBase()
    store, faulty = hub(harness)
    epoch = store.claim(PUBLISHER, b"hub").epoch
    deliveries = tuple(Delivery(queue_id, 2) for queue_id in queue_ids)
    faulty.played = list(first)
    answer = None
    try:
        (answer,) = store.append([Append(b"i" * 16, b"once", 0, deliveries, Inbound(PUBLISHER, epoch, 5))])
    except BackendError as error:
        if not error.retryable:
            raise
    faulty.played = []

    if is_other_hub:
        store, caller = harness.store(2)
        caller.fault = faulty
    faulty.played = list(second)
    while True:
        try:
            epoch = store.claim(PUBLISHER, b"later").epoch
            break
        except BackendError as error:
            if not error.retryable:
                raise
    repeated = Append(b"j" * 16, b"once", 0, deliveries, Inbound(PUBLISHER, epoch, 5))
    while True:
        try:
            (again,) = store.append([repeated])
            break
        except BackendError as error:
            if not error.retryable:
                raise
    faulty.played = []

    assert answer is None or again.is_duplicate
    assert not again.is_stale
    assert [list(bodies(store, queue_id).values()) for queue_id in queue_ids] == [[b"once"]] * len(queue_ids)
    assert store.claim(PUBLISHER, b"last").inbound == (5,)


@settings(max_examples=30, deadline=None)
@given(st.lists(targets, min_size=1, max_size=8), faults, st.integers(1, 12))
def test_tenant_never_holds_more_than_its_bound(planned: list[list[int]], played: list[Fault], most: int) -> None:
    """Whatever region is asked when: the sum stays within the bound, and what was refused did not fit."""
    harness = HBase()
    store, faulty = hub(harness)
    store.set_tenant_limits(TENANT, most, 0)
    faulty.played = list(played)
    ops = [
        Append(number.to_bytes(16), b"b", 0, tuple(Delivery(queue_id, 1) for queue_id in queue_ids))
        for number, queue_ids in enumerate(planned, 1)
    ]
    while True:
        try:
            with store.group():
                answers = store.append(ops)
            break
        except BackendError as error:
            if not error.retryable:
                raise
    faulty.played = []

    positions = [position for answer in answers for position in answer.positions]
    held = sum(len(bodies(store, queue_id)) for queue_id in QUEUES)
    assert held == min(most, len(positions)) == store.tenant_usage(TENANT).messages
    assert [position > 0 for position in positions] == [number < held for number in range(len(positions))]
    assert {position for position in positions if position < 0} <= {Refused.FULL}
