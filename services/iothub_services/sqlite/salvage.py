"""Saves what can be read of a damaged SQLite file into a fresh one, and keeps the damaged one beside it.

Knows no meaning of any table; only the integer column that each table is ordered by, and what an operator calls its rows.

Theory: a damaged page makes every scan that touches it fail, but a scan can come from both sides, and it can begin
anywhere. So a table is read forwards to the first damage and backwards to the last; what lies between is halved by the
leading key column and tried again. Rows are copied one by one, a row that was copied before is ignored. A first page that cannot be
read is replaced (`scratch`); what a damaged page inside a tree cut off is looked for (`strays`). Pages on the
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

from iothub_services.sqlite import scratch, strays

FRESH_SUFFIX = ".salvaged"
SALVAGED = 0x696F7473  # `PRAGMA application_id` of a file that a salvage made, until somebody has settled what it lacks
_TEMPLATE_SUFFIX = ".template"
_SCRATCH_SUFFIX = ".scratch"
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_PROBES = 4_000  # scans per table; each damaged page costs about 2 x log2 of the key range
_TYPES = {"INTEGER": int, "BLOB": bytes, "TEXT": str}

CreateFresh = Callable[[Path], sqlite3.Connection]
"""Opens a file in which a transaction is open and the tables are made."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its columns and the key it is ordered by, the first of which is an integer.

    `words`: what an operator calls its rows. `is_distinct`: no row of another table or index of the file can be taken for one of these.
    `is_owned`: its rows belong to those of another table; that the repairs remove some is no loss.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    words: str = ""
    is_distinct: bool = False
    is_owned: bool = False


@dataclass(slots=True)
class Tally:
    """What was saved of one table. `gaps`: places where rows may be missing; `lost`: rows that were of no use without others."""

    table: Table
    rows: int = 0
    gaps: int = 0
    lost: int = 0

    @property
    def words(self) -> str:
        return self.table.words or f"rows of `{self.table.name}`"

    @property
    def is_whole(self) -> bool:
        return not self.gaps and not self.lost


@dataclass(slots=True)
class Outcome:
    """What was saved."""

    kept_as: str
    tallies: tuple[Tally, ...] = ()

    @property
    def rows(self) -> int:
        return sum(tally.rows for tally in self.tallies)

    @property
    def gaps(self) -> int:
        return sum(tally.gaps for tally in self.tallies)

    @property
    def is_of_use(self) -> bool:
        """Whether anything could be read, if only that there was nothing."""
        return any(tally.rows or not tally.gaps for tally in self.tallies)

    def __str__(self) -> str:
        saved = [f"{tally.rows} {tally.words}" for tally in self.tallies if tally.rows]
        none = [tally.words for tally in self.tallies if not tally.is_whole and not tally.rows]
        some = [tally.words for tally in self.tallies if not tally.is_whole and tally.rows]
        if not saved and not none:
            return f"there was nothing in it; the damaged file is kept as {self.kept_as}"
        parts = [f"saved {_listed(saved)}" if saved else "nothing was saved"]
        if none:
            parts.append(f"none of the {_listed(none)} could be read")
        if some:
            parts.append(f"some of the {_listed(some)} may be lost")
        if not none and not some:
            parts.append("nothing is lost")
        return "; ".join([*parts, f"the damaged file is kept as {self.kept_as}"])


def salvage(
    path: Path, tables: Iterable[Table], repairs: Iterable[str], create_fresh: CreateFresh, now: float
) -> Outcome:
    """Replace `path` by a fresh file with everything readable. Raises OSError (no room for copies, above all), sqlite3.Error."""
    fresh = _beside(path, FRESH_SUFFIX)
    remove(fresh)
    target = create_fresh(fresh)
    outcome = Outcome("", tuple(Tally(table) for table in tables))
    with contextlib.closing(target):
        try:
            _copy_all(path, target, outcome.tallies, create_fresh)
        finally:
            _remove_scratch(path)
        for statement in repairs:
            target.execute(statement)
        _count(target, outcome.tallies)
        if outcome.is_of_use:
            target.execute(f"PRAGMA application_id={SALVAGED}")
        target.execute("COMMIT")
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _sync(fresh)
    outcome.kept_as = _set_aside(path, now)
    _put_in_place(path, fresh)
    return outcome


def finish_interrupted(path: Path) -> None:
    """Finish or forget a salvage that a crash interrupted."""
    _remove_scratch(path)
    fresh = _beside(path, FRESH_SUFFIX)
    if not fresh.exists():
        return
    if path.exists():
        remove(fresh)  # the damaged file is still in place: begin anew
        return
    for suffix in ("-wal", "-shm"):
        _beside(path, suffix).unlink(missing_ok=True)  # the damaged file's, never to be applied to the fresh one
    _put_in_place(path, fresh)


def remove(path: Path) -> None:
    """Remove a database with its log; what is not there is left out."""
    for suffix in ("", "-wal", "-shm"):
        _beside(path, suffix).unlink(missing_ok=True)


# --- copying


def _copy_all(path: Path, target: sqlite3.Connection, tallies: tuple[Tally, ...], create_fresh: CreateFresh) -> None:
    copied = _beside(path, _SCRATCH_SUFFIX)
    source = scratch.open_damaged(path)
    has_first_page = _knows(source, tallies)
    if not has_first_page:
        source.close()
        scratch.copy_and_replace(path, copied, _template(path, create_fresh))
        source = scratch.open_damaged(copied)
    with contextlib.closing(source):
        for tally in tallies:
            _TableCopy(source, target, tally).copy(_LOWEST, _HIGHEST)
        _copy_sequences(source, target)
    cut = [tally for tally in tallies if tally.gaps and tally.table.is_distinct]
    if cut and has_first_page:  # which pages are free is written there
        scratch.copy(path, copied)
        _copy_strays(copied, target, cut)


def _copy_strays(copied: Path, target: sqlite3.Connection, cut: list[Tally]) -> None:
    """Read every tree that hangs on nothing as if it were the whole table."""
    for is_by_rowid, page in strays.find(copied):
        for tally in cut:
            if strays.hang_on(copied, tally.table.name, page, is_by_rowid=is_by_rowid):
                found = Tally(tally.table)
                with contextlib.closing(scratch.open_damaged(copied)) as source:
                    _TableCopy(source, target, found).copy(_LOWEST, _HIGHEST)
                tally.rows += found.rows


def _knows(source: sqlite3.Connection, tallies: Iterable[Tally]) -> bool:
    """Can it be read where the tables begin?"""
    try:
        known = {name for (name,) in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError:
        return False
    return known.issuperset(tally.table.name for tally in tallies)


def _template(path: Path, create_fresh: CreateFresh) -> Path:
    template = _beside(path, _TEMPLATE_SUFFIX)
    remove(template)
    with contextlib.closing(create_fresh(template)) as connection:
        connection.execute("COMMIT")
    return template


def _copy_sequences(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.DatabaseError):  # only files with AUTOINCREMENT have it
        for name, sequence in source.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
            target.execute("DELETE FROM sqlite_sequence WHERE name = ? AND seq <= ?", (name, sequence))
            target.execute(
                "INSERT INTO sqlite_sequence SELECT ?, ? WHERE ? NOT IN (SELECT name FROM sqlite_sequence)",
                (name, sequence, name),
            )


def _count(target: sqlite3.Connection, tallies: Iterable[Tally]) -> None:
    """What is there after the repairs counts."""
    for tally in tallies:
        copied = tally.rows
        tally.rows = target.execute(f"SELECT count(*) FROM {tally.table.name}").fetchone()[0]  # noqa: S608 - our own names
        tally.lost = 0 if tally.table.is_owned else max(copied - tally.rows, 0)


class _TableCopy:
    """Copies one table around its damaged places."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, tally: Tally) -> None:
        table = tally.table
        self._source = source
        self._target = target
        self._tally = tally
        self._lead = table.columns.index(table.key[0])
        columns = ", ".join(table.columns)
        lead = table.key[0]
        scan = f"SELECT {columns} FROM {table.name} WHERE {lead} BETWEEN ? AND ? ORDER BY "  # noqa: S608 - our own names
        self._forwards = scan + ", ".join(table.key) + " LIMIT ?"
        self._backwards = scan + ", ".join(f"{column} DESC" for column in table.key) + " LIMIT ?"
        marks = ", ".join("?" * len(table.columns))
        self._insert = f"INSERT OR IGNORE INTO {table.name} ({columns}) VALUES ({marks})"  # noqa: S608 - our own names
        self._types = _types(target, table)
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
                self._tally.gaps += 1
                continue
            middle = (low + high) // 2
            pending += [(low, middle), (middle + 1, high)]
        self._tally.gaps += len(pending)

    def _scan(self, statement: str, low: int, high: int) -> int | None:
        """Copy rows until the end (None) or the first damage: then the leading key that was reached."""
        self._probes += 1
        reached = low if statement is self._forwards else high
        count = 0
        try:
            for row in self._source.execute(statement, (low, high, -1)):
                count += 1
                reached = self._keep(row, reached)
        except (sqlite3.DatabaseError, OverflowError):
            return self._last_before_damage(statement, low, high, count) or reached
        return None

    def _last_before_damage(self, statement: str, low: int, high: int, count: int) -> int | None:
        """The module steps ahead before it hands out a row: the last good one was lost with the error."""
        with contextlib.suppress(sqlite3.DatabaseError, OverflowError):
            for row in islice(self._source.execute(statement, (low, high, count + 1)), count, None):
                return self._keep(row, 0) or None
        return None

    def _keep(self, row: tuple[object, ...], reached: int) -> int:
        """Copy a row and return its leading key. One of something else - a page hung on the wrong table - is left out."""
        lead = row[self._lead]
        if not isinstance(lead, int):
            return reached
        if all(value is None or isinstance(value, kind) for value, kind in zip(row, self._types, strict=True)):
            self._tally.rows += max(0, self._target.execute(self._insert, row).rowcount)
        return lead


def _types(target: sqlite3.Connection, table: Table) -> tuple[type, ...]:
    found = target.execute(f"PRAGMA table_info({table.name})")
    declared = {name: _TYPES.get(kind.upper(), object) for _, name, kind, *_ in found}
    return tuple(declared[column] for column in table.columns)


# --- files


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


def _remove_scratch(path: Path) -> None:
    for suffix in (_TEMPLATE_SUFFIX, _SCRATCH_SUFFIX):
        remove(_beside(path, suffix))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
