"""What records of the journal say, done for the first time and again.

Knows the tables and what is young; knows no group, no transaction and no file.

Theory: the tables are as of some segment, `done`, but for the messages that the journal alone had then. So of the records up to there only
appends are done again, of positions above what their queue's row calls `moved`; of those behind it everything is.
"""

from __future__ import annotations

from iothub_services.queues.journal.flush import stored_reference
from iothub_services.queues.journal.reading import read_records
from iothub_services.queues.journal.records import (
    AppendRecord,
    ClaimRecord,
    ClosedRecord,
    CommitRecord,
    CreateRecord,
    EndRecord,
    Found,
    KeptRecord,
    LimitsRecord,
    MadeRecord,
    MoveRecord,
    Placed,
    RebuildRecord,
    Record,
    Type,
)
from iothub_services.queues.journal.young import Table
from iothub_services.queues.port import Overflow, Place, QueuedRecord, QueueLimits
from iothub_services.queues.sqlite import schema
from iothub_services.queues.sqlite.row_cache import QueueRow
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite import request_table

_LARGEST = (1 << 63) - 1
_DELETE_RELEASED = "DELETE FROM released WHERE queue = ? AND position <= ?"
_INSERT_IF_NEW = schema.INSERT_REF.replace("INSERT", "INSERT OR IGNORE")


class RedoneTables(SqliteQueues):
    """The tables with what is young. Subclasses have the groups, the transaction and the files."""

    _table: Table

    def _read_at(self, segment: int, at: int, size_bytes: int) -> bytes:
        """Read what is written, or about to be. Raises BackendError."""
        raise NotImplementedError

    # --- young messages into the transaction

    def _move_out(self, row: QueueRow) -> None:
        """Move what is young of one queue: a body that other queues have as well is stored once more."""
        wanted = self._table.all_wanted(row)
        if not wanted:
            return
        self._rows.touch(row.queue_id)
        ids = {position: message_id for message_id, position in row.young.ids.items()}
        connection = self._database.writer
        for each in read_records(wanted, self._read_at):  # whose bodies may be more than fits in memory
            body_id = self._bodies.allocate()
            connection.execute(schema.INSERT_BODY, (body_id, each.body))
            connection.execute(
                schema.INSERT_REF,
                stored_reference(row.queue_id, body_id, each, ids.get(each.position), is_shared=False),
            )
        self._table.moved(row)

    # --- records

    def _redo_all(self, segment: int, records: list[Found], *, is_done: bool) -> None:
        """`is_done`: the tables have it, but for messages that were young."""
        for at, record in records:
            if isinstance(record, AppendRecord):
                self._redo_append(segment, at, record, is_done)
            else:
                self._redo(record, is_done=is_done)

    def _redo(self, record: Record | CommitRecord, *, is_done: bool) -> None:
        if is_done:
            self._pass(record)
        elif isinstance(record, KeptRecord):
            self._database.writer.execute(request_table.CREATE)  # it may be lost with a damaged file
            self._database.writer.execute(request_table.KEEP, record)
        elif isinstance(record, CreateRecord):
            if self._rows.get(record.queue_id) is None:
                self._make(record)
        elif isinstance(record, RebuildRecord):
            super().rebuild([Place(*each) for each in record.places], record.now_us)
        elif not isinstance(
            record, AppendRecord | ClosedRecord | MadeRecord | CommitRecord
        ):  # the last three are of the segments
            row = self._rows.touch(record.queue_id)
            if row is not None:
                row.is_changed = True
                self._redo_of(row, record)
            elif self.needs_rebuild:
                self._redo_of_lost(record)

    def _pass(self, record: Record | CommitRecord) -> None:
        """The tables are as of after it: only what may have been taken before it, and what belongs to a lost row, is still to be done."""
        if not isinstance(record, MoveRecord | ClaimRecord | LimitsRecord | EndRecord):
            return
        row = self._rows.get(record.queue_id)
        if row is None:
            if self.needs_rebuild:
                self._redo_of_lost(record)
        elif isinstance(record, EndRecord):  # an earlier queue of this number had these
            self._rows.touch(record.queue_id)
            self._table.remove_upto(row, row.tail)

    def _redo_of(self, row: QueueRow, record: MoveRecord | ClaimRecord | LimitsRecord | EndRecord) -> None:
        if isinstance(record, MoveRecord):
            if record.type is Type.REMOVED:
                self._move_out(row)
                self._delete(self._database.writer, row, schema.DELETE_ONE, (row.queue_id, record.value))
            elif record.type is Type.PURGE:
                self._remove_upto(row, record.value)
            else:
                self._do_move(row, record.type, record.value)
        elif isinstance(record, ClaimRecord):
            row.epoch = max(row.epoch, record.epoch)
            row.owner = record.owner
        elif isinstance(record, LimitsRecord):
            row.set_limits(QueueLimits(record.messages, record.bytes, Overflow(record.overflow)))
        else:
            self._table.remove_upto(row, row.tail)
            self._drop(row)

    def _redo_append(self, segment: int, at: int, record: AppendRecord, is_done: bool) -> None:
        missing = self._table.take(segment, at, record, is_done)
        if missing and self.needs_rebuild:
            for delivered in missing:
                self._keep_for_lost(delivered, record)
        if record.inbound is not None and not is_done:
            row = self._rows.get(record.inbound[0])
            if row is not None:
                self._table.inbound(row).add(record.inbound[2])

    # Of a queue whose row is lost: the tables have what is left of it until the sessions say which queues there must be (`rebuild`).

    def _keep_for_lost(self, delivered: Placed, record: AppendRecord) -> None:
        queue_id, position, qos, flags, subscription_ids = delivered
        connection, body_id = self._database.writer, self._bodies.allocate()
        queued = QueuedRecord(position, qos, flags, subscription_ids, record.expires_at_ms, record.body)
        reference = stored_reference(queue_id, body_id, queued, record.message_id, is_shared=False)
        if connection.execute(_INSERT_IF_NEW, reference).rowcount:
            connection.execute(schema.INSERT_BODY, (body_id, record.body))

    def _redo_of_lost(self, record: MoveRecord | ClaimRecord | LimitsRecord | EndRecord) -> None:
        connection, queue_id = self._database.writer, record.queue_id
        if isinstance(record, EndRecord):
            self._delete(connection, None, schema.DELETE_UPTO, (queue_id, _LARGEST))
        elif isinstance(record, MoveRecord):
            if record.type is Type.REMOVED:
                self._delete(connection, None, schema.DELETE_ONE, (queue_id, record.value))
            elif record.type in {Type.HEAD, Type.PURGE}:
                self._delete(connection, None, schema.DELETE_UPTO, (queue_id, record.value))
                if record.type is Type.HEAD:
                    connection.execute(_DELETE_RELEASED, (queue_id, record.value))
            elif record.type is Type.RELEASE:
                connection.execute("INSERT OR IGNORE INTO released VALUES (?, ?)", (queue_id, record.value))

    def _make(self, record: CreateRecord) -> None:
        limits = QueueLimits(record.messages, record.bytes, Overflow(record.overflow))
        super().create(record.tenant_id, record.queue_id, limits, record.epoch + 1)

    def _do_move(self, row: QueueRow, kind: Type, value: int) -> None:
        """A row that is touched gets its `is_changed` here."""
        table = self._table
        if kind is Type.HEAD:
            row.is_changed = True
            row.head = upto = max(row.head, min(value, row.tail))
            if table.has_old(row):
                self._delete(self._database.writer, row, schema.DELETE_UPTO, (row.queue_id, upto))
            # "released" is forgotten only here, when the durable head has passed it, never at PUBCOMP
            table.released(row)
            table.acknowledge(row, upto)
        elif kind is Type.RELEASE:
            if row.head < value <= row.tail:
                table.released(row).add(value)
        elif kind is Type.RESERVE:
            row.is_changed = True
            row.reserved = value
        elif kind is Type.INBOUND:
            table.inbound(row).add(value)
        else:
            table.inbound(row).discard(value)

    def _remove_upto(self, row: QueueRow, upto: int) -> int:
        old = super()._purge(self._database.writer, row, upto) if self._table.has_old(row) else 0
        return old + self._table.remove_upto(row, upto)

    def _drop(self, row: QueueRow) -> int:
        """What is young is gone, or was moved out before."""
        self._table.forget(row.queue_id)
        self._table.tenants.add(row.tenant)
        return super().drop(row.queue_id)
