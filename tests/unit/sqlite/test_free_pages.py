"""`iothub_services.sqlite.free_pages`: a file gives back what nothing is in, when little is left in it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub_services.sqlite import free_pages
from iothub_services.sqlite.free_pages import FreePages

ROWS = 100
ROW_BYTES = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.db"


@pytest.fixture
def connection(file: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(file, isolation_level=None)
    made.execute("PRAGMA journal_mode=WAL")
    made.execute("CREATE TABLE body (id INTEGER PRIMARY KEY, b BLOB)")
    made.executemany("INSERT INTO body VALUES (?, zeroblob(?))", [(number, ROW_BYTES) for number in range(ROWS)])
    yield made
    made.close()
    file.unlink()


def test_file_of_which_little_is_left_is_written_anew(file: Path, connection: sqlite3.Connection) -> None:
    free = FreePages(connection, file)
    assert (free.size_bytes, free.are_most) == (0, False)
    connection.execute("DELETE FROM body WHERE id > 3")
    free.look()
    assert free.size_bytes > (ROWS - 5) * ROW_BYTES
    assert free.are_most

    free.give_back()

    assert (free.size_bytes, free.are_most) == (0, False)
    assert file.stat().st_size < 6 * ROW_BYTES
    assert connection.execute("SELECT id, length(b) FROM body").fetchall() == [(n, ROW_BYTES) for n in range(4)]


def test_what_a_transaction_has_freed_counts(file: Path, connection: sqlite3.Connection) -> None:
    free = FreePages(connection, file)
    connection.execute("BEGIN")
    connection.execute("DELETE FROM body WHERE id < 50")
    free.look()

    assert free.size_bytes > 48 * ROW_BYTES
    connection.execute("ROLLBACK")


@pytest.mark.parametrize("kept", ["id < 30", "id < 50"])
def test_file_with_much_in_it_or_little_free_keeps_its_size(
    file: Path, connection: sqlite3.Connection, kept: str
) -> None:
    free = FreePages(connection, file)
    connection.execute(f"DELETE FROM body WHERE NOT {kept}")
    free.look()

    assert not free.are_most


def test_disk_with_less_free_than_the_file_gets_it_back(
    file: Path, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = FreePages(connection, file)
    connection.execute("DELETE FROM body WHERE id >= 12")
    connection.execute("VACUUM")
    connection.execute("DELETE FROM body WHERE id >= 2")
    free.look()
    assert 9 * ROW_BYTES < free.size_bytes < 11 * ROW_BYTES
    assert not free.are_most

    monkeypatch.setattr(free_pages, "disk_free_bytes", lambda _folder: 8 * ROW_BYTES)
    assert free.are_most

    monkeypatch.setattr(free_pages, "disk_free_bytes", lambda _folder: 3 * ROW_BYTES)
    assert not free.are_most, "what is written anew needs room, too"

    def gone(_folder: Path) -> int:
        raise OSError

    monkeypatch.setattr(free_pages, "disk_free_bytes", gone)
    assert not free.are_most


def test_attempt_that_fails_is_repeated_when_more_is_free(
    file: Path, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_pages, "GIVEN_BACK_BYTES", 10 * ROW_BYTES)
    monkeypatch.setattr(free_pages, "_MOST_LEFT_BYTES", 200 * ROW_BYTES)
    free = FreePages(connection, file)
    connection.execute("BEGIN")
    connection.execute("DELETE FROM body WHERE id < 20")
    free.look()
    assert free.are_most
    free.give_back()  # not in a transaction
    assert not free.are_most

    connection.execute("DELETE FROM body WHERE id < 40")
    connection.execute("COMMIT")
    free.look()

    assert free.are_most
    free.give_back()
    assert free.size_bytes == 0


def test_reader_keeps_nobody_waiting_for_the_log(file: Path, connection: sqlite3.Connection) -> None:
    """It sees what it saw; the log is copied when it is gone, and by whoever commits then."""
    connection.execute("PRAGMA busy_timeout=60000")
    free = FreePages(connection, file)
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM body").fetchone() == (ROWS,)
    connection.execute("DELETE FROM body WHERE id > 3")

    began = time.monotonic()
    free.give_back()

    assert time.monotonic() - began < 30
    assert reader.execute("SELECT count(*) FROM body").fetchone() == (ROWS,)
    assert connection.execute("PRAGMA busy_timeout").fetchone() == (60_000,)
    assert not free.are_most
    assert free.size_bytes > (ROWS - 6) * ROW_BYTES, "it is used before the file grows"
    reader.close()
    connection.execute("PRAGMA wal_autocheckpoint=1")
    connection.execute("DELETE FROM body WHERE id = 3")
    free.look()
    assert file.stat().st_size < 6 * ROW_BYTES
    assert free.size_bytes <= 2 * ROW_BYTES
