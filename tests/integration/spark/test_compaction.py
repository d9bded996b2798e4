"""Compaction at a size at which tasks matter: against a plain replay, beside a writer, and killed at every kind of point."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.base.errors import IotHubError
from iothub.records.job_spec import Spec
from iothub_spark.jobs import compact_events, verify
from iothub_spark.report import Figures
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from tests.support.jobs.event_log import EventMill, append, make_log, replay
from tests.support.jobs.spark import Quiet, live_states, require_same, sqlite_spec, states_of_checkpoint
from tests.support.jobs.spark_child import seen, started
from tests.support.night import at_night, by_day

MADE, MORE = by_day(6_000, 20_000), by_day(500, 1_000)
SESSIONS, TENANTS = by_day(600, 2_000), 50
WRITING = "SELECT 1 FROM checkpoint"  # some rows are written
BEFORE_FLIP = "SELECT 1 FROM mark WHERE name LIKE 'written/%'"  # all are: between write and flip


@pytest.fixture
def mill() -> EventMill:
    return EventMill(SESSIONS, TENANTS, seed=5)


@pytest.fixture
def folder(tmp_path: Path, mill: EventMill) -> Path:
    make_log(tmp_path / "events.db")
    append(tmp_path / "events.db", mill.events(MADE))
    return tmp_path


def _compact(spark: SparkSession, folder: Path) -> Figures:
    return compact_events.run(spark, sqlite_spec(folder), Quiet())


def _to_kill(folder: Path) -> Spec:
    """A run with a Java of its own: with one task at a time, half as many Python workers have to import everything."""
    spec = sqlite_spec(folder)
    return replace(spec, spark=replace(spec.spark, master="local[1]"))


def _require_finished(spark: SparkSession, folder: Path) -> None:
    """Run again: the result is the one of a run that nobody disturbed, and the next one has nothing to do."""
    _compact(spark, folder)
    require_same(states_of_checkpoint(folder), replay(EventMill(SESSIONS, TENANTS, seed=5).events(MADE)))
    assert _compact(spark, folder)["is_new"] is False


def test_compaction_equals_a_plain_replay_and_reads_only_what_is_new(
    spark: SparkSession, folder: Path, mill: EventMill
) -> None:
    """Skew, duplicates, late writers, tombstones; then more events; verified from three sides."""
    whole = replay(EventMill(SESSIONS, TENANTS, seed=5).events(MADE))
    first = _compact(spark, folder)
    require_same(states_of_checkpoint(folder), whole)

    more = list(mill.events(MORE))
    append(folder / "events.db", more)
    second = _compact(spark, folder)
    assert (second["events"], second["base_rows"]) == (MORE, first["rows"])
    require_same(states_of_checkpoint(folder), replay(more, into=whole, first=MADE + 1))

    live_states(folder)
    report = Quiet()
    found = verify.run(spark, sqlite_spec(folder, "verify"), report)
    assert found["sides"] == f"whole log, checkpoint {second['version']}, live session states"
    assert found["differences"] == 0


def test_compaction_runs_beside_a_hub_that_writes(spark: SparkSession, folder: Path, mill: EventMill) -> None:
    """It ends at the end that it captured; nobody waits for anybody longer than a moment."""
    is_over = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not is_over.wait(0.02):
            written.append(append(folder / "events.db", mill.events(20)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        figures = _compact(spark, folder)
    finally:
        is_over.set()
        writer.join()

    upto = int(str(figures["to"]))
    assert written[-1] > upto >= MADE
    require_same(states_of_checkpoint(folder), replay(EventMill(SESSIONS, TENANTS, seed=5).events(upto)))


@pytest.mark.parametrize("moment", [BEFORE_FLIP, *at_night(WRITING)])
def test_killed_driver_lets_nothing_half_made_count(spark: SparkSession, folder: Path, moment: str) -> None:
    """Kill -9: there is no pointer, or a whole checkpoint; the next run makes the same as if nothing had been."""
    with started(_to_kill(folder), folder) as child:
        child.kill_when(lambda: seen(folder, moment))
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        assert store.pointer() is None
        assert len(store.versions()) == 1

    _require_finished(spark, folder)


@pytest.mark.parametrize("is_each_killed", [False, *at_night(True)])
def test_killed_workers_are_told_as_what_they_are(spark: SparkSession, folder: Path, is_each_killed: bool) -> None:
    """Kill -9 of every Python worker while rows are written: tasks are tried again, or the run says what it died of and the next one does it.

    At night each one that Spark starts is killed, too, what forks them included: no store is to blame, and nothing counts.
    """
    with started(_to_kill(folder), folder) as child:
        if is_each_killed:
            killed = child.kill_all_workers()
        else:
            killed = child.kill_workers_when(lambda: seen(folder, WRITING))
        code, said = child.finish()

    assert killed > 0
    is_done = (code, said[-1]["event"], said[-1].get("kind")) == (0, "done", None)
    assert is_done or (code, said[-1]["event"], said[-1]["kind"]) == (1, "failed", "died")
    assert not (is_done and is_each_killed)
    assert is_done or "Spark failed: " in str(said[-1]["text"])
    _require_finished(spark, folder)


@pytest.mark.parametrize("are_workers_killed", [False, *at_night(True)])
def test_killed_java_is_told_as_what_it_is(spark: SparkSession, folder: Path, are_workers_killed: bool) -> None:
    """Kill -9, as the kernel does when memory is short: nothing counts, and what is said is of memory, not of servers."""
    with started(_to_kill(folder), folder) as child:
        child.kill_java_when(lambda: seen(folder, WRITING), are_workers_killed=are_workers_killed)
        code, said = child.finish()

    assert (code, said[-1]["kind"]) == (1, "died")
    assert "spark.driver_memory" in str(said[-1]["text"])
    _require_finished(spark, folder)


def test_wrong_record_is_named_by_verify(spark: SparkSession, folder: Path) -> None:
    """In the live states, beside a checkpoint that is right."""
    _compact(spark, folder)
    live_states(folder)
    with closing(sqlite3.connect(folder / "state.db")) as states, states:
        states.execute(
            'UPDATE session SET record = CAST(replace(CAST(record AS TEXT), \'"device":"\', \'"device":"x\') AS BLOB) '
            "WHERE client_id = 'device-0'"
        )
    report = Quiet()

    with pytest.raises(IotHubError, match="1 sessions differ from the log"):
        verify.run(spark, sqlite_spec(folder, "verify"), report)
    assert "live session states against whole log: 1/device-0: different from the log (device)" in report.notes
