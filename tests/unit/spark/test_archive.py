"""`archive` and `erase`: every event once, by tenant and day; and nothing left of a tenant that is gone."""

from __future__ import annotations

import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from iothub.base.errors import BackendError, ConfigError, ConflictError, CorruptRecordError
from iothub.records.events import Event, EventType, Topic
from iothub.records.layout import EVENT_TABLES
from iothub_spark.jobs import archive, compact_events, erase
from iothub_spark.report import Report
from iothub_spark.sources.archive import read_archive
from iothub_spark.stores.accounts import Mark, opened_accounts
from iothub_spark.stores.archive import batch_folder, whole_batches
from tests.support.jobs.event_log import EventMill, append
from tests.support.jobs.statistics import NOON_MS, harness, log, spec_of, used


def run(spark: SparkSession, folder: Path, **options: bool) -> dict[str, object]:
    return dict(archive.run(spark, spec_of(folder, "archive", **options), Report(io.StringIO())))


def offsets(spark: SparkSession, folder: Path, name: str = "analytics") -> list[int]:
    return sorted(row.offset for row in read_archive(spark, folder / "archive", name).collect())


def sql_mark(folder: Path, name: str = "analytics") -> Mark:
    with opened_accounts(folder / "accounts.url") as accounts:
        mark = accounts.mark("archive", name)
    assert mark is not None
    return mark


def test_each_run_copies_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    """Both logs, each event once, in folders by tenant and day; the marks follow."""
    harness(tmp_path)
    log(tmp_path, used(1, 1, messages_in=1), used(2, 2, minute=60 * 24, messages_in=1))
    made = list(EventMill(10, 3).events(50))
    append(tmp_path / "events.db", made)
    first = run(spark, tmp_path)
    second = run(spark, tmp_path)
    log(tmp_path, used(1, 3, messages_in=5))
    third = run(spark, tmp_path)

    assert (first["analytics_events"], first["sessions_events"]) == (2, 50)
    assert (second["analytics_events"], second["sessions_events"], third["analytics_events"]) == (0, 0, 1)
    assert offsets(spark, tmp_path) == [1, 2, 3]
    kept = read_archive(spark, tmp_path / "archive", "sessions").orderBy("offset").collect()
    assert [(row.tenant_id, row.client_id, row.type, row.epoch, row.at_ms) for row in kept] == [
        (event.tenant_id, event.client_id, event.type.word, event.epoch, event.at_ms) for event in made
    ]
    assert sql_mark(tmp_path).offsets == (3,)
    with opened_accounts(tmp_path / "accounts.url") as accounts:
        assert accounts.marks("sessions") == {"archive": (50,)}
    batch = whole_batches(tmp_path / "archive", "analytics")[0]
    assert len(list(batch.glob("tenant_id=1/day=*/*.parquet"))) == 1


def test_days_before_the_wanted_one_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    harness(tmp_path)
    log(tmp_path, used(1, 1, messages_in=1), used(1, 2, minute=60 * 24, messages_in=1))
    run(spark, tmp_path)

    found = read_archive(spark, tmp_path / "archive", "analytics", "2026-09-22")

    assert [row.at_ms > NOON_MS + 60_000 for row in found.collect()] == [True]


def test_run_that_was_killed_before_its_mark_writes_the_same_batch_again(spark: SparkSession, tmp_path: Path) -> None:
    """However much came meanwhile; what a kill left half is read by nobody."""
    harness(tmp_path)
    log(tmp_path, used(1, 1, messages_in=1))
    run(spark, tmp_path)
    mark = sql_mark(tmp_path)
    log(tmp_path, used(1, 2, messages_in=1))
    run(spark, tmp_path)
    with closing(sqlite3.connect(tmp_path / "accounts.db")) as connection, connection:
        row = (mark.offsets[0], mark.at_ms, "archive", "analytics")
        connection.execute("UPDATE job_mark SET upto = ?, at_ms = ? WHERE job = ? AND log = ?", row)
    half = batch_folder(tmp_path / "archive", "analytics", Mark((9,), 9)) / "tenant_id=1"
    half.mkdir(parents=True)
    log(tmp_path, used(1, 3, messages_in=1))

    run(spark, tmp_path)

    assert offsets(spark, tmp_path) == [1, 2, 3]
    assert len(whole_batches(tmp_path / "archive", "analytics")) == 2


def test_first_run_that_fails_holds_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has not copied is still there for the next one."""

    def fail(*arguments: object) -> dict[str, int]:
        raise BackendError("disk full", retryable=True)

    harness(tmp_path)
    append(tmp_path / "events.db", EventMill(10, 3).events(50))
    monkeypatch.setattr(archive, "_archive", fail)
    spec = spec_of(tmp_path, "archive")
    with pytest.raises(BackendError, match="disk full"):
        archive.run(cast(SparkSession, None), spec, Report(io.StringIO()))

    assert sql_mark(tmp_path, "sessions").offsets == (0,)


def test_gap_is_refused_until_somebody_says_go_on(spark: SparkSession, tmp_path: Path) -> None:
    """Events that were trimmed before they were copied are gone for good: a person should know."""
    harness(tmp_path)
    log(tmp_path, used(1, 1, messages_in=1))
    run(spark, tmp_path)
    log(tmp_path, *[used(1, number, messages_in=1) for number in range(2, 6)])
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
        connection.execute(f"DELETE FROM {EVENT_TABLES[Topic.ANALYTICS]} WHERE offset <= 3")

    with pytest.raises(
        ConflictError, match=r"archive of analytics: events are missing: the log begins at offset 4.*--full` continues"
    ):
        run(spark, tmp_path)
    run(spark, tmp_path, full=True)

    assert offsets(spark, tmp_path) == [1, 4, 5]


def test_dry_run_leaves_no_trace(spark: SparkSession, tmp_path: Path) -> None:
    harness(tmp_path)
    log(tmp_path, used(1, 1, messages_in=1))

    figures = run(spark, tmp_path, dry_run=True)

    assert figures["analytics_events"] == 1
    assert not (tmp_path / "archive").exists()
    with opened_accounts(tmp_path / "accounts.url") as accounts:
        assert accounts.mark("archive", "analytics") is None


# --- erase


def erased(spark: SparkSession, folder: Path, **options: int) -> dict[str, object]:
    return dict(erase.run(spark, spec_of(folder, "erase", **options), Report(io.StringIO())))


def test_tenant_that_is_gone_is_erased_everywhere(spark: SparkSession, tmp_path: Path) -> None:
    """Archive, reports, checkpoints; the others' rows stay, under a version that counts and is whole. Again: nothing to do."""
    harness(tmp_path)
    append(tmp_path / "events.db", [event for event in EventMill(40, 4).events(400) if event.epoch])
    log(tmp_path, used(1, 1, messages_in=1), used(2, 2, messages_in=1))
    run(spark, tmp_path)
    spec = spec_of(tmp_path, "compact_events")
    compact_events.run(spark, spec, Report(io.StringIO()))
    reports = tmp_path / "archive" / "reports"
    reports.mkdir()
    (reports / "of-2.html").write_text('<section data-tenant="2">', encoding="utf-8")
    (reports / ".of-2.html.tmp").write_text('<section data-tenant="2">', encoding="utf-8")
    unfinished = tmp_path / "archive" / "events" / "log=sessions" / "batch=9" / "_temporary" / "0" / "tenant_id=2"
    unfinished.mkdir(parents=True)
    (unfinished / "part-0.parquet").write_bytes(b"PAR1")
    (reports / "of-22.html").write_text('<section data-tenant="22">', encoding="utf-8")
    before = rows_by_tenant(tmp_path)

    planned = erased(spark, tmp_path, tenant_id=2, dry_run=True)
    figures = erased(spark, tmp_path, tenant_id=2)
    again = erased(spark, tmp_path, tenant_id=2)

    assert before[2] > 0
    assert planned == figures
    assert figures["checkpoint_rows"] == before[2]
    assert int(str(figures["archive_files"])) >= 2
    assert set(again.values()) == {0}
    assert rows_by_tenant(tmp_path) == {number: count for number, count in before.items() if number != 2}
    assert list((tmp_path / "archive").rglob("tenant_id=2")) == []
    assert [page.name for page in reports.iterdir()] == ["of-22.html"]
    assert offsets(spark, tmp_path) == [1]


def test_damaged_checkpoint_is_not_made_whole_by_erasing(spark: SparkSession, tmp_path: Path) -> None:
    """Copied with a fresh checksum, nobody would see any more what is missing."""
    harness(tmp_path)
    append(tmp_path / "events.db", [event for event in EventMill(40, 4).events(400) if event.epoch])
    compact_events.run(spark, spec_of(tmp_path, "compact_events"), Report(io.StringIO()))
    with closing(sqlite3.connect(tmp_path / "checkpoints.db")) as connection, connection:
        connection.execute(
            "DELETE FROM checkpoint WHERE client_id = (SELECT min(client_id) FROM checkpoint WHERE tenant <> 2)"
        )

    with pytest.raises(CorruptRecordError, match="compact_events --full`"):
        erased(spark, tmp_path, tenant_id=2)

    assert rows_by_tenant(tmp_path)[2] > 0


def rows_by_tenant(folder: Path) -> dict[int, int]:
    """Count the rows of every version that there is."""
    with closing(sqlite3.connect(folder / "checkpoints.db")) as connection:
        return dict(connection.execute("SELECT tenant, count(*) FROM checkpoint GROUP BY tenant").fetchall())


def test_tenant_that_is_there_is_not_erased(spark: SparkSession, tmp_path: Path) -> None:
    """A slip of the finger costs nothing."""
    acme = harness(tmp_path, "acme")["acme"]

    with pytest.raises(ConflictError, match=r"tenant acme \(number 1\) still exists: delete it first"):
        erased(spark, tmp_path, tenant_id=acme)


@pytest.mark.parametrize("options", [{}, {"tenant_id": 0}])
def test_erase_needs_a_number(spark: SparkSession, tmp_path: Path, options: dict[str, int]) -> None:
    harness(tmp_path)

    with pytest.raises(ConfigError, match=r"options\.tenant_id is missing"):
        erased(spark, tmp_path, **options)


def test_event_that_cannot_be_read_is_counted_and_left_out(spark: SparkSession, tmp_path: Path) -> None:
    harness(tmp_path)
    log(tmp_path, Event(EventType.USAGE_COUNTED, 1, "", 0, NOON_MS))
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
        connection.execute(f"INSERT INTO {EVENT_TABLES[Topic.ANALYTICS]} (key, value) VALUES ('', '{{')")

    figures = run(spark, tmp_path)

    assert (figures["analytics_events"], figures["analytics_damaged"]) == (1, 1)
    assert sql_mark(tmp_path).offsets == (2,)
