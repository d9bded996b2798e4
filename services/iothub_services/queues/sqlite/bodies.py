"""Which stored bodies nobody refers to any more, and their removal in bounded slices.

Knows references as rows; knows no limits and no readers.

Theory: all references of a body are made in the transaction that stores it, so a body without references stays without. The bodies
of removed references are remembered as *dead* when that was certainly the last one: a body with one reference, or a shared one that was
stored since the start (then its references are counted here). Everything else - what was dead when the process died, shared bodies from before -
is found by mark and sweep: mark every referenced body up to the newest in a bitmap, then delete the unmarked. A reference that goes meanwhile
leaves its body marked: that one is found next time.

A transaction that removed everything at once would hold up whoever waits for its commit, and write as much to SQLite's log where that overwrites
what is removed. So what one may remove is bounded in bytes; what is left of it waits for the next one.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator

REMOVED_BYTES = 32 << 20  # that one commit removes: SQLite has as much in memory
SLICE_BYTES = 4 << 20  # that are removed at once: 20 ms
_SLICE = 1_000  # rows per slice
_WINDOW = 1 << 26  # bodies per pass: a bitmap of 8 MiB
_COUNTED = 200_000  # shared bodies whose references are counted
_DUE = 1_000  # sweep after this many uncounted references are gone


class Bodies:
    """The ids of bodies: the next one, the dead ones, and the sweep.

    Invariants: an id in `_dead` has no reference. After a failed transaction (`forget`) nothing is known and a sweep is due.

    `removed_bytes`: that this transaction has deleted, and that are dead.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.next_id = 1 + int(connection.execute("SELECT coalesce(max(id), 0) FROM body").fetchone()[0])
        self._dead: deque[tuple[int, int]] = deque()  # id, size
        self._deleted_bytes = 0
        self.removed_bytes = 0
        self._counted: dict[int, int] = {}
        self._uncounted = 0
        self._sweep: Iterator[int] | None = None
        self._is_due = self.next_id > 1

    def allocate(self) -> int:
        """Return the next id; ids of transactions that failed are left out."""
        self.next_id += 1
        return self.next_id - 1

    def shared(self, body: int, references: int) -> None:
        """A body was stored with more than one reference."""
        if len(self._counted) < _COUNTED:
            self._counted[body] = references

    def released(self, body: int, is_shared: int, size_bytes: int) -> None:
        """One reference was removed."""
        if not is_shared:
            self._die(body, size_bytes)
            return
        left = self._counted.get(body)
        if left is None:
            self._uncounted += 1
        elif left == 1:
            del self._counted[body]
            self._die(body, size_bytes)
        else:
            self._counted[body] = left - 1

    def _die(self, body: int, size_bytes: int) -> None:
        self._dead.append((body, size_bytes))
        self.removed_bytes += size_bytes

    def forget(self) -> None:
        """A transaction failed: what was noted in it is not true."""
        self._dead.clear()
        self._counted.clear()
        self._sweep = None
        self._is_due = True
        self._deleted_bytes = self.removed_bytes = 0

    def settle(self) -> None:
        """The transaction is committed."""
        self.removed_bytes -= self._deleted_bytes
        self._deleted_bytes = 0

    def delete_dead(self, connection: sqlite3.Connection, count: int, size_bytes: int = SLICE_BYTES) -> None:
        """Delete dead bodies inside the caller's transaction, until they are as many or have as many bytes."""
        dead: list[int] = []
        while self._dead and len(dead) < count and size_bytes > 0:
            body, size = self._dead.popleft()
            dead.append(body)
            size_bytes -= size
            self._deleted_bytes += size
        dead.sort()
        ranges: list[list[int]] = []
        for body in dead:
            if ranges and ranges[-1][1] == body - 1:
                ranges[-1][1] = body
            else:
                ranges.append([body, body])
        connection.executemany("DELETE FROM body WHERE id BETWEEN ? AND ?", ranges)

    def delete_rest(self, connection: sqlite3.Connection, most_bytes: int, count: int | None = None) -> None:
        """Delete what is dead, `count` bodies at most, before a commit that is to remove no more than so many bytes."""
        count = len(self._dead) if count is None else count
        self.delete_dead(connection, count, most_bytes - self._deleted_bytes)

    @property
    def has_work(self) -> bool:
        return bool(self._dead) or self._sweep is not None or self._is_due or self._uncounted >= _DUE

    def slice(self, connection: sqlite3.Connection) -> None:
        """Do one slice of what there is to do, inside the caller's transaction."""
        if self._dead:
            self.delete_dead(connection, _SLICE)
            return
        if self._sweep is None:
            self._is_due = False
            self._uncounted = 0
            self._sweep = _mark_and_sweep(connection, self.next_id)
        size_bytes = next(self._sweep, None)
        if size_bytes is None:
            self._sweep = None
        else:
            self._deleted_bytes += size_bytes
            self.removed_bytes += size_bytes


def _mark_and_sweep(connection: sqlite3.Connection, end: int) -> Iterator[int]:
    """Give how many bytes each slice has deleted."""
    first = connection.execute("SELECT min(id) FROM body").fetchone()[0]
    for start in range(first if first is not None else end, end, _WINDOW):
        marks = bytearray(_WINDOW // 8 if end - start >= _WINDOW else (end - start) // 8 + 1)
        stop = min(start + _WINDOW, end)
        yield from _mark(connection, marks, start, stop)
        yield from _sweep(connection, marks, start, stop)


def _mark(connection: sqlite3.Connection, marks: bytearray, start: int, stop: int) -> Iterator[int]:
    statement = """SELECT queue, position, body FROM ref WHERE (queue, position) > (?, ?)
        ORDER BY queue, position LIMIT ?"""
    queue, position = 0, 0
    while rows := connection.execute(statement, (queue, position, _SLICE)).fetchall():
        for _, _, body in rows:
            if start <= body < stop:
                marks[(body - start) >> 3] |= 1 << ((body - start) & 7)
        queue, position, _ = rows[-1]
        yield 0


def _sweep(connection: sqlite3.Connection, marks: bytearray, start: int, stop: int) -> Iterator[int]:
    statement = "SELECT id, length(b) FROM body WHERE id > ? AND id < ? ORDER BY id LIMIT ?"
    last = start - 1
    while rows := connection.execute(statement, (last, stop, _SLICE)).fetchall():
        gone, size_bytes = [], 0
        for last, size in rows:
            if not marks[(last - start) >> 3] & 1 << ((last - start) & 7):
                gone.append((last,))
                size_bytes += size
                if size_bytes >= SLICE_BYTES:
                    break
        connection.executemany("DELETE FROM body WHERE id = ?", gone)
        yield size_bytes
