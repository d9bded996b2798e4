"""The embedded queues with a journal: the verbs. What a group, a checkpoint and a start are, is `tables`'s.

Writing verbs belong to one thread; reading ones to any.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from iothub.base.errors import BackendError
from iothub_services.queues.journal.reading import read_records
from iothub_services.queues.journal.records import (
    ClaimRecord,
    CreateRecord,
    EndRecord,
    KeptRecord,
    LimitsRecord,
    MoveRecord,
    RebuildRecord,
    Type,
)
from iothub_services.queues.journal.tables import JournaledTables
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import (
    EARLIEST,
    Append,
    Appended,
    Claim,
    DueRecord,
    Expired,
    ExpiryMark,
    Move,
    MoveKind,
    Page,
    Place,
    Purged,
    QueuedRecord,
    QueueLimits,
    QueueStats,
    Rebuilt,
    StaleEpochError,
)
from iothub_services.queues.sqlite import schema
from iothub_services.queues.sqlite.row_cache import QueueRow, row_of
from iothub_services.queues.sqlite.store import page_of, unknown
from iothub_services.sqlite import request_table
from iothub_services.sqlite.database import backend_error

_KINDS = {
    MoveKind.ACK: Type.HEAD,
    MoveKind.RELEASE: Type.RELEASE,
    MoveKind.RESERVE: Type.RESERVE,
    MoveKind.FINISH_INBOUND: Type.INBOUND_DONE,
    MoveKind.RECORD_INBOUND: Type.INBOUND,
}


class JournaledQueues(JournaledTables):
    """Fulfils `QueueStore`."""

    # --- writing verbs

    def append(self, batch: list[Append]) -> list[Appended]:
        with self.group():
            assert self._group is not None  # noqa: S101 - for the type
            return self._table.append(batch, self._group)

    def append_operations(self, batch: list[AppendOperation]) -> list[Appended | tuple[int, ...]]:
        """Do what `append` does, for the writer: see `TakesOperations`."""
        with self.group():
            assert self._group is not None  # noqa: S101 - for the type
            return self._table.append_operations(batch, self._group)

    def apply(self, moves: list[Move]) -> list[bool]:
        with self.group():
            return [self._apply(move) for move in moves]

    def _apply(self, move: Move) -> bool:
        row = self._rows.get(move.queue_id)
        if row is None or row.epoch != move.epoch:
            return False
        row = self._rows.touch(move.queue_id)
        kind = _KINDS[move.kind]
        self._do_move(row, kind, move.value)  # type: ignore[arg-type]  # it is there
        self._group.move(kind, move.queue_id, move.value)  # type: ignore[union-attr]  # in a group
        return True

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        with self.group():
            row = self._existing(queue_id)
            row.epoch += 1
            row.owner = owner
            self._write(ClaimRecord(queue_id, row.epoch, owner))
            released, inbound = self._table.released(row), self._table.inbound(row)
            return Claim(row.epoch, row.head, row.tail, row.reserved, tuple(sorted(released)), tuple(sorted(inbound)))

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        with self.group():
            super().create(tenant_id, queue_id, limits, first_epoch)
            self._write(
                CreateRecord(tenant_id, queue_id, first_epoch - 1, limits.messages, limits.bytes, int(limits.overflow))
            )

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        with self.group():
            super().set_limits(changes)
            for queue_id, limits in changes:
                self._write(LimitsRecord(queue_id, limits.messages, limits.bytes, int(limits.overflow)))

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        with self._lock:
            super().set_tenant_limits(tenant_id, messages, size_bytes)

    def purge(self, queue_id: int, upto: int = 0) -> Purged:
        """Nothing while the tables are committed: others write on meanwhile, and would have to wait for it with this one."""
        with self.group():
            row = self._existing(queue_id)
            if not self._table.has_old(row):
                return Purged(self._purge(self._database.writer, row, upto or row.tail), 0)
            if self._is_committing:
                return Purged(0, upto or row.tail)
            return super().purge(queue_id, upto)

    def _purge(self, _connection: sqlite3.Connection, row: QueueRow, upto: int) -> int:
        self._write(MoveRecord(Type.PURGE, row.queue_id, upto))
        return self._remove_upto(row, upto)

    def drop(self, queue_id: int) -> int:
        with self.group():
            row = self._rows.touch(queue_id)
            if row is None:
                return 0
            discarded = self._table.remove_upto(row, row.tail)
            self._write(EndRecord(queue_id))
            return discarded + self._drop(row)

    def drop_tenant(self, tenant_id: int) -> int:
        with self.group():
            self._is_forgetting = True
            return super().drop_tenant(tenant_id)  # which drops queue by queue

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        with self.group():
            for row in self._table.due(now_ms):
                self._move_out(row)
            expired = super().expire(now_ms, count, after)
            self._write_removed(expired.removed)
            return expired

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        with self.group():
            for record in records:
                row = self._rows.get(record.queue_id)
                if row is not None:
                    self._move_out(row)
            removed = super().expire_unsent(now_ms, records)
            self._write_removed(removed)
            return removed

    def _write_removed(self, records: Sequence[DueRecord]) -> None:
        for record in records:
            self._write(MoveRecord(Type.REMOVED, record.queue_id, record.position))

    def keep_answers(self, rows: Sequence[tuple[bytes, int, bytes, int]]) -> None:
        """Store what was answered to requests of other processes, with the group that did it: rows of their table, which is there."""
        with self.group():
            self._database.writer.executemany(request_table.KEEP, rows)
            for row in rows:
                self._write(KeptRecord(*row))

    def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt:
        """Its record says what was asked: it follows from the tables alone, of queues that have nothing in memory."""
        with self.group():
            rebuilt = super().rebuild(places, now_us)
            self._write(RebuildRecord(now_us, tuple(places)))
            self._table.tenants.update(self._rows.tenant(each.tenant_id) for each in places)
            return rebuilt

    @property
    def _is_committing(self) -> bool:
        """Whether a commit is under way: whatever needs the tables waits for it."""
        return self._commits_flushed is not None and not self._committing.is_over

    def idle(self) -> bool:
        if self._is_committing:
            return True  # nobody waits for this, and others would
        if self._has_removed_much and self._commit_beside():
            return True
        has_more = self._idle_slice()
        if not has_more and self._is_forgetting:
            self.probe()
            self._is_forgetting = False
        return has_more or (self._free.are_most and self._commit_beside())  # which gives them back

    def _commit_beside(self) -> bool:
        """Begin a commit that nobody waits for; False: there is no room for its segment. Raises BackendError."""
        with self._commits.commit(), self._lock:
            self._require_undone()
            if not self._may_turn:
                return False
            self._next_segment()
            self._start_commit()
            return True

    # --- reading verbs

    @contextmanager
    def _seeing(self) -> Iterator[sqlite3.Connection]:
        """See what is in the transaction. Raises BackendError, at once too while the writing thread reads back what has failed."""
        self._require_readable(is_valid=not self._is_reading_back)
        with self._lock:
            self._require_readable(is_valid=self._is_valid)
            try:
                yield self._database.writer
            except sqlite3.Error as error:
                raise backend_error(error, self._database.path, is_committing=False) from error

    def _require_readable(self, *, is_valid: bool) -> None:
        if not is_valid:
            raise BackendError(
                f"{self._database.path.name}: queues are being read back from the journal", retryable=True
            )

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        with self._seeing() as connection:
            row = self._rows.get(queue_id)
            if row is None:
                raise unknown(queue_id)
            if row.epoch != epoch:
                raise StaleEpochError(f"queue {queue_id} is at epoch {row.epoch}, the reader at {epoch}")
            visible = _visible(row)
            records: list[QueuedRecord] = []
            if self._table.has_old(row):
                rows = connection.execute(schema.SELECT_PAGE, (queue_id, after, count))
                page = page_of(rows, after, visible, count, size_bytes)
                records = [record for record in page.records if record.position <= visible]
                count -= len(records)
                size_bytes -= sum([len(record.body) for record in records])
            if count > 0 and size_bytes > 0:
                young = self._table.wanted(row, after, count, size_bytes)
                records += read_records(young, self._read_at)
                count -= len(young)
                size_bytes -= sum([each.size for each in young])
            if records and (count <= 0 or size_bytes <= 0):
                upto = records[-1].position
                return Page(records, upto, upto >= visible)
            return Page(records, max(after, visible), True)

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        return {row.queue_id: _visible(row) for row in self._rows_of(queue_ids)}

    def existing(self, queue_ids: Sequence[int]) -> set[int]:
        return {row.queue_id for row in self._rows_of(queue_ids)}

    def stats_of(self, queue_ids: Sequence[int]) -> dict[int, QueueStats]:
        return {row.queue_id: row.stats() for row in self._rows_of(queue_ids)}

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        with self._seeing() as connection:
            self._rows.write(connection)
            found = self._standing(connection, tenant_id)
            known = [self._rows.known(each.queue_id) for each in found]
            return [each if row is None else row.stats() for each, row in zip(found, known, strict=True)]

    def _rows_of(self, queue_ids: Sequence[int]) -> list[QueueRow]:
        """Return the rows that are there; those that nobody writes are not kept in memory."""
        with self._seeing():
            known = {queue_id: self._rows.known(queue_id) for queue_id in queue_ids}
            rows = [row for row in known.values() if row is not None]
            missing = [queue_id for queue_id, row in known.items() if row is None]
            return rows + [row_of(each) for each in self._select("SELECT * FROM queue WHERE id IN ({})", missing)]

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._seeing() as connection:
            yield connection


def _visible(row: QueueRow) -> int:
    """Return the last position that is durable."""
    return row.tail if row.young is None else row.young.visible
