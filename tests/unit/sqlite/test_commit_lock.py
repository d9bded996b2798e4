"""Commits and holds: who waits for whom, and what happens to those that take too long."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from iothub.base.errors import UnavailableError
from iothub.testing.clock import ManualClock
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import Schema, open_database

LONG_S = 30.0  # nobody waits for it
SCHEMA = Schema("things", 1, {"thing": "things"}, ("CREATE TABLE thing (id INTEGER PRIMARY KEY)",))


def test_commit_waits_for_the_end_of_a_hold() -> None:
    commits, done = CommitLock(), list[str]()

    def commit() -> None:
        with commits.commit():
            done.append("commit")

    with ThreadPoolExecutor() as threads:
        hold = commits.hold(LONG_S, LONG_S)
        waiting = threads.submit(commit)
        done.append("held")
        assert commits.release(hold)
        waiting.result(LONG_S)

    assert done == ["held", "commit"]


def test_hold_waits_for_the_commit_that_runs() -> None:
    commits, is_running, may_end, done = CommitLock(), threading.Event(), threading.Event(), list[str]()

    def commit() -> None:
        with commits.commit():
            is_running.set()
            may_end.wait(LONG_S)
            done.append("commit")

    with ThreadPoolExecutor() as threads:
        running = threads.submit(commit)
        is_running.wait(LONG_S)
        held: Future[str] = threads.submit(commits.hold, LONG_S, LONG_S)
        may_end.set()
        hold = held.result(LONG_S)
        done.append("held")
        running.result(LONG_S)

    assert done == ["commit", "held"]
    assert commits.release(hold)


def test_hold_that_nobody_releases_ends_with_the_next_commit() -> None:
    """The command that asked for it may be dead; if it is not, it hears that its files are not of one moment."""
    commits = CommitLock()
    hold = commits.hold(LONG_S, 0.0)

    with commits.commit():
        pass

    assert not commits.release(hold)


def test_late_release_before_any_commit_is_in_time() -> None:
    commits = CommitLock()

    assert commits.release(commits.hold(LONG_S, 0.0))


def test_commit_that_hangs_ends_the_attempt_and_no_commit() -> None:
    """A disk that hangs is no reason to keep back what goes to other files."""
    commits = CommitLock()
    with commits.commit():
        with pytest.raises(UnavailableError, match="longer than 0 s"):
            commits.hold(0.0, LONG_S)
        with commits.commit():
            pass


def test_second_hold_is_not_given_before_the_first_has_ended() -> None:
    commits = CommitLock()
    first = commits.hold(LONG_S, LONG_S)
    assert commits.hold(LONG_S, LONG_S) == ""

    assert commits.release(first)
    second = commits.hold(LONG_S, LONG_S)

    assert not commits.release(first)
    assert commits.release(second)


def test_nothing_unknown_is_released() -> None:
    assert not CommitLock().release("")
    assert not CommitLock().release("0123456789abcdef")


def test_database_commits_under_its_lock(tmp_path: Path) -> None:
    """Statements run during a hold; what they write is seen by others after it."""
    commits = CommitLock()
    path = tmp_path / "things.db"
    database = open_database(path, SCHEMA, ManualClock(), lambda _name, _text: None, commits)
    is_written = threading.Event()

    def write() -> None:
        with database.transaction() as connection:
            connection.execute("INSERT INTO thing VALUES (1)")
            is_written.set()

    with ThreadPoolExecutor() as threads:
        hold = commits.hold(LONG_S, LONG_S)
        writing = threads.submit(write)
        is_written.wait(LONG_S)
        with sqlite3.connect(path) as other:
            seen = other.execute("SELECT count(*) FROM thing").fetchone()
        commits.release(hold)
        writing.result(LONG_S)

    assert seen == (0,)
    assert database.reader.execute("SELECT count(*) FROM thing").fetchone() == (1,)
    database.close()


def test_what_is_elsewhere_is_put_down_while_nobody_commits() -> None:
    """If it fails, nobody is kept back by a hold that was never given."""
    commits, done = CommitLock(), list[str]()
    commits.on_hold.append(lambda: done.append("down"))
    assert commits.release(commits.hold(LONG_S, LONG_S))

    def fail() -> None:
        raise UnavailableError("the disk is full")

    commits.on_hold.append(fail)
    with pytest.raises(UnavailableError, match="full"):
        commits.hold(LONG_S, LONG_S)
    with commits.commit():
        done.append("committed")

    assert done == ["down", "down", "committed"]


def test_hold_does_not_end_while_something_is_put_down() -> None:
    """However late that begins: it works on what a commit works on."""
    commits, is_putting, may_end, done = CommitLock(), threading.Event(), threading.Event(), list[str]()

    def put_down() -> None:
        is_putting.set()
        may_end.wait(LONG_S)
        done.append("down")

    def commit() -> None:
        with commits.commit():
            done.append("committed")

    commits.on_hold.append(put_down)
    with ThreadPoolExecutor() as threads:
        held: Future[str] = threads.submit(commits.hold, 0.0, 0.0)
        is_putting.wait(LONG_S)
        committing = threads.submit(commit)
        with suppress(TimeoutError):
            committing.result(0.1)
        may_end.set()
        committing.result(LONG_S)
        held.result(LONG_S)

    assert done == ["down", "committed"]
