"""Batches on their way into the next slots of their queues: the slot-claim log of driver `hbase-plain`.

Knows rows and calls; knows no limits and no publisher.

Theory: a row is put only where none is (`checkAndPut`), at the position behind the last one; whoever finds the slot taken reads it and
goes on behind it. So rows have no gaps, whoever writes. The meta row is read after each put: it tells whether the slot was new, or a
vacated one of the past, and then by `consumed` whether what was vacated was this very batch (its first answer was lost). A batch of which
it is not known whether it is written is put again with the same bytes at the same place, or looked for, before anything else of its queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub.records.queue_batch import Batch, encode_batch
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call
from iothub_services.hbase.replies import Row
from iothub_services.queues.hbase_plain.log import QueueLog
from iothub_services.queues.hbase_plain.meta import BATCH, STATE, Meta
from iothub_services.queues.hbase_plain.queue import LogQueue, holds

_FEW = 8  # queues whose meta rows are asked for behind each put, in the same round trip; more are asked for in one call, in a second


class Course(Enum):
    """What is next for a row, or what became of it."""

    PUT = "put"
    LOOK = "look"
    PLACED = "placed"
    GONE = "gone"  # its queue is
    DISCARDED = "discarded"  # nobody wants it any more, and it was not there
    AGAIN = "again"  # others were faster, and may have written a QoS 2 message of it


@dataclass(eq=False, slots=True)
class Moving:
    """One row on its way. `is_doubtful`: a put was not answered; `expected`: what a late write of the past has left in the slot."""

    queue: LogQueue
    batch: Batch
    records: list[bytes]
    course: Course = Course.PUT
    is_wanted: bool = True
    is_doubtful: bool = False
    expected: bytes | None = None
    error: BackendError | None = None
    value: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.value = encode_batch(self.batch, self.records)

    @property
    def is_over(self) -> bool:
        return self.course not in (Course.PUT, Course.LOOK)

    @property
    def row(self) -> bytes:
        return keys.record_row(self.queue.key, self.batch.first)

    def go_on(self) -> None:
        """Take the slot behind the last known row; it is not written for certain."""
        queue = self.queue
        if self.is_wanted and any(record.message_id for record in self.batch.records):
            self.course = Course.AGAIN
            return
        self.batch = self.batch.moved(queue.tail + 1, queue.tail_bytes, queue.tail_qos0)
        self.value = encode_batch(self.batch, self.records)
        self.expected = None
        self.is_doubtful = False
        self.course = Course.PUT if self.is_wanted else Course.DISCARDED


class Slots:
    """Does one round for many rows, one of each queue."""

    def __init__(self, log: QueueLog) -> None:
        self._log = log

    def round(self, moving: Sequence[Moving]) -> None:
        """Put or look, all at the same time; afterwards each row is over, has an error, or goes on next time. Raises BackendError."""
        asked: list[Call[object]] = [self._call(row) for row in moving]
        if len(moving) <= _FEW:
            outcomes = self._log.caller.call_many([*asked, *[self._meta(row) for row in moving]])
            metas = outcomes[len(moving) :]
        else:
            outcomes = self._log.caller.call_many(asked)
            metas = self._metas(moving)
        lost: list[Moving] = []
        for row, outcome, meta in zip(moving, outcomes[: len(moving)], metas, strict=True):
            row.error = None
            if isinstance(outcome, BackendError):
                row.error = outcome
                row.is_doubtful |= outcome.is_written
            elif row.course is Course.LOOK or outcome is True:
                try:
                    self._judge(row, outcome, meta, lost)
                except BackendError as error:  # it is damaged; what became of the others is seen all the same
                    row.error = error
            else:
                row.course = Course.LOOK
        if lost:
            damaged = self._log.seek_readable([row.queue for row in lost])
            for row in lost:
                damage = damaged.get(row.queue.known.queue_id)
                if damage is None:
                    row.go_on()
                else:
                    row.error = damage.error

    def _call(self, row: Moving) -> Call[object]:
        table, key = self._log.table, row.queue.key
        if row.course is Course.LOOK:
            return calls.get_row(table, row.row, (BATCH,), pin=key)
        return calls.check_and_put(table, row.row, BATCH, row.expected, (BATCH, row.value)).pinned(key)

    def _meta(self, row: Moving) -> Call[object]:
        key = row.queue.key
        return calls.get_row(self._log.table, keys.meta_row(key), (STATE,), pin=key)

    def _metas(self, moving: Sequence[Moving]) -> list[object]:
        try:
            raws = self._log.metas([row.queue.key for row in moving])
        except BackendError as error:
            return [error] * len(moving)
        return [raws.get(row.queue.key) for row in moving]

    def _judge(self, row: Moving, outcome: object, meta: object, lost: list[Moving]) -> None:
        """See what a put that was done, or a look, means by the meta row as it is afterwards."""
        raw = meta.cells[STATE].value if isinstance(meta, Row) else meta
        row.is_doubtful |= row.course is Course.PUT
        if isinstance(raw, BackendError):
            row.error = raw
            return
        queue, was_born = row.queue, row.batch.born
        if isinstance(raw, bytes):
            self._log.adopt_raw(queue, raw)
        if raw is None or queue.meta.born != was_born:
            self._bury(row, is_gone=raw is None)
        elif row.course is Course.PUT:
            self._was_put(row, lost)
        elif isinstance(outcome, Row):
            self._was_found(row, outcome, lost)
        else:
            self._was_absent(row, lost)

    def _bury(self, row: Moving, *, is_gone: bool) -> None:
        """The queue is gone, and with it its rows, but for one that came too late."""
        if is_gone and row.is_doubtful:
            self._log.doomed.add(row.row)
        row.course = Course.GONE

    def _was_put(self, row: Moving, lost: list[Moving]) -> None:
        if not holds(row.queue.meta.vacated, row.batch.first):
            self._placed(row)
            return
        self._log.doomed.add(row.row)  # it landed in the past
        self._was_absent(row, lost)

    def _was_found(self, row: Moving, found: Row, lost: list[Moving]) -> None:
        log, queue = self._log, row.queue
        batch = log.batch(queue, found)
        if batch.is_same_as(row.batch):
            self._was_put(row, lost)
        elif batch.born != row.batch.born:
            row.expected = found.cells[BATCH].value
            row.course = Course.PUT if row.is_wanted else Course.DISCARDED
        elif log.learn(queue, batch) and queue.tail >= batch.last:
            row.go_on()
        else:
            lost.append(row)

    def _was_absent(self, row: Moving, lost: list[Moving]) -> None:
        queue = row.queue
        if not holds(queue.meta.vacated, row.batch.first):
            row.course = Course.PUT if row.is_wanted else Course.DISCARDED
        elif _is_consumed(queue.meta, row.batch):
            row.course = Course.PLACED
        else:
            lost.append(row)

    def _placed(self, row: Moving) -> None:
        self._log.learn(row.queue, row.batch)
        row.course = Course.PLACED


def _is_consumed(meta: Meta, batch: Batch) -> bool:
    newest = meta.consumed.get(batch.writer)
    return newest is not None and newest.sequence >= batch.sequence
