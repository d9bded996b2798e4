"""How much of each calendar window is used: counted in memory, mirrored in a mapped file, written to SQLite every few seconds.

Knows no limits: `windows.DayCounter` compares. Must be used on one thread, except `UsageStore`, which belongs to whichever one
thread `run` gives it.

What survives. A clean end or kill -9: everything (slots of `usage.map`). A power cut, or a counter beyond the slots of the file:
what was flushed, so at most one flush interval (5 s) is counted too little. The larger of both figures wins at the start.

Theory. A Cell is one window of one key, (tenant, subject, quota, seconds). Its successor is another Cell; who holds an old one
asks for the present one. So a cell that has ended can be dropped without asking who holds it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub_services.auth.port import Run
from iothub_services.quota.calendar import window_at
from iothub_services.quota.names import Quota
from iothub_services.quota.slots import SlotFile, SlotRecord, read_slots
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import Alarm, Schema, connect, open_database

FLUSH_INTERVAL_S = 5.0

log = logging.get(__name__)


@dataclass(frozen=True, slots=True)
class UsageKey:
    """What is counted. `subject`: a device's name, or "" for the whole tenant. `seconds`: length of the window."""

    tenant_id: int
    subject: str
    quota: str
    seconds: int


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One window's figure, as stored; `start` and `end` in Unix seconds."""

    key: UsageKey
    start: int
    end: int
    used: int


class Cell:
    """One window of one key. `used` is written through `add`. It is present while `opens_at` <= wall clock < `end`.

    A clock that was set back stays in this window: only more than a whole window back it opens an older one, or the tenant would
    wait for a year that was a mistake. So no jump of the clock gives an allowance twice within a window.
    """

    __slots__ = ("_usage", "elsewhere", "end", "is_anew", "is_dirty", "key", "opens_at", "slot", "start", "used")

    def __init__(self, usage: Usage, key: UsageKey, start: int, end: int, used: int) -> None:
        self._usage = usage
        self.key = key
        self.start = start
        self.end = end
        self.opens_at = start - (end - start)
        self.used = used
        self.elsewhere = 0  # used by other hubs, by their last reports
        self.is_anew = False  # set to 0, and not reported yet
        self.slot = 0
        self.is_dirty = False

    def add(self, units: int) -> None:
        """Count units; safe from a kill when this returns, if the cell has a slot."""
        self.used += units
        self._usage.changed(self)

    def is_present(self, wall: float) -> bool:
        """Say whether `wall` belongs to this window."""
        return self.opens_at <= wall < self.end


class Usage:
    """All cells of this process.

    Invariants: at most one cell per key is current; a cell is in the dirty list once or not at all. Where other hubs count the same
    windows (`is_shared`), `unreported` are the cells that have changed since they were reported.
    """

    def __init__(
        self,
        store: UsageStore,
        clock: Clock,
        slots: SlotFile | None = None,
        *,
        is_shared: bool = False,
        before: Iterable[UsageRow] = (),
    ) -> None:
        """`before`: what is used by others who count no more; it counts, and is kept by them."""
        self._store = store
        self._clock = clock
        self._slots = slots
        self._cells: dict[UsageKey, Cell] = {}
        self._dirty: list[Cell] = []
        self._stored = {row.key: row for row in store.load()}
        self._mapped: dict[int, SlotRecord] = {}
        self._is_shared = is_shared
        self._before: Counter[tuple[UsageKey, int]] = Counter()
        for row in before:
            self._before[row.key, row.start] += row.used
        self.unreported: dict[Cell, None] = {}
        self._read_slots()
        self._drop_ended()

    def cell(self, key: UsageKey) -> Cell:
        """Return the cell of the present window."""
        wall = self._clock.wall()
        known = self._cells.get(key)
        if known is not None and known.is_present(wall):
            return known
        cell = self._restored(key, wall) if known is None else None
        if cell is None:
            cell = Cell(self, key, *window_at(key.seconds, wall), used=0)
        self._cells[key] = cell
        cell.elsewhere = self._before.pop((key, cell.start), 0)
        if self._is_shared:
            self.unreported[cell] = None  # others may have used it
        if known is not None:
            self._free(known)
        if self._slots is not None:
            cell.slot = self._slots.take_slot(_digest(key), key.tenant_id, key.seconds, cell.start, cell.used)
        before = self._mapped.pop(_digest(key), None)
        if before is not None:
            self._release(before.slot)  # after its figure has a new slot: a kill in between loses nothing
        return cell

    @property
    def cells(self) -> list[Cell]:
        """The cells of present windows that are in use."""
        return list(self._cells.values())

    def changed(self, cell: Cell) -> None:
        """Mirror a figure and remember it for the next flush."""
        if self._is_shared:
            self.unreported[cell] = None
        if cell.slot and self._slots is not None:
            self._slots.set_used(cell.slot, cell.used)
        if not cell.is_dirty:
            cell.is_dirty = True
            self._dirty.append(cell)

    async def flush(self, run: Run) -> None:
        """Write what has changed; to be called every `FLUSH_INTERVAL_S`, never twice at a time.

        Raises:
            BackendError: not written; the next flush tries again.
        """
        cells, self._dirty = self._dirty, []
        for cell in cells:
            cell.is_dirty = False
        rows = [_row(cell) for cell in cells if self._cells.get(cell.key) is cell]
        try:
            await run("usage.write", self._store.write, rows, self._clock.wall())
        except BaseException:
            for cell in cells:
                if not cell.is_dirty:
                    cell.is_dirty = True
                    self._dirty.append(cell)
            raise
        self._drop_ended()

    def close(self) -> None:
        """Write everything and close the files; no flush may be under way. Blocks. Raises BackendError, files closed."""
        rows = [_row(cell) for cell in self._dirty if self._cells.get(cell.key) is cell]
        try:
            self._store.write(rows, self._clock.wall())
        finally:
            self._store.close()
            if self._slots is not None:
                self._slots.close()

    def figures(self, tenant_id: int) -> list[UsageRow]:
        """Return what a tenant has used of its present windows. O(cells)."""
        rows = {key: row for key, row in self._stored.items() if key.tenant_id == tenant_id}
        rows.update({key: _row(cell) for key, cell in self._cells.items() if key.tenant_id == tenant_id})
        return list(rows.values())

    def forget_tenant(self, tenant_id: int) -> None:
        """Drop every figure of a tenant from memory and slots; `UsageStore.drop_tenant` follows. O(cells)."""
        for key in [key for key in self._cells if key.tenant_id == tenant_id]:
            cell = self._cells.pop(key)
            self._free(cell)
            self.unreported.pop(cell, None)
        self._stored = {key: row for key, row in self._stored.items() if key.tenant_id != tenant_id}
        for key, start in [each for each in self._before if each[0].tenant_id == tenant_id]:
            del self._before[key, start]
        gone = [digest for digest, record in self._mapped.items() if record.tenant_id == tenant_id]
        for digest in gone:
            self._release(self._mapped.pop(digest).slot)

    def forget_devices(self, tenant_id: int, names: Collection[str]) -> None:
        """Begin anew for devices that were deleted: others may get their names. The next flush stores it. O(cells)."""
        known = {*self._cells, *self._stored, *(key for key, _ in self._before)}
        keys = [key for key in known if key.tenant_id == tenant_id and key.subject in names]
        for key in keys:
            cell = self.cell(key)
            cell.used = cell.elsewhere = 0
            cell.is_anew = True
            self.changed(cell)

    async def drop_tenant(self, tenant_id: int, run: Run) -> None:
        """Drop every figure of a deleted tenant from memory, slots and file. Raises BackendError."""
        self.forget_tenant(tenant_id)
        await run("usage.drop", self._store.drop_tenant, tenant_id)

    def _restored(self, key: UsageKey, wall: float) -> Cell | None:
        """Return the cell as the last process left it, if its window is still the present one."""
        row = self._stored.pop(key, None)
        record = self._mapped.get(_digest(key))
        start = max(row.start if row else 0, record.start if record else 0)
        used = max(
            row.used if row and row.start == start else 0, record.used if record and record.start == start else 0
        )
        cell = Cell(self, key, *window_at(key.seconds, start), used=used)
        return cell if start and cell.is_present(wall) else None

    def _read_slots(self) -> None:
        for record in self._slots.records() if self._slots is not None else ():
            twin = self._mapped.get(record.digest)
            kept, other = record, twin
            if twin is not None and (twin.start, twin.used) > (record.start, record.used):
                kept, other = twin, record
            self._mapped[record.digest] = kept
            if other is not None:
                self._release(other.slot)

    def _free(self, cell: Cell) -> None:
        self._release(cell.slot)
        cell.slot = 0

    def _release(self, slot: int) -> None:
        if slot and self._slots is not None:
            self._slots.release(slot)

    def _drop_ended(self) -> None:
        wall = self._clock.wall()
        for key in [key for key, cell in self._cells.items() if wall >= cell.end and not cell.is_dirty]:
            self._free(self._cells.pop(key))
        for key in [key for key, row in self._stored.items() if wall >= row.end]:
            del self._stored[key]
        ended = [r.digest for r in self._mapped.values() if wall >= window_at(r.seconds, r.start)[1]]
        for digest in ended:
            self._release(self._mapped.pop(digest).slot)


class UsageStore:
    """`usage.db`: one row per key, the latest window. Blocking; one thread at a time."""

    def __init__(self, path: Path, clock: Clock, on_alarm: Alarm, commits: CommitLock | None = None) -> None:
        """Open or create the file; raises ConflictError for a future schema, UnavailableError if it cannot be used."""
        self._database = open_database(path, SCHEMA, clock, on_alarm, commits)

    def load(self) -> Iterator[UsageRow]:
        """Read all rows. Raises BackendError."""
        with self._database.reading() as connection:
            yield from _rows_of(connection)

    def write(self, rows: Iterable[UsageRow], wall: float) -> None:
        """Store figures and drop windows that have ended, in one commit. Raises BackendError."""
        values = [
            (row.key.tenant_id, row.key.subject, row.key.quota, row.key.seconds, row.start, row.end, row.used)
            for row in rows
        ]
        if not values:
            return
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            connection.execute("DELETE FROM usage WHERE ends_at <= ?", (int(wall),))

    def drop_tenant(self, tenant_id: int) -> int:
        """Delete every row of a tenant and return how many there were. Raises BackendError."""
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM usage WHERE tenant = ?", (tenant_id,)).rowcount

    def close(self) -> None:
        self._database.close()


_COLUMNS = ("tenant", "subject", "quota", "seconds", "started_at", "ends_at", "used")
SCHEMA = Schema(
    name="usage",
    version=1,
    tables={"usage": "figures of usage"},
    statements=(
        """CREATE TABLE usage (
            tenant INTEGER NOT NULL, subject TEXT NOT NULL, quota TEXT NOT NULL, seconds INTEGER NOT NULL,
            started_at INTEGER NOT NULL, ends_at INTEGER NOT NULL, used INTEGER NOT NULL,
            PRIMARY KEY (tenant, subject, quota, seconds)) WITHOUT ROWID""",
        "CREATE INDEX usage_end ON usage (ends_at)",
    ),
)


def read_usage(database: Path, slots: Path, wall: float) -> list[UsageRow]:
    """Return what a data directory has used of its present windows, also while it is used; nothing if that cannot be read.

    The slots have what is not in the database yet, but for a window that began a moment ago.
    """
    if not database.exists():
        return []
    try:
        with closing(connect(database, is_read_only=True)) as connection:
            rows = [row for row in _rows_of(connection) if wall < row.end]
        records = {(record.digest, record.start): record.used for record in read_slots(slots)}
    except (sqlite3.Error, OSError) as error:
        log.warning("figures of usage cannot be read", file=str(database), cause=str(error))
        return []
    return [replace(row, used=max(row.used, records.get((_digest(row.key), row.start), 0))) for row in rows]


def usage_key(tenant_id: int, subject: str, quota: Quota, seconds: int) -> UsageKey:
    """Return the key of one window of one name."""
    return UsageKey(tenant_id, subject, str(quota.value), seconds)


def _rows_of(connection: sqlite3.Connection) -> Iterator[UsageRow]:
    rows = connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM usage").fetchall()  # noqa: S608  constants
    for tenant_id, subject, quota, seconds, start, end, used in rows:
        yield UsageRow(UsageKey(tenant_id, subject, quota, seconds), start, end, used)


def _row(cell: Cell) -> UsageRow:
    return UsageRow(cell.key, cell.start, cell.end, cell.used)


def _digest(key: UsageKey) -> int:
    text = f"{key.tenant_id}\0{key.subject}\0{key.quota}\0{key.seconds}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) or 1
