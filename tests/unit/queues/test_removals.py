"""What is removed from the tables is bounded for each commit, whatever its size: others write in between, and SQLite's log stays small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import purged
from iothub_services.queues.journal.sizes import most_removed
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import Append, Delivery, Move, MoveKind, QueueLimits
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database
from tests.support.journaled_queues import append, bodies
from tests.support.servers.losing_disk import abandon
from tests.support.work_beside import AtOnce

MESSAGES = 3_000
BODY_BYTES = 32 << 10
MIB = 1 << 20
MOST_LOG_BYTES = 56 * MIB  # 16 until SQLite folds its log, and a commit of 32 with what is beside

Opened = Callable[[], SqliteQueues]


@pytest.fixture
def journaled(tmp_path: Path) -> Iterator[Opened]:
    stores: list[JournaledQueues] = []

    def opened() -> JournaledQueues:
        database = open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail)
        database.writer.execute("PRAGMA synchronous=OFF")
        database.writer.execute("PRAGMA secure_delete=ON")  # what is removed is in the log, then
        stores.append(JournaledQueues(database, pytest.fail, beside=AtOnce))
        return stores[-1]

    yield opened
    for store in stores[-1:]:
        store.close()
    (tmp_path / "queues.db").unlink()


def fill(path: Path) -> None:
    """Put 94 MiB into the tables."""
    database = open_database(path, SCHEMA, ManualClock(), pytest.fail)
    database.writer.execute("PRAGMA synchronous=OFF")
    store = SqliteQueues(database)
    for queue_id in (1, 2):
        store.create(1, queue_id, QueueLimits(0, 0))
        store.claim(queue_id, b"reader")
    for start in range(0, MESSAGES, 100):
        body = start.to_bytes(4) * (BODY_BYTES // 4)
        store.append([Append(b"", body, 0, (Delivery(1, 1),))] * 100)
    store.close()


def log_bytes(folder: Path) -> int:
    return (folder / "queues.db-wal").stat().st_size


def test_purge_of_large_messages_is_done_in_slices_between_which_others_append(
    journaled: Opened, tmp_path: Path
) -> None:
    """As one transaction it would write as much as the messages have into the log of the tables."""
    fill(tmp_path / "queues.db")
    store = journaled()
    calls, upto, removed, largest = 0, 0, 0, 0
    while calls == 0 or upto:
        messages, upto = store.purge(1, upto)
        assert messages <= 200
        removed += messages
        calls += 1
        append(store, b"between", queue_ids=(2,))
        largest = max(largest, log_bytes(tmp_path))

    assert removed == MESSAGES
    assert calls > 20
    assert len(bodies(store, 2)) == calls
    assert largest <= MOST_LOG_BYTES


def test_purge_that_is_killed_has_removed_the_oldest(journaled: Opened, tmp_path: Path) -> None:
    """What a call has answered is gone, the rest is there, also of messages that are young; and the next purge removes that."""
    fill(tmp_path / "queues.db")
    store = journaled()
    append(store, b"young")
    messages, upto = store.purge(1)
    again, upto = store.purge(1, upto)
    assert upto == MESSAGES + 1
    append(store, b"later")
    abandon(store)  # type: ignore[arg-type]

    store = journaled()

    page = store.read(1, 1, 0, 1, MIB)
    assert page.records[0].position == messages + again + 1
    left = store.stats(1).messages
    assert left == MESSAGES + 2 - messages - again
    assert store.purge(1, upto)[0] > 0
    assert purged(store, 1) > 0
    assert store.stats(1).messages == 0
    assert store.tenant_usage(1) == (0, 0)


def test_reader_that_drains_and_idle_work_keep_the_log_small(journaled: Opened, tmp_path: Path) -> None:
    """A commit is due when much was removed by size, long before it is by number; a group that removes more leaves the rest to the next one."""
    fill(tmp_path / "queues.db")
    store = journaled()
    store.apply([Move(MoveKind.ACK, 1, 1, MESSAGES)])
    largest = 0
    for _ in range(20):
        append(store, b"between", queue_ids=(2,))
        largest = max(largest, log_bytes(tmp_path))
    while store.idle():
        largest = max(largest, log_bytes(tmp_path))

    assert largest <= MOST_LOG_BYTES
    store.probe()  # type: ignore[attr-defined]
    with store._reading() as connection:
        assert connection.execute("SELECT count(*) FROM body").fetchone()[0] == 0


def test_bodies_that_nobody_counted_are_swept_in_commits_of_their_own(journaled: Opened, tmp_path: Path) -> None:
    """After a kill in the middle of a removal all that is dead may be found at once."""
    fill(tmp_path / "queues.db")
    database = open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail)
    with database.transaction() as connection:
        connection.execute("DELETE FROM ref")
        connection.execute("UPDATE queue SET messages = 0, bytes = 0")
    database.close()
    store = journaled()
    largest = 0
    while store.idle():
        largest = max(largest, log_bytes(tmp_path))

    assert largest <= MOST_LOG_BYTES
    with store._reading() as connection:
        assert connection.execute("SELECT count(*) FROM body").fetchone()[0] == 0


def test_small_disk_lets_a_commit_remove_less() -> None:
    assert [most_removed(size) for size in (4 * MIB, 64 * MIB, 1 << 30)] == [MIB, 8 * MIB, 32 * MIB]


@pytest.mark.parametrize("has_journal", [True, False], ids=["journal", "tables"])
def test_file_that_is_nearly_empty_becomes_small_and_keeps_what_is_left(
    journaled: Opened, tmp_path: Path, *, has_journal: bool
) -> None:
    """Idle work gives the disk back what nothing is in; until then it is said how much that is."""
    file = tmp_path / "queues.db"
    fill(file)
    store = journaled() if has_journal else SqliteQueues(open_database(file, SCHEMA, ManualClock(), pytest.fail))
    store.apply([Move(MoveKind.ACK, 1, 1, MESSAGES - 1)])
    most = 0
    for _ in range(1_000):
        has_more = store.idle()
        most = max(most, store.journal_figures.reusable_bytes)
        if not has_more and not store.journal_figures.reusable_bytes:
            break

    assert most > 64 * MIB
    assert file.stat().st_size < MIB
    (kept,) = bodies(store)  # type: ignore[arg-type]
    assert kept == (MESSAGES - 100).to_bytes(4) * (BODY_BYTES // 4)
    if not has_journal:
        store.close()


def test_what_a_small_purge_has_freed_is_told_when_nothing_else_happens(journaled: Opened, tmp_path: Path) -> None:
    """Publishers may wait for it, and then nobody else makes a commit due."""
    fill(tmp_path / "queues.db")
    store = journaled()
    while store.idle():
        pass
    before = store.journal_figures.reusable_bytes

    removed, upto = store.purge(1)
    store.idle()

    assert upto
    assert store.journal_figures.reusable_bytes >= before + (removed - 1) * BODY_BYTES
