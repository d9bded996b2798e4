"""Which stored bodies nobody refers to any more, and their removal in bounded slices.

Knows references as rows; knows no limits and no readers.

Theory: all references of a body are made in the transaction that stores it, so a body without references stays without. The bodies
of removed references are remembered as *dead* when that was certainly the last one: a body with one reference, or a shared one that was
stored since the start (then its references are counted here). Everything else - what was dead when the process died, shared bodies from before -
is found by mark and sweep: mark every referenced body up to the newest in a bitmap, then delete the unmarked. A reference that goes meanwhile
leaves its body marked: that one is found next time.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterator

_SLICE = 1_000  # rows per slice
_WINDOW = 1 << 26  # bodies per pass: a bitmap of 8 MiB
_COUNTED = 200_000  # shared bodies whose references are counted
_DUE = 1_000  # sweep after this many uncounted references are gone


class Bodies:
    """The ids of bodies: the next one, the dead ones, and the sweep.

    Invariants: an id in `_dead` has no reference. After a failed transaction (`forget`) nothing is known and a sweep is due.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.next_id = 1 + int(connection.execute("SELECT coalesce(max(id), 0) FROM body").fetchone()[0])
        self._dead: deque[int] = deque()
        self._counted: dict[int, int] = {}
        self._uncounted = 0
        self._sweep: Iterator[None] | None = None
        self._is_due = self.next_id > 1

    def allocate(self) -> int:
        """Return the next id; ids of transactions that failed are left out."""
        self.next_id += 1
        return self.next_id - 1

    def shared(self, body: int, references: int) -> None:
        """A body was stored with more than one reference."""
        if len(self._counted) < _COUNTED:
            self._counted[body] = references

    def released(self, body: int, is_shared: int) -> None:
        """One reference was removed."""
        if not is_shared:
            self._dead.append(body)
            return
        left = self._counted.get(body)
        if left is None:
            self._uncounted += 1
        elif left == 1:
            del self._counted[body]
            self._dead.append(body)
        else:
            self._counted[body] = left - 1

    def forget(self) -> None:
        """A transaction failed: what was noted in it is not true."""
        self._dead.clear()
        self._counted.clear()
        self._sweep = None
        self._is_due = True

    def delete_dead(self, connection: sqlite3.Connection, count: int) -> None:
        """Delete at most `count` dead bodies, inside the caller's transaction."""
        dead = sorted(self._dead.popleft() for _ in range(min(count, len(self._dead))))
        ranges: list[list[int]] = []
        for body in dead:
            if ranges and ranges[-1][1] == body - 1:
                ranges[-1][1] = body
            else:
                ranges.append([body, body])
        connection.executemany("DELETE FROM body WHERE id BETWEEN ? AND ?", ranges)

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
        if next(self._sweep, self) is self:
            self._sweep = None


def _mark_and_sweep(connection: sqlite3.Connection, end: int) -> Iterator[None]:
    first = connection.execute("SELECT min(id) FROM body").fetchone()[0]
    for start in range(first if first is not None else end, end, _WINDOW):
        marks = bytearray(_WINDOW // 8 if end - start >= _WINDOW else (end - start) // 8 + 1)
        stop = min(start + _WINDOW, end)
        yield from _mark(connection, marks, start, stop)
        yield from _sweep(connection, marks, start, stop)


def _mark(connection: sqlite3.Connection, marks: bytearray, start: int, stop: int) -> Iterator[None]:
    statement = """SELECT queue, position, body FROM ref WHERE (queue, position) > (?, ?)
        ORDER BY queue, position LIMIT ?"""
    queue, position = 0, 0
    while rows := connection.execute(statement, (queue, position, _SLICE)).fetchall():
        for _, _, body in rows:
            if start <= body < stop:
                marks[(body - start) >> 3] |= 1 << ((body - start) & 7)
        queue, position, _ = rows[-1]
        yield


def _sweep(connection: sqlite3.Connection, marks: bytearray, start: int, stop: int) -> Iterator[None]:
    statement = "SELECT id FROM body WHERE id > ? AND id < ? ORDER BY id LIMIT ?"
    last = start - 1
    while rows := connection.execute(statement, (last, stop, _SLICE)).fetchall():
        gone = [(body,) for (body,) in rows if not marks[(body - start) >> 3] & 1 << ((body - start) & 7)]
        connection.executemany("DELETE FROM body WHERE id = ?", gone)
        last = rows[-1][0]
        yield
