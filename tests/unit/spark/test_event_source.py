"""The event log as a frame: every event once, wherever the pieces are cut; damage named, newer programs refused."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.base.errors import ConflictError, NotFoundError
from iothub.records.events import Topic, decode_event
from iothub_spark.schemas.events import EVENTS, STORED_EVENTS
from iothub_spark.sources.events import read_events, read_stored
from iothub_spark.stores.log import LogRange, Stretch, range_after
from iothub_spark.stores.log_sqlite import SqliteLog, trim
from tests.support.jobs.event_log import EventMill, append, make_log
from tests.support.jobs.spark import sqlite_spec

EVENTS_MADE = 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("log")
    make_log(made / "events.db")
    append(made / "events.db", EventMill(50, 5).events(EVENTS_MADE))
    return made


def _copy(folder: Path, to: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(folder / "events.db")) as source, closing(sqlite3.connect(to / "events.db")) as copied:
        source.backup(copied)
        for statement in statements:
            copied.execute(statement)
        copied.commit()
    return to


def test_every_event_of_the_range_is_read_once(spark: SparkSession, folder: Path) -> None:
    """In both forms, without those below the range and those behind it."""
    spec, wanted = sqlite_spec(folder), LogRange(Topic.SESSIONS, (100,), (1_900,))
    stored, parsed = read_stored(spark, spec, wanted), read_events(spark, spec, wanted)
    logged = list(EventMill(50, 5).events(EVENTS_MADE))

    rows = sorted(stored.collect())
    assert (stored.schema, parsed.schema) == (STORED_EVENTS, EVENTS)
    assert [row.offset for row in rows] == list(range(101, 1_901))
    assert [decode_event(bytes(row.value)) for row in rows] == logged[100:1_900]
    assert [bytes(row.key).decode() for row in rows] == [event.key for event in logged[100:1_900]]
    found = [
        (row.tenant_id, row.client_id, row.type, row.epoch, row.at_ms, json.loads(row.facts), row.damage)
        for row in parsed.orderBy("offset").collect()
    ]
    assert found == [
        (e.tenant_id, e.client_id, e.type.word, e.epoch, e.at_ms, dict(e.facts), None) for e in logged[100:1_900]
    ]


def test_range_without_events_is_an_empty_frame(spark: SparkSession, folder: Path) -> None:
    wanted = LogRange(Topic.SESSIONS, (EVENTS_MADE,), (EVENTS_MADE,))

    assert read_stored(spark, sqlite_spec(folder), wanted).count() == 0


def test_events_of_some_sessions_alone_are_read(spark: SparkSession, folder: Path) -> None:
    """A sample is folded again without reading everything into Spark."""
    wanted = LogRange(Topic.SESSIONS, (0,), (EVENTS_MADE,))
    rows = read_stored(spark, sqlite_spec(folder), wanted, (b"1/device-0",)).collect()
    expected = [event for event in EventMill(50, 5).events(EVENTS_MADE) if event.key == "1/device-0"]

    assert len(rows) == len(expected)


def test_damaged_event_is_a_row_that_says_so(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """The others are read."""
    _copy(
        folder,
        tmp_path,
        "UPDATE session_event SET value = 'damaged' WHERE offset = 7",
        "UPDATE session_event SET key = '1/another' WHERE offset = 9",
    )
    rows = read_events(spark, sqlite_spec(tmp_path), LogRange(Topic.SESSIONS, (0,), (20,))).collect()

    not_json, misplaced = [row.damage for row in rows if row.damage]
    assert not_json == "event log, offset 7: damaged event (it is not JSON)"
    assert "under the key of another session" in misplaced
    assert len([row for row in rows if row.type]) == 18


def test_range_begins_where_the_last_run_ended(folder: Path) -> None:
    with closing(SqliteLog(folder / "events.db")) as log:
        assert range_after(log, (1_500,)) == LogRange(Topic.SESSIONS, (1_500,), (EVENTS_MADE,))
        assert range_after(log, None) == LogRange(Topic.SESSIONS, (0,), (EVENTS_MADE,))


def test_log_that_lacks_its_beginning_or_its_end_is_refused(folder: Path, tmp_path: Path) -> None:
    """A gap would be a checkpoint without events that somebody has acknowledged."""
    _copy(folder, tmp_path)
    assert trim(tmp_path / "events.db", 900) == 900

    with closing(SqliteLog(tmp_path / "events.db")) as log:
        assert range_after(log, (900,)).offsets == EVENTS_MADE - 900
        with pytest.raises(ConflictError, match="the log begins at offset 901, but is needed from 900"):
            range_after(log, (899,))
        with pytest.raises(ConflictError, match="ends at offset 2000, but was already read up to 2001"):
            range_after(log, (2_001,))
        with pytest.raises(ConflictError, match="wrong log: it has 1 partitions, expected 2"):
            range_after(log, (1, 2))


def test_hub_without_a_log_is_told() -> None:
    with pytest.raises(NotFoundError, match="there is no event log yet"):
        SqliteLog(Path("nowhere/events.db"))


def test_stretches_cover_a_range_evenly() -> None:
    """One large partition keeps all cores busy, empty ones cost nothing."""
    wanted = LogRange(Topic.SESSIONS, (0, 10, 7), (100_000, 10, 8))

    assert wanted.stretches(4, 1_000) == [
        Stretch(0, 0, 25_001),
        Stretch(0, 25_001, 50_002),
        Stretch(0, 50_002, 75_003),
        Stretch(0, 75_003, 100_000),
        Stretch(2, 7, 8),
    ]
