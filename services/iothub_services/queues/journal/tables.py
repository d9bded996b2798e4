"""The embedded queues with a journal: what every group does is one write to a segment; SQLite has what outlives the segment.

Knows no MQTT packet and no session. Writing verbs belong to one thread; reading ones to any.

Theory. The tables are those of `SqliteQueues`, in one transaction for the life of a segment: a checkpoint writes into it what is young and commits it
with the number of the segment, and the segment is deleted. What is in the transaction and what is young are together the state of the queues; both
come from the last checkpoint and the records of the segments behind it, so a start and a failed write are the same: roll back, and do the records
again. A verb decides in memory and writes what it has decided as records, never what it was asked.

Only the commonest verbs know what is young: append, the moves, read. Every other one moves the queue's young messages into the transaction first,
which no record needs to say, and works on tables.

Invariants: nothing is decided before there is room to write it. A checkpoint begins a new segment before it commits, so that a commit that was
reported as failed and is there all the same covers nothing that comes later. It is made between groups.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter_ns

from iothub.base import log as logging
from iothub.base.errors import BackendError, IotHubError
from iothub_services.queues.journal.encoding import GroupBuffer
from iothub_services.queues.journal.records import (
    AppendRecord,
    ClaimRecord,
    ClosedRecord,
    CommitRecord,
    CreateRecord,
    EndRecord,
    KeptRecord,
    LimitsRecord,
    MoveRecord,
    RebuildRecord,
    Record,
    Type,
)
from iothub_services.queues.journal.segments import Disk, Journal, RealDisk, folder_of, make_folder
from iothub_services.queues.journal.sizes import LARGEST
from iothub_services.queues.journal.young import Body, Table
from iothub_services.queues.port import JournalFigures, Overflow, Place, QueueLimits, TenantUsage
from iothub_services.queues.sqlite import schema
from iothub_services.queues.sqlite.append import Appending
from iothub_services.queues.sqlite.row_cache import QueueRow
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite import request_table
from iothub_services.sqlite.database import Database, backend_error
from iothub_services.sqlite.salvage import SALVAGED

GROUP_BYTES = 12 << 20  # what a group takes at most, but for one very large message
CHECKPOINT_CHANGES = 100_000  # young messages, and rows of messages that the transaction has removed
CHECKPOINT_RECORDS = 250_000  # of a segment: a start, and a failed write, does them again in two seconds
_LARGEST = (1 << 63) - 1
_INSERT_IF_NEW = schema.INSERT_REF.replace("INSERT", "INSERT OR IGNORE")
# After damage, for what the lost records may have done: see `queues.sqlite.rebuilding`.
_GAP = 1 << 17
_CLAIMS = 1_000

log = logging.get(__name__)

Alarm = Callable[[str, str], None]


class _RolledBackError(Exception):
    """Ends the transaction; never leaves this module."""


class JournaledTables(SqliteQueues):
    """The groups, the transaction, and what records say. The verbs are those of `JournaledQueues`."""

    def __init__(
        self,
        database: Database,
        on_alarm: Alarm,
        on_usage: Callable[[int, TenantUsage], None] | None = None,
        *,
        disk: Disk | None = None,
        segment_bytes: int = LARGEST,
    ) -> None:
        """Does the records that a process that died has left. Raises BackendError: a segment cannot be read, or none be begun.

        `on_alarm`: gets damage of the journal.
        """
        super().__init__(database, on_usage)
        self._on_alarm = on_alarm
        # The one transaction is committed between groups, and a group has the lock already.
        self._commits, database.commits = database.commits, type(database.commits)()
        self._lock = threading.RLock()
        self._table = Table(
            database.writer,
            self._rows,
            Appending(database.writer, self._rows, self._bodies, self._removed),
            self._move_out,
        )
        self._changes = 0  # messages that the transaction has removed
        self._checkpoint_us = 0  # how long the last one took
        self._is_forgetting = False  # a tenant: what the tables have of it goes with the end of the group, and its bodies when they are swept
        self._group: GroupBuffer | None = None
        self._is_undone = True  # False: what is in memory has failed and must be read back
        self._undone = 0  # how often it was
        self._transaction = database.transaction()
        folder = folder_of(database.path)
        if disk is None:
            try:
                make_folder(folder)
            except OSError as error:
                raise BackendError(f"{folder}: {error.strerror}", retryable=True) from error
        self._journal = Journal(folder, disk or RealDisk(), segment_bytes)
        self._start()
        self._commits.on_hold.append(self._put_down)

    # --- start and end

    def _start(self) -> None:
        found = self._database.writer.execute("SELECT max(flushed) FROM journal").fetchone()
        loaded = self._journal.load(found[0])
        self._flushed = self._journal.segment - 1
        self._begin()
        try:
            damaged = [each for each in loaded if each.is_damaged]
            self.needs_rebuild |= bool(damaged)
            for segment in loaded:
                for each in segment.records:
                    self._redo(each.record)
            self._table.settle()
            if damaged:
                self._after_damage()
            for segment in damaged:  # before the commit, behind which a start would delete it
                self._tell_damage(segment.segment, is_missing=segment.is_missing)
            self._commit(self._journal.segment - 1)
        except BaseException:
            self._journal.close()
            raise
        self._remove_flushed()

    def _tell_damage(self, segment: int, *, is_missing: bool) -> None:
        if is_missing:
            self._on_alarm(
                "queues_corrupt", f"segment {segment} of the queues' journal is missing: what only it had is lost"
            )
            return
        try:
            kept = f"the file is kept as {self._journal.keep(segment)}"
        except BackendError as error:
            kept = f"the file could not be kept: {error}"
        self._on_alarm(
            "queues_corrupt",
            f"segment {segment} of the queues' journal was damaged: its whole records were used, {kept}",
        )

    def _after_damage(self) -> None:
        """Let no position and no epoch be made anew that a lost record may have had; lost queues are looked for."""
        connection = self._database.writer
        self._rows.write(connection)
        self._rows.evict()
        connection.execute(
            f"UPDATE queue SET tail = tail + {_GAP}, reserved = tail + {_GAP}, epoch = epoch + {_CLAIMS}"  # noqa: S608 - numbers
        )
        connection.execute(f"PRAGMA application_id={SALVAGED}")

    def _remove_flushed(self) -> None:
        """A segment that cannot be removed is removed at the next start."""
        try:
            for number in self._journal.numbers():
                if number <= self._flushed:
                    self._journal.delete(number)
        except BackendError as error:
            log.warning("segments of the journal cannot be removed", why=str(error))

    def close(self) -> None:
        """Put everything into the tables. What cannot be written there stays in the journal, for the next start."""
        self._commits.on_hold.remove(self._put_down)
        with self._commits.commit(), self._lock:
            try:
                self._require_undone()
                self._checkpoint()
                self._end()
                self._journal.close()
                self._journal.clear()
            except BackendError as error:
                log.warning("queues stay in the journal until the next start", why=str(error))
                self._roll_back()
                self._journal.close()
            super().close()

    @property
    def journal_figures(self) -> JournalFigures:
        return JournalFigures(self._journal.disk_bytes, self._table.count, self._checkpoint_us)

    # --- groups

    @contextmanager
    def group(self) -> Iterator[None]:
        if self._group is not None:
            yield
            return
        with self._commits.commit():
            with self._lock:
                self._make_ready()
                group = self._group = self._journal.group()
                undone = self._undone
                try:
                    yield
                    if self._undone != undone:
                        raise BackendError(
                            f"{self._database.path.name}: a read of this group has failed", retryable=True
                        )
                except sqlite3.Error as error:
                    self._undo()
                    raise backend_error(error, self._database.path, is_committing=False) from error
                except IotHubError:  # a verb that refuses has decided nothing
                    if group.data or self._undone != undone:
                        self._undo()
                    raise
                except BaseException:
                    self._undo()
                    raise
                finally:
                    self._group = None
            if group.data:
                try:
                    self._journal.write(group)
                except BaseException:
                    with self._lock:
                        self._undo()
                    raise
                with self._lock:
                    if self._undone == undone:
                        self._table.settle()
                    else:
                        self._undo()  # another thread's read has failed, and this group was not yet among what it read back
            self._after_group()

    def _after_group(self) -> None:
        if self._is_forgetting:
            with suppress(BackendError), self._lock:  # the group is done, whatever becomes of this
                self._checkpoint()
        self._report()

    def _write(self, record: Record) -> None:
        assert self._group is not None  # noqa: S101 - every verb is in a group
        self._group.write(record)

    def _report(self) -> None:
        tenants = self._table.tenants
        if tenants:
            self._rows.report(tenants)
            tenants.clear()

    def _make_ready(self) -> None:
        """Have a segment with room, and only that one. Raises BackendError: nothing was decided yet."""
        self._require_undone()
        is_full = not self._journal.has_room(min(GROUP_BYTES, self._journal.size_bytes // 4))
        has_much = (
            self._table.count + self._changes >= CHECKPOINT_CHANGES or self._journal.records >= CHECKPOINT_RECORDS
        )
        if is_full or has_much or self._journal.is_poisoned or self._flushed < self._journal.segment - 1:
            self._checkpoint()

    def probe(self) -> None:
        """Write what there is, everywhere. Raises BackendError: the files take no writes now."""
        with self._commits.commit(), self._lock:
            self._require_undone()
            self._checkpoint()
        self._database.require_room()

    def _put_down(self) -> None:
        """Nobody else commits now: let the file of the tables be all there is."""
        with self._lock:
            self._require_undone()
            self._checkpoint()

    # --- the transaction

    def _begin(self) -> None:
        self._transaction = self._database.transaction()
        self._transaction.__enter__()

    def _end(self) -> None:
        self._transaction.__exit__(None, None, None)

    def _roll_back(self) -> None:
        error = _RolledBackError()
        with suppress(_RolledBackError):
            self._transaction.__exit__(_RolledBackError, error, None)
        self._table.clear()
        self._table.tenants.clear()
        self._changes = 0

    def _checkpoint(self) -> None:
        """Between groups. Raises BackendError: what is in memory is what it was, or must be read back."""
        begun = perf_counter_ns()
        if not self._journal.is_fresh:
            self._journal.require_room()
            self._journal.next_segment()
        elif self._flushed == self._journal.segment - 1 and not self._changes:
            return
        self._commit(self._journal.segment - 1)
        self._remove_flushed()
        self._checkpoint_us = (perf_counter_ns() - begun) // 1_000

    def _commit(self, flushed: int) -> None:
        try:
            self._move_all_out()
            self._database.writer.execute("DELETE FROM journal")
            self._database.writer.execute("INSERT INTO journal VALUES (?)", (flushed,))
        except sqlite3.Error as error:
            self._undo()
            raise backend_error(error, self._database.path, is_committing=False) from error
        try:
            self._end()
        except BackendError as error:
            self._undo()
            error.is_written = False  # of what is asked for now, nothing is
            raise
        self._flushed = flushed
        self._changes = 0
        self._is_undone = False
        self._begin()
        self._is_undone = True

    def _undo(self) -> None:
        """Be again what the files say. An error is met again by whoever comes next."""
        self._is_undone = False
        with suppress(BackendError):
            self._require_undone()

    @property
    def _is_valid(self) -> bool:
        """Whether memory and transaction are what the files say. SQLite ends a transaction by itself when a disk is full or fails."""
        return self._is_undone and self._database.writer.in_transaction

    def _require_undone(self) -> None:
        """Raises BackendError: the files cannot be read."""
        if self._is_valid:
            return
        self._is_undone = False
        self._undone += 1
        self._roll_back()
        self._begin()
        try:
            self.needs_rebuild = self._database.is_salvaged
            found = self._database.writer.execute("SELECT max(flushed) FROM journal").fetchone()
            self._flushed = found[0] or 0
            for each in self._journal.read_back(self._flushed):
                self._redo(each.record)
        except sqlite3.Error as error:
            raise backend_error(error, self._database.path, is_committing=False) from error
        self._table.settle()
        self._is_undone = True
        self._report()

    def _finish(self, connection: sqlite3.Connection) -> None:
        super()._finish(connection)
        self._bodies.delete_dead(connection, _LARGEST)

    def idle(self) -> bool:
        if self._changes >= CHECKPOINT_CHANGES:
            self.probe()
        has_more = self._idle_slice()
        if self._is_forgetting and not has_more:
            self.probe()
            self._is_forgetting = False
        return has_more

    def _idle_slice(self) -> bool:
        with self._lock:
            if not (self._is_valid and self._has_idle_work):
                return False
            try:
                if self._dropped is None or self._dropped:
                    super()._finish(self._database.writer)
                    return True
                return super().idle()
            except sqlite3.Error as error:
                self._undo()
                raise backend_error(error, self._database.path, is_committing=False) from error

    # --- young messages into the transaction

    def _move_out(self, row: QueueRow) -> None:
        """Move what is young of one queue: a body that other queues have as well is stored once more."""
        young = row.young
        if young is None or not young.references:
            return
        bodies, references = [], []
        for _, position, qos, flags, subscription_ids, body in young.references:
            body.references -= 1
            body_id = self._bodies.allocate()
            bodies.append((body_id, body.data))
            references.append(
                _reference(row.queue_id, position, body_id, qos, flags, subscription_ids, body, is_shared=0)
            )
        self._insert(bodies, references)
        self._table.count -= len(references)
        young.references.clear()
        young.ids.clear()

    def _move_all_out(self) -> None:
        """Move all that is young: a body once."""
        bodies, references = [], []
        connection = self._database.writer
        for row in self._table.take_all():
            young, queue_id = row.young, row.queue_id
            for _, position, qos, flags, subscription_ids, body in young.references:
                if not body.stored_id:
                    body.stored_id = self._bodies.allocate()
                    bodies.append((body.stored_id, body.data))
                    if body.references > 1:
                        self._bodies.shared(body.stored_id, body.references)
                is_shared = int(body.references > 1)
                references.append(
                    _reference(
                        queue_id, position, body.stored_id, qos, flags, subscription_ids, body, is_shared=is_shared
                    )
                )
            for table, values in (("released", young.released), ("inbound", young.inbound)):
                if values is not None:
                    connection.execute(f"DELETE FROM {table} WHERE queue = ?", (queue_id,))  # noqa: S608 - our own names
                    connection.executemany(
                        f"INSERT INTO {table} VALUES (?, ?)",  # noqa: S608 - our own names
                        [(queue_id, value) for value in values],
                    )
            row.young = None
        self._insert(bodies, references)

    def _insert(self, bodies: list[tuple[int, bytes]], references: list[tuple[object, ...]]) -> None:
        connection = self._database.writer
        connection.executemany(schema.INSERT_BODY, bodies)
        connection.executemany(schema.INSERT_REF, references)

    def _removed(self, row: QueueRow | None, references: list[tuple[int, int, int, int]]) -> int:
        self._changes += len(references)
        if row is not None and references:
            self._table.tenants.add(row.tenant)
        return super()._removed(row, references)

    # --- what a record says, done for the first time and again

    def _redo(self, record: Record | CommitRecord) -> None:
        if isinstance(record, AppendRecord):
            self._redo_append(record)
        elif isinstance(record, KeptRecord):
            self._database.writer.execute(request_table.CREATE)  # it may be lost with a damaged file
            self._database.writer.execute(request_table.KEEP, record)
        elif isinstance(record, CreateRecord):
            if self._rows.get(record.queue_id) is None:
                self._make(record)
        elif isinstance(record, RebuildRecord):
            super().rebuild([Place(*each) for each in record.places], record.now_us)
        elif not isinstance(record, ClosedRecord | CommitRecord):  # of the segments, which have seen them
            row = self._rows.touch(record.queue_id)
            if row is not None:
                row.is_changed = True
                self._redo_of(row, record)
            elif self.needs_rebuild:
                self._redo_of_lost(record)

    def _redo_of(self, row: QueueRow, record: MoveRecord | ClaimRecord | LimitsRecord | EndRecord) -> None:
        if isinstance(record, MoveRecord):
            if record.type is Type.REMOVED:
                self._move_out(row)
                self._delete(self._database.writer, row, schema.DELETE_ONE, (row.queue_id, record.value))
            else:
                self._do_move(row, record.type, record.value)
        elif isinstance(record, ClaimRecord):
            row.epoch = max(row.epoch, record.epoch)
            row.owner = record.owner
        elif isinstance(record, LimitsRecord):
            row.set_limits(QueueLimits(record.messages, record.bytes, Overflow(record.overflow)))
        else:
            self._move_out(row)
            if record.type is Type.PURGE:
                super().purge(row.queue_id)
            else:
                self._drop(row)

    def _redo_append(self, record: AppendRecord) -> None:
        body = Body(record.message_id, record.body, record.expires_at_ms)
        for queue_id, position, qos, flags, subscription_ids in record.deliveries:
            row = self._rows.touch(queue_id)
            if row is None:
                if self.needs_rebuild:
                    self._keep_for_lost(queue_id, position, qos, flags, subscription_ids, body)
            elif position > row.tail:
                self._table.take(row, position, qos, flags, subscription_ids, body)
        if record.inbound is not None:
            row = self._rows.get(record.inbound[0])
            if row is not None:
                self._table.inbound(row).add(record.inbound[2])

    # Of a queue whose row is lost: the tables have what is left of it until the sessions say which queues there must be (`rebuild`).

    def _keep_for_lost(
        self, queue_id: int, position: int, qos: int, flags: int, subscription_ids: tuple[int, ...], body: Body
    ) -> None:
        connection, body_id = self._database.writer, self._bodies.allocate()
        reference = _reference(queue_id, position, body_id, qos, flags, subscription_ids, body, is_shared=0)
        if connection.execute(_INSERT_IF_NEW, reference).rowcount:
            connection.execute(schema.INSERT_BODY, (body_id, body.data))

    def _redo_of_lost(self, record: MoveRecord | ClaimRecord | LimitsRecord | EndRecord) -> None:
        connection, queue_id = self._database.writer, record.queue_id
        if isinstance(record, EndRecord):
            self._delete(connection, None, schema.DELETE_UPTO, (queue_id, _LARGEST))
        elif isinstance(record, MoveRecord):
            if record.type is Type.REMOVED:
                self._delete(connection, None, schema.DELETE_ONE, (queue_id, record.value))
            elif record.type is Type.HEAD:
                self._delete(connection, None, schema.DELETE_UPTO, (queue_id, record.value))
                connection.execute("DELETE FROM released WHERE queue = ? AND position <= ?", (queue_id, record.value))
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

    def _drop(self, row: QueueRow) -> int:
        """The young messages are moved out before."""
        self._table.forget(row.queue_id)
        self._table.tenants.add(row.tenant)
        return super().drop(row.queue_id)


def _reference(
    queue_id: int,
    position: int,
    body_id: int,
    qos: int,
    flags: int,
    subscription_ids: tuple[int, ...],
    body: Body,
    *,
    is_shared: int,
) -> tuple[object, ...]:
    message_id = body.message_id if qos == 2 and body.message_id else None
    identifiers = ",".join(map(str, subscription_ids)) if subscription_ids else None
    size = len(body.data)
    return (queue_id, position, body_id, size, qos, flags, body.expires_at_ms, message_id, identifiers, is_shared)
