"""`iothub_spark.trimmed`: from when on a log has everything, told by the first event that is there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from iothub.records.events import Topic
from iothub_spark import trimmed
from iothub_spark.stores.archive import last_gap_ms, note_gap
from iothub_spark.stores.log_sqlite import SqliteLog, trim
from tests.support.jobs.event_log import EventMill, append, make_log

NOW_MS = 1_790_000_000_000
MADE = 50


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    make_log(tmp_path / "events.db")
    append(tmp_path / "events.db", EventMill(10, 2).events(MADE))
    with closing(SqliteLog(tmp_path / "events.db")) as opened:
        yield opened


def test_log_with_its_first_event_lacks_none(log: SqliteLog) -> None:
    """Nor does one to which nothing was ever written."""
    assert trimmed.before_ms(log, Topic.SESSIONS, NOW_MS) is None
    assert trimmed.before_ms(log, Topic.ANALYTICS, NOW_MS) is None


def test_trimmed_log_has_everything_from_its_first_event_on(log: SqliteLog, tmp_path: Path) -> None:
    trim(tmp_path / "events.db", 20)

    assert trimmed.before_ms(log, Topic.SESSIONS, NOW_MS) == list(EventMill(10, 2).events(MADE))[20].at_ms


@pytest.mark.parametrize("statement", ["DELETE FROM session_event", "UPDATE session_event SET value = 'damaged'"])
def test_log_without_an_event_that_tells_has_nothing_until_now(log: SqliteLog, tmp_path: Path, statement: str) -> None:
    trim(tmp_path / "events.db", 20)
    with closing(sqlite3.connect(tmp_path / "events.db")) as file, file:
        file.execute(statement)

    assert trimmed.before_ms(log, Topic.SESSIONS, NOW_MS) == NOW_MS


def test_archive_remembers_the_last_moment_before_which_it_lacks_events(tmp_path: Path) -> None:
    """Each log has its own; a copy that is begun anew may lack later ones."""
    for moment in (NOW_MS, NOW_MS - 1):
        note_gap(tmp_path, "sessions", moment)

    assert last_gap_ms(tmp_path, "sessions") == NOW_MS
    assert last_gap_ms(tmp_path, "analytics") is None


def test_moment_is_told_in_words() -> None:
    moment_ms = int(datetime(2026, 9, 21, 14, 5, tzinfo=UTC).timestamp() * 1000)

    assert trimmed.describe(Topic.SESSIONS, moment_ms) == (
        "session events before 2026-09-21 14:05 UTC were trimmed before they were archived"
    )
