"""Saves what can be read of a damaged SQLite file into a fresh one, and keeps the damaged one beside it.

Knows no meaning of any table; only the integer column that each table is ordered by.

Theory: a damaged page makes every scan that touches it fail, but a scan can come from both sides, and it can begin
anywhere. So a table is read forwards to the first damage and backwards to the last; what lies between is halved by the
leading key column and tried again. Rows are copied one by one, a row that was copied before is ignored. Pages on the
free list are never looked at: acknowledged messages must not come back.

The steps are ordered for a crash at any point: the fresh file is complete and synced before the damaged one is renamed,
and `finish_interrupted` finishes the renames at the next start.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

FRESH_SUFFIX = ".salvaged"
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_PROBES = 4_000  # scans per table; each damaged page costs about 2 x log2 of the key range


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns and the key it is ordered by, the first of which is an integer."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """What was saved. `gaps`: places where rows may be missing."""

    kept_as: str
    rows: int = 0
    gaps: int = 0

    def __str__(self) -> str:
        return f"{self.rows} rows saved, {self.gaps} unreadable places; the damaged file is kept as {self.kept_as}"


def salvage(
    path: Path,
    tables: Iterable[Table],
    repairs: Iterable[str],
    create_fresh: Callable[[Path], sqlite3.Connection],
    now: float,
) -> Outcome:
    """Replace `path` by a fresh file with everything readable.

    `create_fresh` opens one in which a transaction is open and the tables are made.
    """
    fresh = _beside(path, FRESH_SUFFIX)
    _remove(fresh)
    target = create_fresh(fresh)
    outcome = Outcome("")
    with contextlib.closing(target):
        _copy_all(path, target, tables, outcome)
        for statement in repairs:
            target.execute(statement)
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _sync(fresh)
    outcome.kept_as = _set_aside(path, now)
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


def _copy_all(path: Path, target: sqlite3.Connection, tables: Iterable[Table], outcome: Outcome) -> None:
    source = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(source):
        for table in tables:
            _TableCopy(source, target, table, outcome).copy(_LOWEST, _HIGHEST)
        with contextlib.suppress(sqlite3.DatabaseError):  # only files with AUTOINCREMENT have it
            for name, sequence in source.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
                target.execute("DELETE FROM sqlite_sequence WHERE name = ? AND seq <= ?", (name, sequence))
                target.execute(
                    "INSERT INTO sqlite_sequence SELECT ?, ? WHERE ? NOT IN (SELECT name FROM sqlite_sequence)",
                    (name, sequence, name),
                )


class _TableCopy:
    """Copies one table around its damaged places."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, table: Table, outcome: Outcome) -> None:
        self._source = source
        self._target = target
        self._outcome = outcome
        self._lead = table.columns.index(table.key[0])
        columns = ", ".join(table.columns)
        lead = table.key[0]
        scan = f"SELECT {columns} FROM {table.name} WHERE {lead} BETWEEN ? AND ? ORDER BY "  # noqa: S608 - our own names
        self._forwards = scan + ", ".join(table.key) + " LIMIT ?"
        self._backwards = scan + ", ".join(f"{column} DESC" for column in table.key) + " LIMIT ?"
        marks = ", ".join("?" * len(table.columns))
        self._insert = f"INSERT OR IGNORE INTO {table.name} ({columns}) VALUES ({marks})"  # noqa: S608 - our own names
        self._probes = 0

    def copy(self, low: int, high: int) -> None:
        """Copy the rows whose leading key lies in low..high, as far as they can be read."""
        pending = deque([(low, high)])
        while pending and self._probes < _PROBES:
            low, high = pending.popleft()  # breadth first: a big hole must not use up the probes of the others
            first = self._scan(self._forwards, low, high)
            if first is None:
                continue
            last = self._scan(self._backwards, low, high)
            if last is None:
                continue
            low, high = max(low, first), min(high, last)
            if high - low < 1:
                self._outcome.gaps += 1
                continue
            middle = (low + high) // 2
            pending += [(low, middle), (middle + 1, high)]
        self._outcome.gaps += len(pending)

    def _scan(self, statement: str, low: int, high: int) -> int | None:
        """Copy rows until the end (None) or the first damage: then the leading key that was reached."""
        self._probes += 1
        reached = low if statement is self._forwards else high
        count = 0
        try:
            for row in self._source.execute(statement, (low, high, -1)):
                count += 1
                self._keep(row)
                reached = row[self._lead]
        except (sqlite3.DatabaseError, OverflowError):
            return self._last_before_damage(statement, low, high, count) or reached
        return None

    def _last_before_damage(self, statement: str, low: int, high: int, count: int) -> int | None:
        """The module steps ahead before it hands out a row: the last good one was lost with the error."""
        with contextlib.suppress(sqlite3.DatabaseError, OverflowError):
            for row in islice(self._source.execute(statement, (low, high, count + 1)), count, None):
                self._keep(row)
                return int(row[self._lead])
        return None

    def _keep(self, row: tuple[object, ...]) -> None:
        if not isinstance(row[self._lead], int):
            return
        self._outcome.rows += max(0, self._target.execute(self._insert, row).rowcount)


def _set_aside(path: Path, now: float) -> str:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    kept = _beside(path, f".corrupt-{stamp}")
    number = 1
    while kept.exists():
        number += 1
        kept = _beside(path, f".corrupt-{stamp}-{number}")
    path.rename(kept)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            _beside(path, suffix).rename(_beside(kept, suffix))
    return kept.name


def _put_in_place(path: Path, fresh: Path) -> None:
    for suffix in ("-wal", "-shm"):
        _beside(fresh, suffix).unlink(missing_ok=True)
    fresh.rename(path)
    _sync(path.parent)


def _remove(path: Path) -> None:
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
