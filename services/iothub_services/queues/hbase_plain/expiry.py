"""What removes records of driver `hbase-plain` before they are read: expiry and purge.

Knows known rows. Records of rows that this hub has not seen, or has forgotten, wait until it reads them: whoever reads a queue leaves
out by itself what is too old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import nsmallest

from iothub_services.hbase.calls import Call
from iothub_services.queues.hbase_plain.log import Change, QueueLog
from iothub_services.queues.hbase_plain.meta import Meta
from iothub_services.queues.hbase_plain.queue import LogQueue
from iothub_services.queues.port import DueRecord, Expired, ExpiryMark, UnreadableQueueError

_MOST_HOLES = 4096  # of a queue: they are in its meta row
_Places = set[tuple[int, int]]


class Removing:
    """In the writing thread. A verb that fails may be repeated: what it has removed is then removed already."""

    def __init__(self, log: QueueLog) -> None:
        self._log = log

    def expire(self, now_ms: int, count: int, after: ExpiryMark) -> Expired:
        marks = [
            ExpiryMark(expires_at_ms, queue.known.queue_id, position)
            for queue in self._log.loaded()
            if len(queue.meta.holes) < _MOST_HOLES
            for expires_at_ms, position in self._due(queue, now_ms)
        ]
        due = nsmallest(count, [mark for mark in marks if mark > after])
        queues = {queue.known.queue_id: queue for queue in self._log.loaded()}
        records = [DueRecord(queues[mark.queue_id].known.tenant_id, *mark[1:]) for mark in due]
        removed, spared = self._remove(records, lambda queue, position: position > queue.meta.reserved)
        return Expired(
            tuple([record for record in records if record[1:] in removed]),
            tuple([record for record in records if record[1:] in spared]),
            due[-1] if len(due) >= count else None,
        )

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        def is_due(queue: LogQueue, position: int) -> bool:
            record = queue.record_at(position)
            return record is not None and 0 < record.expires_at_ms <= now_ms

        removed, _ = self._remove(records, is_due)
        return tuple([record for record in records if record[1:] in removed])

    def purge(self, queue_id: int) -> int:
        queue = self._log.existing(queue_id)
        try:
            self._log.know(queue, queue.tail)
        except UnreadableQueueError:
            return self._purge_unread(queue)
        removed: list[int] = []

        def emptied(changing: LogQueue) -> tuple[Meta, Sequence[Call[None]]]:
            removed[:] = [position for position, _ in changing.stored(changing.meta.head)]
            return changing.removed(changing.meta, removed, self._log.now_ms), ()

        self._change({queue: emptied})
        return len(removed)

    def _purge_unread(self, queue: LogQueue) -> int:
        """Vacate everything up to the tail: a row among it cannot be read."""
        removed = 0

        def emptied(changing: LogQueue) -> tuple[Meta, Sequence[Call[None]]]:
            nonlocal removed
            removed = changing.tail - changing.meta.gone_messages
            return changing.emptied(changing.meta), ()

        self._change({queue: emptied})
        self._log.doom_past(queue)
        self._log.doomed.delete()
        return removed

    def _due(self, queue: LogQueue, now_ms: int) -> list[tuple[int, int]]:
        with self._log.lock:
            return queue.due(now_ms)

    def _remove(self, records: Sequence[DueRecord], may_go: Callable[[LogQueue, int], bool]) -> tuple[_Places, _Places]:
        """Return what was removed, and what was spared."""
        by_queue: dict[LogQueue, list[int]] = {}
        for record in records:
            queue = self._log.get(record.queue_id)
            if queue is not None:
                by_queue.setdefault(queue, []).append(record.position)
        steps = {queue: _Step(self._log, positions, may_go) for queue, positions in by_queue.items()}
        gone = self._change(steps)
        removed: _Places = set()
        spared: _Places = set()
        for queue, step in steps.items():
            if queue not in gone:
                removed.update((queue.known.queue_id, position) for position in step.removed)
                spared.update((queue.known.queue_id, position) for position in step.spared)
        return removed, spared

    def _change(self, steps: Mapping[LogQueue, Change]) -> set[LogQueue]:
        gone = self._log.change(steps.items())
        for queue in gone:
            self._log.forget(queue.known)
        self._log.count([queue for queue in steps if queue not in gone])
        return gone


class _Step:
    """Removes those positions of one queue that are there and may go."""

    def __init__(self, log: QueueLog, positions: Sequence[int], may_go: Callable[[LogQueue, int], bool]) -> None:
        self._log = log
        self._positions = positions
        self._may_go = may_go
        self.removed: list[int] = []
        self.spared: list[int] = []

    def __call__(self, queue: LogQueue) -> tuple[Meta, Sequence[Call[None]]]:
        there = [position for position in self._positions if queue.record_at(position) is not None]
        self.removed = [position for position in there if self._may_go(queue, position)]
        self.spared = [position for position in there if not self._may_go(queue, position)]
        return queue.removed(queue.meta, self.removed, self._log.now_ms), ()
