"""Pages that a damaged page cut off are found and read; deleted ones never."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iothub_services.sqlite.strays import find, hang_on

PAGE = 4096
ROWS = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two tables of each order, each with a page above its leaves."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, b BLOB)")
        connection.execute("CREATE TABLE part (row INTEGER, n INTEGER, b BLOB, PRIMARY KEY (row, n)) WITHOUT ROWID")
        for i in range(ROWS):
            connection.execute("INSERT INTO row VALUES (?, ?)", (i, bytes(400)))
            connection.execute("INSERT INTO part VALUES (?, 1, ?)", (i, bytes(400)))
    return path


def root(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        return int(found[0])


def damage(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xa5" * PAGE)


def ids(path: Path, table: str) -> list[int]:
    column = "id" if table == "row" else "row"
    with closing(sqlite3.connect(path)) as connection:
        return [i for (i,) in connection.execute(f"SELECT {column} FROM {table} ORDER BY 1")]


def test_whole_file_has_no_strays(path: Path) -> None:
    assert find(path) == []


@pytest.mark.parametrize(("table", "is_by_rowid"), [("row", True), ("part", False)])
def test_leaves_below_a_damaged_root_are_strays(path: Path, table: str, is_by_rowid: bool) -> None:
    """Hung on their table, they give back the rows; the records inside a damaged page itself are lost."""
    damage(path, root(path, table))

    found = find(path)

    assert {kind for kind, _ in found} == {is_by_rowid}
    got: list[int] = []
    for kind, page in found:
        assert hang_on(path, table, page, is_by_rowid=kind)
        got += ids(path, table)
    assert len(got) == len(set(got))
    assert len(got) == ROWS if is_by_rowid else ROWS - len(found) <= len(got) < ROWS


def test_stray_is_not_hung_on_a_table_of_another_order(path: Path) -> None:
    damage(path, root(path, "row"))

    _, page = find(path)[0]

    assert not hang_on(path, "part", page, is_by_rowid=True)
    assert len(ids(path, "part")) == ROWS


def test_deleted_rows_are_no_strays(path: Path) -> None:
    """Acknowledged messages must not come back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM row WHERE id >= 100")
    damage(path, root(path, "row"))

    got: list[int] = []
    for kind, page in find(path):
        hang_on(path, "row", page, is_by_rowid=kind)
        got += ids(path, "row")

    assert sorted(got) == list(range(100))


@pytest.mark.parametrize("first_free", [b"\xff\xff\xff\xff", b"\0\0\0\1"], ids=["nowhere", "in a circle"])
def test_damaged_free_list_hides_all_strays(path: Path, first_free: bytes) -> None:
    """Nobody can say what was cut off and what was deleted."""
    damage(path, root(path, "row"))
    with path.open("r+b") as file:
        file.seek(32)
        file.write(first_free)

    assert find(path) == []
