"""Working copies of damaged files: whole, with their log, and with a first page that can be read."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from iothub_services.sqlite.scratch import copy, copy_and_replace, open_damaged, page_bytes

ROWS = 200


def made(path: Path, rows: int = 0) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size=8192")
        connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, b BLOB)")
        connection.executemany("INSERT INTO row VALUES (?, ?)", [(i, bytes(500)) for i in range(rows)])
    return path


def count(path: Path) -> int:
    with closing(open_damaged(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM row").fetchone()[0])


def test_copy_has_what_only_the_log_had(tmp_path: Path) -> None:
    """A hub that was killed leaves its newest messages there."""
    path, scratch = made(tmp_path / "x.db"), tmp_path / "x.db.scratch"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("INSERT INTO row VALUES (1, x'00')")
        copy(path, scratch)

    assert count(scratch) == 1
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o600


def test_first_page_of_a_fresh_file_opens_the_rest(tmp_path: Path) -> None:
    """All files of a schema are laid out alike; the damaged file itself stays as it is."""
    path, template = made(tmp_path / "x.db", ROWS), made(tmp_path / "x.db.template")
    with path.open("r+b") as file:
        file.write(b"\xa5" * 8192)
    before = path.read_bytes()
    with pytest.raises(sqlite3.DatabaseError):
        count(path)

    copy_and_replace(path, tmp_path / "x.db.scratch", template)

    assert count(tmp_path / "x.db.scratch") == ROWS
    assert path.read_bytes() == before


def test_file_that_is_shorter_than_it_says_can_be_opened(tmp_path: Path) -> None:
    """What is left of it can be read."""
    path = made(tmp_path / "x.db", ROWS)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)

    with closing(open_damaged(path)) as connection:
        assert connection.execute("SELECT min(id) FROM row").fetchone() == (0,)


def test_page_bytes_are_what_the_header_says(tmp_path: Path) -> None:
    """The largest size does not fit its field."""
    assert page_bytes(made(tmp_path / "x.db")) == 8192
    largest = tmp_path / "y.db"
    with closing(sqlite3.connect(largest, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size=65536")
        connection.execute("CREATE TABLE row (id INTEGER)")

    assert page_bytes(largest) == 65536
