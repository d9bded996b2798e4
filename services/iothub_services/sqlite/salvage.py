"""Copies the readable rows of a damaged SQLite file to a fresh file, and keeps the damaged file beside it.

Knows no table: its columns, their types and its key are those of the fresh file.

Theory: a table is read in the order of its key, up to the first error; rows behind that are lost (ADR 0020). A crash at any
point loses nothing more: the fresh file is complete and synced before the damaged one is renamed, and `finish_interrupted`
finishes the renames at the next start.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path

FRESH_SUFFIX = ".salvaged"
SALVAGED = 0x696F7473  # `PRAGMA application_id` of a file that a salvage made, until somebody has settled what it lacks
_TYPES = {"INTEGER": int, "BLOB": bytes, "TEXT": str}

CreateFresh = Callable[[Path], sqlite3.Connection]
"""Opens a file in which a transaction is open and the tables are made."""


@dataclass(slots=True)
class Copied:
    """What was copied of one table. `words`: what an operator calls its rows; `error`: what ended the reading, "" for its end."""

    words: str
    rows: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was copied, and where the damaged file is."""

    kept_as: str
    tables: tuple[Copied, ...]

    @property
    def is_of_use(self) -> bool:
        """Whether anything could be read, if only that there was nothing."""
        return any(table.rows or not table.error for table in self.tables)

    def __str__(self) -> str:
        copied = [f"{table.rows} {table.words}" for table in self.tables if table.rows]
        cut = [f"{table.words} ({table.error})" for table in self.tables if table.error]
        parts = [
            f"copied {', '.join(copied)}" if copied else "nothing was copied",
            f"rows behind the first error are lost: {', '.join(cut)}" if cut else "no row is lost",
            f"the damaged file is kept as {self.kept_as}",
        ]
        return "; ".join(parts)


def salvage(
    path: Path, words: Mapping[str, str], repairs: Iterable[str], create_fresh: CreateFresh, now: float
) -> Outcome:
    """Replace `path` by a fresh file with the readable rows of the tables in `words`.

    Raises OSError (no room for a copy, above all), sqlite3.Error.
    """
    fresh = _beside(path, FRESH_SUFFIX)
    _remove(fresh)
    with contextlib.closing(create_fresh(fresh)) as target:
        with contextlib.closing(_open_damaged(path)) as source:
            copied = {name: _copy(source, target, name, each) for name, each in words.items()}
            _copy_sequences(source, target)
        for statement in repairs:
            target.execute(statement)
        for name, table in copied.items():  # rows that are left after the repairs
            table.rows = target.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608 - our own names
        outcome = Outcome(_free_name(path, now).name, tuple(copied.values()))
        if outcome.is_of_use:
            target.execute(f"PRAGMA application_id={SALVAGED}")
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _sync(fresh)
    _set_aside(path, path.with_name(outcome.kept_as))
    _put_in_place(path, fresh)
    return outcome


def finish_interrupted(path: Path) -> None:
    """Finish or forget a salvage that a crash interrupted."""
    fresh = _beside(path, FRESH_SUFFIX)
    if not fresh.exists():
        return
    if path.exists():
        _remove(fresh)  # the damaged file is still in place: begin anew
        return
    for suffix in ("-wal", "-shm"):
        _beside(path, suffix).unlink(missing_ok=True)  # the damaged file's, never to be applied to the fresh one
    _put_in_place(path, fresh)


# --- copying


def _open_damaged(path: Path) -> sqlite3.Connection:
    """Open a file that may be shorter than it says, which a usual connection refuses to read."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema=ON")
    return connection


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, name: str, words: str) -> Copied:
    """Copy a table up to the first row that cannot be read, or that the fresh table does not take."""
    copied = Copied(words)
    found = target.execute(f"PRAGMA table_info({name})").fetchall()
    columns = ", ".join(column for _, column, *_ in found)
    key = ", ".join(column for _, column, *_, place in sorted(found, key=itemgetter(-1)) if place)
    select = f"SELECT {columns} FROM {name} NOT INDEXED ORDER BY {key}"  # noqa: S608 - our own names
    insert = f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * len(found))})"  # noqa: S608 - our own names
    try:
        for row in _readable(source, select, [_TYPES[kind] for _, _, kind, *_ in found], copied):
            target.execute(insert, row)
    except sqlite3.IntegrityError as error:
        copied.error = str(error)
    return copied


def _readable(
    source: sqlite3.Connection, select: str, types: list[type], copied: Copied
) -> Iterator[tuple[object, ...]]:
    """Yield rows up to the first error, or the first value that is not of its column's type: a damaged page may still look like one."""
    try:
        for row in source.execute(select):
            if not all(value is None or isinstance(value, kind) for value, kind in zip(row, types, strict=True)):
                copied.error = "a value is not of its column's type"
                return
            yield row
    except (sqlite3.DatabaseError, OverflowError) as error:
        copied.error = str(error)


def _copy_sequences(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Offsets of a log never start anew, even when its newest rows are lost."""
    with contextlib.suppress(sqlite3.DatabaseError):  # only files with AUTOINCREMENT have it
        for name, sequence in source.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
            target.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            target.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, sequence))


# --- files


def _free_name(path: Path, now: float) -> Path:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = _beside(path, f".corrupt-{stamp}")
    number = 1
    while kept.exists():
        number += 1
        kept = _beside(path, f".corrupt-{stamp}-{number}")
    return kept


def _set_aside(path: Path, kept: Path) -> None:
    path.rename(kept)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            _beside(path, suffix).rename(_beside(kept, suffix))


def _put_in_place(path: Path, fresh: Path) -> None:
    for suffix in ("-wal", "-shm"):
        _beside(fresh, suffix).unlink(missing_ok=True)
    fresh.rename(path)
    _sync(path.parent)


def _remove(path: Path) -> None:
    """Remove a database with its log."""
    for suffix in ("", "-wal", "-shm"):
        _beside(path, suffix).unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
