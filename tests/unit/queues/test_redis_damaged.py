"""Queues in Redis that somebody has damaged by hand: something else is where the driver has put its own. It costs that queue alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from iothub.base.errors import CorruptRecordError
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import TENANT, made, one, positions
from iothub_services.group_thread import GroupThread
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
    Refused,
    UnreadableQueueError,
)
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.scripts import WRITERS_KEPT
from iothub_services.queues.threads import QueueWrites, WriteOp
from iothub_services.redis.calls import Call, Reply
from tests.support.redis_queues import PREFIX, RedisHouse

UNREADABLE = (int(Refused.UNREADABLE),)


@pytest.fixture
def house() -> RedisHouse:
    return RedisHouse()


def key(queue_id: int, part: str) -> str:
    return f"{PREFIX}:queue:{{{queue_id}}}:{part}"


def contents(house: RedisHouse, queue_id: int) -> dict[bytes, object]:
    """Return all that Redis has of a queue."""
    keys = house.redis.execute_command("KEYS", key(queue_id, "*"))
    return {each: house.redis.execute_command("DUMP", each) for each in keys}


@pytest.mark.parametrize("part", ["r", "d", "e", "z", "w"])
def test_nothing_is_written_into_a_damaged_queue(house: RedisHouse, part: str) -> None:
    """Not even what a script does before it comes to the damage: the queue goes on where it was, once that has gone."""
    store = house.store()
    store.create(TENANT, 1, QueueLimits(2, 0), 1)
    made(store, 2)
    house.redis.execute_command("SET", key(1, part), "x")
    many = Append(b"i" * 16, b"body", 9_999_999_999_999, (Delivery(1, 0), Delivery(1, 2), Delivery(1, 1)), None)

    (answer, other) = store.append([many, one(2, 1)])
    assert (answer.positions, other.positions) == (UNREADABLE * 3, (1,))

    house.redis.execute_command("DEL", key(1, part))
    assert house.redis.execute_command("EXISTS", key(1, "r")) == 0
    assert store.append([one(1, 2)]) == [Appended((1,))]


def test_what_is_no_position_among_those_of_qos_0_is_passed_over(house: RedisHouse) -> None:
    """It is met when room must be made, behind the first write of a call: what would fail there would leave a part of it."""
    store = house.store()
    store.create(TENANT, 1, QueueLimits(3, 0, Overflow.DROP_QOS0_FIRST), 1)
    store.append([one(1, 1, qos=0)])
    house.redis.execute_command("ZADD", key(1, "z"), "0.5", "strange", "1.5", "-1")

    answers = store.append([one(1, number) for number in (2, 3, 4, 5)])

    full = int(Refused.FULL)
    assert [answer.positions for answer in answers] == [(2,), (3,), (4,), (full,)]
    assert [answer.dropped for answer in answers] == [(), (), ((1, 1),), ()]
    assert store.stats(1).messages == house.redis.execute_command("XLEN", key(1, "r")) == 3


@pytest.mark.parametrize("whose", ["its own", "another's"])
def test_damaged_call_of_a_writer_is_found_before_anything_is_written(house: RedisHouse, whose: str) -> None:
    """Its own, or, where there are as many writers as are kept, the one of any: the oldest has to be looked for."""
    writer = house.store()
    made(writer, 1)
    for incarnation in range(WRITERS_KEPT):
        house.store(incarnation).append([one(1, incarnation)])
    stored = house.redis.execute_command("HKEYS", key(1, "w"))
    for each in stored:
        house.redis.execute_command("HSET", key(1, "w"), each, "nonsense")
    before = contents(house, 1)
    store = house.store(0 if whose == "its own" else WRITERS_KEPT)

    (answer,) = store.append([one(1, 99)])

    assert len(stored) == WRITERS_KEPT
    assert answer.positions == UNREADABLE
    assert contents(house, 1) == before


@pytest.mark.parametrize("part", ["r", "d", "k", "e", "z", "p"])
def test_acknowledgement_in_a_damaged_queue_changes_nothing(house: RedisHouse, part: str) -> None:
    """Neither its counters nor the number of the reader's last call: a repeat is done once the damage has gone."""
    store = house.store()
    epoch = made(store, 1).epoch
    store.append([one(1, number, qos=qos, expires_at_ms=9_999_999_999_999) for number, qos in ((1, 0), (2, 2), (3, 1))])
    kept = house.redis.execute_command("DUMP", key(1, part))
    house.redis.execute_command("DEL", key(1, part))
    house.redis.execute_command("SET", key(1, part), "x")
    before = contents(house, 1)

    with pytest.raises(UnreadableQueueError):
        store.apply([Move(MoveKind.RESERVE, 1, epoch, 3), Move(MoveKind.ACK, 1, epoch, 3)])

    assert contents(house, 1) == before
    house.redis.execute_command("DEL", key(1, part))
    if kept is not None:
        house.redis.execute_command("RESTORE", key(1, part), 0, kept)
    assert store.apply([Move(MoveKind.ACK, 1, epoch, 3)]) == [True]
    assert store.stats(1).messages == 0


def test_queue_whose_positions_went_back_by_hand_holds_up_nobody(house: RedisHouse) -> None:
    """Redis takes no record before its last one."""
    store = house.store()
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in (1, 2)}
    store.append([one(1, 1)])
    house.redis.execute_command("HSET", key(1, "m"), "tail", 0)
    store = house.store(2)

    answers = store.append([one(1, 2), one(2, 3)])

    assert [answer.positions for answer in answers] == [UNREADABLE, (1,)]
    assert positions(store, 2, epochs[2]) == [1]


def test_nothing_makes_room_for_what_is_refused(house: RedisHouse) -> None:
    """Redis takes no record before its last one; what is stored stays then, however often somebody asks."""
    store = house.store()
    store.create(TENANT, 1, QueueLimits(3, 0, Overflow.DROP_OLDEST), 1)
    store.append([one(1, number) for number in (1, 2, 3)])
    house.redis.execute_command("HSET", key(1, "m"), "tail", 0)
    store = house.store(2)

    for number in (4, 5):
        (answer,) = store.append([one(1, number)])
        assert answer.positions == UNREADABLE

    assert house.redis.execute_command("XLEN", key(1, "r")) == 3


@pytest.mark.parametrize(
    ("damage", "told"), [("another type", [UNREADABLE] * 3), ("tail", [UNREADABLE] * 3), ("tenant", [(1,), (2,), (3,)])]
)
def test_queue_without_a_state_that_can_be_read_is_neither_gone_nor_in_the_way(
    house: RedisHouse, damage: str, told: list[tuple[int]]
) -> None:
    """What is for it is stored, or not acknowledged; a start has the others, and it can be dropped."""
    first = house.store()
    made(first, 1)
    made(first, 2)
    if damage == "another type":
        house.redis.execute_command("SET", key(1, "m"), "x")
    else:
        house.redis.execute_command("HDEL", key(1, "m"), damage)

    stores = (first, house.store(2), house.store(3))
    answers = [store.append([one(1, 1), one(2, 2)]) for store in stores]
    assert [damaged.positions for damaged, _ in answers] == told
    assert [whole.positions for _, whole in answers] == [(1,), (2,), (3,)]
    store = house.store(4)
    store.open()
    with pytest.raises(CorruptRecordError, match="queue 1 is damaged"):
        store.stats(1)
    assert [(each.queue_id, "is damaged" in each.unreadable) for each in store.list_queues(TENANT)] == [
        (1, True),
        (2, False),
    ]
    store.drop(1)
    assert [each.queue_id for each in store.list_queues(TENANT)] == [2]
    assert house.redis.execute_command("SMEMBERS", Names(PREFIX).of_tenant(TENANT)) == [b"2"]


@pytest.mark.parametrize(
    ("field", "value"),
    [(name, value) for name in ("epoch", "tail", "head", "reserved", "messages", "bytes") for value in ("zz", None)]
    + [("head", "99"), ("v", None)],
)
def test_reader_of_a_damaged_queue_is_refused_by_name(house: RedisHouse, field: str, value: str | None) -> None:
    """Whichever number it is, or format version: no defect, and nobody is let in to a queue that gives him nothing."""
    store = house.store()
    epoch = made(store, 1).epoch
    store.append([one(1, 1)])
    if value is None:
        house.redis.execute_command("HDEL", key(1, "m"), field)
    else:
        house.redis.execute_command("HSET", key(1, "m"), field, value)

    with pytest.raises(UnreadableQueueError):
        store.claim(1, b"owner")
    if field in ("epoch", "tail", "v"):
        with pytest.raises(UnreadableQueueError):
            store.read(1, epoch, 0, 10, 1 << 20)
    if field != "reserved" and value != "99":
        with pytest.raises(UnreadableQueueError):
            store.apply([Move(MoveKind.ACK, 1, epoch, 1)])


def test_move_that_is_refused_takes_no_batch_apart(house: RedisHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pipeline waits for the disk: what is for many other queues goes on together, and so does what their readers do."""
    store = house.store()
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in range(1, 31)}
    store.append([one(queue_id, queue_id) for queue_id in epochs])
    house.redis.execute_command("SET", key(1, "p"), "x")
    house.redis.execute_command("HDEL", key(2, "m"), "head")
    pipelines: list[int] = []
    monkeypatch.setattr(store._sender, "_write", counting(house.ask, pipelines))
    thread: GroupThread[WriteOp, object] = GroupThread(
        "queues", QueueWrites(store), lambda deliver: deliver(), ManualClock()
    )
    moved: list[object] = []
    appended: list[object] = []
    for queue_id, epoch in epochs.items():
        thread.submit(Move(MoveKind.ACK, queue_id, epoch, 1), moved.append)
        thread.submit(one(queue_id + 1, 100 + queue_id), appended.append)
    thread.submit(Move(MoveKind.RESERVE, 1, epochs[1], 1), moved.append)
    thread.drain()

    assert [getattr(answer, "queue_id", 0) for answer in moved[:2]] == [1, 2]
    assert moved[2:] == [True] * 29
    assert len(appended) == 30
    assert not any(isinstance(answer, Exception) for answer in appended)
    assert len(pipelines) < 10


def counting(
    ask: Callable[[Sequence[Call]], list[Reply]], pipelines: list[int]
) -> Callable[[Sequence[Call]], list[Reply]]:
    """Note how much each pipeline has."""

    def write(calls: Sequence[Call]) -> list[Reply]:
        pipelines.append(len(calls))
        return ask(calls)

    return write
