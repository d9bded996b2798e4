"""The embedded queues with a journal: what every group does is one write to a segment; SQLite has what outlives the segments that may be there.

Knows no MQTT packet and no session. Writing verbs belong to one thread; reading ones to any.

Theory. The tables are those of `SqliteQueues`, in an open transaction. What is in it and what is young are together the state of the queues; both
come from the last commit and the records of the segments behind `flushed`, so a start and a failed write are the same: roll back, and do the records
again (`redo`). A verb decides in memory and writes what it has decided as records, never what it was asked.

Moving a young message into the transaction needs no record, so it is done between groups, of the oldest segment, a slice at a time (`flush`), and
only when the segments are about to be as many as they may be. A commit is made when a segment begins: it says that the tables have everything of the
segments before (`done`), but for what is young, and which of them nothing young is in (`flushed`). Those are deleted. While it is made, groups are
written on that need nothing of the tables: it is as of before them, and they are in the segment behind. Whatever needs the tables waits for it.

Only the commonest verbs know what is young: append, the moves, read. Every other one moves the queue's young messages into the transaction first,
or takes them away, and works on tables.

Invariants: nothing is decided before there is room to write it. A commit is made when nothing was written to the newest segment, so that one that
was reported as failed and is there all the same covers nothing that comes later.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter_ns

from iothub.base import log as logging
from iothub.base.errors import BackendError, IotHubError
from iothub_services.queues.journal.beside import Beside, InThread
from iothub_services.queues.journal.damage import DamageReport
from iothub_services.queues.journal.disk import Disk, RealDisk
from iothub_services.queues.journal.encoding import GroupBuffer
from iothub_services.queues.journal.flush import Flush, stragglers
from iothub_services.queues.journal.records import Record
from iothub_services.queues.journal.redo import RedoneTables
from iothub_services.queues.journal.segments import BROKEN, Journal, folder_of, make_folder
from iothub_services.queues.journal.sizes import LARGEST, most_removed
from iothub_services.queues.journal.young import Table
from iothub_services.queues.port import JournalFigures, TenantUsage
from iothub_services.queues.sqlite.append import Appending
from iothub_services.queues.sqlite.row_cache import QueueRow
from iothub_services.sqlite.database import Database, backend_error
from iothub_services.sqlite.salvage import SALVAGED

GROUP_BYTES = 12 << 20  # what a group takes at most, but for one very large message
JOURNAL_BYTES = 1 << 30  # of the segments that may be there
CHECKPOINT_CHANGES = 100_000  # rows of messages that the transaction has removed: a start removes them again
SEGMENT_RECORDS = 50_000
JOURNAL_STEPS = (
    800_000  # of all segments; see `steps_of`: a start, and a failed write, does them again in less than five seconds
)
MOVED_AT_STOP = 10_000  # messages that a stop moves into the tables, in less than a second
YOUNG_MESSAGES = 1_000_000  # at 32 bytes; a record may be of many queues
_FLUSH_FASTER = 2  # bytes of the oldest segment that are looked through for each byte of the group before
SLICE_BYTES = 64 << 10  # but so many at least: a millisecond or two
_LARGEST = (1 << 63) - 1
# After damage, for what the lost records may have done: see `queues.sqlite.rebuilding`.
_GAP = 1 << 17
_CLAIMS = 1_000

log = logging.get(__name__)

Alarm = Callable[[str, str], None]


class JournaledTables(RedoneTables):
    """The groups and the transaction. The verbs are those of `JournaledQueues`."""

    def __init__(
        self,
        database: Database,
        on_alarm: Alarm,
        on_usage: Callable[[int, TenantUsage], None] | None = None,
        *,
        disk: Disk | None = None,
        beside: Callable[[str], Beside] = InThread,
        segment_bytes: int = LARGEST,
        journal_bytes: int = JOURNAL_BYTES,
    ) -> None:
        """Does the records that a process that died has left. Raises BackendError: a segment cannot be read, or none be begun.

        `on_alarm`: gets damage of the journal. `journal_bytes`: of the segments that may be there; while they change there is one more.
        `beside`: makes what does work beside the groups, by a name.
        """
        super().__init__(database, on_usage)
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
        self._checkpoint_us = 0  # how long appends waited when the newest segment was begun
        self._is_forgetting = False  # a tenant: what the tables have of it goes with the end of the group, and its bodies when they are swept
        self._flush: Flush | None = None  # of the oldest segment, while it is moved
        self._flushed_for = 0  # where the newest segment ended before the last group
        self._flushed = 0  # as committed
        self._deleted = 0  # flushed segments up to here
        self._committing = beside("queues-commit")
        self._commits_flushed: int | None = (
            None  # what is flushed when the commit that is under way is done; None: none is
        )
        self._most_bytes = journal_bytes  # that segments may take, if the disk has room
        self._journal_bytes = journal_bytes  # that they may take now
        self._group: GroupBuffer | None = None
        self._is_undone = True  # False: what is in memory has failed and must be read back
        self._is_reading_back = False  # that is done now, under the lock
        self._undone = 0  # how often it was
        folder = folder_of(database.path)
        if disk is None:
            make_folder(folder)
        self._journal = Journal(folder, disk or RealDisk(), segment_bytes, beside("queues-segment"))
        self._damage = DamageReport(folder, self._journal.keep, on_alarm)
        self._start()
        self._commits.on_hold.append(self._put_down)

    # --- start and end

    def _start(self) -> None:
        flushed, done = self._marks()
        damaged: dict[int, str] = {}
        self._flushed = flushed or 0
        self._begin()
        try:
            for loaded in self._journal.load(flushed, done):
                if loaded.is_damaged:
                    damaged[loaded.segment] = loaded.damage
                    self.needs_rebuild = True
                self._redo_all(loaded.segment, loaded.records, is_done=loaded.segment <= done)
            self._table.settle()
            self._table.segment = self._journal.segment
            if damaged:
                self._damage.report(damaged)  # before the commit, behind which a start would delete them
                self._flush_all()
                self._after_damage()
            self._commit()
        except sqlite3.Error as error:
            self._journal.close()
            raise backend_error(error, self._database.path, is_committing=False) from error
        except BaseException:
            self._journal.close()
            raise
        self._remove_flushed()

    def _marks(self) -> tuple[int | None, int]:
        """Return what is flushed, and what is done: see `Journal.load`."""
        found = self._database.writer.execute(
            "SELECT flushed, done FROM journal ORDER BY flushed DESC LIMIT 1"
        ).fetchone()
        return found or (None, -1)

    def _after_damage(self) -> None:
        """Let no position and no epoch be made anew that a lost record may have had; lost queues are looked for."""
        connection = self._database.writer
        self._write_marks()
        self._table.clear()
        self._rows.write(connection)
        self._rows.evict()
        connection.execute(
            f"UPDATE queue SET tail = tail + {_GAP}, reserved = tail + {_GAP}, epoch = epoch + {_CLAIMS}"  # noqa: S608 - numbers
        )
        connection.execute(f"PRAGMA application_id={SALVAGED}")

    def _remove_flushed(self) -> None:
        """A segment that cannot be removed is removed at the next start."""
        flushed = self._flushed
        try:
            for number in self._journal.numbers():
                if number <= flushed:
                    self._journal.delete(number)
        except BackendError as error:
            log.warning("segments of the journal cannot be removed", why=str(error))
        self._deleted = flushed

    def close(self) -> None:
        """Put everything into the tables if that takes a moment and can be done; else it stays in the journal, for the next start."""
        self._commits.on_hold.remove(self._put_down)
        with self._commits.commit(), self._lock:
            try:
                self._require_undone()
                if self._table.count > MOVED_AT_STOP:
                    self._checkpoint()
                    self._database.roll_back()
                    self._journal.close()
                else:
                    self._put_into_tables()
                    self._commit(is_last=True)
                    self._database.roll_back()
                    self._journal.close()
                    self._journal.clear()
            except BackendError as error:
                log.warning("queues stay in the journal until the next start", why=str(error))
                self._roll_back()
                self._journal.close()
            super().close()

    @property
    def journal_figures(self) -> JournalFigures:
        return JournalFigures(self._journal.disk_bytes, self._table.count, self._checkpoint_us, self._free.size_bytes)

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
                self._table.segment = self._journal.segment
                undone = self._undone
                try:
                    yield
                    if not self._is_as_of(undone):
                        raise BackendError(
                            f"{self._database.path.name}: a read of this group has failed", retryable=True
                        )
                except sqlite3.Error as error:
                    self._undo()
                    raise backend_error(error, self._database.path, is_committing=False) from error
                except IotHubError as error:
                    # A verb that refuses has decided nothing; one whose files fail may have, before its first record.
                    if group.data or isinstance(error, BackendError) or not self._is_as_of(undone):
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
                    if self._is_as_of(undone):
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
        """Have a segment with room, and not too many. Raises BackendError: nothing was decided yet."""
        self._require_undone()
        self._look_at_commit()
        journal = self._journal
        journal.prepare()
        has_room = journal.has_room(min(GROUP_BYTES, journal.size_bytes // 4))
        is_full = not has_room or journal.records >= SEGMENT_RECORDS
        is_due = self._has_removed_much and self._commits_flushed is None and self._may_turn
        if is_full or journal.is_poisoned or is_due or self._is_over():
            self._turn()
        elif self._flush is not None:
            written = journal.at - self._flushed_for
            self._flushed_for = journal.at
            if self._commits_flushed is None:
                self._flush_slice(max(_FLUSH_FASTER * written, SLICE_BYTES))
                self._begin_flush()  # of the next one: it may take several to make room for a large one

    @property
    def _may_turn(self) -> bool:
        """Whether there is room for a segment that need not begin now: what makes room must not be refused for want of it."""
        try:
            self._journal.require_room()
        except BackendError:
            return False
        return True

    def _turn(self) -> None:
        """Begin a segment, and have no more of them than may be there."""
        begun = perf_counter_ns()
        self._await_commit()
        self._next_segment()
        self._journal_bytes = self._journal.most_bytes(self._most_bytes)
        while self._is_over():
            self._flush_oldest()
        with self._moving():
            for row in stragglers(self._table, self._journal.segment):
                self._move_out(row)
        if self._oldest() - 1 > self._flushed or self._has_removed_much:
            self._start_commit()
            self._look_at_commit()
        self._begin_flush()
        self._checkpoint_us = (perf_counter_ns() - begun) // 1_000

    @property
    def _has_removed_much(self) -> bool:
        """Whether the transaction is to be committed for what it has removed."""
        return self._changes >= CHECKPOINT_CHANGES or self._bodies.removed_bytes >= self._most_removed

    @property
    def _most_removed(self) -> int:
        return most_removed(self._journal_bytes)

    def _begin_flush(self) -> None:
        if self._flush is None and self._is_near():
            self._flush = self._flush_of(self._table.oldest())
            self._flushed_for = self._journal.at

    def _next_segment(self) -> None:
        if not self._journal.is_fresh:
            self._journal.require_room()
            self._journal.next_segment()

    def _oldest(self) -> int:
        """Return the oldest segment that is needed."""
        return self._table.oldest() or self._journal.segment

    def _is_over(self) -> bool:
        """Whether a segment must go now."""
        return self._has_more_than(self._journal_bytes, JOURNAL_STEPS, YOUNG_MESSAGES)

    def _is_near(self) -> bool:
        """Whether the oldest segment should be gone when the next one begins."""
        size_bytes = self._journal_bytes - self._journal.size_bytes
        return self._has_more_than(size_bytes, JOURNAL_STEPS - SEGMENT_RECORDS, YOUNG_MESSAGES // 2)

    def _has_more_than(self, size_bytes: int, steps: int, messages: int) -> bool:
        """Whether the segments behind the oldest that is needed are more than one, and have more than that."""
        oldest, journal = self._oldest(), self._journal
        if oldest == journal.segment:
            return False
        return (
            journal.bytes_above(oldest - 1) > size_bytes
            or journal.steps_above(oldest - 1) > steps
            or self._table.count > messages
        )

    def probe(self) -> None:
        """Write what there is, everywhere. Raises BackendError: the files take no writes now."""
        with self._commits.commit(), self._lock:
            self._require_undone()
            self._checkpoint()
        self._database.require_room()

    def put_into_tables(self) -> None:
        """Have nothing in the journal. Raises BackendError."""
        with self._commits.commit(), self._lock:
            self._require_undone()
            self._put_into_tables()

    def _put_down(self) -> None:
        """Nobody else commits now: begin a segment, so that a copy of what is there needs the beginning of that one, and all of the others."""
        with self._lock:
            self._require_undone()
            self._checkpoint()
            self._journal.keep_blocks()

    def _put_into_tables(self) -> None:
        self._next_segment()
        while self._table.count:
            self._flush_oldest()
            self._commit()
            self._remove_flushed()
        self._checkpoint()

    # --- segments into the transaction

    def _flush_of(self, segment: int) -> Flush:
        mark, end = self._journal.mark_of(segment), self._journal.end_of(segment)
        return Flush(segment, mark, end, self._table, self._bodies, self._read_at)

    def _flush_oldest(self) -> None:
        """Move all that is young of the oldest segment."""
        if self._flush is None:
            self._flush = self._flush_of(self._table.oldest())
        self._flush_slice(_LARGEST)

    def _flush_all(self) -> None:
        while self._table.count:
            self._flush_oldest()

    def _flush_slice(self, size_bytes: int) -> None:
        """Raises BackendError."""
        flush = self._flush
        assert flush is not None  # noqa: S101 - for the type
        with self._moving():
            flush.slice(self._database.writer, size_bytes)
            if flush.is_broken:
                for row in self._table.rows_in(flush.segment):
                    self._move_out(row)
                self._damage.report({flush.segment: BROKEN})
        if flush.is_done:
            self._flush = None

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Raises BackendError: what is in memory must be read back, or nothing has happened."""
        try:
            yield
        except BaseException as error:
            self._undo()  # what was taken out of the table in memory may not be in the transaction
            if isinstance(error, sqlite3.Error):
                raise backend_error(error, self._database.path, is_committing=False) from error
            raise

    def _read_at(self, segment: int, at: int, size_bytes: int) -> bytes:
        group, end = self._group, at + size_bytes
        if group is None or segment != self._journal.segment or end <= group.start:
            return self._journal.read_at(segment, at, size_bytes)
        written = self._journal.read_at(segment, at, group.start - at) if at < group.start else b""
        return written + bytes(group.data[max(at - group.start, 0) : end - group.start])

    # --- the transaction

    def _begin(self) -> None:
        try:
            self._database.begin()
        except sqlite3.Error as error:
            raise backend_error(error, self._database.path, is_committing=False) from error

    def _roll_back(self) -> None:
        with suppress(BackendError):
            self._await_commit()
        self._database.roll_back()
        self._table.clear()
        self._table.tenants.clear()
        self._changes = 0
        self._flush = None

    def _checkpoint(self) -> None:
        """Begin a segment, and commit. Between groups. Raises BackendError: what is in memory is what it was, or must be read back."""
        begun = perf_counter_ns()
        self._next_segment()
        self._commit()
        self._remove_flushed()
        self._checkpoint_us = (perf_counter_ns() - begun) // 1_000

    def _commit(self, *, is_last: bool = False) -> None:
        """Between groups, with nothing written to the newest segment. `is_last`: nor will be. Raises BackendError."""
        self._start_commit(is_last=is_last)
        try:
            self._await_commit()
        except BackendError:
            self._undo()
            raise

    def _start_commit(self, *, is_last: bool = False) -> None:
        """Do what `_commit` does, but let the disk work while groups are written that need nothing of the tables. Raises BackendError."""
        self._await_commit()
        segment = self._journal.segment
        flushed, done = (segment, -1) if is_last else (self._oldest() - 1, segment - 1)
        database = self._database
        try:
            self._write_marks()
            database.writer.execute("DELETE FROM journal")
            database.writer.execute("INSERT INTO journal VALUES (?, ?)", (flushed, done))
            database.finish()
        except sqlite3.Error as error:
            self._undo()
            raise backend_error(error, database.path, is_committing=False) from error
        database.settle()  # what is in memory is as of the commit; if that fails, all of it is read back
        self._changes = 0
        self._commits_flushed = flushed
        database.writer.lend(self._await_commit)
        is_giving_back = self._free.are_most and not is_last
        self._committing.start(self._commit_and_give_back if is_giving_back else database.commit)

    def _commit_and_give_back(self) -> None:
        self._database.commit()
        self._free.give_back()

    def _await_commit(self) -> None:
        """Have no commit under way. Under the lock. Raises BackendError: it has failed, and what is in memory must be read back."""
        flushed, self._commits_flushed = self._commits_flushed, None
        if flushed is None:
            return
        is_undone, self._is_undone = self._is_undone, False
        self._database.writer.lend(None)
        try:
            self._committing.wait()
        except sqlite3.Error as error:
            raise backend_error(error, self._database.path, is_committing=False) from error
        self._flushed = flushed
        self._begin()
        self._is_undone = is_undone

    def _look_at_commit(self) -> None:
        """Remove what is flushed when a commit is done. Raises BackendError: it has failed."""
        if self._commits_flushed is not None and self._committing.is_over:
            self._await_commit()
        if self._flushed > self._deleted:
            self._remove_flushed()

    def _write_marks(self) -> None:
        """Write what is loaded of released positions and open inbound identifiers."""
        connection = self._database.writer
        for row in self._table.take_marks():
            for table, values in (("released", row.young.released), ("inbound", row.young.inbound)):
                if values or (values is not None and row.young.stored):
                    connection.execute(f"DELETE FROM {table} WHERE queue = ?", (row.queue_id,))  # noqa: S608 - our own names
                    connection.executemany(
                        f"INSERT INTO {table} VALUES (?, ?)",  # noqa: S608 - our own names
                        [(row.queue_id, value) for value in values],
                    )
            self._table.settle_marks(row)

    def _undo(self) -> None:
        """Be again what the files say. An error is met again by whoever comes next."""
        self._is_undone = False
        with suppress(BackendError):
            self._require_undone()

    @property
    def _is_valid(self) -> bool:
        """Whether memory and transaction are what the files say. SQLite ends a transaction by itself when a disk is full or fails."""
        return self._is_undone and (self._commits_flushed is not None or self._database.writer.in_transaction)

    def _is_as_of(self, undone: int) -> bool:
        """Whether nothing was read back since, nor must be."""
        return self._is_valid and self._undone == undone

    def _require_undone(self) -> None:
        """Raises BackendError: the files cannot be read."""
        if self._is_valid:
            return
        self._is_undone = False
        self._is_reading_back = True
        try:
            self._read_back()
        finally:
            self._is_reading_back = False

    def _read_back(self) -> None:
        self._undone += 1
        self._roll_back()
        self._begin()
        try:
            self.needs_rebuild = self._database.is_salvaged
            self._rows.sum_up()
            flushed, done = self._marks()
            self._flushed = flushed or 0
            for loaded in self._journal.read_back(self._flushed):
                self._redo_all(loaded.segment, loaded.records, is_done=loaded.segment <= done)
        except sqlite3.Error as error:
            raise backend_error(error, self._database.path, is_committing=False) from error
        self._table.settle()
        self._is_undone = True
        self._report()

    def _finish(self, connection: sqlite3.Connection) -> None:
        super()._finish(connection)
        self._bodies.delete_rest(connection, self._most_removed)

    def _idle_slice(self) -> bool:
        with self._lock:
            self._require_undone()  # nobody reads before
            try:
                if not self._has_idle_work:
                    self._free.look()
                    return False
                if self._dropped is None or self._dropped:
                    super()._finish(self._database.writer)
                    return True
                self._clear_away()
                self._free.look()
                return self._has_idle_work
            except sqlite3.Error as error:
                self._undo()
                raise backend_error(error, self._database.path, is_committing=False) from error

    def _removed(self, row: QueueRow | None, references: list[tuple[int, int, int, int]]) -> int:
        self._changes += len(references)
        if row is not None and references:
            self._table.tenants.add(row.tenant)
        return super()._removed(row, references)
