"""What the reading thread asks of queues of driver `hbase-plain`: pages, tails, where queues stand.

Knows rows; changes nothing in HBase. Rows are read before the meta row: what is missing then was vacated, and the meta row says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import cast

from iothub.base import log as logging
from iothub.records import keys
from iothub.records.queue_batch import records_of
from iothub.records.queued import Record
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call
from iothub_services.hbase.replies import Row
from iothub_services.queues.hbase.bodies import Bodies, Wanted
from iothub_services.queues.hbase_plain.doomed import parts
from iothub_services.queues.hbase_plain.log import ROWS_AT_ONCE, QueueLog
from iothub_services.queues.hbase_plain.meta import BATCH, STATE, Meta, decode_meta
from iothub_services.queues.hbase_plain.queue import LogQueue, holds, is_gone, run_of
from iothub_services.queues.port import (
    Page,
    QueuedRecord,
    QueueStats,
    StaleEpochError,
    Unreadable,
    UnreadableQueueError,
    in_order,
    unreadable_queue,
)
from iothub_services.queues.remote.index import all_of, unknown

log = logging.get(__name__)

_STEPS = 4  # rows behind a known tail that are looked for one by one
_LISTED_AT_ONCE = 256
_POLLS = 8  # in one of so many a queue's meta row is looked at, too: another hub may have removed what it appended


class Reading:
    """Everything that only looks. It shares the queues with the writing thread, and tells them what it finds."""

    def __init__(self, log: QueueLog, bodies: Bodies) -> None:
        self._log = log
        self._bodies = bodies
        self._polls = 0

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        queue = self._opened(queue_id)
        page = _Filling(after, count, size_bytes)
        with self._log.lock:
            start = queue.boundary(after + 1)  # only here: later ones are known from what HBase says now
        missing = 0  # where a row must be, by the meta row, and was not when the rows were read
        while not page.is_full:
            before = start
            rows, start, is_end, raw = self._rows(queue, start, count, size_bytes, is_lost=start == missing)
            meta = self._meta(queue, epoch, raw)
            is_filled = self._fill_all(queue, meta, rows, page)
            if rows and not is_filled:  # a late write of the past where the next row will be
                start, is_end = before, True
            run = run_of(meta.vacated, start)
            if run is not None:
                start, is_end = run[1] + 1, False
            elif is_end and start <= meta.top and start != missing:
                missing = start  # another hub was quick: it has put this row, and removed one behind it
            elif is_end:
                page.end(max(start - 1, meta.top))
                break
        return Page(self._with_bodies(queue, page.found), page.upto, page.is_end, page.unreadable)

    def _opened(self, queue_id: int) -> LogQueue:
        """Return a queue; one whose last row cannot be read is for this page alone: who appends may not find it.

        Raises NotFoundError, BackendError.
        """
        damage = self._log.load_readable((queue_id,)).get(queue_id)
        if damage is None:
            return self._log.existing(queue_id)
        if damage.queue is None:
            raise damage.error
        damage.queue.stretch(damage.position)
        return damage.queue

    def _rows(
        self, queue: LogQueue, start: int, count: int, size_bytes: int, *, is_lost: bool
    ) -> tuple[list[Row], int, bool, bytes | None]:
        """Return rows from the one that begins at `start`, the next row's position, whether there is none behind, and the meta row.

        `is_lost`: that one was not there though it should be; if it still is not, the next one is looked for.
        """
        log, key = self._log, queue.key
        with log.lock:
            asked, behind = _planned(queue, start, count, size_bytes)
            is_tail = behind > queue.tail
        if not asked and (is_lost or not is_tail):
            rows = log.rows_from(key, start)
            behind = self._behind(queue, rows[-1]) if rows else start
            return rows, behind, len(rows) < ROWS_AT_ONCE, log.metas((key,)).get(key)
        names = [keys.record_row(key, first) for first in (*asked, behind)]
        asked_rows: Call[object] = calls.get_rows(log.table, names, (BATCH,), pin=key)
        asked_meta: Call[object] = calls.get_rows(log.table, [keys.meta_row(key)], (STATE,), pin=key)
        rows, metas = (cast("list[Row]", each) for each in all_of(log.caller.call_many((asked_rows, asked_meta))))
        raw = metas[0].cells[STATE].value if metas else None
        last = next((row for row in rows if row.key == names[-1]), None)
        if last is not None:
            return rows, self._behind(queue, last), False, raw
        return rows, behind, is_tail, raw

    def _behind(self, queue: LogQueue, row: Row) -> int:
        """Return the position behind a row; behind its first one if it cannot be read: the page ends before it."""
        try:
            return self._log.batch(queue, row).last + 1
        except UnreadableQueueError:
            return keys.position_of(row.key) + 1

    def _meta(self, queue: LogQueue, epoch: int, raw: bytes | None) -> Meta:
        queue_id = queue.known.queue_id
        if raw is None:
            raise unknown(queue_id)
        meta = queue.meta if raw == queue.raw else self._log.decoded(queue_id, decode_meta, raw)
        if meta.epoch != epoch:
            raise StaleEpochError(f"queue {queue_id} is at epoch {meta.epoch}, the reader at {epoch}")
        return meta

    def _fill_all(self, queue: LogQueue, meta: Meta, rows: Sequence[Row], page: _Filling) -> bool:
        """Put records into the page, up to a row that cannot be read; False: all rows belong to an earlier incarnation of the queue."""
        is_filled = False
        for row in rows:
            position = keys.position_of(row.key)
            try:
                is_filled |= holds(meta.vacated, position) or self._fill(queue, meta, row, page)
            except UnreadableQueueError as error:
                page.stop(Unreadable(max(position, meta.head + 1), str(error)))
                return True
        return is_filled

    def _fill(self, queue: LogQueue, meta: Meta, row: Row, page: _Filling) -> bool:
        """Put records into the page; False: the row belongs to an earlier incarnation of the queue."""
        batch = self._log.batch(queue, row)
        if batch.born != meta.born:
            return False
        self._log.learn(queue, batch)
        for position, record in enumerate(records_of(row.cells[BATCH].value), batch.first):
            if position > page.after and not page.is_full and not is_gone(meta, position):
                page.add(position, record)
        return True

    def _with_bodies(self, queue: LogQueue, found: Sequence[tuple[int, Record]]) -> list[QueuedRecord]:
        """Put bodies that lie apart in place; one that is lost leaves nothing, which cannot be read as a message."""
        tenant_id = queue.known.tenant_id
        wanted = [Wanted(tenant_id, each.body.id, each.body.size) for _, each in found if each.body.id]
        bodies = self._bodies.fetch(wanted) if wanted else {}
        records = []
        for position, each in found:
            body = bodies.get(each.body.id, b"") if each.body.id else each.body.octets
            records.append(
                QueuedRecord(position, each.qos, each.flags, each.subscription_ids, each.expires_at_ms, body)
            )
        return records

    # --- tails

    def tails(self, queue_ids: Sequence[int]) -> dict[int, int]:
        """Return where queues end, the unreadable row of one included: so its session reads, and finds out what it stands still before."""
        log = self._log
        beyond = {queue_id: damage.position for queue_id, damage in log.load_readable(queue_ids).items()}
        queues = [queue for queue_id in queue_ids if (queue := log.get(queue_id)) is not None]
        self._polls += 1
        looked_at = [queue for queue in queues if queue.known.queue_id % _POLLS == self._polls % _POLLS]
        raws = log.metas([queue.key for queue in looked_at])
        for queue in looked_at:
            if not self._reach(queue, raws.get(queue.key, queue.raw)):
                beyond[queue.known.queue_id] = queue.tail + 1
        beyond |= self._discover(queues)
        tails = {queue.known.queue_id: queue.tail for queue in queues} | beyond
        for queue in looked_at:
            if queue.key not in raws:
                del tails[queue.known.queue_id]
        return tails

    def _reach(self, queue: LogQueue, raw: bytes) -> bool:
        """See where the tail is by the meta row; False: that cannot be read."""
        if raw != queue.raw:
            try:
                meta = self._log.decoded(queue.known.queue_id, decode_meta, raw)
            except UnreadableQueueError:
                return False
            with self._log.lock:
                queue.reach(meta)
        return True

    def _discover(self, queues: Sequence[LogQueue]) -> dict[int, int]:
        """Look behind the known tails: another hub may have appended. Return where rows begin that cannot be read, by queue."""
        beyond: dict[int, int] = {}
        waiting = list(queues)
        for _ in range(_STEPS):
            slots = {keys.record_row(queue.key, queue.tail + 1): queue for queue in waiting}
            asked = [calls.get_rows(self._log.table, part, (BATCH,)) for part in parts(list(slots), ROWS_AT_ONCE)]
            waiting = []
            for rows in all_of(self._log.caller.call_many(asked)):
                for row in rows:
                    queue = slots[row.key]
                    try:
                        batch = self._log.batch(queue, row)
                    except UnreadableQueueError:
                        beyond[queue.known.queue_id] = keys.position_of(row.key)
                        continue
                    if self._log.learn(queue, batch):
                        waiting.append(queue)
            if not waiting:
                return beyond
        damaged = self._log.seek_readable(waiting)
        return beyond | {queue_id: damage.position for queue_id, damage in damaged.items()}

    # --- where queues stand

    def stats(self, queue_id: int) -> QueueStats:
        standing, unreadable = self._standing((queue_id,))
        for error in unreadable.values():
            raise error
        if not standing:
            raise unknown(queue_id)
        return standing[queue_id]

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        strange: list[QueueStats] = []
        listed = [queue_id for _, queue_id in self._log.index.listed(tenant_id, strange)]
        found = {stats.queue_id: stats for stats in strange}
        for part in parts(listed, _LISTED_AT_ONCE):
            standing, unreadable = self._standing(part)
            found |= standing
            found |= {queue: unreadable_queue(queue, tenant_id, str(error)) for queue, error in unreadable.items()}
        return in_order(found.values())

    def _standing(self, queue_ids: Sequence[int]) -> tuple[dict[int, QueueStats], dict[int, UnreadableQueueError]]:
        """Read meta rows and last rows, not what this hub has in memory: others may have changed them.

        A queue stands where it can be read. Returns what is wrong with meta rows, too.
        """
        store = self._log
        store.index.find(queue_ids)
        known = [each for queue_id in queue_ids if (each := store.index.get(queue_id)) is not None]
        queues, damaged = store.fresh(known)
        store.seek_before(list(damaged.values()))
        found = {queue.known.queue_id: queue.stats() for queue in queues}
        found |= {queue_id: _so_far(each.queue) for queue_id, each in damaged.items() if each.queue is not None}
        return found, {queue_id: each.error for queue_id, each in damaged.items() if each.queue is None}


def _so_far(queue: LogQueue) -> QueueStats:
    """Return where a queue stands up to a row that cannot be read; when no row before it can be, what is gone may be more than is known."""
    stats = queue.stats()
    return stats._replace(messages=max(stats.messages, 0), bytes=max(stats.bytes, 0))


class _Filling:
    """A page that is being filled."""

    def __init__(self, after: int, count: int, size_bytes: int) -> None:
        self.after = after
        self.upto = after
        self.found: list[tuple[int, Record]] = []
        self.is_full = count <= 0
        self.is_end = False
        self.unreadable: Unreadable | None = None
        self._count = count
        self._size_bytes = size_bytes

    def add(self, position: int, record: Record) -> None:
        self.found.append((position, record))
        self.upto = position
        self._size_bytes -= record.body.size
        self.is_full = self._size_bytes <= 0 or len(self.found) >= self._count

    def stop(self, unreadable: Unreadable) -> None:
        """What is next cannot be read; what there was before it is in the page."""
        if not self.is_full:
            self.upto = max(self.upto, unreadable.position - 1)
            self.unreadable = unreadable
            self.is_full = True

    def end(self, tail: int) -> None:
        """There is nothing behind `tail`."""
        if not self.is_full:
            self.upto = max(self.after, tail)
        self.is_end = self.upto >= tail


def _planned(queue: LogQueue, start: int, count: int, size_bytes: int) -> tuple[list[int], int]:
    """Return the known rows, without a gap from `start` on, that make up the page, and the position behind them."""
    asked: list[int] = []
    for batch in islice(queue.between(start, queue.tail), ROWS_AT_ONCE - 1):
        if batch.first != start or count <= 0 or size_bytes <= 0:
            break
        asked.append(start)
        start = batch.last + 1
        count -= len(batch.records)
        size_bytes -= sum([record.size for record in batch.records])
    return asked, start
