"""`compact_events` over the embedded log: equal to a replay that owes nothing to the fold, incremental, repeatable, refused by name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.base.errors import ConflictError, CorruptRecordError
from iothub.records.checkpoint import encode_row
from iothub.records.events import Event
from iothub.records.job_spec import Option
from iothub.records.state import SessionState, encode_state, fold
from iothub_spark import checking
from iothub_spark.jobs import compact_events
from iothub_spark.report import Figures
from iothub_spark.stores import marks
from iothub_spark.stores.log_sqlite import trim
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from tests.support.jobs.event_log import EventMill, append, make_log, replay
from tests.support.jobs.spark import Quiet, hold, require_same, sqlite_spec, states_of_checkpoint

MADE = 3_000
SESSIONS, TENANTS = 120, 7

Compact = Callable[..., Figures]


@pytest.fixture
def mill() -> EventMill:
    return EventMill(SESSIONS, TENANTS)


@pytest.fixture
def folder(tmp_path: Path, mill: EventMill) -> Path:
    """A log, and session states that include it."""
    make_log(tmp_path / "events.db")
    append(tmp_path / "events.db", mill.events(MADE))
    with closing(sqlite3.connect(tmp_path / "state.db")) as states:
        states.execute("CREATE TABLE applied (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL)")
        states.execute(
            "CREATE TABLE session (tenant INTEGER, client_id TEXT, offset INTEGER, record BLOB, PRIMARY KEY (tenant, client_id))"
        )
        states.execute("INSERT INTO applied VALUES (0, ?)", (MADE,))
        states.commit()
    return tmp_path


@pytest.fixture
def compact(spark: SparkSession, folder: Path) -> Compact:
    def run(**options: Option) -> Figures:
        return compact_events.run(spark, sqlite_spec(folder, **options), Quiet())

    return run


def _rows(folder: Path, version: int) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "checkpoints.db")) as file:
        statement = "SELECT tenant, client_id, value FROM checkpoint WHERE version = ? ORDER BY 1, 2"
        return file.execute(statement, (version,)).fetchall()


def _change(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / "checkpoints.db")) as file, file:
        assert file.execute(statement, values).rowcount > 0


def _make_states(folder: Path, states: Mapping[tuple[int, str], SessionState], applied: int) -> None:
    """Live states as a hub has them that has folded the log up to there."""
    rows = [(*key, state.offset, encode_state(state)) for key, state in states.items()]
    with closing(sqlite3.connect(folder / "state.db")) as file, file:
        file.execute("UPDATE applied SET offset = ?", (applied,))
        file.executemany("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)", rows)


def _folded(events: Iterable[Event]) -> dict[tuple[int, str], SessionState]:
    states: dict[tuple[int, str], SessionState] = {}
    for offset, event in enumerate(events, 1):
        state = fold(states.get((event.tenant_id, event.client_id)), event, offset)
        states |= {} if state is None else {state.key: state}
    return states


def test_checkpoint_is_what_a_plain_replay_makes_and_goes_on_from_there(
    folder: Path, mill: EventMill, compact: Compact
) -> None:
    """First from nothing, then from the checkpoint and the new events alone, then nothing is left to do."""
    first = compact()
    whole = replay(EventMill(SESSIONS, TENANTS).events(MADE))
    assert (first["events"], first["damaged"], first["from"], first["to"]) == (MADE, 0, "0", str(MADE))
    require_same(states_of_checkpoint(folder), whole)

    more = list(mill.events(400))
    append(folder / "events.db", more)
    second = compact()
    assert (second["events"], second["from"], second["base_rows"]) == (400, str(MADE), first["rows"])
    require_same(states_of_checkpoint(folder), replay(more, into=whole, first=MADE + 1))

    third = compact()
    assert (third["events"], third["version"], third["is_new"]) == (0, second["version"], False)


def test_same_input_gives_the_same_bytes(folder: Path, compact: Compact) -> None:
    """With --full twice: only the version differs."""
    first = compact(full=True)
    rows = _rows(folder, int(first["version"]))
    second = compact(full=True)

    assert first["version"] != second["version"]
    assert _rows(folder, int(second["version"])) == rows


def test_dry_run_says_what_it_would_do_and_does_nothing(folder: Path, compact: Compact) -> None:
    """No version, no pointer."""
    figures = compact(dry_run=True)

    assert (figures["dry_run"], figures["events"]) == (True, MADE)
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        assert (store.pointer(), store.versions(), store.marks()) == (None, [], {})


def test_two_checkpoints_are_kept_and_the_log_from_the_older_one_on(
    folder: Path, mill: EventMill, compact: Compact
) -> None:
    """A job that is behind holds the log, and so do session states that include less."""
    first = compact()
    assert first["events_trimmed"] == 0
    for trimmed in (MADE, 0):  # the session states include no more
        append(folder / "events.db", mill.events(100))
        assert compact()["events_trimmed"] == trimmed
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        assert int(first["version"]) not in store.versions()
        assert len(store.versions()) == 2
        assert [pointer.version for pointer in marks.kept(store)] == store.versions()
        with closing(sqlite3.connect(folder / "state.db")) as states, states:
            states.execute("UPDATE applied SET offset = ?", (MADE + 200,))
        hold(folder, (MADE + 40,))
        assert compact()["events_trimmed"] == 40
        hold(folder, None)
        assert compact()["events_trimmed"] == 60  # up to the older checkpoint
    with closing(sqlite3.connect(folder / "events.db")) as log:
        assert log.execute("SELECT min(offset) FROM session_event").fetchone() == (MADE + 101,)


def test_run_says_who_holds_the_log(spark: SparkSession, folder: Path, mill: EventMill) -> None:
    """A log that grows has a reason: also when there is nothing to do, and not when nothing is removed."""

    def notes(**options: Option) -> list[str]:
        report = Quiet()
        compact_events.run(spark, sqlite_spec(folder, **options), report)
        return [note for note in report.notes if note.startswith("the log is kept")]

    assert notes(dry_run=True) == []
    assert notes() == ["the log is kept whole, needed by later runs (there is only one checkpoint)"]
    append(folder / "events.db", mill.events(100))
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        hold(folder, (40,))
        assert notes() == ["the log is kept after offset 40, needed by job archive"]
        hold(folder, None)
        assert notes() == [f"the log is kept after offset {MADE}, needed by checkpoint {store.versions()[0]}"]


def test_session_that_ended_is_forgotten_when_the_log_begins_behind_it(
    folder: Path, mill: EventMill, compact: Compact
) -> None:
    """Until then its last epoch fences what is late."""
    compact()
    ended = {key for key, state in states_of_checkpoint(folder).items() if state.is_ended}
    assert ended
    for _ in range(2):
        append(folder / "events.db", mill.events(50))
        compact()
    append(folder / "events.db", mill.events(50))
    compact()

    left = {key for key, state in states_of_checkpoint(folder).items() if state.is_ended and state.offset <= MADE}
    assert left == set()


def test_damaged_events_are_counted_and_passed_over(
    spark: SparkSession, folder: Path, mill: EventMill, compact: Compact
) -> None:
    """As in the hubs: the checkpoint is what they make of the log, too. One of another version is as damaged as any."""
    compact()
    append(folder / "events.db", mill.events(100))
    logged = [*EventMill(SESSIONS, TENANTS).events(MADE + 100)]
    with closing(sqlite3.connect(folder / "events.db")) as log, log:
        log.execute("UPDATE session_event SET value = 'damaged' WHERE offset = ?", (MADE + 5,))
        newer = "CAST(replace(value, '\"v\":1', '\"v\":2') AS BLOB)"
        log.execute(f"UPDATE session_event SET value = {newer} WHERE offset = ?", (MADE + 77,))
    report = Quiet()

    figures = compact_events.run(spark, sqlite_spec(folder), report)

    assert (figures["events"], figures["damaged"]) == (100, 2)
    (note,) = [note for note in report.notes if "passed over" in note]
    assert note.startswith("2 damaged records were passed over, such as: event of ")
    expected: dict[str, SessionState | None] = {}
    for offset, event in enumerate(logged, 1):
        if offset not in (MADE + 5, MADE + 77):
            expected[event.key] = fold(expected.get(event.key), event, offset)
    found = states_of_checkpoint(folder)
    assert {f"{tenant}/{name}": state for (tenant, name), state in found.items()} == {
        key: state for key, state in expected.items() if state is not None and not state.is_ended
    } | {f"{tenant}/{name}": state for (tenant, name), state in found.items() if state.is_ended}


def test_checkpoint_that_is_damaged_is_refused_and_made_anew_with_full(
    folder: Path, mill: EventMill, compact: Compact
) -> None:
    """A row that is missing would be missing in every checkpoint that follows."""
    figures = compact()
    append(folder / "events.db", mill.events(10))
    _change(folder, "DELETE FROM checkpoint WHERE client_id = 'device-0'")

    with pytest.raises(CorruptRecordError, match=f"checkpoint {figures['version']} has .* rows with checksum"):
        compact()
    assert compact(full=True)["rows"] == figures["rows"]


def test_damaged_checkpoint_is_made_again_from_the_older_one(folder: Path, mill: EventMill, compact: Compact) -> None:
    """The log does not reach back to its first event any more; it reaches back to the checkpoint that is kept."""
    whole = replay(EventMill(SESSIONS, TENANTS).events(MADE))
    first = compact()
    more = list(mill.events(100))
    append(folder / "events.db", more)
    second = compact()
    assert second["events_trimmed"] == MADE
    _change(folder, "DELETE FROM checkpoint WHERE version = ? AND client_id = 'device-0'", second["version"])

    figures = compact(full=True)
    assert (figures["base_rows"], figures["events"]) == (first["rows"], 100)
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:  # the damaged one is no fallback
        assert [pointer.version for pointer in marks.kept(store)] == [first["version"], figures["version"]]
    expected = replay(more, into=whole, first=MADE + 1)
    for key in [
        key for key, facts in expected.sessions.items() if facts["is_ended"] and int(str(facts["offset"])) <= MADE
    ]:
        del expected.sessions[key]
    require_same(states_of_checkpoint(folder), expected)


def test_log_that_does_not_fit_the_checkpoint_is_refused(folder: Path, mill: EventMill, compact: Compact) -> None:
    """A gap behind it, or an end before it; the way out is named."""
    compact()
    append(folder / "events.db", mill.events(50))
    trim(folder / "events.db", MADE + 10)
    with pytest.raises(
        ConflictError,
        match=r"does not match the log: events are missing: the log begins at offset 3011.*from_state=true",
    ):
        compact()
    with pytest.raises(ConflictError, match="does not match the log"):
        compact(full=True)


def test_log_without_its_beginning_makes_no_checkpoint_alone(
    spark: SparkSession, folder: Path, mill: EventMill, compact: Compact
) -> None:
    """But the live session states with what is behind them do."""
    whole = replay(EventMill(SESSIONS, TENANTS).events(MADE))
    compact()
    states = states_of_checkpoint(folder)
    _make_states(folder, states, MADE)
    with closing(sqlite3.connect(folder / "state.db")) as file, file:
        file.execute("INSERT INTO session VALUES (1, 'damaged', 7, '{')")
    (folder / "checkpoints.db").unlink()
    trim(folder / "events.db", MADE)
    with pytest.raises(ConflictError, match=r"the log begins at offset 3001, not at its first event.*from_state=true"):
        compact()

    more = list(mill.events(60))
    append(folder / "events.db", more)
    report = Quiet()
    figures = compact_events.run(spark, sqlite_spec(folder, from_state=True), report)
    assert (figures["events"], figures["damaged"]) == (60, 1)
    assert any(
        "1 damaged records were passed over, such as: session state of 1/damaged: " in note for note in report.notes
    )
    expected = replay(more, into=whole, first=MADE + 1)
    over = {key for key, facts in expected.sessions.items() if facts["is_ended"] and int(str(facts["offset"])) <= MADE}
    for key in over:
        del expected.sessions[key]
    require_same(states_of_checkpoint(folder), expected)


def test_run_that_was_overtaken_lets_nothing_count(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pointer has moved while it wrote: its version is garbage, the other's counts."""
    checked = checking.check_sample

    def overtake(*arguments: object) -> int:
        monkeypatch.setattr(checking, "check_sample", checked)
        compact_events.run(spark, sqlite_spec(folder), Quiet())
        return 0

    monkeypatch.setattr(checking, "check_sample", overtake)
    with pytest.raises(ConflictError, match="another run has finished meanwhile"):
        compact_events.run(spark, sqlite_spec(folder), Quiet())
    require_same(states_of_checkpoint(folder), replay(EventMill(SESSIONS, TENANTS).events(MADE)))


def test_version_that_differs_from_a_plain_fold_never_counts(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is folded one event after another: a fault in the way rows are made is found before anybody starts from them."""
    checked = checking.check_sample

    def spoil(
        log: object, checkpoints: SqliteCheckpoints, plan: object, version: int, picked: tuple[tuple[int, str], ...]
    ) -> int:
        (row,) = checkpoints.get(version, [picked[0]])
        value = encode_row(row.offset, row.record.replace(b'"epoch":', b'"epoch":1'))
        _change(folder, "UPDATE checkpoint SET value = ? WHERE tenant = ? AND client_id = ?", value, *picked[0])
        return checked(log, checkpoints, plan, version, picked)  # type: ignore[arg-type]

    monkeypatch.setattr(checking, "check_sample", spoil)
    with pytest.raises(CorruptRecordError, match="differs when it is computed again: the checkpoint is discarded"):
        compact_events.run(spark, sqlite_spec(folder), Quiet())
    with closing(SqliteCheckpoints(folder / "checkpoints.db")) as store:
        assert store.pointer() is None
