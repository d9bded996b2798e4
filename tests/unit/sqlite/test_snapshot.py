"""Copies of a SQLite file as of the moment when the snapshot was opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.testing.clock import ManualClock
from iothub_services.sqlite.database import Database, Schema, open_database
from iothub_services.sqlite.snapshot import Snapshot

SCHEMA = Schema("things", 3, {"thing": "things"}, ("CREATE TABLE thing (id INTEGER PRIMARY KEY, b BLOB)",))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path / "things.db", SCHEMA, ManualClock(), lambda _name, _text: None)
    put(opened, 1)
    yield opened
    opened.close()


def put(database: Database, number: int, size: int = 100) -> None:
    with database.transaction() as connection:
        connection.execute("INSERT INTO thing VALUES (?, ?)", (number, bytes(size)))


def numbers(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    found = [number for (number,) in connection.execute("SELECT id FROM thing ORDER BY id")]
    connection.close()
    return found


def test_copy_is_of_the_moment_of_opening(database: Database, tmp_path: Path) -> None:
    snapshot = Snapshot(database.path)
    put(database, 2)

    snapshot.copy_to(tmp_path / "copy.db", lambda _done: put(database, 3))
    snapshot.close()

    assert numbers(tmp_path / "copy.db") == [1]
    assert numbers(database.path) == [1, 2, 3]
    assert snapshot.version == 3


def test_copy_is_one_file_of_the_size_that_was_announced(database: Database, tmp_path: Path) -> None:
    """Whoever carries it away needs no log beside it."""
    steps: list[int] = []
    put(database, 2, 20 << 20)
    snapshot = Snapshot(database.path)

    snapshot.copy_to(tmp_path / "copy.db", steps.append)
    snapshot.close()

    assert [path.name for path in tmp_path.glob("copy.db*")] == ["copy.db"]
    assert (tmp_path / "copy.db").stat().st_size == snapshot.size_bytes == steps[-1]
    assert len(steps) > 2
    assert steps == sorted(steps)


def test_log_grows_while_a_snapshot_is_open(database: Database) -> None:
    """What it says is what a backup watches."""
    snapshot = Snapshot(database.path)
    before = snapshot.log_bytes()
    put(database, 2, 1 << 20)

    assert snapshot.log_bytes() > before + (1 << 20)
    snapshot.close()


def test_damaged_file_is_named(database: Database, tmp_path: Path) -> None:
    put(database, 2, 1 << 20)
    database.close()
    with database.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * 4096)
    snapshot = Snapshot(database.path)

    with pytest.raises(BackendError, match=r"things\.db is damaged .* restart the hub") as failed:
        snapshot.copy_to(tmp_path / "copy.db", lambda _done: None)
    snapshot.close()

    assert not failed.value.retryable


def test_missing_file_and_directory_are_named(database: Database, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.db"):
        Snapshot(tmp_path / "none.db")

    snapshot = Snapshot(database.path)
    with pytest.raises(BackendError, match=r"none/copy\.db"):
        snapshot.copy_to(tmp_path / "none" / "copy.db", lambda _done: None)
    snapshot.close()
