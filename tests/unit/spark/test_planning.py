"""What a compaction reads, and what of the log may go afterwards: places alone, without Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from iothub.base.errors import ConflictError
from iothub.base.units import Endpoint
from iothub.records.events import GENERATION_BITS, Topic
from iothub.records.job_spec import HBaseTables, KafkaLog
from iothub.testing.checkpoint_contract import pointer_to, rows_of
from iothub_spark import retention
from iothub_spark.planning import plan_compaction, plan_from_states, plan_usage
from iothub_spark.retention import Removal, plan_removal, remove
from iothub_spark.stores import marks
from iothub_spark.stores.log import LogRange, Offsets, Page, Stretch
from iothub_spark.stores.rows import StateRow
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from tests.support.jobs.event_log import EventMill, append, make_log
from tests.support.jobs.spark import hold, sqlite_spec

ABOVE = 1 << GENERATION_BITS


class Bounds:
    """A log that has bounds alone."""

    def __init__(self, begin: Offsets, end: Offsets) -> None:
        self._begin, self._end = begin, end

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        return self._begin

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        return self._end

    def read(self, stretch: Stretch, topic: Topic = Topic.SESSIONS, keys: tuple[bytes, ...] = ()) -> Iterator[Page]:
        raise AssertionError("nothing is read while it is planned")

    def where(self, partition: int, offset: int, topic: Topic = Topic.SESSIONS) -> str:
        return ""

    def close(self) -> None:
        """Nothing is open."""


def test_first_compaction_reads_the_whole_log() -> None:
    """Every partition, the empty one too."""
    plan = plan_compaction(Bounds((1, 1), (40, 0)), None, is_full=False)

    assert (plan.base, plan.is_done) == (None, False)
    assert plan.wanted == LogRange(Topic.SESSIONS, (0, 0), (40, 0))


def test_later_compaction_reads_what_is_behind_the_checkpoint() -> None:
    """And is done when there is nothing."""
    pointer = pointer_to(7, (), (30, 5))
    plan = plan_compaction(Bounds((11, 2), (40, 5)), pointer, is_full=False)
    assert plan.base == pointer
    assert (plan.wanted.after, plan.wanted.upto, plan.is_done) == ((30, 5), (40, 5), False)

    assert plan_compaction(Bounds((11, 2), (30, 5)), pointer, is_full=False).is_done


def test_full_compaction_goes_as_far_back_as_the_log_reaches() -> None:
    """To the first event, else to the older checkpoint that is kept."""
    pointer, older = pointer_to(7, (), (30,)), pointer_to(6, (), (20,))
    assert plan_compaction(Bounds((1,), (40,)), pointer, older, is_full=True).base is None
    assert plan_compaction(Bounds((21,), (40,)), pointer, older, is_full=True).base == older
    assert not plan_compaction(Bounds((21,), (30,)), pointer, older, is_full=True).is_done


def test_full_compaction_without_a_place_to_begin_at_says_that_nothing_is_wrong() -> None:
    """As after `erase`, which leaves one checkpoint: the one that counts fits the log, so no backup need be restored."""
    log, pointer, older = Bounds((22,), (40,)), pointer_to(7, (), (30,)), pointer_to(6, (), (20,))
    for each in (older, None):
        with pytest.raises(ConflictError) as refused:
            plan_compaction(log, pointer, each, is_full=True)
        said = str(refused.value)
        assert said.startswith(
            "--full is not possible: the log begins at offset 22, not at its first event, and there is no older checkpoint"
        )
        assert "Run the job without --full: it continues from checkpoint 7" in said
        assert "Run the job without --full" in said
        assert "--option from_state=true" in said
        assert "restore" not in said
    assert plan_compaction(log, pointer, None, is_full=False).base == pointer


@pytest.mark.parametrize(
    ("begin", "end", "text"),
    [
        ((32,), (40,), "begins at offset 32, but is needed from 31"),
        ((1,), (29,), "ends at offset 29, but was already read up to 30"),
        ((1, 1), (40, 40), "wrong log: it has 2 partitions, expected 1"),
        ((ABOVE + 1,), (ABOVE + 9,), f"begins at offset {ABOVE + 1}, but is needed from 31"),
    ],
    ids=["gap", "lost_end", "another_log", "next_generation"],
)
def test_log_that_does_not_fit_the_checkpoint_is_refused(begin: Offsets, end: Offsets, text: str) -> None:
    """Full or not: what is known would be lost."""
    for is_full in (False, True):
        with pytest.raises(ConflictError, match=f"checkpoint 7 does not match the log: .*{text}"):
            plan_compaction(Bounds(begin, end), pointer_to(7, (), (30,)), is_full=is_full)


def test_log_of_a_later_generation_is_not_whole() -> None:
    """It begins with its first event, but the sessions are older."""
    with pytest.raises(ConflictError, match="not at its first event"):
        plan_compaction(Bounds((ABOVE + 1,), (ABOVE + 9,)), None, is_full=False)


def test_live_states_are_a_beginning_wherever_the_log_begins() -> None:
    """As long as it has what is behind them."""
    pointer = pointer_to(7, (), (30,))
    plan = plan_from_states(Bounds((50,), (90,)), pointer, (60,))

    assert (plan.pointer, plan.base, plan.wanted.after, plan.is_done) == (pointer, None, (60,), False)
    with pytest.raises(ConflictError, match="have no events of the log yet"):
        plan_from_states(Bounds((50,), (90,)), pointer, ())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_log(tmp_path / "events.db")
    append(tmp_path / "events.db", EventMill(5, 2).events(100))
    with closing(sqlite3.connect(tmp_path / "state.db")) as states:
        states.execute("CREATE TABLE applied (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL)")
        states.execute("INSERT INTO applied VALUES (0, 95)")
        states.commit()
    return tmp_path


def test_what_goes_lies_below_the_two_that_stay(folder: Path) -> None:
    """What a killed run has left goes, too; what may be another run's stays."""
    pointers = [pointer_to(version, rows_of(2), (version * 10,)) for version in (2, 4, 6)]
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        for version in (1, 2, 4, 5, 6, 9):
            store.write(version, [StateRow(*row) for row in rows_of(2)])
        for pointer in pointers:
            marks.keep(store, pointer)
        assert store.move(None, pointers[-1])
        spec = sqlite_spec(folder)
        removal = plan_removal(spec, store, pointers[-1])

        assert removal == Removal((1, 2, 5), (40,), "checkpoint 4")
        assert remove(spec, store, removal) == (6, 40)
        assert store.versions() == [4, 6, 9]
        assert marks.marked_versions(store) == {4, 6}
        assert remove(spec, store, plan_removal(spec, store, pointers[-1])) == (0, 0)


def test_log_is_held_by_whoever_needs_most_of_it(folder: Path) -> None:
    """Other jobs, the session states; with one checkpoint, or without session states, nothing goes."""
    spec, older, newer = sqlite_spec(folder), pointer_to(2, (), (97,)), pointer_to(3, (), (99,))
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        marks.keep(store, newer)
        assert plan_removal(spec, store, newer) == Removal((), (), "later runs (there is only one checkpoint)")
        marks.keep(store, older)
        assert plan_removal(spec, store, newer) == Removal((), (95,), "the session states")
        hold(folder, (50,))
        hold(folder, (1,), log="analytics")
        assert plan_removal(spec, store, newer) == Removal((), (50,), "job archive")
        (folder / "state.db").unlink()
        assert plan_removal(spec, store, newer).trim_upto == ()


def test_log_is_kept_from_the_checkpoint_that_counts_on(folder: Path) -> None:
    """The older one may be of a log that was longer, and was restored since."""
    older, newer = pointer_to(2, (), (5000,)), pointer_to(3, (), (60,))
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        marks.keep(store, older)
        marks.keep(store, newer)
        assert plan_removal(sqlite_spec(folder), store, newer) == Removal((), (60,), "checkpoint 3")


def test_log_on_kafka_is_trimmed_by_partition(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes by whoever needs most of it; a mark of another log holds all."""
    hbase = HBaseTables((Endpoint("hbase", 9090),))
    spec = replace(sqlite_spec(folder), events=KafkaLog((Endpoint("kafka", 9092),)), state=hbase)
    older, newer = pointer_to(2, (), (97, 10, 0)), pointer_to(3, (), (99, 20, 5))
    monkeypatch.setattr(retention, "_applied", lambda _: (99, 15, 5))
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        marks.keep(store, newer)
        assert plan_removal(spec, store, newer) == Removal((), (), "later runs (there is only one checkpoint)")
        marks.keep(store, older)
        assert plan_removal(spec, store, newer) == Removal((), (97, 10, 0), "checkpoint 2")
        hold(folder, (50, 12, 0))
        assert plan_removal(spec, store, newer) == Removal((), (50, 10, 0), "job archive")
        hold(folder, (50,))
        assert plan_removal(spec, store, newer) == Removal((), (), "job archive")


def test_log_that_hubs_with_states_in_files_share_is_not_trimmed(folder: Path) -> None:
    """What another hub's file has applied cannot be seen from here."""
    spec = replace(sqlite_spec(folder), events=KafkaLog((Endpoint("kafka", 9092),)))
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        for version in (2, 3):
            marks.keep(store, pointer_to(version, (), (version,)))
        removal = plan_removal(spec, store, pointer_to(3, (), (3,)))
    assert (removal.versions, removal.trim_upto) == ((), ())
    assert removal.held_by.startswith("perhaps other hubs")


@pytest.mark.parametrize(
    ("held", "seen", "is_full", "after", "is_done"),
    [
        ((3,), (9,), False, (3,), True),
        ((3,), (8,), False, (3,), False),
        ((3,), (9,), True, (1,), False),
        ((3,), None, False, (1,), False),
        (None, None, False, (1,), False),
        ((0,), (9,), False, (1,), False),
        ((3,), (12,), False, (1,), False),
        ((3, 3), (9, 9), False, (1,), False),
    ],
    ids=["nothing new", "something", "full", "no end known", "first", "trimmed", "lost its end", "another log"],
)
def test_usage_goes_on_from_its_mark_where_it_can(
    held: Offsets | None, seen: Offsets | None, is_full: bool, after: Offsets, is_done: bool
) -> None:
    plan = plan_usage(Bounds((2,), (9,)), held, seen, is_full=is_full)

    assert (plan.wanted, plan.is_done) == (LogRange(Topic.ANALYTICS, after, (9,)), is_done)
