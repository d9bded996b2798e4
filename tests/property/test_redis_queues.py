"""The queue driver `redis` beside the model: any order of verbs, the same answers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import Append, Delivery, Move, MoveKind, Overflow, QueueLimits, QueueStore
from tests.support.night import by_day
from tests.support.servers.redis_queues import RedisHarness

TENANT = 7
QUEUES = range(1, 5)
MANY = 1 << 20

targets = st.lists(st.sampled_from(QUEUES), min_size=1, max_size=4, unique=True)
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


@settings(max_examples=by_day(20, 40), deadline=None)
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
