"""Compaction at full size, killed at random points, and what a start from its checkpoint saves.

`IOTHUB_SPARK_EVENTS=50000 IOTHUB_SPARK_KILLS=2` tries the same on less.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.testing.clock import ManualClock
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.sqlite.database import open_database
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.service import StateService
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints as HubCheckpoints
from iothub_spark.jobs import compact_events
from iothub_spark.report import Figures
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from tests.support.jobs.event_log import EventMill, Replay, append, make_log, replay
from tests.support.jobs.spark import Quiet, facts_of, require_same, spark, sqlite_spec, states_of_checkpoint
from tests.support.jobs.spark_child import ALL, require_hits, started

__all__ = ["spark"]

MADE = int(os.environ.get("IOTHUB_SPARK_EVENTS") or 1_000_000)
MORE, TAIL = MADE // 20, MADE // 100
SESSIONS, TENANTS = MADE // 10, 50
KILLS, KILLED_EVENTS = int(os.environ.get("IOTHUB_SPARK_KILLS") or 20), min(60_000, MADE)
SEED = 17

pytestmark = [pytest.mark.timeout(7_200), pytest.mark.filterwarnings("default")]


def _compact(spark: SparkSession, folder: Path) -> Figures:
    return compact_events.run(spark, sqlite_spec(folder), Quiet())


@pytest.fixture
def grown(tmp_path: Path) -> tuple[Path, EventMill]:
    """A log of a million events, or as many as are asked for; what made it goes on behind them."""
    folder, mill = tmp_path, EventMill(SESSIONS, TENANTS, SEED)
    make_log(folder / "events.db")
    append(folder / "events.db", mill.events(MADE))
    return folder, mill


def test_million_events_equal_a_plain_replay_and_so_does_what_comes_after(
    spark: SparkSession, grown: tuple[Path, EventMill]
) -> None:
    """Session by session, over 50 tenants with skew, duplicates and late writers; the second run reads the new events alone."""
    folder, mill = grown
    whole: Replay = replay(EventMill(SESSIONS, TENANTS, SEED).events(MADE))
    began = time.monotonic()
    first = _compact(spark, folder)
    print(f"{MADE} events to {first['rows']} sessions in {time.monotonic() - began:.1f} s")
    assert first["events"] == MADE
    require_same(states_of_checkpoint(folder), whole)

    more = list(mill.events(MORE))
    append(folder / "events.db", more)
    second = _compact(spark, folder)
    assert (second["events"], second["base_rows"]) == (MORE, first["rows"])
    require_same(states_of_checkpoint(folder), replay(more, into=whole, first=MADE + 1))
    assert _compact(spark, folder)["is_new"] is False


def test_start_from_the_checkpoint_is_ten_times_as_fast(spark: SparkSession, grown: tuple[Path, EventMill]) -> None:
    """A million events without it, against the checkpoint and a tail of ten thousand; both give the same sessions."""
    folder, mill = grown
    _compact(spark, folder)
    append(folder / "events.db", mill.events(TAIL))

    def start(*, is_with: bool) -> tuple[float, dict[tuple[int, str], dict[str, object]]]:
        clock = ManualClock()
        with (
            closing(SqliteEvents(open_database(folder / "events.db", EVENTS, clock, _alarmed))) as log,
            closing(HubCheckpoints(open_database(folder / "checkpoints.db", CHECKPOINTS, clock, _alarmed))) as store,
        ):
            service = StateService(log, MemoryStates(), _alarmed, store if is_with else None)
            began = time.monotonic()
            states = service.load()
            return time.monotonic() - began, {state.key: facts_of(state) for state in states}

    without_s, expected = start(is_with=False)
    with_s, found = start(is_with=True)
    print(f"start without checkpoint {without_s:.2f} s, with it {with_s:.2f} s: {without_s / with_s:.1f} times as fast")
    assert found == expected
    assert without_s / with_s >= 10


def test_twenty_kills_at_random_moments_spoil_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Kill -9 of driver, Java or workers, anywhere: the pointer names a whole version; the last run makes what nobody disturbed would have made."""
    chance, mill = random.Random(SEED), EventMill(5_000, TENANTS, SEED)
    make_log(tmp_path / "events.db")
    append(tmp_path / "events.db", mill.events(KILLED_EVENTS))
    _length_s(tmp_path)
    append(tmp_path / "events.db", mill.events(500))
    usual_s = _length_s(tmp_path)  # of a run like those that are killed: it reads what is new
    total, hits = KILLED_EVENTS + 500, Counter[str]()
    for _ in range(KILLS):
        append(tmp_path / "events.db", mill.events(500))
        total += 500
        whom, until = chance.choice(ALL), time.monotonic() + chance.uniform(0.2, 1.0) * usual_s
        with started(sqlite_spec(tmp_path), tmp_path) as child:
            hits[whom] += child.kill_at(until, whom)
        with closing(SqliteCheckpoints(tmp_path / "checkpoints.db")) as store:
            has_pointer = store.pointer() is not None
        if has_pointer:
            states_of_checkpoint(tmp_path)  # raises unless every row is as the pointer counted

    require_hits(hits, KILLS)
    _compact(spark, tmp_path)
    expected = replay(EventMill(5_000, TENANTS, SEED).events(total))
    found = states_of_checkpoint(tmp_path)
    missing = {key for key in expected.sessions.keys() - found.keys() if expected.sessions[key]["is_ended"]}
    for key in missing:  # forgotten: the log begins behind them
        del expected.sessions[key]
    require_same(found, expected)
    assert _compact(spark, tmp_path)["is_new"] is False


def _length_s(folder: Path) -> float:
    """Return how long a run takes that nobody disturbs."""
    began = time.monotonic()
    with started(sqlite_spec(folder), folder) as child:
        code, said = child.finish()
    assert code == 0, said
    return time.monotonic() - began


def _alarmed(name: str, text: str) -> None:
    if text and name != "checkpoint_unused":
        raise AssertionError(f"{name}: {text}")
