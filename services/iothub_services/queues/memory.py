"""The queue port in plain Python objects: for tests, and as the model that other drivers are compared with. Nothing survives.

Knows no file and no thread. Written for obviousness, not for speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from iothub.base.errors import ConflictError, NotFoundError
from iothub_services.queues.port import (
    EARLIEST,
    Append,
    Appended,
    Claim,
    Delivery,
    DueRecord,
    Expired,
    ExpiryMark,
    Inbound,
    Move,
    MoveKind,
    Overflow,
    Page,
    Purged,
    QueuedRecord,
    QueueLimits,
    QueueStats,
    Refused,
    StaleEpochError,
    TenantUsage,
)


@dataclass(slots=True)
class _Queue:
    tenant_id: int
    epoch: int
    limits: QueueLimits
    tail: int = 0
    head: int = 0
    reserved: int = 0
    size_bytes: int = 0  # of the bodies in `records`
    records: dict[int, QueuedRecord] = field(default_factory=dict)  # by position, ascending
    ids: dict[bytes, int] = field(default_factory=dict)  # QoS 2 message id -> position
    released: set[int] = field(default_factory=set)
    inbound: set[int] = field(default_factory=set)

    def add(self, record: QueuedRecord) -> None:
        self.records[record.position] = record
        self.size_bytes += len(record.body)

    def remove(self, position: int) -> None:
        self.size_bytes -= len(self.records.pop(position).body)
        for message_id in [message_id for message_id, known in self.ids.items() if known == position]:
            del self.ids[message_id]


class MemoryQueues:
    """Fulfils `QueueStore`."""

    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}
        self._tenant_limits: dict[int, tuple[int, int]] = {}

    def close(self) -> None:
        """Nothing is open."""

    @contextmanager
    def group(self) -> Iterator[None]:
        yield

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        if queue_id in self._queues:
            raise ConflictError(f"queue {queue_id} exists already")
        self._queues[queue_id] = _Queue(tenant_id, first_epoch - 1, limits)

    def append(self, batch: list[Append]) -> list[Appended]:
        return [self._append(item) for item in batch]

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        queue = self._existing(queue_id)
        queue.epoch += 1
        released, inbound = tuple(sorted(queue.released)), tuple(sorted(queue.inbound))
        return Claim(queue.epoch, queue.head, queue.tail, queue.reserved, released, inbound)

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        queue = self._existing(queue_id)
        if queue.epoch != epoch:
            raise StaleEpochError(f"queue {queue_id} is at epoch {queue.epoch}, the reader at {epoch}")
        records: list[QueuedRecord] = []
        for position, record in queue.records.items():
            if position <= after:
                continue
            records.append(record)
            size_bytes -= len(record.body)
            if size_bytes <= 0 or len(records) == count:
                return Page(records, position, position >= queue.tail)
        return Page(records, max(after, queue.tail), True)

    def apply(self, moves: list[Move]) -> list[bool]:
        return [self._move(move) for move in moves]

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        for queue_id, limits in changes:
            queue = self._queues.get(queue_id)
            if queue is not None:
                queue.limits = limits

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        self._tenant_limits[tenant_id] = (messages, size_bytes)

    def tenant_usage(self, tenant_id: int) -> TenantUsage:
        queues = [queue for queue in self._queues.values() if queue.tenant_id == tenant_id]
        return TenantUsage(sum(len(queue.records) for queue in queues), sum(queue.size_bytes for queue in queues))

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        return {queue_id: self._queues[queue_id].tail for queue_id in queue_ids if queue_id in self._queues}

    def existing(self, queue_ids: Sequence[int]) -> set[int]:
        return set(queue_ids).intersection(self._queues)

    def stats(self, queue_id: int) -> QueueStats:
        queue = self._existing(queue_id)
        return QueueStats(
            queue_id,
            queue.tenant_id,
            len(queue.records),
            queue.size_bytes,
            queue.head,
            queue.tail,
            queue.epoch,
            queue.limits,
        )

    def stats_of(self, queue_ids: Sequence[int]) -> dict[int, QueueStats]:
        return {queue_id: self.stats(queue_id) for queue_id in self.existing(queue_ids)}

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        return [self.stats(queue_id) for queue_id in self._of_tenant(tenant_id)]

    def purge(self, queue_id: int, upto: int = 0) -> Purged:
        queue = self._existing(queue_id)
        positions = [position for position in queue.records if not upto or position <= upto]
        for position in positions:
            queue.remove(position)
        return Purged(len(positions))

    def drop(self, queue_id: int) -> int:
        queue = self._queues.pop(queue_id, None)
        return 0 if queue is None else len(queue.records)

    def drop_tenant(self, tenant_id: int) -> int:
        queue_ids = self._of_tenant(tenant_id)
        for queue_id in queue_ids:
            self.drop(queue_id)
        return len(queue_ids)

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        due = sorted(
            mark
            for queue_id, queue in self._queues.items()
            for record in queue.records.values()
            if 0 < record.expires_at_ms <= now_ms
            and (mark := ExpiryMark(record.expires_at_ms, queue_id, record.position)) > after
        )
        removed, spared = [], []
        for _, queue_id, position in due[:count]:
            queue = self._queues[queue_id]
            record = DueRecord(queue.tenant_id, queue_id, position)
            if position > queue.reserved:
                queue.remove(position)
                removed.append(record)
            else:
                spared.append(record)
        return Expired(tuple(removed), tuple(spared), due[count - 1] if len(due) >= count else None)

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        removed = []
        for due in records:
            queue = self._queues.get(due.queue_id)
            record = None if queue is None else queue.records.get(due.position)
            if queue is not None and record is not None and 0 < record.expires_at_ms <= now_ms:
                queue.remove(due.position)
                removed.append(due)
        return tuple(removed)

    def _existing(self, queue_id: int) -> _Queue:
        queue = self._queues.get(queue_id)
        if queue is None:
            raise NotFoundError(f"queue {queue_id} does not exist")
        return queue

    def _of_tenant(self, tenant_id: int) -> list[int]:
        return sorted(queue_id for queue_id, queue in self._queues.items() if queue.tenant_id == tenant_id)

    def _append(self, item: Append) -> Appended:
        if item.inbound is not None:
            refusal = self._record_inbound(item.inbound)
            if refusal is not None:
                return refusal
        dropped: list[tuple[int, int]] = []
        hit: list[str] = []
        positions = tuple([self._deliver(item, delivery, dropped, hit) for delivery in item.deliveries])
        return Appended(positions, dropped=tuple(dropped), hit=tuple(hit))

    def _record_inbound(self, inbound: Inbound) -> Appended | None:
        queue = self._queues.get(inbound.queue_id)
        if queue is None or queue.epoch != inbound.epoch:
            return Appended((), is_stale=True)
        if inbound.packet_id in queue.inbound:
            return Appended((), is_duplicate=True)
        queue.inbound.add(inbound.packet_id)
        return None

    def _deliver(self, item: Append, delivery: Delivery, dropped: list[tuple[int, int]], hit: list[str]) -> int:
        queue = self._queues.get(delivery.queue_id)
        if queue is None:
            return Refused.GONE
        is_once = delivery.qos == 2 and bool(item.message_id)
        if is_once and item.message_id in queue.ids:
            return queue.ids[item.message_id]
        full = self._full(queue, len(item.body))
        victims = self._victims(queue, len(item.body))
        hit += [full] * (1 if victims is None else len(victims))
        if victims is None:
            return Refused.FULL
        for position in victims:
            queue.remove(position)
            dropped.append((delivery.queue_id, position))
        queue.tail += 1
        queue.add(
            QueuedRecord(
                queue.tail, delivery.qos, delivery.flags, delivery.subscription_ids, item.expires_at_ms, item.body
            )
        )
        if is_once:
            queue.ids[item.message_id] = queue.tail
        return queue.tail

    def _full(self, queue: _Queue, size: int) -> str:
        usage = self.tenant_usage(queue.tenant_id)
        tenant_messages, tenant_bytes = self._tenant_limits.get(queue.tenant_id, (0, 0))
        above = {
            "session_queued_messages": _over(len(queue.records) + 1, queue.limits.messages),
            "session_queued_bytes": _over(queue.size_bytes + size, queue.limits.bytes),
            "queued_messages": _over(usage.messages + 1, tenant_messages),
            "queued_bytes": _over(usage.bytes + size, tenant_bytes),
        }
        return next((name for name, excess in above.items() if excess > 0), "")

    def _victims(self, queue: _Queue, size: int) -> list[int] | None:
        """Positions to drop so that `size` bytes fit; None: they cannot."""
        usage = self.tenant_usage(queue.tenant_id)
        tenant_messages, tenant_bytes = self._tenant_limits.get(queue.tenant_id, (0, 0))
        messages = max(_over(len(queue.records) + 1, queue.limits.messages), _over(usage.messages + 1, tenant_messages))
        size_bytes = max(_over(queue.size_bytes + size, queue.limits.bytes), _over(usage.bytes + size, tenant_bytes))
        victims: list[int] = []
        for record in queue.records.values():
            if messages <= 0 and size_bytes <= 0:
                break
            if record.position > queue.reserved and _may_drop(queue.limits.overflow, record):
                victims.append(record.position)
                messages -= 1
                size_bytes -= len(record.body)
        return victims if messages <= 0 and size_bytes <= 0 else None

    def _move(self, move: Move) -> bool:
        queue = self._queues.get(move.queue_id)
        if queue is None or queue.epoch != move.epoch:
            return False
        if move.kind is MoveKind.ACK:
            queue.head = max(queue.head, min(move.value, queue.tail))
            for position in [position for position in queue.records if position <= queue.head]:
                queue.remove(position)
            queue.released = {position for position in queue.released if position > queue.head}
        elif move.kind is MoveKind.RELEASE:
            if queue.head < move.value <= queue.tail:
                queue.released.add(move.value)
        elif move.kind is MoveKind.RESERVE:
            queue.reserved = move.value
        elif move.kind is MoveKind.FINISH_INBOUND:
            queue.inbound.discard(move.value)
        else:
            queue.inbound.add(move.value)
        return True


def _over(value: int, limit: int) -> int:
    return value - limit if limit else 0


def _may_drop(overflow: Overflow, record: QueuedRecord) -> bool:
    return overflow is Overflow.DROP_OLDEST or (overflow is Overflow.DROP_QOS0_FIRST and record.qos == 0)
