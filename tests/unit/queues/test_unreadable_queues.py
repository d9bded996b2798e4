"""A whole queue that this program cannot read, in every driver that may have one: no other queue, no other message and no publisher suffers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

import pytest

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import TENANT, identified, made, moved, one, positions
from iothub_services.group_thread import GroupThread
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Inbound,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
    QueueStore,
    Refused,
    UnreadableQueueError,
)
from iothub_services.queues.several import SeveralQueues
from iothub_services.queues.threads import QueueWrites, WriteOp
from tests.support.hbase_plain import PlainHBase
from tests.support.hbase_queues import HBase
from tests.support.redis_queues import PREFIX, Fault, RedisHouse

UNREADABLE = int(Refused.UNREADABLE)
BROKEN, WHOLE, PUBLISHER = 1, 2, 3
NUMBERS = {BROKEN: 1, WHOLE: 2, PUBLISHER: 3}


class House(NamedTuple):
    """A driver; `spoil` makes a queue one of a newer program, `mend` takes that back, `store` gives the store of another hub."""

    store: Callable[[], QueueStore]
    spoil: Callable[[int], None]
    mend: Callable[[int], None]


def on_redis() -> House:
    house = RedisHouse()
    hubs = iter(range(1, 9))

    def version(queue_id: int, value: str) -> None:
        house.redis.execute_command("HSET", f"{PREFIX}:queue:{{{queue_id}}}:m", "v", value)

    return House(lambda: house.store(next(hubs)), lambda id: version(id, "9"), lambda id: version(id, "1"))


def on_redis_damaged() -> House:
    """No number where a number belongs."""
    house = RedisHouse()
    hubs = iter(range(1, 9))

    def most(queue_id: int, value: str) -> None:
        house.redis.execute_command("HSET", f"{PREFIX}:queue:{{{queue_id}}}:m", "max_messages", value)

    return House(lambda: house.store(next(hubs)), lambda id: most(id, "many"), lambda id: most(id, "100"))


def on_hbase() -> House:
    house = HBase()
    hubs = iter(range(1, 9))
    damaged = house.coprocessor.damaged

    def key(queue_id: int) -> bytes:
        return keys.queue_key(queue_id, TENANT)

    return House(
        lambda: house.store(next(hubs))[0], lambda id: damaged.add(key(id)), lambda id: damaged.remove(key(id))
    )


def on_hbase_plain() -> House:
    house = PlainHBase()
    hubs = iter(range(1, 9))

    def version(queue_id: int, value: bytes) -> None:
        row = house.rows[keys.meta_row(keys.queue_key(queue_id, TENANT))]
        raw, time = row[b"m:s"]
        row[b"m:s"] = (value + raw[1:], time)

    return House(lambda: house.store(next(hubs))[0], lambda id: version(id, b"\7"), lambda id: version(id, b"\1"))


@pytest.fixture(params=[on_redis, on_redis_damaged, on_hbase, on_hbase_plain])
def house(request: pytest.FixtureRequest) -> House:
    made_house: House = request.param()
    return made_house


def spread(*queue_ids: int, qos: int = 1, number: int = 1, inbound: Inbound | None = None) -> Append:
    return Append(identified(number), b"body", 0, tuple([Delivery(each, qos) for each in queue_ids]), inbound)


def told(answer: Appended) -> tuple[tuple[int, ...], list[int]]:
    return answer.positions, [queue_id for queue_id, _ in answer.unreadable]


def appended(store: QueueStore, op: Append) -> Appended | UnreadableQueueError:
    try:
        return store.append([op])[0]
    except UnreadableQueueError as error:
        return error


@pytest.mark.parametrize("is_restarted", [False, True])
def test_batch_is_stored_but_for_the_queue_that_cannot_be_read(house: House, is_restarted: bool) -> None:
    """Group commit: what is for others is stored with one call, and nobody's order suffers."""
    store = house.store()
    made(store, BROKEN)
    epoch = made(store, WHOLE).epoch
    house.spoil(BROKEN)
    store = house.store() if is_restarted else store

    with store.group():
        answers = store.append([one(WHOLE, 1), spread(BROKEN, WHOLE, number=2), one(BROKEN, 3), one(WHOLE, 4)])

    assert [told(answer) for answer in answers] == [
        ((1,), []),
        ((UNREADABLE, 2), [BROKEN]),
        ((UNREADABLE,), [BROKEN]),
        ((3,), []),
    ]
    assert positions(store, WHOLE, epoch) == [1, 2, 3]
    ((_, found),) = answers[1].unreadable
    assert found.position == 0
    assert "queue" in found.why
    house.mend(BROKEN)
    assert store.append([one(BROKEN, 5)])[0].positions[0] > 0


@pytest.mark.parametrize("is_restarted", [False, True])
def test_limits_of_the_other_queues_change(house: House, is_restarted: bool) -> None:
    """They are changed together; the one that cannot be read may keep what it has."""
    store = house.store()
    for queue_id in (BROKEN, WHOLE):
        made(store, queue_id)
    house.spoil(BROKEN)
    store = house.store() if is_restarted else store
    new = QueueLimits(1, 0, Overflow.REJECT)

    with store.group():
        store.set_limits([(BROKEN, new), (WHOLE, new)])

    assert store.stats(WHOLE).limits == new
    assert store.append([one(WHOLE, 1), one(WHOLE, 2)]) == [Appended((1,)), Appended((int(Refused.FULL),))]


def test_large_message_is_stored_but_for_the_queue_that_cannot_be_read(house: House) -> None:
    """It fills a call by itself, and that queue's may be the first."""
    store = house.store()
    made(store, BROKEN)
    made(store, WHOLE)
    house.spoil(BROKEN)
    deliveries = Delivery(BROKEN, 1), Delivery(WHOLE, 1)

    with store.group():
        (answer,) = store.append([Append(identified(1), b"x" * (700 << 10), 0, deliveries)])

    assert told(answer) == ((UNREADABLE, 1), [BROKEN])


@pytest.mark.parametrize("house", [on_redis, on_hbase, on_hbase_plain], indirect=True)
def test_verbs_of_that_queue_say_that_it_is_the_queue_and_not_the_store(house: House) -> None:
    """So that nobody takes the whole store for broken."""
    store = house.store()
    epoch = made(store, BROKEN).epoch
    house.spoil(BROKEN)
    store = house.store()

    for verb in (
        lambda: store.claim(BROKEN, b"other"),
        lambda: store.read(BROKEN, epoch, 0, 9, 9),
        lambda: store.purge(BROKEN),
        lambda: moved(store, MoveKind.ACK, BROKEN, epoch, 1),
    ):
        with pytest.raises(UnreadableQueueError) as caught:
            verb()
        assert (caught.value.queue_id, caught.value.retryable) == (BROKEN, False)
    (stats,) = store.list_queues(TENANT)
    assert stats.unreadable
    store.drop(BROKEN)
    assert store.list_queues(TENANT) == []


@pytest.mark.parametrize("house", [on_redis, on_hbase, on_hbase_plain], indirect=True)
def test_reader_of_that_queue_takes_no_batch_apart(house: House) -> None:
    """What others do and send stays one commit, however often that one acknowledges."""
    store = house.store()
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in NUMBERS}
    store.append([one(queue_id, queue_id) for queue_id in epochs])
    house.spoil(BROKEN)
    thread: GroupThread[WriteOp, object] = GroupThread(
        "queues", QueueWrites(house.store()), lambda deliver: deliver(), ManualClock()
    )
    answers: list[object] = []
    for queue_id, epoch in epochs.items():
        thread.submit(Move(MoveKind.ACK, queue_id, epoch, 1), answers.append)
    thread.submit(one(WHOLE, 9), answers.append)
    thread.drain()

    assert isinstance(answers[0], UnreadableQueueError)
    assert answers[1:] == [True, True, Appended((2,))]
    assert thread.commits == 1


class Counting(NamedTuple):
    """How often a store is asked to do moves."""

    store: QueueStore
    asked: list[int]

    def group(self) -> AbstractContextManager[None]:
        return self.store.group()

    def apply(self, moves: list[Move]) -> list[bool]:
        self.asked.append(len(moves))
        return self.store.apply(moves)


@pytest.mark.parametrize("house", [on_redis, on_hbase, on_hbase_plain], indirect=True)
@pytest.mark.parametrize("is_known", [False, True])
def test_readers_of_many_such_queues_cost_one_round_more(house: House, is_known: bool) -> None:
    """All are named at once; asking again for each would hold up the writing thread of all tenants."""
    store = house.store()
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in range(1, 41)}
    store.append([one(queue_id, queue_id) for queue_id in epochs])
    broken = [queue_id for queue_id in epochs if queue_id % 2]
    for queue_id in broken:
        house.spoil(queue_id)
    counting = Counting(store if is_known else house.store(), [])

    answers = QueueWrites(cast("QueueStore", counting))(
        [Move(MoveKind.ACK, queue_id, epoch, 1) for queue_id, epoch in epochs.items()]
    )

    errors = [answer for answer in answers if isinstance(answer, UnreadableQueueError)]
    assert [error.queue_id for error in errors] == broken
    assert answers[1::2] == [True] * len(errors)
    assert counting.asked == [len(epochs), len(epochs) - len(broken)]


def test_what_can_be_done_of_a_queue_that_is_in_the_way_is_done() -> None:
    """One of its keys is of another type: what needs it is refused, the rest is not."""
    house = RedisHouse()
    store = house.store()
    epoch = made(store, 1).epoch
    store.append([one(1, 1)])
    house.redis.execute_command("DEL", f"{PREFIX}:queue:{{1}}:r")
    house.redis.execute_command("SET", f"{PREFIX}:queue:{{1}}:r", "x")

    acknowledged, reserved = QueueWrites(store)(
        [
            Move(MoveKind.ACK, 1, epoch, 1),
            Move(MoveKind.RESERVE, 1, epoch, 1),
        ]
    )

    assert isinstance(acknowledged, UnreadableQueueError)
    assert reserved is True


def test_qos2_message_is_finished_when_the_queue_can_be_read_again(house: House) -> None:
    """Its intent stays open, so a repeat goes to those alone that do not have it; meanwhile the publisher may come and go."""
    store = house.store()
    broken, whole, publisher = (made(store, each).epoch for each in NUMBERS)
    house.spoil(BROKEN)

    first = spread(BROKEN, WHOLE, qos=2, inbound=Inbound(PUBLISHER, publisher, 7))
    assert told(store.append([first])[0]) == ((UNREADABLE, 1), [BROKEN])
    store = house.store()
    claim = store.claim(PUBLISHER, b"other")
    assert claim.inbound == ()
    house.mend(BROKEN)
    again = spread(BROKEN, WHOLE, qos=2, number=9, inbound=Inbound(PUBLISHER, claim.epoch, 7))
    assert told(store.append([again])[0]) == ((1, 1), [])

    assert positions(store, WHOLE, whole) == [1]
    assert positions(store, BROKEN, broken) == [1]
    assert store.append([again])[0].is_duplicate


def test_qos2_message_whose_publisher_heard_of_it_is_forgotten(house: House) -> None:
    """Its identifier is free, and what comes under it next is another message."""
    store = house.store()
    publisher, _, _ = (made(store, each).epoch for each in (PUBLISHER, BROKEN, WHOLE))
    house.spoil(BROKEN)
    inbound = Inbound(PUBLISHER, publisher, 7)
    store.append([spread(BROKEN, WHOLE, qos=2, inbound=inbound)])

    assert moved(store, MoveKind.FINISH_INBOUND, PUBLISHER, publisher, 7)

    assert store.append([spread(WHOLE, qos=2, number=2, inbound=inbound)])[0].positions == (2,)
    assert store.claim(PUBLISHER, b"other").inbound == (7,)


@pytest.mark.parametrize("house", [on_redis, on_hbase, on_hbase_plain], indirect=True)
def test_publisher_whose_own_queue_cannot_be_read_holds_up_nobody_else(house: House) -> None:
    """Nobody gets its message, which cannot be recorded; it is not taken for one whose session was taken over."""
    store = house.store()
    publisher, _ = (made(store, each).epoch for each in (PUBLISHER, WHOLE))
    house.spoil(PUBLISHER)
    store = house.store()

    answer = appended(store, spread(WHOLE, qos=2, inbound=Inbound(PUBLISHER, publisher, 7)))

    if isinstance(answer, Appended):
        assert (told(answer), answer.is_noted) == (((UNREADABLE,), [PUBLISHER]), False)
    else:
        assert (answer.queue_id, answer.is_written) == (PUBLISHER, False)
    assert store.append([one(WHOLE, 2)])[0].positions == (1,)


def test_own_queue_that_cannot_be_read_may_have_noted_a_message_whose_answer_was_lost() -> None:
    """Nobody knows whether the first attempt was recorded, so its identifier is not free."""
    house = RedisHouse()
    store = house.store()
    publisher, _ = (made(store, each).epoch for each in (PUBLISHER, WHOLE))
    op = spread(WHOLE, qos=2, inbound=Inbound(PUBLISHER, publisher, 7))
    house.fault = lambda call: Fault.LATE
    with pytest.raises(BackendError):
        store.append([op])
    house.fault = lambda call: Fault.NONE
    house.redis.execute_command("HSET", f"{PREFIX}:queue:{{{PUBLISHER}}}:m", "v", "9")

    (answer,) = store.append([op])

    assert (told(answer), answer.is_noted) == (((UNREADABLE,), [PUBLISHER]), True)


def test_several_drivers_tell_of_it_too(house: House) -> None:
    """With an intent in one driver and the queue in another one nothing closes it: the message fails as a whole, for its publisher to repeat."""
    memory, store = PlainHBase().store(1)[0], house.store()
    several = SeveralQueues({"other": memory, "chosen": store}, "chosen")
    made(store, BROKEN)
    epoch = made(memory, PUBLISHER).epoch
    house.spoil(BROKEN)
    several.list_queues(TENANT)

    assert told(several.append([spread(BROKEN, PUBLISHER)])[0]) == ((UNREADABLE, 1), [BROKEN])
    with pytest.raises(UnreadableQueueError) as caught, several.group():
        several.append([spread(BROKEN, qos=2, inbound=Inbound(PUBLISHER, epoch, 7))])
    assert caught.value.is_written
    assert memory.claim(PUBLISHER, b"other").inbound == ()


def test_several_drivers_take_a_repeat_for_the_same_message(house: House) -> None:
    """Each comes with a message id of its own; when the queue can be read again all have it once, and its identifier is free for another one."""
    other, store = PlainHBase().store(1)[0], house.store()
    several = SeveralQueues({"chosen": store, "other": other}, "chosen")
    broken, whole = (made(store, each).epoch for each in (BROKEN, WHOLE))
    epoch = made(other, PUBLISHER).epoch
    inbound = Inbound(PUBLISHER, epoch, 7)
    house.spoil(BROKEN)
    several.list_queues(TENANT)
    for number in (1, 2, 3):
        with pytest.raises(UnreadableQueueError), several.group():
            several.append([spread(BROKEN, WHOLE, qos=2, number=number, inbound=inbound)])
    assert positions(store, WHOLE, whole) == [1]

    house.mend(BROKEN)
    with several.group():
        assert told(several.append([spread(BROKEN, WHOLE, qos=2, number=4, inbound=inbound)])[0]) == ((1, 1), [])
    assert positions(store, BROKEN, broken) == [1]
    assert several.append([spread(WHOLE, qos=2, number=5, inbound=inbound)])[0].is_duplicate
    assert moved(several, MoveKind.FINISH_INBOUND, PUBLISHER, epoch, 7)
    assert several.append([spread(WHOLE, qos=2, number=5, inbound=inbound)])[0].positions == (2,)


def test_several_drivers_forget_with_the_identifier(house: House) -> None:
    """Its publisher heard a refusal: what comes under it next is another message."""
    other, store = PlainHBase().store(1)[0], house.store()
    several = SeveralQueues({"chosen": store, "other": other}, "chosen")
    _, whole = (made(store, each).epoch for each in (BROKEN, WHOLE))
    epoch = made(other, PUBLISHER).epoch
    inbound = Inbound(PUBLISHER, epoch, 7)
    house.spoil(BROKEN)
    several.list_queues(TENANT)
    with pytest.raises(UnreadableQueueError), several.group():
        several.append([spread(BROKEN, WHOLE, qos=2, inbound=inbound)])

    assert moved(several, MoveKind.FINISH_INBOUND, PUBLISHER, epoch, 7)
    several.append([spread(WHOLE, qos=2, number=2, inbound=inbound)])

    assert positions(store, WHOLE, whole) == [1, 2]
