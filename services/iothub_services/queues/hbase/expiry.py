"""Records in HBase whose time has come: looked for in every region, merged, removed by the coprocessor of each queue's region.

Knows no clock: who asks says what time it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iothub.records import keys
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.index import KnownQueue, QueueIndex
from iothub_services.queues.hbase.moves import require
from iothub_services.queues.hbase.regions import Regions
from iothub_services.queues.hbase.requests import Status
from iothub_services.queues.port import DueRecord, Expired, ExpiryMark

Places = set[tuple[int, int]]  # queue id, position


class Expiry:
    """Looks and removes. Both verbs return, besides, the queues that hold less now."""

    def __init__(self, index: QueueIndex, regions: Regions) -> None:
        self._index = index
        self._regions = regions

    def expire(self, now_ms: int, count: int, after: ExpiryMark) -> tuple[Expired, list[KnownQueue]]:
        """Fulfil `QueueStore.expire`. Raises BackendError: some may be removed."""
        count = min(count, requests.MOST_DUE)
        found = [
            (ExpiryMark(due.expires_at_ms, queue_id, due.position), DueRecord(tenant_id, queue_id, due.position))
            for raw in self._regions.ask(requests.DUE, requests.due(now_ms, count, *after))
            for due in requests.found_due(raw)
            for queue_id, tenant_id in (keys.split_queue_key(due.key),)
        ]
        found.sort()
        due = found[:count]
        for _, record in due:
            self._index.add(record.tenant_id, record.queue_id)
        removed, spared, changed = self._remove(now_ms, [record for _, record in due], is_unsent=False)
        expired = Expired(
            _those(due_record for _, due_record in due if due_record[1:] in removed),
            _those(due_record for _, due_record in due if due_record[1:] in spared),
            due[-1][0] if len(due) >= count else None,
        )
        return expired, changed

    def expire_unsent(
        self, now_ms: int, records: Sequence[DueRecord]
    ) -> tuple[tuple[DueRecord, ...], list[KnownQueue]]:
        """Fulfil `QueueStore.expire_unsent`. Raises BackendError: some may be removed."""
        self._index.find(record.queue_id for record in records)
        removed, _, changed = self._remove(now_ms, records, is_unsent=True)
        return _those(record for record in records if record[1:] in removed), changed

    def _remove(
        self, now_ms: int, records: Iterable[DueRecord], *, is_unsent: bool
    ) -> tuple[Places, Places, list[KnownQueue]]:
        """Return what was removed, what was spared, and the queues that changed."""
        by_queue: dict[int, list[int]] = {}
        for _, queue_id, position in records:
            by_queue.setdefault(queue_id, []).append(position)
        known = [queue for queue_id in by_queue if (queue := self._index.get(queue_id)) is not None]
        steps = [requests.expire(queue.key, now_ms, by_queue[queue.queue_id], is_unsent=is_unsent) for queue in known]
        removed: Places = set()
        spared: Places = set()
        changed = []
        for queue, (status, octets) in zip(known, require(self._regions.send_steps(steps)), strict=True):
            if status == Status.DONE:
                gone, kept = requests.expired(octets)
                removed.update((queue.queue_id, position) for position in gone)
                spared.update((queue.queue_id, position) for position in kept)
                changed += [queue] if gone else []
        return removed, spared, changed


def _those(records: Iterable[DueRecord]) -> tuple[DueRecord, ...]:
    return tuple(records)
