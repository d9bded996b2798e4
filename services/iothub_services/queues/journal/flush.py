"""One segment's living messages on their way into the tables, a slice at a time.

Knows the records of the segment and what is young; knows no transaction: whoever calls a slice is in one, between two groups.

Theory: a message that lives is still in its queue's run, and its record says where it was put; of the oldest segment that is the first of the run.
So the segment is read from its beginning, in its order, and nothing else is needed to find what lives. A body and all that refers to it are moved
at once. Where little lives in a segment that is old, its queues are moved instead (`stragglers`), so a client that stays away does not keep
everything since on the disk, and for the next start.
"""

from __future__ import annotations

import sqlite3

from iothub_services.queues.journal.decoding import size_of, walk
from iothub_services.queues.journal.reading import ReadAt
from iothub_services.queues.journal.records import HEAD_BYTES, AppendRecord
from iothub_services.queues.journal.young import Table
from iothub_services.queues.port import QueuedRecord
from iothub_services.queues.sqlite import schema
from iothub_services.queues.sqlite.bodies import Bodies
from iothub_services.queues.sqlite.row_cache import QueueRow

WINDOW_BYTES = 1 << 20  # that are read at once
STRAGGLERS = 256  # messages of a segment that do not keep it, nor all behind it, for long
_STRAGGLER_BYTES = 1 << 20  # of them, and of what their queues have behind them: a few milliseconds
_OLD = 4  # segments behind the newest: a message that is there is not read soon
StoredReference = tuple[object, ...]


def stored_reference(
    queue_id: int, body_id: int, record: QueuedRecord, message_id: bytes | None, *, is_shared: bool
) -> StoredReference:
    """Return a row of `ref`. `message_id`: of QoS 2."""
    position, qos, flags, subscription_ids, expires_at_ms, body = record
    identifiers = ",".join(map(str, subscription_ids)) if subscription_ids else None
    return (
        queue_id,
        position,
        body_id,
        len(body),
        qos,
        flags,
        expires_at_ms,
        message_id or None if qos == 2 else None,
        identifiers,
        int(is_shared),
    )


def stragglers(table: Table, newest: int) -> list[QueueRow]:
    """Return the queues to be moved out whose few messages alone keep the oldest segment, if that is an old one."""
    oldest = table.oldest()
    if not oldest or newest - oldest < _OLD or table.living(oldest) > STRAGGLERS:
        return []
    rows = table.rows_in(oldest)
    messages, size_bytes = sum([row.young_messages for row in rows]), sum([row.young_bytes for row in rows])
    return rows if messages <= 4 * STRAGGLERS and size_bytes <= _STRAGGLER_BYTES else []


class Flush:
    """Moves what is young of one segment. `is_done`: all that its whole records say."""

    def __init__(self, segment: int, mark: bytes, end: int, table: Table, bodies: Bodies, read_at: ReadAt) -> None:
        """`end`: how far the segment counts."""
        self.segment = segment
        self._mark = mark
        self._end = end
        self._table = table
        self._bodies = bodies
        self._read_at = read_at
        self._at = 0
        self._bodies_made: list[tuple[int, bytes]] = []
        self._references: list[StoredReference] = []

    @property
    def is_done(self) -> bool:
        return self._at >= self._end or not self._table.living(self.segment)

    @property
    def is_broken(self) -> bool:
        """Whether records could not be read: the messages in them are still young."""
        return self._at >= self._end and bool(self._table.living(self.segment))

    def slice(self, connection: sqlite3.Connection, size_bytes: int) -> None:
        """Move what is in the next bytes. Raises BackendError: they cannot be read; sqlite3.Error."""
        until = min(self._at + size_bytes, self._end)
        while self._at < until and not self.is_done:
            self._window(until)
        connection.executemany(schema.INSERT_BODY, self._bodies_made)
        connection.executemany(schema.INSERT_REF, self._references)
        self._bodies_made.clear()
        self._references.clear()

    def _window(self, until: int) -> None:
        """Move what is in the next bytes that are read at once; at least one record."""
        size = min(WINDOW_BYTES, until - self._at)
        if self._end - self._at >= HEAD_BYTES:
            first = size_of(self._read_at(self.segment, self._at, HEAD_BYTES))
            size = min(max(size, first), self._end - self._at)
        start = self._at
        for found, end in walk(self._read_at(self.segment, start, size), self._mark):
            if isinstance(found.record, AppendRecord):
                self._move(found.record, self.segment << 32 | start + found.at)
            self._at = start + end
        if self._at == start:
            self._at = self._end  # what is here cannot be read

    def _move(self, record: AppendRecord, place: int) -> None:
        living = self._table.take_living(record.deliveries, place)
        if not living:
            return
        body_id = self._bodies.allocate()
        self._bodies_made.append((body_id, record.body))
        is_shared = len(living) > 1
        if is_shared:
            self._bodies.shared(body_id, len(living))
        for queue_id, position, qos, flags, subscription_ids in living:
            queued = QueuedRecord(position, qos, flags, subscription_ids, record.expires_at_ms, record.body)
            self._references.append(stored_reference(queue_id, body_id, queued, record.message_id, is_shared=is_shared))
