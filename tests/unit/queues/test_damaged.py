"""What is damaged in a store, in every driver: a record is passed over and named, a queue whose own state is damaged is lost; others go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from iothub.base.errors import NotFoundError
from iothub.records import keys
from iothub.records.message import StoredMessage, encode_message
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import MANY, TENANT, identified, made, moved, one, positions
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Inbound,
    MoveKind,
    Overflow,
    QueueLimits,
    QueueStore,
    Refused,
)
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.queues.threads import LoadedPage, load_page
from iothub_services.sqlite.database import open_database
from tests.support.hbase.hbase_queues import HBase
from tests.support.servers.redis_queues import PREFIX, RedisHarness

GONE = int(Refused.GONE)
BROKEN, WHOLE, PUBLISHER = 1, 2, 3
SPOILT = 4  # a position
KEY = keys.queue_key(BROKEN, TENANT)


class Harness(NamedTuple):
    """A driver with a server; `damage` spoils the state of a queue, `store` gives the store of another hub, `alarms` are the texts."""

    store: Callable[[], QueueStore]
    damage: Callable[[int], object]
    alarms: list[str]


def on_redis() -> Harness:
    harness = RedisHarness()
    hubs = iter(range(1, 9))

    def damage(queue_id: int) -> None:
        harness.redis.execute_command("HSET", f"{PREFIX}:queue:{{{queue_id}}}:m", "tail", "many", "epoch", "many")

    return Harness(lambda: harness.store(next(hubs)), damage, harness.damaged)


def on_hbase() -> Harness:
    harness = HBase()
    hubs = iter(range(1, 9))

    def damage(queue_id: int) -> None:
        harness.coprocessor.damaged.add(keys.queue_key(queue_id, TENANT))

    return Harness(lambda: harness.store(next(hubs))[0], damage, harness.alarms)


@pytest.fixture(params=[on_redis, on_hbase])
def harness(request: pytest.FixtureRequest) -> Harness:
    made_harness: Harness = request.param()
    return made_harness


def spread(*queue_ids: int, number: int = 1, inbound: Inbound | None = None) -> Append:
    return Append(identified(number), b"body", 0, tuple([Delivery(each, 2) for each in queue_ids]), inbound)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_message_is_stored_in_all_queues_but_the_damaged_one(harness: Harness, is_restarted: bool) -> None:
    """Group commit goes on, and the alarm names the queue once."""
    store = harness.store()
    made(store, BROKEN)
    epoch = made(store, WHOLE).epoch
    harness.damage(BROKEN)
    store = harness.store() if is_restarted else store

    with store.group():
        answers = store.append([one(WHOLE, 1), spread(BROKEN, WHOLE, number=2), one(BROKEN, 3), one(WHOLE, 4)])

    assert [answer.positions for answer in answers] == [(1,), (GONE, 2), (GONE,), (3,)]
    assert positions(store, WHOLE, epoch) == [1, 2, 3]
    (alarm,) = harness.alarms
    assert alarm.startswith("queue 1 is damaged and lost, its session ends (queue_lost): ")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_damaged_queue_is_there_for_nobody_and_can_be_dropped(harness: Harness, is_restarted: bool) -> None:
    store = harness.store()
    epoch = made(store, BROKEN).epoch
    made(store, WHOLE)
    harness.damage(BROKEN)
    store = harness.store() if is_restarted else store
    new = QueueLimits(1, 0, Overflow.REJECT)

    for verb in (
        lambda: store.claim(BROKEN, b"other"),
        lambda: store.read(BROKEN, epoch, 0, 9, 9),
        lambda: store.purge(BROKEN),
        lambda: store.stats(BROKEN),
    ):
        with pytest.raises(NotFoundError):
            verb()
    assert not moved(store, MoveKind.ACK, BROKEN, epoch, 1)
    store.set_limits([(BROKEN, new), (WHOLE, new)])
    assert store.stats(WHOLE).limits == new
    assert list(store.tails([BROKEN, WHOLE])) == [WHOLE]
    assert [stats.queue_id for stats in store.list_queues(TENANT)] == [WHOLE]
    assert len(harness.alarms) == 1

    store.drop(BROKEN)

    made(store, BROKEN)
    assert [stats.queue_id for stats in store.list_queues(TENANT)] == [BROKEN, WHOLE]


def test_page_of_a_damaged_queue_raises_the_alarm(harness: Harness) -> None:
    """Its reader may be the first to meet the damage; a queue that another hub has dropped is no damage."""
    store, other = harness.store(), harness.store()
    broken, whole = (made(store, each).epoch for each in (BROKEN, WHOLE))
    other.drop(WHOLE)
    harness.damage(BROKEN)

    for queue_id, epoch in ((BROKEN, broken), (WHOLE, whole)):
        with pytest.raises(NotFoundError):
            store.read(queue_id, epoch, 0, 9, MANY)

    (alarm,) = harness.alarms
    assert alarm.startswith("queue 1 is damaged and lost, its session ends (queue_lost): ")


def test_qos2_message_for_a_damaged_queue_is_routed(harness: Harness) -> None:
    """The others have it once, and its identifier is known until PUBREL."""
    store = harness.store()
    publisher, _, whole = (made(store, each).epoch for each in (PUBLISHER, BROKEN, WHOLE))
    harness.damage(BROKEN)
    inbound = Inbound(PUBLISHER, publisher, 7)

    assert store.append([spread(BROKEN, WHOLE, inbound=inbound)])[0].positions == (GONE, 1)

    assert store.append([spread(BROKEN, WHOLE, number=2, inbound=inbound)]) == [Appended((), is_duplicate=True)]
    assert positions(store, WHOLE, whole) == [1]
    assert store.claim(PUBLISHER, b"other").inbound == (7,)


def test_publisher_whose_own_queue_is_damaged_has_no_session_any_more(harness: Harness) -> None:
    """Nobody gets its message, and what others send goes on."""
    store = harness.store()
    publisher, _ = (made(store, each).epoch for each in (PUBLISHER, WHOLE))
    harness.damage(PUBLISHER)

    answers = store.append([spread(WHOLE, inbound=Inbound(PUBLISHER, publisher, 7)), one(WHOLE, 2)])

    assert answers == [Appended((), is_stale=True), Appended((1,))]


def with_records(store: QueueStore) -> QueueStore:
    made(store, BROKEN)
    for number in range(1, 7):
        append(store, number)
    return store


def append(store: QueueStore, number: int) -> Appended:
    body = encode_message(StoredMessage(b"a/b", b"%d" % number, 1, False, b"", 0, bytes(16), "pub"))
    (answer,) = store.append([Append(number.to_bytes(16), body, 0, (Delivery(BROKEN, 1),))])
    return answer


def sqlite_records(path: Path) -> QueueStore:
    store = SqliteQueues(open_database(path / "queues.db", SCHEMA, ManualClock(), lambda _, text: pytest.fail(text)))
    with_records(store)
    with store._database.transaction() as connection:
        where = "id = (SELECT body FROM ref WHERE position = ?)"
        (body,) = connection.execute(f"SELECT b FROM body WHERE {where}", (SPOILT,)).fetchone()
        connection.execute(f"UPDATE body SET b = ? WHERE {where}", (b"\7" + body[1:], SPOILT))
    return store


def hbase_records(_: Path) -> QueueStore:
    harness = HBase()
    store = with_records(harness.store()[0])
    records = harness.coprocessor.queues[KEY].records
    records[SPOILT] = replace(records[SPOILT], raw=b"\7" + records[SPOILT].raw[1:])
    return store


def redis_records(_: Path) -> QueueStore:
    harness = RedisHarness()
    store = with_records(harness.store())
    key = f"{PREFIX}:queue:{{{BROKEN}}}:r"
    entries = harness.redis.execute_command("XRANGE", key, "-", "+")
    harness.redis.execute_command("DEL", key)
    for name, fields in entries:
        damaged = ("v", "7", "x", "y") if name == b"%d-0" % SPOILT else fields
        harness.redis.execute_command("XADD", key, name, *damaged)
    return store


@pytest.fixture(params=[sqlite_records, hbase_records, redis_records])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> QueueStore:
    store: QueueStore = request.param(tmp_path)
    return store


@pytest.mark.parametrize("count", [1, 2, 3, 4, 10])
def test_damaged_record_is_passed_over_and_named(records: QueueStore, count: int) -> None:
    """In pages of any size; the acknowledgement of what is behind it takes it along."""
    epoch = records.claim(BROKEN, b"reader").epoch
    pages: list[LoadedPage] = []
    while not pages or not pages[-1].is_short:
        pages.append(load_page(records.read(BROKEN, epoch, pages[-1].upto if pages else 0, count, MANY)))

    assert [int(record.message.payload) for page in pages for record in page.records] == [1, 2, 3, 5, 6]
    assert [position for page in pages for position, _ in page.damaged] == [SPOILT]
    assert append(records, 7).positions == (7,)
    assert moved(records, MoveKind.ACK, BROKEN, epoch, 6)
    stats = records.stats(BROKEN)
    assert (stats.head, stats.tail, stats.messages) == (6, 7, 1)
