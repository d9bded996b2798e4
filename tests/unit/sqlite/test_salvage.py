"""Salvage of files with many damaged pages: what lies between them is found too."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from iothub_services.sqlite.salvage import Table, finish_interrupted, salvage

TABLES = (Table("row", ("id", "b"), ("id",)),)


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
    """The number of probes is bounded; the fresh file is there."""
    path = tmp_path / "x.db"
    damage(path, range(1, filled(path, range(300))))

    outcome = salvage(path, TABLES, (), fresh, 0.0)

    assert outcome.rows == 0
    assert saved(path) == set()


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
