"""Copies of the tables and the journal that are made while the store runs, under a hold of its commits."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub_services.queues.journal.segments import to_copy
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import Append, Delivery
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import open_database
from tests.support.journaled_queues import append, bodies, made, rows

SEGMENT_BYTES = 65_536
Start = Callable[..., JournaledQueues]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Queues on real files; an alarm fails the test."""
    opened: list[JournaledQueues] = []

    def on_alarm(word: str, text: str) -> None:
        pytest.fail(f"{word}: {text}")

    def run(folder: str, commits: CommitLock | None = None) -> JournaledQueues:
        (tmp_path / folder).mkdir(exist_ok=True)
        database = open_database(tmp_path / folder / "queues.db", SCHEMA, ManualClock(), on_alarm, commits)
        opened.append(JournaledQueues(database, on_alarm, segment_bytes=SEGMENT_BYTES, journal_bytes=3 * SEGMENT_BYTES))
        return opened[-1]

    yield run
    for store in opened:
        store.close()


def begin_copy(tmp_path: Path, commits: CommitLock) -> Callable[[], None]:
    """Open what there is under a hold, as a backup does; what is returned makes the copy, in the folder `copy`."""
    copy = tmp_path / "copy"
    (copy / "queues.journal").mkdir(parents=True)
    hold = commits.hold(1.0, 60.0)
    snapshot = sqlite3.connect(tmp_path / "hub" / "queues.db")
    snapshot.execute("BEGIN")
    snapshot.execute("SELECT count(*) FROM ref").fetchone()
    segments = []
    for path, size_bytes in to_copy(tmp_path / "hub" / "queues.db", is_held=True):
        file = path.open("rb")
        begun = file.read(size_bytes) if size_bytes < path.stat().st_size else None
        segments.append((path.name, file, begun))
    assert commits.release(hold)

    def finish() -> None:
        with closing(snapshot), closing(sqlite3.connect(copy / "queues.db")) as target:
            snapshot.backup(target)
        for name, file, begun in segments:
            with file:
                (copy / "queues.journal" / name).write_bytes(file.read() if begun is None else begun)

    return finish


def test_copy_has_what_was_done_before_the_hold_and_no_more(start: Start, tmp_path: Path) -> None:
    """And nothing in it is missing: the newest segment, which the hub goes on writing to, is there with its beginning."""
    commits = CommitLock()
    store = start("hub", commits)
    made(store, 1)
    append(store, b"a", b"b")

    finish = begin_copy(tmp_path, commits)
    append(store, b"later")
    finish()

    assert bodies(start("copy")) == [b"a", b"b"]
    assert bodies(store) == [b"a", b"b", b"later"]


def test_hold_moves_nothing_into_the_tables(start: Start, tmp_path: Path) -> None:
    """So it takes no longer than a commit, however many messages wait."""
    commits = CommitLock()
    store = start("hub", commits)
    made(store, 1)
    append(store, b"a", b"b")

    assert commits.release(commits.hold(1.0, 60.0))

    assert rows(tmp_path / "hub", "ref") == 0


def test_copy_outlives_the_segments_that_it_is_made_from(start: Start, tmp_path: Path) -> None:
    """The store deletes them, and uses blocks again, but not those that were there at the hold."""
    commits = CommitLock()
    store = start("hub", commits)
    made(store, 1)
    messages = [bytes([number]) * 2_000 for number in range(60)]
    append(store, *messages)
    before = {path.name for path, _ in to_copy(tmp_path / "hub" / "queues.db", is_held=False)}

    finish = begin_copy(tmp_path, commits)
    for _ in range(10):
        append(store, *messages)
    after = {path.name for path, _ in to_copy(tmp_path / "hub" / "queues.db", is_held=False)}
    finish()

    assert not before & after
    assert bodies(start("copy")) == messages


def test_copy_of_a_hub_that_was_killed_during_the_hold_is_one_of_a_hub_that_was_killed(
    start: Start, tmp_path: Path
) -> None:
    """What is there then is the copy of a disk: it has the newest segment whole."""
    commits = CommitLock()
    store = start("hub", commits)
    made(store, 1)
    append(store, b"a", b"b")

    hold = commits.hold(1.0, 60.0)
    shutil.copytree(tmp_path / "hub", tmp_path / "copy")
    assert commits.release(hold)

    assert bodies(start("copy")) == [b"a", b"b"]


def test_copy_is_read_by_a_hub_without_a_journal(start: Start, tmp_path: Path) -> None:
    commits = CommitLock()
    store = start("hub", commits)
    made(store, 1)
    store.append([Append(b"", b"a", 0, (Delivery(1, 1),))])

    begin_copy(tmp_path, commits)()
    start("copy").put_into_tables()

    database = open_database(tmp_path / "copy" / "queues.db", SCHEMA, ManualClock(), lambda *_: None)
    with closing(SqliteQueues(database)) as plain:
        assert [record.body for record in plain.read(1, 1, 0, 10, 1_000).records] == [b"a"]
