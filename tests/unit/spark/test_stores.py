"""The embedded stores as jobs open them: the contract of the hub's port, files of newer programs, parts, marks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError, CorruptRecordError, NotFoundError
from iothub.testing.checkpoint_contract import CASES, Case, pointer_to, rows_of
from iothub.testing.clock import ManualClock
from iothub_services.sqlite.database import open_database
from iothub_services.state.sqlite.checkpoints import SCHEMA
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints as HubCheckpoints
from iothub_spark.stores import log_sqlite, marks, rows_sqlite
from iothub_spark.stores.log_sqlite import SqliteLog, connect, errors_translated
from iothub_spark.stores.marks import Written
from iothub_spark.stores.rows import Part, StateRow
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints, SqliteStates
from tests.support.jobs.job_checkpoints import JobCheckpoints


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_checkpoint_contract_holds_for_jobs(case: Case, tmp_path: Path) -> None:
    """What a job writes is what a hub reads."""
    with closing(JobCheckpoints(SqliteCheckpoints(tmp_path / "checkpoints.db"))) as store:
        case(store)


def test_hub_and_job_share_a_file(tmp_path: Path) -> None:
    """Whoever was first has made it, private to its owner; both see what the other has written."""
    path, rows = tmp_path / "checkpoints.db", rows_of(20)
    with closing(SqliteCheckpoints(path)) as job:
        assert path.stat().st_mode & 0o077 == 0
        with closing(HubCheckpoints(open_database(path, SCHEMA, ManualClock(), pytest.fail))) as hub:
            job.write(4, [StateRow(*row) for row in rows])
            assert job.move(None, pointer_to(4, rows))
            assert hub.pointer() == pointer_to(4, rows)
            assert list(hub.rows(4)) == rows


@pytest.mark.parametrize("made", [SqliteCheckpoints, SqliteStates, SqliteLog])
def test_file_of_a_newer_program_is_refused(tmp_path: Path, made: Callable[[Path], object]) -> None:
    """Before a record is read: all of them would look damaged, and be passed over."""
    with closing(sqlite3.connect(tmp_path / "any.db")) as file:
        file.execute("PRAGMA user_version=9")

    with pytest.raises(ConflictError, match=r"any\.db has schema version 9, this program knows up to 1"):
        made(tmp_path / "any.db")


def test_parts_are_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut between any two sessions, pages too."""
    monkeypatch.setattr(rows_sqlite, "_PAGE", 7)
    rows = [StateRow(*row) for row in rows_of(40, 1) + rows_of(30, 2)]
    with closing(SqliteCheckpoints(tmp_path / "checkpoints.db")) as store:
        store.write(5, rows)
        store.write(6, rows[:3])
        parts = store.parts(5, 4)

        assert len(parts) == 4
        assert [row for part in parts for row in store.rows(5, part)] == rows
        assert list(store.rows(5, Part())) == rows
        assert store.get(5, [(2, "client-00007"), (9, "no")]) == [rows[47]]


def test_marks_remember_kept_versions_and_what_was_written(tmp_path: Path) -> None:
    """Each under a name of its own."""
    with closing(SqliteCheckpoints(tmp_path / "checkpoints.db")) as store:
        first, second = pointer_to(9, rows_of(2)), pointer_to(10, rows_of(3))
        marks.keep(store, second)
        marks.keep(store, first)
        marks.set_written(store, 11, Written(5, 77, 1, ("why",)))

        assert marks.kept(store) == [first, second]
        assert marks.written(store, 11) == Written(5, 77, 1, ("why",))
        assert marks.written(store, 12) is None
        assert marks.marked_versions(store) == {9, 10, 11}
        marks.forget(store, [9, 11])
        assert marks.marked_versions(store) == {10}


def test_states_of_a_hub_are_read(tmp_path: Path) -> None:
    """Where there are none, and where the file is none, that is said."""
    with pytest.raises(NotFoundError, match="there are no session states yet"):
        SqliteStates(tmp_path / "state.db")
    (tmp_path / "state.db").write_bytes(b"no database at all, but long enough to look at" * 20)

    with pytest.raises(CorruptRecordError, match=r"state\.db: file is not a database: restart the hub"):
        SqliteStates(tmp_path / "state.db")


def test_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    """Not as damage: room mends it."""
    path = tmp_path / "checkpoints.db"
    SqliteCheckpoints(path).close()
    with closing(connect(path)) as file:
        file.execute("PRAGMA max_page_count=1")  # as small a disk as it can be
        with (
            pytest.raises(BackendError, match=r"checkpoints\.db: its disk is full \(.*\): free some space"),
            errors_translated(path),
        ):
            file.execute("CREATE TABLE more AS SELECT zeroblob(100000)")


def test_error_of_a_full_disk_by_another_name_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for its log SQLite speaks of an I/O error; with room it is one."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    for is_full, text in ((True, "its disk is full"), (False, "state.db: disk I/O error")):
        monkeypatch.setattr(log_sqlite, "_SCARCE_BYTES", 1 << 62 if is_full else 0)
        with pytest.raises(BackendError, match=text), errors_translated(tmp_path / "state.db"):
            raise error
