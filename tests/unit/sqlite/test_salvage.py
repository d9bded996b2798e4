"""What is copied from a damaged file: each table up to its first error."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from iothub_services.sqlite.salvage import SALVAGED, Copied, Outcome, finish_interrupted, salvage

TABLES = {"row": "rows", "other": "others"}
IDS = range(300)
KEPT_AS = "x.db.corrupt-19700101T000000Z"


def fresh(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, b BLOB)")
    connection.execute("CREATE INDEX row_size ON row (length(b))")
    connection.execute("CREATE TABLE other (a INTEGER, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID")
    return connection


def filled(path: Path) -> None:
    """Three hundred rows in seventy-five leaves, and three others."""
    connection = fresh(path)
    connection.executemany("INSERT INTO row VALUES (?, ?)", [(i, i.to_bytes(8) * 100) for i in IDS])
    connection.executemany("INSERT INTO other VALUES (?, ?)", [(i, "x") for i in (2, 1, 3)])
    connection.execute("COMMIT")
    connection.close()


def root(path: Path, name: str) -> int:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
    connection.close()
    return int(found)


def page_of(path: Path, number: int) -> int:
    """The page with that row, counted from 1."""
    return path.read_bytes().index(number.to_bytes(8) * 100) // 4096 + 1


def damage(path: Path, *pages: int) -> None:
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)


def rows(path: Path, statement: str = "SELECT id FROM row NOT INDEXED") -> list[int]:
    connection = sqlite3.connect(path)
    found = [each for (each,) in connection.execute(statement)]
    connection.close()
    return found


def mark(path: Path) -> int:
    return rows(path, "PRAGMA application_id")[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    filled(path)
    return path


def test_salvage_copies_each_table_up_to_its_first_damaged_page(path: Path) -> None:
    """What lies behind the page is lost; another table is whole."""
    damage(path, page_of(path, 150), page_of(path, 250))

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    kept = rows(path)
    assert kept == list(range(len(kept)))
    assert 140 <= len(kept) < 150
    assert rows(path, "SELECT a FROM other") == [1, 2, 3]
    assert outcome.kept_as == KEPT_AS
    assert str(outcome) == (
        f"copied {len(kept)} rows, 3 others; rows behind the first error are lost: rows (database disk image is malformed); "
        f"the damaged file is kept as {KEPT_AS}"
    )
    assert mark(path) == SALVAGED


def test_salvage_does_without_an_index(path: Path) -> None:
    """It is made anew from its table."""
    damage(path, root(path, "row_size"))

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    assert rows(path) == list(IDS)
    assert str(outcome) == f"copied 300 rows, 3 others; no row is lost; the damaged file is kept as {KEPT_AS}"


def test_salvage_without_a_first_page_starts_anew(path: Path, tmp_path: Path) -> None:
    """Nobody can say where the tables begin. The fresh file does not say that something was copied into it."""
    damage(path, 1)

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    assert rows(path) == []
    assert str(outcome).startswith("nothing was copied; rows behind the first error are lost: rows (file is not a data")
    assert not outcome.is_of_use
    assert mark(path) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x.db", KEPT_AS]


def test_salvage_copies_what_is_left_of_a_file_that_was_cut_off(path: Path) -> None:
    """A copy that ran out of room, say."""
    with path.open("r+b") as file:
        file.truncate(page_of(path, 150) * 4096)

    salvage(path, TABLES, (), fresh, 0.0)

    kept = rows(path)
    assert kept == list(range(len(kept)))
    assert 140 <= len(kept) <= 155


@pytest.mark.parametrize(
    ("value", "error"), [("a text", "a value is not of its column's type"), (None, "NOT NULL constraint failed: row.b")]
)
def test_salvage_stops_at_a_row_that_is_none(path: Path, value: str | None, error: str) -> None:
    """A damaged page may still look like one: what the fresh table would not hold is no row."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE row SET b = ? WHERE id = 100", (value,))
    connection.close()

    def strict(fresh_path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(fresh_path, isolation_level=None)
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, b BLOB NOT NULL)")
        return connection

    outcome = salvage(path, {"row": "rows"}, (), strict, 0.0)

    assert rows(path) == list(range(100))
    assert f"rows ({error})" in str(outcome)


def test_salvage_that_runs_out_of_room_touches_nothing(path: Path, tmp_path: Path) -> None:
    """It is no damage of the rows that are left."""
    damage(path, page_of(path, 250))
    before = path.read_bytes()

    def small(fresh_path: Path) -> sqlite3.Connection:
        connection = fresh(fresh_path)
        connection.execute("PRAGMA max_page_count=20")
        return connection

    with pytest.raises(sqlite3.OperationalError, match="full"):
        salvage(path, TABLES, (), small, 0.0)

    assert path.read_bytes() == before
    assert not (tmp_path / KEPT_AS).exists()


def test_outcome_of_empty_tables_says_that_nothing_is_lost() -> None:
    """An index was damaged, and there was no row."""
    assert str(Outcome("x", (Copied("rows"),))) == ("nothing was copied; no row is lost; the damaged file is kept as x")


def test_salvage_repairs_before_it_puts_the_file_in_place(path: Path) -> None:
    """Derived columns are right from the first moment, and what was removed is not called copied."""
    outcome = salvage(path, TABLES, ("DELETE FROM row WHERE id < 40",), fresh, 0.0)

    assert rows(path) == list(range(40, 300))
    assert "copied 260 rows" in str(outcome)


def test_finish_interrupted_does_nothing_when_nothing_was_interrupted(path: Path) -> None:
    """The usual start."""
    finish_interrupted(path)

    assert rows(path) == list(IDS)
