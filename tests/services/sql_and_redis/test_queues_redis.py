"""The queue driver `redis` on the real server: the port's contract, what is stored, two hubs, memory that is full, a database that is emptied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from iothub.base.errors import BackendError
from iothub.testing import queue_contract, queue_expiry_contract, queue_limits_contract
from iothub.testing.queue_contract import GONE, MANY, TENANT, Case, made, moved, one, positions
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Inbound,
    Move,
    MoveKind,
    Refused,
)
from iothub_services.queues.redis.store import RedisQueues
from ops.services.services import Services
from tests.support.hubs.redis_hubs import RedisQueueHarness

CASES = queue_contract.CASES + queue_expiry_contract.CASES + queue_limits_contract.CASES
LARGE = 5 << 20


@pytest.fixture
def harness(redis_server: Services) -> Iterator[RedisQueueHarness]:
    harness = RedisQueueHarness(redis_server)
    yield harness
    harness.remove()


@pytest.fixture
def store(harness: RedisQueueHarness) -> Iterator[RedisQueues]:
    with harness.store() as store:
        yield store


@contextmanager
def configured(harness: RedisQueueHarness, name: str, value: str) -> Iterator[None]:
    """Change one of Redis's own settings for a while."""
    with closing(harness.connection()) as redis:
        found = redis.run("CONFIG", "GET", name)
        assert isinstance(found, list)
        assert isinstance(found[1], bytes)
        redis.run("CONFIG", "SET", name, value)
        try:
            yield
        finally:
            redis.run("CONFIG", "SET", name, found[1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract(case: Case, store: RedisQueues) -> None:
    """What every driver does, by Redis's own Lua."""
    case(store)


def test_dropped_queues_leave_nothing(harness: RedisQueueHarness, store: RedisQueues) -> None:
    """But for the word that tells an emptied server, and the tenant's number."""
    claim = made(store, 1)
    store.append([one(1, number, qos=2, expires_at_ms=99) for number in range(1, 5)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 2)

    assert store.drop(1) == 2
    with closing(harness.connection()) as redis:
        keys = redis.run("KEYS", f"{harness.prefix}:*")
    assert isinstance(keys, list)
    assert sorted(str(key).rpartition(":")[2] for key in keys) == ["life'", "tenants'"]


def test_settled_message_ids_are_removed(harness: RedisQueueHarness, store: RedisQueues) -> None:
    """With the next call, also of many at once; those of acknowledged messages, too."""
    reader, publisher = made(store, 1), made(store, 2)
    for first in range(1, 3_001, 1_000):
        numbers = range(first, first + 1_000)
        store.append([one(1, number, 2, inbound=Inbound(2, publisher.epoch, number)) for number in numbers])
        moved(store, MoveKind.ACK, 1, reader.epoch, first + 499)

    store.append([one(1, 9_999)])

    with closing(harness.connection()) as redis:
        base = f"{harness.prefix}:queue:{{1}}:"
        assert (redis.run("HLEN", base + "d"), redis.run("ZCARD", base + "k")) == (0, 0)


def test_owner_changes_in_the_middle(harness: RedisQueueHarness, store: RedisQueues) -> None:
    """Each hub finds what the other has written and acknowledged; the reader before is refused."""
    first = made(store, 1)
    store.append([one(1, 1), one(1, 2, qos=2)])
    with harness.store() as other:
        second = other.claim(1, b"other")
        assert (second.epoch, second.head, second.tail) == (first.epoch + 1, 0, 2)
        assert other.append([one(1, 3), one(1, 2, qos=2)]) == [Appended((3,)), Appended((2,))]
        assert moved(other, MoveKind.ACK, 1, second.epoch, 3)

        assert not moved(store, MoveKind.ACK, 1, first.epoch, 1)
        assert store.tails([1]) == {1: 3}
        assert store.append([one(1, 4)]) == [Appended((4,))]
        assert positions(other, 1, second.epoch) == [4]
        assert store.stats(1) == other.stats(1)


def test_large_message_is_read_whole(store: RedisQueues) -> None:
    """Larger than a pipeline is meant to be: it goes by itself."""
    claim = made(store, 1)
    store.append([one(1, 1), one(1, 2, body=b"l" * LARGE), one(1, 3)])

    assert [len(record.body) for record in store.read(1, claim.epoch, 0, 10, 2 * LARGE).records] == [2, LARGE, 2]


@pytest.mark.parametrize("part", ["m", "r", "d", "e", "z", "w", "tail"])
def test_damaged_queue_costs_its_own_messages_alone(harness: RedisQueueHarness, store: RedisQueues, part: str) -> None:
    """In Redis's own words; what is for others goes on, whatever comes with it."""
    made(store, 1)
    epoch = made(store, 2).epoch
    many = Append(
        b"i" * 16, b"b" * (700 << 10), 9_999_999_999_999, (Delivery(1, 0), Delivery(1, 2), Delivery(2, 1)), None
    )
    with closing(harness.connection()) as redis:
        base = f"{harness.prefix}:queue:{{1}}"
        if part == "tail":
            store.append([one(1, 1)])
            redis.run("HSET", f"{base}:m", "tail", 0)
        else:
            redis.run("DEL", f"{base}:{part}")
            redis.run("SET", f"{base}:{part}", "x")
        with harness.store() as other, other.group():
            (answer,) = other.append([many])
        of_qos_0 = 1 if part == "d" else Refused.GONE  # the ids of a queue are looked at for QoS 2 alone
        assert answer.positions == (of_qos_0, Refused.GONE, 1)
        assert positions(store, 2, epoch) == [1]
    with harness.store() as other:
        other.open()
        other.drop(1)
        assert [stats.queue_id for stats in other.list_queues(TENANT)] == [2]


def test_full_memory_holds_back_and_loses_nothing(harness: RedisQueueHarness, store: RedisQueues) -> None:
    """Appends wait, as for a store that fails; readers go on, claims, acknowledgements and purges pass."""
    claim, other = made(store, 1), made(store, 2)
    store.append([one(1, number, qos=number % 3, expires_at_ms=number % 2) for number in range(1, 41)])
    assert store.append([one(2, 41)]) == [Appended((1,))]
    batch = [one(1, 90), one(2, 91)]
    with configured(harness, "maxmemory", "1mb"):
        with pytest.raises(BackendError, match="maxmemory") as caught, store.group():
            store.append(batch)
        assert (caught.value.retryable, caught.value.is_written) == (True, False)
        read = [Move(MoveKind.ACK, 1, claim.epoch, 20), Move(MoveKind.ACK, 2, other.epoch, 1)]
        assert store.apply(read) == [True, True]
        assert moved(store, MoveKind.RESERVE, 1, claim.epoch, 30)
        claim = store.claim(1, b"another")
        assert (claim.head, claim.reserved) == (20, 30)
        assert len(store.expire(1, 100).removed) == 5
        assert store.purge(1) == (15, 0)
        with pytest.raises(BackendError, match="maxmemory"):
            store.probe()

    store.probe()
    with store.group():
        assert store.append(batch) == [Appended((41,)), Appended((2,))]
    assert positions(store, 1, claim.epoch) == [41]


@pytest.mark.parametrize(("name", "value"), [("appendfsync", "everysec"), ("maxmemory-policy", "allkeys-lru")])
def test_server_that_does_not_keep_queues_is_refused_by_name(harness: RedisQueueHarness, name: str, value: str) -> None:
    """Before anything is written there."""
    with configured(harness, name, value), harness.store() as store:
        with pytest.raises(BackendError, match=f'{name} is "{value}"'):
            made(store, 1)
        with pytest.raises(BackendError, match=name):
            store.probe()


def test_emptied_database_is_told_by_each_hub(harness: RedisQueueHarness, store: RedisQueues) -> None:
    """Its queues are gone, and are not made again by anything but a new session."""
    made(store, 1)
    store.append([one(1, 1)])
    with harness.store() as other:
        other.open()
        with closing(harness.connection()) as redis:
            redis.run("FLUSHDB")
        assert store.append([one(1, 2)]) == [Appended((GONE,))]
        store.probe()
        other.probe()

    assert len(harness.lost) == 2
    made(store, 2)
    assert store.append([one(2, 1)]) == [Appended((1,))]
    assert store.list_queues(7)[0].queue_id == 2


def test_script_flush_is_no_news(harness: RedisQueueHarness, store: RedisQueues) -> None:
    """Redis forgets its scripts at a restart, or when it is told to."""
    claim = made(store, 1)
    store.append([one(1, 1)])
    with closing(harness.connection()) as redis:
        redis.run("SCRIPT", "FLUSH")

    assert store.append([one(1, 2), one(1, 3)]) == [Appended((2,)), Appended((3,))]
    assert [record.body for record in store.read(1, claim.epoch, 0, 9, MANY).records] == [b"m1", b"m2", b"m3"]
