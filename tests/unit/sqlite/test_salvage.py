"""Salvage of files with many damaged pages: what lies between them is found too."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from iothub_services.sqlite.salvage import SALVAGED, Outcome, Table, Tally, finish_interrupted, salvage

TABLES = (Table("row", ("id", "b"), ("id",), "rows", is_distinct=True),)


def fresh(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, b BLOB)")
    return connection


def filled(path: Path, ids: range) -> int:
    """Fill a file; returns how many pages it has."""
    connection = fresh(path)
    connection.executemany("INSERT INTO row VALUES (?, ?)", [(i, i.to_bytes(8) * 100) for i in ids])
    connection.execute("COMMIT")
    connection.close()
    return path.stat().st_size // 4096


def damage(path: Path, pages: range) -> None:
    with path.open("r+b") as file:
        for page in pages:
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)


def saved(path: Path) -> set[int]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT id, b FROM row").fetchall()
    connection.close()
    assert all(b == i.to_bytes(8) * 100 for i, b in rows)
    return {i for i, _ in rows}


def mark(path: Path) -> int:
    connection = sqlite3.connect(path)
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    connection.close()
    return int(found)


@pytest.mark.parametrize("step", [1, 1 << 40], ids=["dense", "sparse"])
def test_salvage_finds_what_lies_between_many_damaged_pages(tmp_path: Path, step: int) -> None:
    """Each hole costs its own rows only, however far apart the keys are."""
    path = tmp_path / "x.db"
    ids = range(1, 1_000 * step, step)
    pages = filled(path, ids)
    holes = range(10, pages, 20)
    damage(path, holes)

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    kept = saved(path)
    assert len(ids) - 5 * len(holes) <= len(kept) < len(ids)
    assert outcome.rows == len(kept)
    assert outcome.kept_as == "x.db.corrupt-19700101T000000Z"
    assert outcome.gaps >= len(holes)


def test_salvage_of_a_table_without_a_readable_page_ends(tmp_path: Path) -> None:
    """The number of probes is bounded; the fresh file is there, and does not say that something was saved into it."""
    path = tmp_path / "x.db"
    damage(path, range(1, filled(path, range(300))))

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    assert outcome.rows == 0
    assert saved(path) == set()
    assert not outcome.is_of_use
    assert mark(path) == 0


def test_salvage_finds_what_a_damaged_page_above_cut_off(tmp_path: Path) -> None:
    """The root of a table is one page; what was below it is still there."""
    path = tmp_path / "x.db"
    filled(path, range(300))
    damage(path, range(1, 2))

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    assert saved(path) == set(range(300))
    assert outcome.rows == 300
    assert mark(path) == SALVAGED


def test_salvage_without_a_first_page_saves_everything(tmp_path: Path) -> None:
    """Where the tables begin is known from a fresh file; no copy stays behind."""
    path = tmp_path / "x.db"
    filled(path, range(300))
    damage(path, range(1))

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    assert saved(path) == set(range(300))
    assert str(outcome) == "saved 300 rows; nothing is lost; the damaged file is kept as x.db.corrupt-19700101T000000Z"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x.db", "x.db.corrupt-19700101T000000Z"]


def test_salvage_saves_what_is_left_of_a_file_that_was_cut_off(tmp_path: Path) -> None:
    """A copy that ran out of room, say."""
    path = tmp_path / "x.db"
    filled(path, range(300))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    kept = saved(path)
    assert kept == set(range(len(kept)))
    assert 140 <= len(kept) < 160
    assert "some of the rows may be lost" in str(outcome)


def test_salvage_leaves_out_rows_of_something_else(tmp_path: Path) -> None:
    """A damaged page may still look like one: what has not the declared types is no row."""
    path = tmp_path / "x.db"
    filled(path, range(300))
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO row VALUES (1000, 'a text')")
    connection.close()
    damage(path, range(10, 11))

    salvage(path, TABLES, (), fresh, 0.0)

    assert max(saved(path)) == 299


def test_outcome_is_said_in_words() -> None:
    """Three tables: one saved, one in part, one not at all; and a part that lost what it belonged to."""
    whole, part, none = (Table(name, (), (), words) for name, words in (("a", "books"), ("b", "pages"), ("c", "")))

    told = str(Outcome("x", (Tally(whole, 3), Tally(part, 2, gaps=1), Tally(none, gaps=9))))

    assert told == (
        "saved 3 books and 2 pages; none of the rows of `c` could be read; some of the pages may be lost; "
        "the damaged file is kept as x"
    )
    assert str(Outcome("x", (Tally(part, 2, lost=1),))).startswith("saved 2 pages; some of the pages may be lost")
    assert str(Outcome("x", (Tally(part, gaps=1),))).startswith("nothing was saved; none of the pages could be read")
    assert str(Outcome("x", (Tally(whole),))).startswith("there was nothing in it; the damaged file")


def test_salvage_repairs_before_it_puts_the_file_in_place(tmp_path: Path) -> None:
    """Derived columns are right from the first moment."""
    path = tmp_path / "x.db"
    filled(path, range(50))

    salvage(path, TABLES, ("DELETE FROM row WHERE id < 40",), fresh, 0.0)

    assert saved(path) == set(range(40, 50))


def test_finish_interrupted_does_nothing_when_nothing_was_interrupted(tmp_path: Path) -> None:
    """The usual start."""
    path = tmp_path / "x.db"
    filled(path, range(5))
    finish_interrupted(path)

    assert saved(path) == set(range(5))
