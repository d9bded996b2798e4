"""The default driver of the queue port: one `queues.db`.

Knows no MQTT packet and no session; encoded messages are bytes to it. Writing verbs belong to one thread; `read`, `tails`, `existing`, `stats`
and `list_queues` to any: they see what is committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from iothub.base.errors import ConflictError, NotFoundError
from iothub_services.queues.port import (
    EARLIEST,
    Append,
    Appended,
    Claim,
    DueRecord,
    Expired,
    ExpiryMark,
    JournalFigures,
    Move,
    MoveKind,
    Overflow,
    Page,
    Place,
    Purged,
    QueuedRecord,
    QueueLimits,
    QueueStats,
    Rebuilt,
    StaleEpochError,
    TenantUsage,
)
from iothub_services.queues.sqlite import schema
from iothub_services.queues.sqlite.append import Appending
from iothub_services.queues.sqlite.bodies import REMOVED_BYTES, SLICE_BYTES, Bodies
from iothub_services.queues.sqlite.rebuilding import rebuild
from iothub_services.queues.sqlite.row_cache import QueueRow, QueueRowCache, row_of
from iothub_services.sqlite.database import SETTLED, Database
from iothub_services.sqlite.free_pages import FreePages
from iothub_services.sqlite.store import SqliteStore

_HOUSEKEEPING = 256  # bodies, and records of dropped queues, that one commit removes at least
_DEAD_FOR_EACH = 2  # dead bodies that a commit removes besides for each that it stores
_ASKED_AT_ONCE = 500  # ids in one query
_PURGED_AT_ONCE = 4_000  # messages: 20 ms
_LARGEST = (1 << 63) - 1


class SqliteQueues(SqliteStore):
    """Fulfils `QueueStore`.

    Invariants: `messages`, `bytes` and `qos0` of a queue count its rows in `ref`; every reference has its body; `tail`
    never goes back.
    """

    def __init__(self, database: Database, on_usage: Callable[[int, TenantUsage], None] | None = None) -> None:
        """`on_usage`: gets what each tenant has stored, now and after each commit that may have changed it, in the thread that commits."""
        super().__init__(database)
        self._rows = QueueRowCache(database.writer, on_usage)
        self._bodies = Bodies(database.writer)
        self._free = FreePages(database.writer, database.path)
        self._dropped: list[int] | None = None  # queues whose records are still there; None: look
        self.needs_rebuild = database.is_salvaged  # rows of queues may have been lost with a damaged page
        self._next_body = self._bodies.next_id  # after the last commit
        database.before_commit.append(self._finish)
        database.after_commit += [self._rows.settle, self._bodies.settle, self._free.look]
        database.on_rollback.append(self._forget)

    # --- writers

    def append(self, batch: list[Append]) -> list[Appended]:
        with self._database.transaction() as connection:
            return Appending(connection, self._rows, self._bodies, self._removed).do(batch)

    # --- the reader

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        with self._database.transaction() as connection:
            row = self._existing(queue_id)
            row.epoch += 1
            row.owner = owner
            released = connection.execute(
                "SELECT position FROM released WHERE queue = ? ORDER BY position", (queue_id,)
            )
            inbound = connection.execute(
                "SELECT packet_id FROM inbound WHERE queue = ? ORDER BY packet_id", (queue_id,)
            )
            return Claim(row.epoch, row.head, row.tail, row.reserved, _firsts(released), _firsts(inbound))

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        with self._database.reading() as connection:
            found = connection.execute("SELECT epoch, tail FROM queue WHERE id = ?", (queue_id,)).fetchone()
            if found is None:
                raise unknown(queue_id)
            if found[0] != epoch:
                raise StaleEpochError(f"queue {queue_id} is at epoch {found[0]}, the reader at {epoch}")
            rows = connection.execute(schema.SELECT_PAGE, (queue_id, after, count))
            return page_of(rows, after, found[1], count, size_bytes)

    def apply(self, moves: list[Move]) -> list[bool]:
        with self._database.transaction() as connection:
            return [self._move(connection, move) for move in moves]

    # --- after damage

    def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt:
        """Make the lost rows anew: `places` are those of all living sessions. Once, before anything is appended."""
        with self._database.transaction() as connection:
            rebuilt = rebuild(connection, self._rows, places, now_us)
            connection.execute(SETTLED)
        self.needs_rebuild = False
        self._dropped = None  # look again
        return rebuilt

    # --- owners and operators

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        with self._database.transaction() as connection:
            if self._rows.get(queue_id) is not None:
                raise ConflictError(f"queue {queue_id} exists already")
            if connection.execute("DELETE FROM dropped WHERE queue = ?", (queue_id,)).rowcount:
                self._delete(connection, None, schema.DELETE_UPTO, (queue_id, _LARGEST))
                self._dropped = None
            self._rows.insert(QueueRow(queue_id, tenant_id, first_epoch - 1, limits))

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        with self._database.transaction():
            for queue_id, limits in changes:
                row = self._rows.touch(queue_id)
                if row is not None:
                    row.is_changed = True
                    row.set_limits(limits)

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        tenant = self._rows.tenant(tenant_id)
        tenant.max_messages = messages
        tenant.max_bytes = size_bytes

    def tenant_usage(self, tenant_id: int) -> TenantUsage:
        return self._rows.usage(tenant_id)

    @property
    def journal_figures(self) -> JournalFigures:
        """Any thread."""
        return JournalFigures(reusable_bytes=self._free.size_bytes)

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        return dict(self._select("SELECT id, tail FROM queue WHERE id IN ({})", queue_ids))

    def existing(self, queue_ids: Sequence[int]) -> set[int]:
        return {queue_id for (queue_id,) in self._select("SELECT id FROM queue WHERE id IN ({})", queue_ids)}

    def stats(self, queue_id: int) -> QueueStats:
        for stats in self.stats_of((queue_id,)).values():
            return stats
        raise unknown(queue_id)

    def stats_of(self, queue_ids: Sequence[int]) -> dict[int, QueueStats]:
        rows = self._select("SELECT * FROM queue WHERE id IN ({})", queue_ids)
        return {row.queue_id: row.stats() for row in map(row_of, rows)}

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        with self._database.reading() as connection:
            return self._standing(connection, tenant_id)

    def _standing(self, connection: sqlite3.Connection, tenant_id: int) -> list[QueueStats]:
        found = connection.execute(schema.SELECT_STANDING, (tenant_id,))
        return [
            QueueStats(queue_id, tenant, messages, size, head, tail, epoch, _limits(*limits))
            for queue_id, tenant, messages, size, head, tail, epoch, *limits in found
        ]

    def purge(self, queue_id: int, upto: int = 0) -> Purged:
        with self._database.transaction() as connection:
            row = self._existing(queue_id)
            upto = upto or row.tail
            end = self._end_of_slice(connection, queue_id, upto) or upto
            return Purged(self._purge(connection, row, end), upto if end < upto else 0)

    def _end_of_slice(self, connection: sqlite3.Connection, queue_id: int, upto: int) -> int:
        """Return the position of the last message that is purged at once; 0: all may be."""
        found = connection.execute(schema.SELECT_SIZES, (queue_id, upto, _PURGED_AT_ONCE)).fetchall()
        left = SLICE_BYTES
        for position, size in found:
            left -= size
            if left <= 0:
                return int(position)
        return int(found[-1][0]) if len(found) == _PURGED_AT_ONCE else 0

    def _purge(self, connection: sqlite3.Connection, row: QueueRow, upto: int) -> int:
        """Remove what the tables have up to a position, with the bodies: as many in all as a slice may have."""
        removed = self._delete(connection, row, schema.DELETE_UPTO, (row.queue_id, upto))
        self._bodies.delete_dead(connection, removed)
        return removed

    def drop(self, queue_id: int) -> int:
        with self._database.transaction() as connection:
            row = self._rows.touch(queue_id)
            if row is None:
                return 0
            self._rows.remove(row)
            connection.execute("DELETE FROM inbound WHERE queue = ?", (queue_id,))
            connection.execute("DELETE FROM released WHERE queue = ?", (queue_id,))
            if row.messages:
                connection.execute("INSERT OR IGNORE INTO dropped VALUES (?)", (queue_id,))
                self._dropped = None
            return row.messages

    def drop_tenant(self, tenant_id: int) -> int:
        with self._database.transaction() as connection:
            queue_ids = _firsts(connection.execute("SELECT id FROM queue WHERE tenant = ?", (tenant_id,)))
            for queue_id in queue_ids:
                self.drop(queue_id)
        return len(queue_ids)

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        with self._database.transaction() as connection:
            due = _due(connection, now_ms, count, after)
            removed, spared = [], []
            for _, queue_id, position in due:
                row = self._rows.get(queue_id)
                if row is None:
                    continue  # dropped: its records go with the housekeeping
                record = DueRecord(row.tenant_id, queue_id, position)
                if position > row.reserved:
                    self._delete(connection, self._rows.touch(queue_id), schema.DELETE_ONE, (queue_id, position))
                    removed.append(record)
                else:
                    spared.append(record)
        return Expired(tuple(removed), tuple(spared), ExpiryMark._make(due[-1]) if len(due) >= count else None)

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        removed = []
        with self._database.transaction() as connection:
            for record in records:
                row = self._rows.touch(record.queue_id)
                parameters = (record.queue_id, record.position, now_ms)
                if row is not None and self._delete(connection, row, schema.DELETE_EXPIRED, parameters):
                    removed.append(record)
        return tuple(removed)

    def idle(self) -> bool:
        """Do a slice of what nobody waits for; True if there is more."""
        if self._has_idle_work:
            self._clear_away()
        elif self._free.are_most:
            self._free.give_back()
        return self._has_idle_work

    def _clear_away(self) -> None:
        """Remove some of what nobody refers to. Dropped queues go first: what is left of them keeps bodies from the sweep."""
        with self._database.transaction() as connection:
            if self._dropped is not None and not self._dropped:
                self._bodies.slice(connection)

    @property
    def _has_idle_work(self) -> bool:
        return self._bodies.has_work or self._dropped is None or bool(self._dropped)

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """See what is committed."""
        return self._database.reading()

    def _select(self, statement: str, queue_ids: Sequence[int]) -> list[Any]:
        """Return what is committed of these queues. `statement`: with `{}` for the ids."""
        found: list[Any] = []
        with self._reading() as connection:
            for start in range(0, len(queue_ids), _ASKED_AT_ONCE):
                part = queue_ids[start : start + _ASKED_AT_ONCE]
                found += connection.execute(statement.format(",".join("?" * len(part))), part)
        return found

    # --- inside a transaction

    def _existing(self, queue_id: int) -> QueueRow:
        """Return the row, to be changed in any way."""
        row = self._rows.touch(queue_id)
        if row is None:
            raise unknown(queue_id)
        row.is_changed = True
        return row

    def _move(self, connection: sqlite3.Connection, move: Move) -> bool:
        row = self._rows.get(move.queue_id)
        if row is None or row.epoch != move.epoch:
            return False
        if move.kind is MoveKind.ACK:
            self._ack(connection, move)
        elif move.kind is MoveKind.RELEASE:
            if row.head < move.value <= row.tail:
                connection.execute("INSERT OR IGNORE INTO released VALUES (?, ?)", (move.queue_id, move.value))
        elif move.kind is MoveKind.RESERVE:
            self._existing(move.queue_id).reserved = move.value
        elif move.kind is MoveKind.FINISH_INBOUND:
            connection.execute("DELETE FROM inbound WHERE queue = ? AND packet_id = ?", (move.queue_id, move.value))
        else:
            connection.execute("INSERT OR IGNORE INTO inbound VALUES (?, ?)", (move.queue_id, move.value))
        return True

    def _ack(self, connection: sqlite3.Connection, move: Move) -> None:
        row = self._existing(move.queue_id)
        row.head = upto = max(row.head, min(move.value, row.tail))
        self._delete(connection, row, schema.DELETE_UPTO, (move.queue_id, upto))
        # "released" is forgotten only here, when the durable head has passed it, never at PUBCOMP
        connection.execute("DELETE FROM released WHERE queue = ? AND position <= ?", (move.queue_id, upto))

    def _delete(
        self, connection: sqlite3.Connection, row: QueueRow | None, statement: str, parameters: tuple[int, ...]
    ) -> int:
        return self._removed(row, connection.execute(statement, parameters).fetchall())

    def _removed(self, row: QueueRow | None, references: list[tuple[int, int, int, int]]) -> int:
        """Take removed references (size, qos, body, is_shared) out of the counters of their queue, if there is one."""
        size_bytes = qos0 = 0
        for size, qos, body, is_shared in references:
            size_bytes += size
            qos0 += not qos
            self._bodies.released(body, is_shared, size)
        if row is not None:
            row.messages -= len(references)
            row.bytes -= size_bytes
            row.qos0 -= qos0
            row.tenant.messages -= len(references)
            row.tenant.bytes -= size_bytes
        return len(references)

    def _finish(self, connection: sqlite3.Connection) -> None:
        """Before each commit: counters, and a share of the housekeeping so that it keeps up under load as well."""
        self._rows.write(connection)
        if self._dropped is None:
            self._dropped = list(_firsts(connection.execute("SELECT queue FROM dropped")))
        if self._dropped:
            queue_id = self._dropped[-1]
            if not self._delete(connection, None, schema.DELETE_SOME, (queue_id, queue_id, _HOUSEKEEPING)):
                connection.execute("DELETE FROM dropped WHERE queue = ?", (queue_id,))
                self._dropped.pop()
        stored = self._bodies.next_id - self._next_body
        self._bodies.delete_rest(connection, self._most_removed, _DEAD_FOR_EACH * stored + _HOUSEKEEPING)
        self._next_body = self._bodies.next_id

    @property
    def _most_removed(self) -> int:
        """How many bytes of messages one commit removes."""
        return REMOVED_BYTES

    def _forget(self) -> None:
        self._rows.forget()
        self._bodies.forget()
        self._dropped = None


def _due(connection: sqlite3.Connection, now_ms: int, count: int, after: ExpiryMark) -> list[tuple[int, int, int]]:
    """Return the records behind a mark whose time has come, in the order of their marks."""
    rest = (after.expires_at_ms, now_ms, after.queue_id, after.position, count)
    due: list[tuple[int, int, int]] = connection.execute(schema.SELECT_EXPIRED_TOO, rest).fetchall()
    later = (after.expires_at_ms, now_ms, count - len(due))
    return due + connection.execute(schema.SELECT_EXPIRED, later).fetchall()


def page_of(
    rows: Iterable[tuple[int, int, int, str | None, int, bytes | None]],
    after: int,
    tail: int,
    count: int,
    size_bytes: int,
) -> Page:
    records = []
    for position, qos, flags, subscription_ids, expires_at_ms, body in rows:
        identifiers = tuple(map(int, subscription_ids.split(","))) if subscription_ids else ()
        records.append(QueuedRecord(position, qos, flags, identifiers, expires_at_ms, body or b""))
        size_bytes -= len(records[-1].body)
        if size_bytes <= 0 or len(records) == count:
            upto = records[-1].position
            return Page(records, upto, upto >= tail)
    return Page(records, max(after, tail), True)


def _firsts(rows: Iterable[tuple[int]]) -> tuple[int, ...]:
    return tuple(first for (first,) in rows)


def unknown(queue_id: int) -> NotFoundError:
    return NotFoundError(f"queue {queue_id} does not exist")


@lru_cache(1_024)
def _limits(messages: int, size_bytes: int, overflow: int) -> QueueLimits:
    """Return the same value for the same limits: a start lists all queues, and those of a tenant hardly differ."""
    return QueueLimits(messages, size_bytes, Overflow(overflow))
