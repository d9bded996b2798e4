"""Queues in Redis that somebody has damaged by hand: something else is where the driver has put its own. It costs that queue alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from iothub.base.errors import BackendError, NotFoundError
from iothub.testing.queue_contract import MANY, TENANT, due, made, one, positions
from iothub_services.queues.port import Append, Delivery, Move, MoveKind, Overflow, QueueLimits, Refused
from iothub_services.queues.redis import sending
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.scripts import WRITERS_KEPT
from iothub_services.redis.calls import Call, RedisRefusedError, Reply
from tests.support.servers.redis_queues import PREFIX, RedisHarness

GONE = (int(Refused.GONE),)


@pytest.fixture
def harness() -> RedisHarness:
    return RedisHarness()


def key(queue_id: int, part: str) -> str:
    return f"{PREFIX}:queue:{{{queue_id}}}:{part}"


@pytest.mark.parametrize("part", ["m", "r", "d", "e", "z", "w"])
def test_damaged_queue_is_gone_for_appends(harness: RedisHarness, part: str) -> None:
    """Others of the message have it, the alarm names the queue once, and it can be dropped."""
    store = harness.store()
    store.create(TENANT, 1, QueueLimits(2, 0), 1)
    made(store, 2)
    harness.redis.execute_command("SET", key(1, part), "x")
    many = Append(b"i" * 16, b"body", 9_999_999_999_999, (Delivery(1, 0), Delivery(1, 2), Delivery(2, 1)), None)

    answers = store.append([many, one(1, 1), one(2, 1)])

    assert [answer.positions for answer in answers] == [GONE * 2 + (1,), GONE, (2,)]
    ((alarm),) = harness.damaged
    assert alarm.startswith("queue 1 is damaged and lost, its session ends (queue_lost): ")
    store.drop(1)
    assert harness.redis.execute_command("KEYS", key(1, "*")) == []
    assert [each.queue_id for each in store.list_queues(TENANT)] == [2]


@pytest.mark.parametrize(
    "damage",
    [("SET", part, "x") for part in "dezw"]
    + [("HDEL", "m", name) for name in ("max_messages", "max_bytes", "overflow")],
)
def test_queue_that_an_append_has_found_damaged_is_gone_for_its_reader(
    harness: RedisHarness, damage: tuple[str, ...]
) -> None:
    """Else its session would live on and get nothing. Reader and records are whole, so only that append knows."""
    store = harness.store()
    store.create(TENANT, 1, QueueLimits(2, 0), 1)
    epoch = store.claim(1, b"owner").epoch
    verb, part, *said = damage
    harness.redis.execute_command(verb, key(1, part), *said)
    store.append([Append(b"i" * 16, b"body", 9_999_999_999_999, (Delivery(1, 0), Delivery(1, 2)), None)])

    with pytest.raises(NotFoundError):
        store.read(1, epoch, 0, 10, 1 << 20)
    with pytest.raises(NotFoundError):
        store.claim(1, b"owner")
    with pytest.raises(NotFoundError):
        store.stats(1)
    assert store.apply([Move(MoveKind.RESERVE, 1, epoch, 1)]) == [False]
    assert (store.tails([1]), store.list_queues(TENANT)) == ({}, [])
    store.drop(1)
    assert harness.redis.execute_command("KEYS", key(1, "*")) == []


def test_what_is_no_position_among_those_of_qos_0_is_passed_over(harness: RedisHarness) -> None:
    """It is met when room must be made."""
    store = harness.store()
    store.create(TENANT, 1, QueueLimits(3, 0, Overflow.DROP_QOS0_FIRST), 1)
    store.append([one(1, 1, qos=0)])
    harness.redis.execute_command("ZADD", key(1, "z"), "0.5", "strange", "1.5", "-1")

    answers = store.append([one(1, number) for number in (2, 3, 4, 5)])

    full = int(Refused.FULL)
    assert [answer.positions for answer in answers] == [(2,), (3,), (4,), (full,)]
    assert [answer.dropped for answer in answers] == [(), (), ((1, 1),), ()]
    assert store.stats(1).messages == harness.redis.execute_command("XLEN", key(1, "r")) == 3


@pytest.mark.parametrize("whose", ["its own", "another's"])
def test_damaged_call_of_a_writer_loses_the_queue(harness: RedisHarness, whose: str) -> None:
    """Its own, or, where there are as many writers as are kept, the one of any: the oldest has to be looked for."""
    writer = harness.store()
    made(writer, 1)
    for incarnation in range(WRITERS_KEPT):
        harness.store(incarnation).append([one(1, incarnation)])
    stored = harness.redis.execute_command("HKEYS", key(1, "w"))
    for each in stored:
        harness.redis.execute_command("HSET", key(1, "w"), each, "nonsense")
    store = harness.store(0 if whose == "its own" else WRITERS_KEPT)

    (answer,) = store.append([one(1, 99)])

    assert len(stored) == WRITERS_KEPT
    assert answer.positions == GONE


def test_queue_whose_positions_went_back_by_hand_holds_up_nobody(harness: RedisHarness) -> None:
    """Redis takes no record before its last one."""
    store = harness.store()
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in (1, 2)}
    store.append([one(1, 1)])
    harness.redis.execute_command("HSET", key(1, "m"), "tail", 0)
    store = harness.store(2)

    answers = store.append([one(1, 2), one(2, 3)])

    assert [answer.positions for answer in answers] == [GONE, (1,)]
    assert positions(store, 2, epochs[2]) == [1]


@pytest.mark.parametrize(
    ("damage", "expected"), [("another type", [GONE] * 3), ("tail", [GONE] * 3), ("tenant", [(1,), (2,), (3,)])]
)
def test_damaged_state_is_in_nobody_s_way(harness: RedisHarness, damage: str, expected: list[tuple[int]]) -> None:
    """A start has the others. Whose a queue is, its tenant's list says as well."""
    first = harness.store()
    made(first, 1)
    made(first, 2)
    if damage == "another type":
        harness.redis.execute_command("SET", key(1, "m"), "x")
    else:
        harness.redis.execute_command("HDEL", key(1, "m"), damage)

    stores = (first, harness.store(2), harness.store(3))
    answers = [store.append([one(1, 1), one(2, 2)]) for store in stores]

    assert [damaged.positions for damaged, _ in answers] == expected
    assert [whole.positions for _, whole in answers] == [(1,), (2,), (3,)]
    store = harness.store(4)
    store.open()
    is_lost = damage != "tenant"
    assert [each.queue_id for each in store.list_queues(TENANT)] == ([2] if is_lost else [1, 2])
    assert (1 in store.tails([1, 2])) != is_lost
    assert bool(harness.damaged) == is_lost
    store.drop(1)
    assert [each.queue_id for each in store.list_queues(TENANT)] == [2]
    if damage != "tenant":
        assert harness.redis.execute_command("SMEMBERS", Names(PREFIX).of_tenant(TENANT)) == [b"2"]


@pytest.mark.parametrize(
    ("field", "value"),
    [(name, value) for name in ("epoch", "tail", "head", "reserved", "messages", "bytes") for value in ("zz", None)]
    + [("head", "99")],
)
def test_reader_of_a_damaged_queue_finds_none(harness: RedisHarness, field: str, value: str | None) -> None:
    """Whichever number it is: no defect, and its session begins anew."""
    store = harness.store()
    epoch = made(store, 1).epoch
    store.append([one(1, 1)])
    if value is None:
        harness.redis.execute_command("HDEL", key(1, "m"), field)
    else:
        harness.redis.execute_command("HSET", key(1, "m"), field, value)

    with pytest.raises(NotFoundError):
        store.claim(1, b"owner")
    if field in ("epoch", "tail"):
        with pytest.raises(NotFoundError):
            store.read(1, epoch, 0, 10, 1 << 20)
    if field != "reserved" and value != "99":
        assert store.apply([Move(MoveKind.ACK, 1, epoch, 1)]) == [False]
    if field in ("tail", "messages", "bytes"):
        with pytest.raises(NotFoundError):
            store.purge(1)
    if value != "99":
        store.set_limits([(1, QueueLimits(1))])
    assert len(harness.damaged) == 1


def test_move_of_a_damaged_queue_takes_no_batch_apart(harness: RedisHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pipeline waits for the disk: what is for many other queues goes on together."""
    store = harness.store()
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in range(1, 31)}
    store.append([one(queue_id, queue_id) for queue_id in epochs])
    harness.redis.execute_command("SET", key(1, "r"), "x")
    harness.redis.execute_command("HDEL", key(2, "m"), "head")
    pipelines: list[int] = []
    monkeypatch.setattr(store._sender, "_write", counting(harness.ask, pipelines))

    moved = store.apply([Move(MoveKind.ACK, queue_id, epoch, 1) for queue_id, epoch in epochs.items()])

    assert moved == [False, False] + [True] * 28
    assert len(pipelines) < 3


def counting(
    ask: Callable[[Sequence[Call]], list[Reply]], pipelines: list[int]
) -> Callable[[Sequence[Call]], list[Reply]]:
    """Note how much each pipeline has."""

    def write(calls: Sequence[Call]) -> list[Reply]:
        pipelines.append(len(calls))
        return ask(calls)

    return write


@pytest.mark.parametrize(
    "fields",
    [
        ("v", "2", "x", "y"),
        ("x", "y"),
        ("v", "1", "q", "1"),
        ("v", "1", "q", "x", "f", "0", "e", "0", "i", "", "d", "", "b", "body"),
        ("v", "2", "q", "1", "f", "0", "e", "0", "i", "", "d", "", "b", "body"),
    ],
)
@pytest.mark.parametrize("count", [10, 2])
def test_page_passes_over_a_damaged_record(harness: RedisHarness, fields: tuple[str, ...], count: int) -> None:
    """It is named, and counts for how far the page has come."""
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1)])
    harness.redis.execute_command("XADD", f"{PREFIX}:queue:{{1}}:r", "2-0", *fields)
    harness.redis.execute_command("HSET", f"{PREFIX}:queue:{{1}}:m", "tail", 2, "messages", 2)
    store.append([one(1, 3)])

    page = store.read(1, claim.epoch, 0, count, MANY)

    assert [record.position for record in page.records] == [1, 3][: count - 1]
    assert (page.upto, page.is_short) == ((3, True) if count == 10 else (2, False))
    assert [position for position, _ in page.damaged] == [2]
    assert store.apply([Move(MoveKind.ACK, 1, claim.epoch, 2)]) == [True]
    assert store.stats(1).messages == 1


@pytest.mark.parametrize(
    ("said", "is_one_queues"),
    [
        ("DAMAGED its state has something else where a number belongs", True),
        ("WRONGTYPE Operation against a key holding the wrong kind of value script: 5b, on @user_script:38.", True),
        ("user_script:74: attempt to compare nil with number script: 5b, on @user_script:74.", True),
        ("Error running script (call to f_5b): @user_script:74: user_script:74: attempt to compare nil", True),
        ("Error running script (call to f_5b): @user_script:76: WRONGTYPE Operation against a key holding", True),
        ("NOPERM this user has no permissions to run the 'hset' command script: 5b, on @user_script:9.", False),
        ("ACL failure in script: The user executing the script can't access this command", False),
        ("Error running script (call to f_5b): @user_script: 9: -OOM command not allowed", False),
    ],
)
def test_error_of_one_queue_is_distinguished_from_one_that_concerns_all(
    harness: RedisHarness, said: str, is_one_queues: bool
) -> None:
    """In the words of Redis 7, and of 6 where those differ."""
    outcome = RedisRefusedError(f"Redis refused: {said}")
    alarms: list[tuple[str, str]] = []
    sender = sending.Sender(harness.ask, harness.ask, b"probe", lambda *alarm: alarms.append(alarm))

    for _ in range(2):
        assert sender.of_queue(7, outcome) == (sending.GONE if is_one_queues else outcome)
    assert sender.of_queue(0, outcome) is outcome
    assert [word for word, _ in alarms] == ["queue_lost"] * is_one_queues


@pytest.mark.parametrize("part", ["m", "e"])
def test_expired_messages_go_beside_a_damaged_queue(harness: RedisHarness, part: str) -> None:
    """Whatever else is wrong is told."""
    store = harness.store()
    made(store, 1)
    made(store, 2)
    store.append([one(1, 1, expires_at_ms=5), one(2, 2, expires_at_ms=6)])
    harness.redis.execute_command("SET", f"{PREFIX}:queue:{{1}}:{part}", "x")

    assert store.expire(10, 9).removed == (due(2, 1),)
    harness.forbidden.add("EVALSHA")
    with pytest.raises(BackendError, match="NOPERM"):
        store.expire_unsent(10, [due(2, 1)])
