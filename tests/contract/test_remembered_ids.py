"""Which QoS 2 message ids a queue remembers: those that may come again, and no others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import identified, made, one
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import Append, Appended, Delivery, Inbound, Move, MoveKind, QueueStore
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database
from tests.support.servers.lossy_queues import OnHBase, OnRedis, Server

READER, PUBLISHER, OTHER = 1, 2, 3
MESSAGES, BATCH = 2_000, 100

Remembered = Callable[[], int]


@pytest.fixture(params=["memory", "sqlite", "hbase", "redis"])
def queues(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[QueueStore, Remembered]:
    """A store, and how many ids the reader's queue remembers."""
    if request.param == "memory":
        memory = MemoryQueues()
        return memory, lambda: len(memory._queues[READER].ids)
    if request.param == "sqlite":
        path = tmp_path / "queues.db"
        files = SqliteQueues(open_database(path, SCHEMA, ManualClock(), pytest.fail))

        def count() -> int:
            with sqlite3.connect(path) as connection:
                asked = "SELECT count(*) FROM ref WHERE queue = ? AND message_id IS NOT NULL"
                return int(connection.execute(asked, (READER,)).fetchone()[0])

        return files, count
    server: Server = OnHBase() if request.param == "hbase" else OnRedis()
    return server.store(1), lambda: server.remembered(READER)


def test_what_is_remembered_does_not_grow_with_the_messages(queues: tuple[QueueStore, Remembered]) -> None:
    """2,000 messages of a persistent publisher, acknowledged on both sides: the ids of one batch are left at most."""
    store, remembered = queues
    reader, publisher = made(store, READER), made(store, PUBLISHER)
    most = 0
    for first in range(1, MESSAGES + 1, BATCH):
        numbers = range(first, first + BATCH)
        answers = store.append(
            [one(READER, number, 2, inbound=Inbound(PUBLISHER, publisher.epoch, number)) for number in numbers]
        )
        assert answers == [Appended((number,)) for number in numbers]
        moves = [Move(MoveKind.FINISH_INBOUND, PUBLISHER, publisher.epoch, number) for number in numbers]
        assert all(store.apply([*moves, Move(MoveKind.ACK, READER, reader.epoch, numbers[-1])]))
        most = max(most, remembered())

    assert most <= 2 * BATCH
    assert remembered() <= BATCH


@pytest.fixture(params=[OnHBase, OnRedis])
def server(request: pytest.FixtureRequest) -> Server:
    kind: type[Server] = request.param
    return kind()


def test_waiting_messages_need_no_ids(server: Server) -> None:
    """Whoever reads them takes his time; their publisher has its PUBRECs."""
    store = server.store(1)
    made(store, READER)
    epoch = made(store, PUBLISHER).epoch
    for number in range(1, 501):
        store.append([one(READER, number, 2, inbound=Inbound(PUBLISHER, epoch, number))])

    assert server.remembered(READER) <= 1


def test_message_that_nobody_repeats_has_no_id(queues: tuple[QueueStore, Remembered]) -> None:
    """Of a publisher whose session ends with its connection."""
    store, remembered = queues
    made(store, READER)

    assert store.append([Append(b"", b"b", 0, (Delivery(READER, 2),))] * 2) == [Appended((1,)), Appended((2,))]
    assert remembered() == 0


def test_id_that_several_hubs_may_have_stays(server: Server) -> None:
    """A Will or a stream's record, among others that are settled: an heir may bring it a day later."""
    store = server.store(1)
    reader, publisher = made(store, READER), made(store, PUBLISHER)
    store.append([one(READER, 1_000, 2)])
    for number in range(1, 50):
        store.append([one(READER, number, 2, inbound=Inbound(PUBLISHER, publisher.epoch, number))])
    store.apply([Move(MoveKind.ACK, READER, reader.epoch, 50)])

    assert server.store(2).append([one(READER, 1_000, 2)]) == [Appended((1,))]
    assert server.remembered(READER) == 2


def publish(server: Server, store: QueueStore, op: Append, passing: int) -> None:
    """Try a message once: so many calls pass, and the next one is lost."""
    server.played = [*[0] * passing, server.lost]
    with pytest.raises(BackendError), store.group():
        store.append([op])
    server.played = []


def bodies(server: Server) -> list[bytes]:
    store = server.store(99)
    epoch = store.claim(READER, b"reader").epoch
    return [record.body for record in store.read(READER, epoch, 0, 100, 1 << 20).records]


def test_id_of_a_session_that_was_taken_over_stays(server: Server) -> None:
    """Between intent and append another hub has claimed it and found the intent open; its own append arrives when this hub is done.

    The store refuses this hub's `routed`, so it never says that the id is settled.
    """
    first, second = server.store(1), server.store(2)
    made(first, READER)
    epoch, other = made(first, PUBLISHER).epoch, made(first, OTHER).epoch
    second.open()

    def claimed() -> None:
        server.played = [0, 0, server.lost]
        with pytest.raises(BackendError):
            second.claim(PUBLISHER, b"second")
        server.played = []

    server.played = [0, claimed]
    assert first.append([one(READER, 1, 2, inbound=Inbound(PUBLISHER, epoch, 7))]) == [Appended((1,))]
    for number in range(2, 5):
        first.append([one(READER, number, 2, inbound=Inbound(OTHER, other, number))])
    assert server.late
    for each in server.late:
        each()

    assert bodies(server) == [b"m1", b"m2", b"m3", b"m4"]


def test_id_that_an_earlier_hub_gave_stays(server: Server) -> None:
    """The client's repeat finds the intent of a hub that is gone, which could not be finished, and whose append is still on its way."""
    gone, store = server.store(1), server.store(2)
    made(gone, READER)
    epoch, other = made(gone, PUBLISHER).epoch, made(gone, OTHER).epoch
    publish(server, gone, one(READER, 1, 2, inbound=Inbound(PUBLISHER, epoch, 7)), 1)
    server.damage_intent(PUBLISHER, 7)
    epoch = store.claim(PUBLISHER, b"store").epoch

    assert store.append([one(READER, 9, 2, inbound=Inbound(PUBLISHER, epoch, 7))]) == [Appended((1,))]
    for number in range(2, 5):
        store.append([one(READER, number, 2, inbound=Inbound(OTHER, other, number))])
    for each in server.late:
        each()

    assert bodies(server) == [b"m9", b"m2", b"m3", b"m4"]


def test_id_that_was_given_up_stays(server: Server) -> None:
    """Its intent is open: whoever claims the publisher's queue finishes it, after any number of others."""
    store = server.store(1)
    made(store, READER)
    epoch, other = made(store, PUBLISHER).epoch, made(store, OTHER).epoch
    publish(server, store, one(READER, 1, 2, inbound=Inbound(PUBLISHER, epoch, 7)), 2)
    store.idle()
    for number in range(2, 5):
        store.append([one(READER, number, 2, inbound=Inbound(OTHER, other, number))])

    claim = server.store(2).claim(PUBLISHER, b"second")

    assert claim.inbound == (7,)
    assert bodies(server) == [b"m1", b"m2", b"m3", b"m4"]


def test_open_intent_is_recognised_by_its_publishers_repeat(queues: tuple[QueueStore, Remembered]) -> None:
    """Whatever else was appended since."""
    store, _ = queues
    made(store, READER)
    epoch = made(store, PUBLISHER).epoch
    first = Append(identified(1), b"m1", 0, (Delivery(READER, 2),), Inbound(PUBLISHER, epoch, 7))
    store.append([first])
    store.append([one(READER, number, 2, inbound=Inbound(PUBLISHER, epoch, number)) for number in range(10, 20)])

    assert store.append([one(READER, 2, 2, inbound=Inbound(PUBLISHER, epoch, 7))]) == [Appended((), is_duplicate=True)]
