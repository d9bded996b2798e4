"""Commits of the tables that are under way while groups are written, and what becomes of those groups when a commit fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.testing.clock import ManualClock
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.sqlite.database import Database, open_database
from tests.support.journaled_queues import Open, append, bodies, made, rows
from tests.support.servers.losing_disk import LosingDisk, abandon
from tests.support.work_beside import AtOnce

SEGMENT_BYTES = 4_096
BODY = bytes(500)


class WhenWaitedFor(AtOnce):
    """Work that takes until somebody waits for it."""

    work: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:  # type: ignore[override]
        return self.work is None

    def start(self, work: Callable[[], None]) -> None:
        self.work = work

    def wait(self) -> None:
        work, self.work = self.work, None
        if work is not None:
            super().start(work)
        super().wait()


class Slow:
    """Queues of which commits take until they are waited for, as many segments as two."""

    def __init__(self, tmp_path: Path, disk: LosingDisk) -> None:
        self.commits = WhenWaitedFor()
        self.database: Database = open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail)
        self.store = JournaledQueues(
            self.database,
            pytest.fail,
            disk=disk,
            beside=lambda name: self.commits if name == "queues-commit" else AtOnce(),
            segment_bytes=SEGMENT_BYTES,
            journal_bytes=2 * SEGMENT_BYTES,
        )
        made(self.store, 1)
        self.appended = 0
        while self.commits.is_over:
            self.append()

    def append(self) -> None:
        append(self.store, b"%d" % self.appended + BODY)
        self.appended += 1

    def expected(self) -> list[bytes]:
        return [b"%d" % number + BODY for number in range(self.appended)]


def test_groups_are_written_while_a_commit_is_under_way(tmp_path: Path, disk: LosingDisk) -> None:
    slow = Slow(tmp_path, disk)
    assert rows(tmp_path, "ref") == 0

    slow.append()
    assert not slow.commits.is_over

    assert bodies(slow.store) == slow.expected()
    assert slow.commits.is_over, "whoever reads the tables waits"
    assert rows(tmp_path, "ref") > 0
    slow.store.close()


def test_groups_of_a_commit_that_fails_are_there(tmp_path: Path, disk: LosingDisk, opened: Open) -> None:
    """They are read back from their segments, now and at the next start."""
    slow = Slow(tmp_path, disk)
    slow.append()
    commit = slow.database.commit

    def fail() -> None:
        slow.database.commit = commit  # type: ignore[method-assign]
        raise sqlite3.OperationalError("database or disk is full")

    slow.commits.work = fail
    with pytest.raises(BackendError, match="disk is full"):
        bodies(slow.store)
    slow.append()

    assert bodies(slow.store) == slow.expected()
    abandon(slow.store)
    disk.crash()
    again = opened(segment_bytes=SEGMENT_BYTES)
    assert bodies(again) == slow.expected()
    again.close()


def test_process_that_dies_during_a_commit_loses_no_group(tmp_path: Path, disk: LosingDisk, opened: Open) -> None:
    slow = Slow(tmp_path, disk)
    slow.append()
    slow.commits.work = lambda: None  # it did not come to it

    abandon(slow.store)
    disk.crash()

    again = opened(segment_bytes=SEGMENT_BYTES)
    assert bodies(again) == slow.expected()
    again.close()
