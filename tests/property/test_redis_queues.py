"""The queue driver `redis` while calls get lost on the way there and back, and beside the model: nothing doubled, nothing acknowledged lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import BackendError
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import (
    Append,
    Delivery,
    Inbound,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
    QueueStore,
    Refused,
)
from iothub_services.queues.redis.store import RedisQueues
from iothub_services.redis.calls import Call
from tests.support.redis_queues import Fault, RedisHarness

TENANT = 7
QUEUES = range(1, 5)
PUBLISHER = 8
MANY = 1 << 20

T = TypeVar("T")

faults = st.lists(st.sampled_from([*[Fault.NONE] * 3, *list(Fault)]), max_size=60)
targets = st.lists(st.sampled_from(QUEUES), min_size=1, max_size=4, unique=True)
messages = st.tuples(targets, st.integers(0, 2))  # queues, QoS
batches = st.lists(
    st.tuples(st.lists(messages, min_size=1, max_size=5), st.integers(0, 3)),  # messages, tries before it is given up
    min_size=1,
    max_size=6,
)


@dataclass
class Faults:
    """Plays what hypothesis chose, then lets everything pass."""

    played: list[Fault] = field(default_factory=list)

    def __call__(self, call: Call) -> Fault:
        assert call.arguments
        return self.played.pop(0) if self.played else Fault.NONE


def hub(harness: RedisHarness) -> tuple[RedisQueues, Faults]:
    store = harness.store()
    for queue_id in (*QUEUES, PUBLISHER):
        store.create(TENANT, queue_id, QueueLimits())
    harness.fault = faulty = Faults()
    return store, faulty


def until_done(call: Callable[[], T]) -> T:
    while True:
        try:
            return call()
        except BackendError as error:
            if not error.retryable:
                raise


def bodies(store: QueueStore, queue_id: int) -> dict[int, bytes]:
    epoch = store.claim(queue_id, b"reader").epoch
    return {record.position: record.body for record in store.read(queue_id, epoch, 0, MANY, MANY).records}


@settings(max_examples=40, deadline=None)
@given(batches, faults)
def test_appends_are_done_once_whatever_is_lost(
    planned: list[tuple[list[tuple[list[int], int]], int]], played: list[Fault]
) -> None:
    """A batch is repeated as the writer's thread repeats it, and given up now and then: positions stay dense, in order, once."""
    store, faulty = hub(RedisHarness())
    faulty.played = list(played)
    acknowledged: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in QUEUES}
    sent: dict[int, list[bytes]] = {queue_id: [] for queue_id in QUEUES}
    number = 0
    for batch, patience in planned:
        ops = []
        for queue_ids, qos in batch:
            number += 1
            body = b"%d" % number
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
    faulty.played = []

    for queue_id in QUEUES:
        found = bodies(store, queue_id)
        assert list(found) == list(range(1, len(found) + 1))
        assert len(set(found.values())) == len(found)
        assert found.items() >= acknowledged[queue_id].items()
        order = [sent[queue_id].index(body) for body in acknowledged[queue_id].values()]
        assert order == sorted(order)


@settings(max_examples=40, deadline=None)
@given(targets, faults, faults, st.booleans())
def test_inbound_qos2_is_routed_once_whatever_is_lost(
    queue_ids: list[int], first: list[Fault], second: list[Fault], is_other_hub: bool
) -> None:
    """The hub is killed with an intent open; whoever claims finishes it, and the client's repeat doubles nothing."""
    harness = RedisHarness()
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
        store = harness.store(2)
    faulty.played = list(second)
    epoch = until_done(lambda: store.claim(PUBLISHER, b"later")).epoch
    repeated = Append(b"j" * 16, b"once", 0, deliveries, Inbound(PUBLISHER, epoch, 5))
    (again,) = until_done(lambda: store.append([repeated]))
    faulty.played = []

    assert answer is None or again.is_duplicate
    assert not again.is_stale
    assert [list(bodies(store, queue_id).values()) for queue_id in queue_ids] == [[b"once"]] * len(queue_ids)
    assert store.claim(PUBLISHER, b"last").inbound == (5,)


@settings(max_examples=30, deadline=None)
@given(st.lists(targets, min_size=1, max_size=8), faults, st.integers(1, 12))
def test_tenant_never_holds_more_than_its_bound(planned: list[list[int]], played: list[Fault], most: int) -> None:
    """Whatever is lost: the sum stays within the bound, and what was refused did not fit."""
    store, faulty = hub(RedisHarness())
    store.set_tenant_limits(TENANT, most, 0)
    faulty.played = list(played)
    ops = [
        Append(number.to_bytes(16), b"b", 0, tuple(Delivery(queue_id, 1) for queue_id in queue_ids))
        for number, queue_ids in enumerate(planned, 1)
    ]

    def append() -> list[tuple[int, ...]]:
        with store.group():
            return [answer.positions for answer in store.append(ops)]

    positions = [position for each in until_done(append) for position in each]
    faulty.played = []

    held = sum(len(bodies(store, queue_id)) for queue_id in QUEUES)
    assert held == min(most, len(positions)) == store.tenant_usage(TENANT).messages
    assert [position > 0 for position in positions] == [number < held for number in range(len(positions))]
    assert {position for position in positions if position < 0} <= {Refused.FULL}


appends = st.tuples(
    st.just("append"),
    targets,
    st.integers(0, 2),
    st.integers(1, 30),
    st.sampled_from((0, 0, 50, 90)),
    st.integers(0, 9),
)
moves = st.tuples(
    st.just("move"),
    st.sampled_from(QUEUES),
    st.sampled_from([kind for kind in MoveKind if kind is not MoveKind.RECORD_INBOUND]),
    st.integers(0, 12),
)
others = st.tuples(
    st.sampled_from(("purge", "expire", "claim", "drop", "limit")), st.sampled_from(QUEUES), st.integers(0, 2)
)
steps = st.lists(appends | appends | moves | others, max_size=20)


@settings(max_examples=40, deadline=None)
@given(steps)
def test_driver_does_what_the_model_does(planned: list[tuple[object, ...]]) -> None:
    """Any order of verbs: the same answers, the same queues. Message ids rise, so that remembered ones make no difference."""
    model, store = MemoryQueues(), RedisHarness().store()
    both: tuple[QueueStore, QueueStore] = (model, store)
    for each in both:
        for queue_id in QUEUES:
            each.create(TENANT, queue_id, QueueLimits(6, 100, Overflow.DROP_OLDEST))
            each.claim(queue_id, b"")
    epochs = dict.fromkeys(QUEUES, 1)
    for number, step in enumerate(planned, 1):
        expected, found = (_done(each, epochs, number, step) for each in both)
        assert found == expected, step
        if step[0] == "claim" and step[1] in epochs:
            epochs[step[1]] = model.stats(step[1]).epoch
        if step[0] == "drop":
            epochs.pop(step[1], None)  # type: ignore[call-overload]
        answers = [(each.list_queues(TENANT), each.tenant_usage(TENANT)) for each in both]
        assert answers[0] == answers[1]
    for queue_id, epoch in epochs.items():
        assert model.read(queue_id, epoch, 0, MANY, MANY) == store.read(queue_id, epoch, 0, MANY, MANY)


def _done(store: QueueStore, epochs: dict[int, int], number: int, step: tuple[object, ...]) -> object:
    match step:
        case ("append", list() as queue_ids, int() as qos, int() as size, int() as expires_at_ms, int() as repeats):
            deliveries = tuple(Delivery(queue_id, qos) for queue_id in queue_ids)
            op = Append(number.to_bytes(16), b"b" * size, expires_at_ms, deliveries)
            return store.append([op] * (1 + repeats % 2))
        case ("move", int() as queue_id, MoveKind() as kind, int() as value):
            return store.apply([Move(kind, queue_id, epochs.get(queue_id, 1), value)])
        case ("expire", int(), int() as when):
            return store.expire(40 * when, 3)
        case (str() as verb, int() as queue_id, int() as value) if queue_id in epochs:
            if verb == "limit":
                store.set_limits([(queue_id, QueueLimits(5, 90, Overflow(value)))])
                return None
            return store.claim(queue_id, b"x") if verb == "claim" else getattr(store, verb)(queue_id)
    return None
