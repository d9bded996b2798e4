"""Several queue drivers as one: where queues are, and messages for queues of several drivers when something fails between them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError, CorruptRecordError, NotFoundError
from iothub.testing.clock import ManualClock
from iothub_services.queues import several
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Inbound,
    QueueLimits,
    QueueStats,
    Refused,
    UnreadableQueueError,
    refused_by_own,
)
from iothub_services.queues.rebuilding import Place, Rebuilt
from iothub_services.queues.several import SeveralQueues
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database

TENANT = 7


class Remembering(MemoryQueues):
    """As a driver on a server: durable at once, and what a failed group has done is not done again with the same objects."""

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[int, tuple[Append, Appended]] = {}

    @contextmanager
    def group(self) -> Iterator[None]:
        self._batch: list[Append] = []
        yield
        for op in self._batch:
            self._done.pop(id(op), None)

    def append(self, batch: list[Append]) -> list[Appended]:
        self._batch = batch
        new = [op for op in batch if id(op) not in self._done]
        for op, answer in zip(new, super().append(new), strict=True):
            self._done[id(op)] = (op, answer)
        return [self._done[id(op)][1] for op in batch]


class Damaged(MemoryQueues):
    """As a file that has lost a page."""

    def __init__(self) -> None:
        super().__init__()
        self.needs_rebuild = True
        self.asked: list[tuple[list[Place], int]] = []

    def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt:
        self.needs_rebuild = False
        self.asked.append((list(places), now_us))
        return Rebuilt(len(places), 5, 1)


@pytest.fixture
def server() -> Remembering:
    return Remembering()


@pytest.fixture
def queues(server: Remembering) -> SeveralQueues:
    made = SeveralQueues({"server": server, "file": MemoryQueues()}, "server", committing="file")
    made.create_with("server", TENANT, 1, QueueLimits())
    made.create_with("file", TENANT, 2, QueueLimits())
    return made


def message(number: int, *queue_ids: int, qos: int = 1, inbound: Inbound | None = None) -> Append:
    deliveries = tuple(Delivery(queue_id, qos) for queue_id in queue_ids)
    return Append(number.to_bytes(16), b"m%d" % number, 0, deliveries, inbound)


def test_queue_is_found_where_it_is(server: Remembering) -> None:
    """A hub that starts with other settings, or beside another hub, knows it from the drivers alone."""
    server.create(TENANT, 1, QueueLimits())
    later = SeveralQueues({"server": server, "file": MemoryQueues()}, "file", committing="file")

    assert later.claim(1, b"hub").epoch == 1
    assert [stats.queue_id for stats in later.list_queues(TENANT)] == [1]
    with pytest.raises(NotFoundError):
        later.claim(9, b"hub")


def test_message_for_queues_of_both_has_positions_in_its_order(queues: SeveralQueues) -> None:
    """And of a queue that is gone it is said so."""
    queues.append([message(1, 1)])

    (answer,) = queues.append([message(2, 2, 9, 1)])

    assert answer.positions == (1, -2, 2)


def test_group_that_is_repeated_appends_once(queues: SeveralQueues, server: Remembering) -> None:
    """The server has the message already when the file's commit fails."""
    batch = [message(1, 1, 2)]

    def fail() -> None:
        with queues.group():
            queues.append(batch)
            raise BackendError("disk full", retryable=True)

    with pytest.raises(BackendError):
        fail()
    with queues.group():
        queues.append(batch)

    assert server.tails([1]) == {1: 1}


def test_repeat_apart_from_its_batch_appends_once(queues: SeveralQueues, server: Remembering) -> None:
    """One bad operation has the batch taken apart: what its neighbours did before is not done again."""
    batch = [message(1, 1, 2), message(2, 1, 2)]

    def fail() -> None:
        with queues.group():
            queues.append(batch)
            raise BackendError("damaged", retryable=False)

    with pytest.raises(BackendError):
        fail()
    for op in batch:
        with queues.group():
            queues.append([op])

    assert server.tails([1]) == {1: 2}


def test_what_is_given_up_is_forgotten(queues: SeveralQueues) -> None:
    """A store that is away for hours does not fill the memory."""

    def fail(number: int) -> None:
        with queues.group():
            queues.append([message(number, 1, 2)])
            raise BackendError("disk full", retryable=True)

    for number in range(several.MOST + 10):
        with pytest.raises(BackendError):
            fail(number)

    assert len(queues._parts) <= several.MOST


def test_next_message_with_the_same_identity_is_another_one(queues: SeveralQueues, server: Remembering) -> None:
    """What a group remembered goes with its good end."""
    batch = [message(1, 1, 2)]
    for _ in range(2):
        with queues.group():
            queues.append(batch)

    assert server.tails([1]) == {1: 2}


def test_own_queue_of_a_file_is_asked_before_a_server_gets_anything(queues: SeveralQueues, server: Remembering) -> None:
    """A repeated PUBLISH at QoS 2 leaves nothing there."""
    epoch = queues.claim(2, b"hub").epoch
    first, again = (message(number, 1, qos=2, inbound=Inbound(2, epoch, 5)) for number in (1, 2))

    with queues.group():
        assert queues.append([first])[0].positions == (1,)
    with queues.group():
        assert queues.append([again])[0].is_duplicate

    assert server.tails([1]) == {1: 1}


def test_own_queue_of_a_server_is_asked_last(queues: SeveralQueues) -> None:
    """It remembers the Packet Identifier at once: whoever came before it loses nothing when the hub dies in between."""
    epoch = queues.claim(1, b"hub").epoch
    order: list[str] = []
    for name, driver in queues._drivers.items():
        append = driver.append
        driver.append = lambda batch, name=name, append=append: order.append(name) or append(batch)  # type: ignore[method-assign,func-returns-value,misc]

    queues.append([message(1, 2, qos=2, inbound=Inbound(1, epoch, 5))])

    assert order == ["file", "server"]


def on_file_and_server(path: Path, server: MemoryQueues) -> SeveralQueues:
    """The publisher's own queue, 1, is on the server, the subscriber's, 2, in the file."""

    def on_alarm(name: str, text: str) -> None:
        pytest.fail(f"{name}: {text}")

    file = SqliteQueues(open_database(path / "queues.db", SCHEMA, ManualClock(), on_alarm))
    return SeveralQueues({"server": server, "sqlite": file}, "server")


def test_server_remembers_no_message_that_the_file_has_lost(tmp_path: Path, server: Remembering) -> None:
    """A hub dies before the group's end: nobody was answered, and the repeated PUBLISH must not be taken for a duplicate."""
    queues = on_file_and_server(tmp_path, server)
    queues.create_with("server", TENANT, 1, QueueLimits())
    queues.create_with("sqlite", TENANT, 2, QueueLimits())
    epoch = queues.claim(1, b"hub").epoch
    dying = queues.group()
    dying.__enter__()

    queues.append([message(1, 2, qos=2, inbound=Inbound(1, epoch, 5))])

    assert server.claim(1, b"later").inbound == (5,)
    with sqlite3.connect(tmp_path / "queues.db") as later:  # sees what is committed alone
        assert later.execute("SELECT count(*) FROM ref WHERE queue = 2").fetchone() == (1,)
    later.close()
    dying.__exit__(None, None, None)
    queues.close()


def test_what_the_file_has_committed_early_is_not_done_twice(tmp_path: Path, server: Remembering) -> None:
    """The server fails behind it, and the group comes again."""
    queues = on_file_and_server(tmp_path, server)
    queues.create_with("server", TENANT, 1, QueueLimits())
    epoch = queues.claim(1, b"hub").epoch
    batch = [message(1, 2), message(2, 2, qos=2, inbound=Inbound(1, epoch, 5))]
    failures = [BackendError("away", retryable=True)]
    append = server.append

    def failing(batch: list[Append]) -> list[Appended]:
        if failures:
            raise failures.pop()
        return append(batch)

    server.append = failing  # type: ignore[method-assign]

    def write() -> list[Appended]:
        with queues.group():
            queues.create_with("sqlite", TENANT, 2, QueueLimits())
            return queues.append(batch)

    with pytest.raises(BackendError):
        write()
    assert [each.positions for each in write()] == [(1,), (2,)]
    assert queues.tails([2]) == {2: 2}
    with pytest.raises(ConflictError):
        queues.create_with("sqlite", TENANT, 2, QueueLimits())
    queues.close()


def test_all_drivers_are_summed_and_dropped(queues: SeveralQueues) -> None:
    queues.append([message(1, 1, 2)])

    assert queues.tenant_usage(TENANT).messages == 2
    assert queues.drop(1) == 1
    assert queues.drop(1) == 0
    assert queues.drop_tenant(TENANT) == 1


def test_only_queues_that_no_driver_has_are_rebuilt(server: Remembering) -> None:
    """The damaged file gets those back that it had; what is on the server was never lost."""
    damaged = Damaged()
    server.create(TENANT, 1, QueueLimits())
    several = SeveralQueues({"server": server, "file": damaged}, "server", committing="file")
    places = [Place(TENANT, queue_id, 1) for queue_id in (1, 2, 3)]
    assert several.needs_rebuild

    assert several.rebuild(places, 99) == Rebuilt(2, 5, 1)

    assert damaged.asked == [(places[1:], 99)]
    assert not several.needs_rebuild
    assert several.rebuild(places, 99) == Rebuilt()


class OwnUnreadable(MemoryQueues):
    """Whose publishers' own queues cannot be read."""

    def append(self, batch: list[Append]) -> list[Appended]:
        error = UnreadableQueueError(1, "version 7")
        return [refused_by_own(len(op.deliveries), error, is_noted=False) for op in batch]


def test_message_that_no_driver_has_noted_is_said_to_be_so() -> None:
    """One of its queues is gone, so its driver gets less than the whole: its publisher may use the identifier anew all the same."""
    server = OwnUnreadable()
    queues = SeveralQueues({"server": server, "memory": MemoryQueues()}, "server", "memory")
    queues.create(TENANT, 1, QueueLimits())
    gone = 9

    (answer,) = queues.append([Append(bytes(16), b"m", 0, (Delivery(1, 2), Delivery(gone, 2)), Inbound(1, 1, 5))])

    assert answer.positions == (int(Refused.UNREADABLE), int(Refused.GONE))
    assert not answer.is_noted


class Unreadable(Remembering):
    """A server with queues whose own state cannot be read: they have no tail, and refuse whatever is for them."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: set[int] = set()

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        return super().tails([queue_id for queue_id in queue_ids if queue_id not in self.unreadable])

    def stats(self, queue_id: int) -> QueueStats:
        if queue_id in self.unreadable:
            raise CorruptRecordError("version 9")
        return super().stats(queue_id)

    def append(self, batch: list[Append]) -> list[Appended]:
        if any(delivery.queue_id in self.unreadable for op in batch for delivery in op.deliveries):
            raise BackendError("version 9", retryable=False)
        return super().append(batch)


def test_queue_that_cannot_be_read_is_not_taken_for_gone() -> None:
    """A start with a damaged queue: a message for it is refused, never acknowledged and thrown away; and it can be dropped."""
    server = Unreadable()
    before = SeveralQueues({"server": server, "file": MemoryQueues()}, "server", committing="file")
    before.create_with("server", TENANT, 1, QueueLimits())
    server.unreadable.add(1)
    queues = SeveralQueues({"server": server, "file": MemoryQueues()}, "server", committing="file")

    with pytest.raises(BackendError, match="version 9"):
        queues.append([message(1, 1)])
    with pytest.raises(CorruptRecordError):
        queues.stats(1)
    queues.drop(1)
    server.unreadable.clear()
    assert server.list_queues(TENANT) == []
