"""`usage`: every record counts once, in its hour; what the log has only the end of is left as it was."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import BigInteger, String
from sqlalchemy.dialects.postgresql import psycopg

from iothub.base.errors import ConflictError
from iothub.base.units import Endpoint
from iothub.records.events import Event, EventType, Topic, encode_event
from iothub.records.job_spec import KafkaLog, Spec
from iothub.records.layout import EVENT_TABLES
from iothub_spark.jobs import usage as job
from iothub_spark.report import Report
from iothub_spark.schemas.events import EVENTS
from iothub_spark.schemas.statistics import USAGE_HOURS
from iothub_spark.stores.accounts import _GROWN, _metadata, opened_accounts
from iothub_spark.stores.log import LogRange
from iothub_spark.transforms import usage
from tests.support.jobs.spark import Quiet
from tests.support.jobs.statistics import HOUR_MS, NOON_MS, harness, log, sampled, spec_of, used
from tests.support.night import at_night


def frame(spark: SparkSession, *events: Event, partition: int = 0, first: int = 1) -> DataFrame:
    rows = [
        (partition, offset, e.tenant_id, e.client_id, e.type.word, e.epoch, e.at_ms, json.dumps(dict(e.facts)), None)
        for offset, e in enumerate(events, first)
    ]
    return spark.createDataFrame(rows, EVENTS)


def hours_of(hours: DataFrame, *names: str) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the figures by (tenant, hours since noon)."""
    return {
        (row.tenant_id, (row.hour_ms - NOON_MS) // HOUR_MS): tuple(row[name] for name in names)
        for row in hours.collect()
    }


def test_records_are_added_up_by_tenant_and_hour(spark: SparkSession) -> None:
    """Also those of two workers; a tenant that only stores has a row, too."""
    events = frame(
        spark,
        used(1, 1, messages_in=5, blocks_in=6, fanout=2),
        used(1, 2, minute=59, messages_in=1),
        used(1, 3, minute=60, messages_in=10),
        used(1, 1, incarnation="hub-2/1/1", messages_in=100),
        used(2, 4, messages_in=7),
        sampled(3, 5, queued_bytes=10, retained_bytes=20),
    )

    hours = usage.usage_hours(events)

    assert hours.schema.names == USAGE_HOURS.names
    assert [field.dataType for field in hours.schema] == [field.dataType for field in USAGE_HOURS]
    assert hours_of(hours, "messages_in", "blocks_in", "fanout", "stored_byte_s") == {
        (1, 0): (106, 6, 2, 0),
        (1, 1): (10, 0, 0, 0),
        (2, 0): (7, 0, 0, 0),
        (3, 0): (0, 0, 0, 30 * 60),
    }


def test_record_that_was_written_twice_counts_once(spark: SparkSession) -> None:
    """Its worker did not know whether the log had it."""
    events = frame(
        spark,
        used(1, 1, messages_in=5),
        used(1, 1, messages_in=5),
        sampled(1, 2, queued_bytes=1),
        sampled(1, 2, queued_bytes=1),
    )

    assert hours_of(usage.usage_hours(events), "messages_in", "stored_byte_s") == {(1, 0): (5, 60)}


def test_hubs_that_share_stores_are_not_added_up(spark: SparkSession) -> None:
    """Each samples all that is stored; what each has counted is its own."""
    both = [
        sampled(1, 1, queued_bytes=100),
        sampled(1, 1, incarnation="hub-2/1/1", queued_bytes=90),
        sampled(1, 2, minute=1, queued_bytes=50),
        used(1, 3, messages_in=1),
        used(1, 3, incarnation="hub-2/1/1", messages_in=2),
    ]

    assert hours_of(usage.usage_hours(frame(spark, *both)), "messages_in", "stored_byte_s") == {(1, 0): (3, 150 * 60)}


def test_period_of_no_length_stores_nothing(spark: SparkSession) -> None:
    """A clock was set back."""
    late = sampled(1, 1, queued_bytes=100)
    event = Event(late.type, 1, "", 0, late.at_ms - 10 * 60_000, late.facts)

    assert hours_of(usage.usage_hours(frame(spark, event)), "stored_byte_s") == {(1, 0): (0,)}


def test_hour_of_which_the_log_has_the_end_alone_is_left_out(spark: SparkSession) -> None:
    """By the latest of the partitions that were trimmed; one that is whole holds nothing back."""
    events = frame(spark, used(1, 1, minute=70, messages_in=1), used(1, 2, minute=130, messages_in=2), first=5).union(
        frame(spark, used(2, 3, minute=10, messages_in=4), partition=1)
    )
    hours = usage.usage_hours(events)

    assert usage.begun_ms(events, [0]) == NOON_MS + 71 * 60_000
    assert usage.begun_ms(events, []) is None
    assert hours_of(usage.whole_hours(hours, events, [0]), "messages_in") == {(1, 2): (2,)}
    assert len(hours_of(usage.whole_hours(hours, events, []), "messages_in")) == 3


def test_records_that_are_missing_are_counted(spark: SparkSession) -> None:
    """Only of workers whose first record is there: of others nobody knows what was trimmed."""
    events = frame(
        spark,
        used(1, 1, messages_in=1),
        sampled(1, 4, queued_bytes=1),
        used(1, 7, incarnation="hub-2/1/1", messages_in=1),
        used(1, 9, incarnation="hub-2/1/1", messages_in=1),
    )

    assert usage.missing_records(events) == 2
    assert usage.missing_records(frame(spark)) == 0


def test_records_that_are_missing_behind_the_last_run_are_counted_once(spark: SparkSession) -> None:
    """Most workers began long before what a run reads; what the last run has counted is none of this one's."""
    events = frame(
        spark,
        used(1, 40, messages_in=1),
        used(1, 42, messages_in=1),
        used(1, 70, incarnation="hub-2/1/1", messages_in=1),
        used(1, 45, messages_in=1),
        used(1, 41, messages_in=1),
        used(1, 45, messages_in=1),
        used(1, 72, incarnation="hub-2/1/1", messages_in=1),
        used(1, 5, incarnation="hub-3/1/1", messages_in=1),
        used(1, 8, incarnation="hub-3/1/1", messages_in=1),
    )

    assert [usage.missing_records(events, (seen,)) for seen in (0, 3, 9)] == [2 + 1 + 2, 2 + 1 + 2, 0]
    assert usage.missing_records(events) == 0


# --- the job


def run(spark: SparkSession, folder: Path, **options: bool) -> dict[str, object]:
    return dict(job.run(spark, spec_of(folder, "usage", **options), Report(io.StringIO())))


def table(folder: Path) -> list[tuple[int, ...]]:
    """Return (tenant, hour since noon, messages in, stored byte seconds), ascending."""
    with opened_accounts(folder / "accounts.url") as accounts:
        rows = accounts.hours(0, 1 << 60)
    return sorted(
        (row["tenant_id"], (row["hour_ms"] - NOON_MS) // HOUR_MS, row["messages_in"], row["stored_byte_s"])
        for row in rows
    )


def test_job_writes_table_and_archive_and_may_be_repeated(spark: SparkSession, tmp_path: Path) -> None:
    """The open hour grows with the next run; everything else stays to the byte."""
    acme = harness(tmp_path, "acme")["acme"]
    log(
        tmp_path,
        used(acme, 1, messages_in=5),
        sampled(acme, 2, queued_bytes=10),
        used(acme, 3, minute=61, messages_in=7),
    )
    first = run(spark, tmp_path)
    again = run(spark, tmp_path)
    before = table(tmp_path)
    log(tmp_path, used(acme, 4, minute=62, messages_in=1))
    run(spark, tmp_path)

    assert (again["events"], again["rows_written"]) == (0, 0)
    assert (first["hours"], first["rows_written"], first["messages_in"], first["missing_records"]) == (2, 2, 12, 0)
    assert before == [(acme, 0, 5, 600), (acme, 1, 7, 0)]
    assert table(tmp_path) == [(acme, 0, 5, 600), (acme, 1, 8, 0)]
    kept = spark.read.parquet(str(tmp_path / "archive" / "usage"))
    assert sorted((row.tenant_id, row.messages_in) for row in kept.collect()) == [(acme, 5), (acme, 8)]


def test_job_keeps_the_sums_of_hours_that_were_trimmed(spark: SparkSession, tmp_path: Path) -> None:
    """A log of seven days must not make last week's bill smaller."""
    acme = harness(tmp_path, "acme")["acme"]
    log(tmp_path, *[used(acme, number, minute=20 * number, messages_in=1) for number in range(1, 9)])
    run(spark, tmp_path)
    before = table(tmp_path)
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
        connection.execute(f"DELETE FROM {EVENT_TABLES[Topic.ANALYTICS]} WHERE offset <= 4")

    figures = run(spark, tmp_path)

    assert table(tmp_path) == before
    assert (figures["rows_written"], figures["events"]) == (0, 0)
    assert run(spark, tmp_path, full=True)["rows_written"] == 1
    assert table(tmp_path) == before


def test_figures_only_grow(tmp_path: Path) -> None:
    """A log that has lost events from within must not make a bill smaller; each figure by itself."""
    acme = harness(tmp_path, "acme")["acme"]
    nothing = dict.fromkeys(USAGE_HOURS.names, 0)
    row = {**nothing, "tenant_id": acme, "hour_ms": NOON_MS, "messages_in": 1000, "fanout": 3}
    with opened_accounts(tmp_path / "accounts.url") as accounts:
        assert accounts.last_written_ms() is None
        assert accounts.replace_hours([row, {**row, "tenant_id": 99}], 5) == 1
        again = [{**row, "messages_in": 400, "fanout": 7}, {**row, "hour_ms": NOON_MS + HOUR_MS}]
        assert accounts.replace_hours(again, 6) == 2
        assert accounts.replace_hours([], 7) == 0
        found = accounts.hours(0, 1 << 60)

        assert found == [{**row, "fanout": 7}, again[1]]
        assert accounts.last_written_ms() == 6


def test_numbers_are_wide_for_every_database() -> None:
    """PostgreSQL's driver casts them to the type of the column: a time in milliseconds is no 32-bit number."""
    assert {type(column.type) for table in _metadata.tables.values() for column in table.c} == {BigInteger, String}
    assert "INTEGER" not in str(_GROWN.compile(dialect=psycopg.dialect()))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("begun_ms", "notes"), [(NOON_MS + 1, 1), (NOON_MS, 0), (None, 0)])
def test_sums_that_the_log_does_not_reach_back_to_are_told(begun_ms: int | None, notes: int) -> None:
    """The hub trims by age and number: hours may go before they were added up."""
    report = Quiet()
    job._note_gap(report, NOON_MS, begun_ms)
    job._note_gap(report, None, begun_ms)

    assert len(report.notes) == notes
    assert all("is missing, because the events were trimmed" in note for note in report.notes)


def mark(folder: Path) -> tuple[int, ...] | None:
    with opened_accounts(folder / "accounts.url") as accounts:
        found = accounts.mark("usage", "analytics")
    return None if found is None else found.offsets


def test_job_holds_the_log_until_its_hours_are_complete(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After trimming up to the mark, the next run still computes every open hour from all of its records."""
    acme = harness(tmp_path, "acme")["acme"]
    now_ms = NOON_MS + 5 * HOUR_MS + 1
    monkeypatch.setattr(job, "_now_ms", lambda: now_ms)
    log(tmp_path, *[used(acme, number, minute=10 * number, messages_in=1) for number in range(1, 30)])
    log(tmp_path, used(acme, 30, minute=60 * 24 * 400, messages_in=1))
    run(spark, tmp_path, dry_run=True)
    assert mark(tmp_path) is None

    run(spark, tmp_path)
    assert mark(tmp_path) == (17,), "the first record from 15:00 on is the next"
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
        connection.execute(f"DELETE FROM {EVENT_TABLES[Topic.ANALYTICS]} WHERE offset <= 17")
    log(tmp_path, used(acme, 31, minute=4 * 60 + 59, messages_in=1))
    run(spark, tmp_path)

    assert [row[2] for row in table(tmp_path)][:5] == [5, 6, 6, 6, 7]


def trim_to_mark(folder: Path) -> None:
    """Do what the hub may do: everything is old enough."""
    (upto,) = mark(folder) or (0,)
    with closing(sqlite3.connect(folder / "events.db")) as connection, connection:
        connection.execute(f"DELETE FROM {EVENT_TABLES[Topic.ANALYTICS]} WHERE offset <= ?", (upto,))


def test_second_run_reads_what_is_new_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the hours that may still grow; where nothing is new it reads no event, and says that its mark is no forgotten one."""
    acme = harness(tmp_path, "acme")["acme"]
    now_ms = NOON_MS + 10 * HOUR_MS + 1
    monkeypatch.setattr(job, "_now_ms", lambda: now_ms)
    log(tmp_path, *[used(acme, number, minute=10 * number, messages_in=1) for number in range(1, 60)])
    log(tmp_path, used(acme, 1, minute=-10, incarnation="hub-2/1/1", messages_in=1))
    whole = run(spark, tmp_path)
    now_ms += HOUR_MS
    with monkeypatch.context() as patch:
        patch.setattr(job, "read_events", None)
        nothing = run(spark, tmp_path)
    with opened_accounts(tmp_path / "accounts.url") as accounts:
        marked = accounts.mark("usage", "analytics")
    log(tmp_path, used(acme, 60, minute=600, messages_in=3), used(acme, 59, minute=590, messages_in=1))

    some = run(spark, tmp_path)
    grown = table(tmp_path)

    assert (whole["events"], nothing["events"], nothing["rows_written"]) == (60, 0, 0)
    assert marked is not None
    assert marked.at_ms == now_ms
    assert 2 < int(str(some["events"])) < 25
    assert grown[-1] == (acme, 10, 3, 0)
    assert run(spark, tmp_path, full=True)["events"] == 62
    assert table(tmp_path) == grown, "what was read of it has made every hour that it wrote as the whole log does"


def test_record_of_an_older_hour_is_added_to_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hub that could not write for long: a part of the log would make a smaller hour, and lose the record."""
    acme = harness(tmp_path, "acme")["acme"]
    monkeypatch.setattr(job, "_now_ms", lambda: NOON_MS + 10 * HOUR_MS + 1)
    log(tmp_path, *[used(acme, number, minute=10 * number, messages_in=1) for number in range(1, 60)])
    run(spark, tmp_path)
    log(tmp_path, *[used(acme, number, 60 + number, incarnation="hub-2/1/1", messages_in=2) for number in range(1, 4)])
    said = io.StringIO()

    job.run(spark, spec_of(tmp_path, "usage"), Report(said))

    assert table(tmp_path)[1] == (acme, 1, 6 + 3 * 2, 0)
    assert "events of older hours have arrived: reading the whole log" in said.getvalue()


def test_losses_and_damage_are_counted_by_one_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first that reads what is behind them, also of a worker that began before its mark; the whole log has all of them."""
    acme = harness(tmp_path, "acme")["acme"]
    monkeypatch.setattr(job, "_now_ms", lambda: NOON_MS + 10 * HOUR_MS)
    recorded = []
    for first in (1, 60, 63):
        log(tmp_path, *[used(acme, number, minute=10 * number, messages_in=1) for number in (first, first + 1)])
        with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
            connection.execute(f"INSERT INTO {EVENT_TABLES[Topic.ANALYTICS]} (key, value) VALUES ('', '{{')")
        figures = run(spark, tmp_path)
        recorded.append((figures["missing_records"], figures["damaged"]))
    whole = run(spark, tmp_path, full=True)

    assert recorded == [(0, 1), (57, 1), (1, 1)]
    assert (whole["missing_records"], whole["damaged"]) == (58, 3)


def test_log_that_was_begun_anew_is_read_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that has grown past the place where the last run ended."""
    acme = harness(tmp_path, "acme")["acme"]
    monkeypatch.setattr(job, "_now_ms", lambda: NOON_MS + 2 * HOUR_MS)
    log(tmp_path, *[used(acme, number, minute=10 * number, messages_in=1) for number in range(1, 9)])
    run(spark, tmp_path)
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
        connection.execute(f"DELETE FROM {EVENT_TABLES[Topic.ANALYTICS]}")
        connection.execute("DELETE FROM sqlite_sequence")
    again = [used(acme, number, 200 + number, incarnation="hub-1/2/1", messages_in=1) for number in range(1, 13)]
    log(tmp_path, *again)

    assert run(spark, tmp_path)["events"] == 12
    assert table(tmp_path)[-1] == (acme, 3, 12, 0)


@pytest.mark.parametrize("is_run_before", [True, *at_night(False)])
def test_first_hour_after_a_long_stop_is_added_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_run_before: bool
) -> None:
    """Whole only if the log has something from before it: that stays, however old, and whenever the job ran."""
    acme = harness(tmp_path, "acme")["acme"]
    now_ms = NOON_MS + 10 * HOUR_MS
    monkeypatch.setattr(job, "_now_ms", lambda: now_ms)
    log(tmp_path, *[used(acme, number, minute=10 * number, messages_in=1) for number in range(1, 6)])
    if is_run_before:
        run(spark, tmp_path)
        assert mark(tmp_path) == (4,)
        trim_to_mark(tmp_path)
    restart = 200 * 60
    now_ms = NOON_MS + 200 * HOUR_MS + 30 * 60_000
    log(tmp_path, *[used(acme, number, minute=restart + number, messages_in=1) for number in range(10, 20)])
    run(spark, tmp_path)
    trim_to_mark(tmp_path)
    log(tmp_path, *[used(acme, number, minute=restart + number, messages_in=1) for number in range(20, 50)])
    now_ms += HOUR_MS

    run(spark, tmp_path)

    assert table(tmp_path) == [(acme, 0, 5, 0), (acme, 200, 40, 0)]


def test_event_of_a_clock_that_is_far_ahead_is_no_beginning(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it held as the last one, no hour would be whole until then. Nor is one that nobody can read."""
    acme = harness(tmp_path, "acme")["acme"]
    monkeypatch.setattr(job, "_now_ms", lambda: NOON_MS + 10 * HOUR_MS)
    log(tmp_path, *[used(acme, number, minute=10 * number, messages_in=1) for number in range(1, 6)])
    log(tmp_path, used(acme, 6, minute=60 * 24 * 400, messages_in=1))
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
        statement = f"INSERT INTO {EVENT_TABLES[Topic.ANALYTICS]} (key, value) VALUES ('', ?)"
        connection.execute(statement, (b"{",))

    run(spark, tmp_path)

    assert mark(tmp_path) == (4,)


class Partitions:
    """A log of two partitions on Kafka, as far as the job asks."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.begins = [0, 0]
        self.records: list[list[Event]] = [[], []]

    def begin(self, _topic: Topic) -> tuple[int, ...]:
        return tuple(offset + 1 for offset in self.begins)

    def end(self, _topic: Topic) -> tuple[int, ...]:
        return tuple(map(len, self.records))

    @contextmanager
    def opened(self, _settings: object) -> Iterator[Partitions]:
        yield self

    def read(self, _spark: SparkSession, _spec: Spec, wanted: LogRange) -> DataFrame:
        whole, other = (
            frame(self._spark, *records[after:], partition=part, first=after + 1)
            for part, (records, after) in enumerate(zip(self.records, wanted.after, strict=True))
        )
        return whole.union(other)


@pytest.mark.parametrize("is_trimmed_before", [True, *at_night(False)])
def test_partition_that_age_has_emptied_takes_no_hour_from_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trimmed_before: bool
) -> None:
    """Its first new event is no beginning of the log; in this run or in a later one, whether the mark was trimmed away or not."""
    numbers = harness(tmp_path, "acme", "beta")
    kafka, now_ms = Partitions(spark), NOON_MS + 10 * HOUR_MS
    spec = replace(spec_of(tmp_path, "usage"), events=KafkaLog((Endpoint("kafka", 9092),)), archive=None)
    monkeypatch.setattr(job, "_now_ms", lambda: now_ms)
    monkeypatch.setattr(job, "opened_log", kafka.opened)
    monkeypatch.setattr(job, "read_events", kafka.read)

    def add(part: int, *minutes: int) -> None:
        name = f"hub-{part}/1/1"
        kafka.records[part] += [
            used(numbers[("acme", "beta")[part]], minute, minute, name, messages_in=1) for minute in minutes
        ]

    add(0, *range(10, 600, 10))
    add(1, 10)
    if is_trimmed_before:
        kafka.begins[1] = 1
    job.run(spark, spec, Quiet())
    kafka.begins[1] = 1
    add(0, *range(600, 770, 10))
    add(1, 760)
    now_ms += 2 * HOUR_MS + 50 * 60_000
    job.run(spark, spec, Quiet())
    first = table(tmp_path)
    add(0, *range(770, 830, 10))
    now_ms += HOUR_MS
    job.run(spark, spec, Quiet())

    assert (numbers["acme"], 12, 5, 0) in first
    assert [row[2] for row in table(tmp_path) if row[0] == numbers["acme"]] == [5, *[6] * 12, 5]
    assert (numbers["beta"], 12, 1, 0) in table(tmp_path)


def test_log_is_held_from_the_first_attempt_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails must find everything the next time."""
    acme = harness(tmp_path, "acme")["acme"]
    log(tmp_path, used(acme, 1, messages_in=5))

    def fail(*_: object) -> None:
        raise ConflictError("because")

    monkeypatch.setattr(job, "read_events", fail)
    with pytest.raises(ConflictError):
        run(spark, tmp_path)

    assert mark(tmp_path) == (0,)


def test_job_leaves_out_tenants_that_are_gone_and_names_damage(spark: SparkSession, tmp_path: Path) -> None:
    """A deleted tenant's rows were removed with it: the log must not bring them back."""
    acme = harness(tmp_path, "acme")["acme"]
    log(tmp_path, used(acme, 1, messages_in=5), used(99, 2, messages_in=5), used(acme, 4, messages_in=1))
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection, connection:
        statement = f"INSERT INTO {EVENT_TABLES[Topic.ANALYTICS]} (key, value) VALUES ('', ?)"
        connection.execute(statement, (b"{",))
    said = io.StringIO()

    figures = job.run(spark, spec_of(tmp_path, "usage"), Report(said))

    assert table(tmp_path) == [(acme, 0, 6, 0)]
    assert (figures["damaged"], figures["missing_records"], figures["rows_written"]) == (1, 1, 1)
    assert "1 usage records are not in the log" in said.getvalue()


def test_dry_run_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    acme = harness(tmp_path, "acme")["acme"]
    log(tmp_path, used(acme, 1, messages_in=5))

    figures = run(spark, tmp_path, dry_run=True)

    assert (figures["hours"], figures["rows_written"]) == (1, 0)
    assert table(tmp_path) == []
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize("kind", [EventType.USAGE_COUNTED, EventType.TENANT_SAMPLED])
def test_event_without_a_number_is_left_out(spark: SparkSession, kind: EventType) -> None:
    """Nobody could tell it from its second copy."""
    event = Event(kind, 1, "", 0, NOON_MS, {"messages_in": 5})

    assert encode_event(event)
    assert usage.usage_hours(frame(spark, event)).count() == 0
