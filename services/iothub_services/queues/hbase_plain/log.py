"""The calls of driver `hbase-plain`: queues loaded, rows read, meta rows changed by compare-and-swap.

Knows the rows and the gateway's calls; knows no limits and no publisher. What it learns it tells the `LogQueue`s.

Theory: a meta row is swapped against the value that was seen, and no two values are equal, so a late swap of the past changes nothing.
A row is deleted only after the meta row says that it is vacated. Two threads work here: the writing one changes meta rows, the reading
one loads queues and finds rows; `lock` is held while the memory of a queue is looked at or changed, never during a call.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records import keys
from iothub.records.queue_batch import Batch, Known, decode_batch
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call, Scan
from iothub_services.hbase.replies import Row
from iothub_services.queues.hbase_plain.doomed import Doomed, parts
from iothub_services.queues.hbase_plain.meta import BATCH, STATE, Meta, decode_meta, encode_meta
from iothub_services.queues.hbase_plain.queue import LogQueue
from iothub_services.queues.port import UnreadableQueueError, worst_of
from iothub_services.queues.remote.index import KnownQueue, QueueIndex, all_of, unknown

log = logging.get(__name__)
T = TypeVar("T")

ROWS_AT_ONCE = 32  # of a page or a scan: 8 MiB at most
_METAS_AT_ONCE = 500
_SCANNERS_AT_ONCE = 256
_BEFORE_ROWS = 8  # looked at for one that can be read, before one that cannot
_BEFORE_QUEUES = _SCANNERS_AT_ONCE // _BEFORE_ROWS  # as many rows in memory as elsewhere
_ROUNDS = 16  # of a swap that somebody else was faster than
_KNOWN_RECORDS = 200_000  # so many are kept in memory, those of the queues used last
_KNOWN_QUEUES = 100_000
_RUNS_SWEPT = 8  # of vacated rows; mostly there is one

Change = Callable[[LogQueue], "tuple[Meta, Sequence[Call[None]]]"]
"""Gives the next meta row (the same one: nothing to do) and what is to be written before it; asked again when the queue has changed."""


class _Swap(NamedTuple):
    """The next meta row of a queue. `seen`: the one that it was made from; the reading thread may have found a newer one meanwhile."""

    meta: Meta
    raw: bytes
    seen: bytes


class Damage(NamedTuple):
    """What cannot be read of a queue: its last row, which begins at `position` (`queue`: where it stands but for its rows), or its meta row."""

    error: UnreadableQueueError
    position: int = 0
    queue: LogQueue | None = None


class QueueLog:
    """The queues of table `queues_plain`."""

    def __init__(self, caller: Caller, table: bytes, index: QueueIndex, clock: Clock) -> None:
        self.caller = caller
        self.table = table
        self.index = index
        self.clock = clock
        self.lock = threading.RLock()
        self._queues: OrderedDict[int, LogQueue] = OrderedDict()
        self.known_records = _KNOWN_RECORDS
        self._learnt = 0
        self.doomed = Doomed(caller, table)

    @property
    def now_ms(self) -> int:
        return int(self.clock.wall() * 1000)

    # --- queues in memory

    def get(self, queue_id: int) -> LogQueue | None:
        """Return a queue that is loaded."""
        with self.lock:
            queue = self._queues.get(queue_id)
            if queue is not None:
                self._queues.move_to_end(queue_id)
            return queue

    def existing(self, queue_id: int) -> LogQueue:
        """Return a queue. Raises NotFoundError, BackendError."""
        self.load((queue_id,))
        queue = self.get(queue_id)
        if queue is None:
            raise unknown(queue_id)
        return queue

    def loaded(self) -> list[LogQueue]:
        with self.lock:
            return list(self._queues.values())

    def forget(self, known: KnownQueue) -> None:
        """A queue is gone. In the writing thread."""
        with self.lock:
            self._queues.pop(known.queue_id, None)
        self.index.forget(known.queue_id)

    def keep(self, queue: LogQueue) -> LogQueue:
        """Know a queue that was made or loaded."""
        with self.lock:
            return self._queues.setdefault(queue.known.queue_id, queue)

    def release(self, queue_ids: Iterable[int]) -> None:
        """Do without these for now; they are loaded again when they are needed."""
        with self.lock:
            for queue_id in queue_ids:
                queue = self._queues.get(queue_id)
                if queue is not None and not queue.coming_messages:
                    del self._queues[queue_id]

    def learn(self, queue: LogQueue, batch: Batch) -> bool:
        with self.lock:
            self._learnt += len(batch.records)
            return queue.learn(batch)

    def count(self, queues: Iterable[LogQueue]) -> None:
        """Tell the sums of the tenants what queues hold. In the writing thread."""
        for queue in queues:
            queue.known.holds(queue.messages, queue.size_bytes)

    def trim(self) -> None:
        """Forget the rows of queues that were not used lately. In the writing thread, between verbs."""
        with self.lock:
            if self._learnt <= self.known_records and len(self._queues) <= _KNOWN_QUEUES:
                return
            kept = 0
            for queue in reversed(list(self._queues.values())):
                records = sum([len(batch.records) for batch in queue.batches.values()])
                if kept + records <= self.known_records:
                    kept += records
                else:
                    queue.forget_rows()
            self._learnt = kept
            idle = [queue_id for queue_id, queue in self._queues.items() if not queue.coming_messages]
            for queue_id in idle[: max(len(self._queues) - _KNOWN_QUEUES, 0)]:
                del self._queues[queue_id]

    # --- loading

    def load(self, queue_ids: Iterable[int]) -> None:
        """Load those queues that are there and not loaded. Raises BackendError, also when one cannot be read: it is not one that is gone."""
        raise_first([damage.error for damage in self.load_readable(queue_ids).values()])

    def load_readable(self, queue_ids: Iterable[int]) -> dict[int, Damage]:
        """Load those queues that can be read; return what cannot be, by queue. Raises BackendError: HBase does not answer."""
        damaged: dict[int, Damage] = {}
        missing = [queue_id for queue_id in dict.fromkeys(queue_ids) if queue_id not in self._queues]
        if not missing:
            return damaged
        strange: dict[int, UnreadableQueueError] = {}
        self.index.find(missing, strange)
        damaged |= {queue_id: Damage(error) for queue_id, error in strange.items()}
        found = [known for queue_id in missing if (known := self.index.get(queue_id)) is not None]
        for part in parts(found, _SCANNERS_AT_ONCE):
            queues, unreadable = self.fresh(part)
            damaged |= unreadable
            for queue in queues:
                self.keep(queue)
        return damaged

    def fresh(self, found: Sequence[KnownQueue]) -> tuple[list[LogQueue], dict[int, Damage]]:
        """Read where queues stand: the meta row and the last row. Returns those that can be read, and what cannot be, by queue."""
        raws = self.metas([known.key for known in found])
        queues: list[LogQueue] = []
        damaged: dict[int, Damage] = {}
        for known in found:
            if known.key in raws:
                raw = raws[known.key]
                try:
                    queues.append(LogQueue(known, self.decoded(known.queue_id, decode_meta, raw), raw))
                except UnreadableQueueError as error:
                    damaged[known.queue_id] = Damage(error)
        damaged |= self.seek_readable(queues)
        return [queue for queue in queues if queue.known.queue_id not in damaged], damaged

    def metas(self, queue_keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the meta rows of those queues that are there. Raises BackendError."""
        asked = [
            calls.get_rows(self.table, [keys.meta_row(key) for key in part], (STATE,))
            for part in parts(queue_keys, _METAS_AT_ONCE)
        ]
        return {
            row.key[: keys.QUEUE_KEY_BYTES]: row.cells[STATE].value
            for rows in all_of(self.caller.call_many(asked))
            for row in rows
        }

    def refresh(self, queues: Sequence[LogQueue]) -> list[LogQueue]:
        """Read where queues stand; return those that are gone. In the writing thread. Raises BackendError."""
        raws = self.metas([queue.key for queue in queues])
        for queue in queues:
            if queue.key in raws:
                self.adopt_raw(queue, raws[queue.key])
        self.seek_tails([queue for queue in queues if queue.key in raws])
        return [queue for queue in queues if queue.key not in raws]

    def seek_tails(self, queues: Sequence[LogQueue]) -> None:
        """Find the last row of each queue. Raises BackendError, also when one cannot be read."""
        for damage in self.seek_readable(queues).values():
            raise damage.error

    def seek_readable(self, queues: Sequence[LogQueue]) -> dict[int, Damage]:
        """Find the last row of each queue, and remove what late writes of the past have left there; return what cannot be read, by queue.

        Raises BackendError: HBase does not answer.
        """
        waiting = list(queues)
        deleted: set[bytes] = set()
        damaged: dict[int, Damage] = {}
        while waiting:
            rows = zip(waiting, self._last_rows(waiting), strict=True)
            strange = {queue: row for queue, row in rows if row is not None and not self._take(queue, row, damaged)}
            raws = self.metas([queue.key for queue in strange])  # as they are after the rows were read
            for queue in strange:
                if queue.key in raws:
                    self.adopt_raw(queue, raws[queue.key])
            waiting = [
                queue for queue, row in strange.items() if queue.key in raws and not self._take(queue, row, damaged)
            ]
            late = {strange[queue].key for queue in waiting}
            if not late.isdisjoint(deleted):
                raise BackendError(
                    "a row that was deleted is still there: are the region servers' clocks right?", retryable=True
                )
            deleted = late
            for key in late:
                self.doomed.add(key)
            self.doomed.delete(is_needed=True)
        return damaged

    def _take(self, queue: LogQueue, row: Row, damaged: dict[int, Damage]) -> bool:
        """Know a last row; False: it is a late write of the past."""
        try:
            batch = self.batch(queue, row)
        except UnreadableQueueError as error:
            damaged[queue.known.queue_id] = Damage(error, keys.position_of(row.key), queue)
            return True
        return self.learn(queue, batch)

    def seek_before(self, damaged: Sequence[Damage]) -> None:
        """Find the last of the nearest rows before those that can be read: sums up to there are known. Raises BackendError."""
        for part in parts([each for each in damaged if each.queue is not None], _BEFORE_QUEUES):
            queues = [each.queue for each in part if each.queue is not None]
            scans = [self._upwards(each.queue, each.position - 1, _BEFORE_ROWS) for each in part if each.queue]
            for queue, rows in zip(queues, self._scanned(scans, _BEFORE_ROWS), strict=True):
                for row in rows:
                    with suppress(UnreadableQueueError):
                        if self.learn(queue, self.batch(queue, row)):
                            break

    def _last_rows(self, queues: Sequence[LogQueue]) -> list[Row | None]:
        rows = self._scanned([self._upwards(queue, (1 << 64) - 1, 1) for queue in queues], 1)
        return [each[0] if each else None for each in rows]

    def _upwards(self, queue: LogQueue, position: int, count: int) -> Scan:
        """Return the scan from a position towards the beginning."""
        vacated = queue.meta.vacated
        floor = vacated[0][1] if vacated and vacated[0][0] == 1 else 0
        start, stop = keys.record_row(queue.key, position), keys.record_row(queue.key, floor)
        return Scan(self.table, start, stop, (BATCH,), count, is_reversed=True)

    def _scanned(self, scans: Sequence[Scan], count: int) -> list[list[Row]]:
        """Return the first rows of each scan."""
        return all_of(self.caller.first_rows(scans, count))

    def rows_from(self, key: bytes, position: int, count: int = ROWS_AT_ONCE) -> list[Row]:
        """Return rows from the one that begins at a position, or is next behind it; fewer than `count`: the tail was reached."""
        start = keys.record_row(key, position)
        (rows,) = self._scanned([Scan(self.table, start, keys.prefix_end(key + keys.RECORD), (BATCH,), count)], count)
        return rows

    def know(self, queue: LogQueue, upto: int) -> None:
        """Know all rows from the head to a position. Raises BackendError."""
        while (position := queue.missing(upto)) is not None:
            start = queue.boundary(position)
            rows = self.rows_from(queue.key, start)
            found, damage = self._readable(queue, rows)
            for batch in found:
                self.learn(queue, batch)
            if queue.missing(upto) != position:
                continue
            if damage is not None:
                raise damage
            if not self.is_newer(queue):
                self._bridge(queue, start, found)

    def know_all(self, asked: Iterable[tuple[LogQueue, int]]) -> None:
        """As `know`, for many queues. Raises BackendError; UnreadableQueueError for all that cannot be read together."""
        unreadable: list[BackendError] = []
        for queue, upto in asked:
            try:
                self.know(queue, upto)
            except UnreadableQueueError as error:
                unreadable.append(error)
        raise_first(unreadable)

    def _readable(self, queue: LogQueue, rows: Sequence[Row]) -> tuple[list[Batch], UnreadableQueueError | None]:
        """Return the batches before one that cannot be read, and what is wrong with that one."""
        found: list[Batch] = []
        for row in rows:
            try:
                found.append(self.batch(queue, row))
            except UnreadableQueueError as error:
                return found, error
        return found, None

    def is_newer(self, queue: LogQueue) -> bool:
        """Read the meta row; True if another hub has changed it. In the writing thread. Raises BackendError."""
        raw = self.metas((queue.key,)).get(queue.key, queue.raw)
        is_newer = raw != queue.raw
        self.adopt_raw(queue, raw)
        return is_newer

    def _bridge(self, queue: LogQueue, start: int, found: Sequence[Batch]) -> None:
        """HBase has lost rows that nobody removed: take what is between for one message without a body, so that the others go on."""
        behind = next((batch for batch in found if batch.first > start), None)
        last = queue.tail if behind is None else behind.first - 1
        log.error("rows of a queue are missing", queue=queue.known.queue_id, first=start, last=last)
        lost = (Known(0, 1, 0, b""),) * max(last - start + 1, 1)
        self.learn(queue, Batch(queue.meta.born, 0, 0, start, 0, 0, lost))

    def batch(self, queue: LogQueue, row: Row) -> Batch:
        """Read a row. Raises BackendError: it is damaged or of the future."""
        position = keys.position_of(row.key)
        batch = self.decoded(queue.known.queue_id, decode_batch, row.cells[BATCH].value, position)
        if batch.first != position:
            raise damaged(queue.known.queue_id, f"row {row.key.hex()} says that it begins at {batch.first}", position)
        return batch

    def decoded(self, queue_id: int, decode: Callable[[bytes], T], raw: bytes, position: int = 0) -> T:
        try:
            return decode(raw)
        except CorruptRecordError as error:
            raise damaged(queue_id, str(error), position) from None

    # --- changing meta rows, in the writing thread

    def adopt(self, queue: LogQueue, meta: Meta, raw: bytes) -> None:
        with self.lock:
            gone = queue.adopt(meta, raw)
        for first in gone:
            self.doomed.add(keys.record_row(queue.key, first))

    def adopt_raw(self, queue: LogQueue, raw: bytes) -> None:
        """Take a meta row as it was read. Raises BackendError: it is damaged or of the future."""
        if raw != queue.raw:
            self.adopt(queue, self.decoded(queue.known.queue_id, decode_meta, raw), raw)

    def change(self, changes: Iterable[tuple[LogQueue, Change]]) -> set[LogQueue]:
        """Change meta rows, all at the same time; return the queues that are gone. Raises BackendError when one could not be changed."""
        waiting = dict(changes)
        gone: set[LogQueue] = set()
        failed: list[BackendError] = []
        for _ in range(_ROUNDS):
            if waiting:
                self._swap(waiting, gone, failed)
        if waiting:
            failed.append(BackendError("the state of a queue is changed by others all the time", retryable=True))
        self.doomed.delete()
        raise_first(failed)
        return gone

    def _swap(self, waiting: dict[LogQueue, Change], gone: set[LogQueue], failed: list[BackendError]) -> None:
        """Try once; what is done, gone or failed leaves `waiting`."""
        wanted = self._wanted(waiting, failed)
        swaps = [self._swap_call(queue, swap) for queue, swap in wanted.items()]
        lost: list[LogQueue] = []
        for (queue, (meta, raw, _)), outcome in zip(wanted.items(), self.caller.call_many(swaps), strict=True):
            if outcome is True:
                self.adopt(queue, meta, raw)
                del waiting[queue]
            elif isinstance(outcome, BackendError) and not outcome.is_written:
                failed.append(outcome)
                del waiting[queue]
            else:
                lost.append(queue)
        self._look(lost, wanted, waiting, gone, failed)

    def _wanted(self, waiting: dict[LogQueue, Change], failed: list[BackendError]) -> dict[LogQueue, _Swap]:
        """Ask for the next meta rows, and write what belongs before them."""
        wanted: dict[LogQueue, _Swap] = {}
        before: list[tuple[LogQueue, Call[None]]] = []
        for queue, change in list(waiting.items()):
            with self.lock:
                before_meta, seen = queue.meta, queue.raw
                meta, first = change(queue)
            if meta is before_meta:
                del waiting[queue]
                continue
            meta = replace(meta, revision=before_meta.revision + 1)
            wanted[queue] = _Swap(meta, encode_meta(meta), seen)
            before += [(queue, call) for call in first]
        outcomes = self.caller.call_many([call for _, call in before])
        for (queue, _), outcome in zip(before, outcomes, strict=True):
            if isinstance(outcome, BackendError) and queue in wanted:
                failed.append(outcome)
                del wanted[queue], waiting[queue]
        return wanted

    def _look(
        self,
        lost: Sequence[LogQueue],
        wanted: dict[LogQueue, _Swap],
        waiting: dict[LogQueue, Change],
        gone: set[LogQueue],
        failed: list[BackendError],
    ) -> None:
        """See what became of swaps that were refused, or not answered."""
        try:
            raws = self.metas([queue.key for queue in lost])
        except BackendError as error:
            failed.append(BackendError(str(error), retryable=error.retryable, is_written=True))
            for queue in lost:
                del waiting[queue]
            return
        for queue in lost:
            raw = raws.get(queue.key)
            if raw is None:
                gone.add(queue)
                del waiting[queue]
            elif raw == wanted[queue].raw:
                self.adopt(queue, wanted[queue].meta, raw)
                del waiting[queue]
            else:
                try:
                    self.adopt_raw(queue, raw)
                except UnreadableQueueError as error:
                    failed.append(error)
                    del waiting[queue]

    def _swap_call(self, queue: LogQueue, swap: _Swap) -> Call[bool]:
        row = keys.meta_row(queue.key)
        return calls.check_and_put(self.table, row, STATE, swap.seen, (STATE, swap.raw)).pinned(queue.key)

    def doom_past(self, queue: LogQueue) -> None:
        """Find rows that are vacated and there: a hub died before it deleted them, or a late write has landed. Raises BackendError."""
        scans = [
            Scan(
                self.table,
                keys.record_row(queue.key, first),
                keys.record_row(queue.key, last + 1),
                (BATCH,),
                _METAS_AT_ONCE,
                b"KeyOnlyFilter()",
            )
            for first, last in queue.meta.vacated[:_RUNS_SWEPT]
        ]
        for rows in self._scanned(scans, _METAS_AT_ONCE):
            for row in rows:
                self.doomed.add(row.key)


def damaged(queue_id: int, what: str, position: int = 0) -> UnreadableQueueError:
    return UnreadableQueueError(queue_id, f"queue {queue_id}: {what}", position)


def raise_first(failed: Sequence[BackendError]) -> None:
    """Raise an error, if there is one: one that will not pass before one that may; it may be written if any may."""
    if failed:
        raise worst_of(failed, is_written=any(error.is_written for error in failed))
