# cython: annotation_typing=False
"""The append of the SQLite queue driver: one batch, inside its caller's transaction.

Knows limits, policies and the de-duplication of QoS 2; knows no reader.

Theory: rows for `body` and `ref` are collected and written by two statements at the end; before anything is looked up that
they could change, they are written first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from iothub_services.queues.port import Append, Appended, Delivery, Inbound, Overflow, Refused
from iothub_services.queues.sqlite import schema
from iothub_services.queues.sqlite.bodies import Bodies
from iothub_services.queues.sqlite.row_cache import QueueRow, QueueRowCache

Removed = Callable[[QueueRow | None, list[tuple[int, int, int, int]]], int]
Reference = tuple[int, int, int, int, int, int, int, bytes | None, str | None, int]

_GONE, _FULL = int(Refused.GONE), int(Refused.FULL)
_DROPPABLE = "SELECT position, size FROM ref WHERE queue = ? AND position > ? ORDER BY position"
_DROPPABLE_QOS0 = "SELECT position, size FROM ref WHERE queue = ? AND position > ? AND qos = 0 ORDER BY position"


class Appending:
    """One batch on its way into the tables."""

    def __init__(self, connection: sqlite3.Connection, rows: QueueRowCache, bodies: Bodies, removed: Removed) -> None:
        self._connection = connection
        self._rows = rows
        self._bodies = bodies
        self._removed = removed
        self._new_bodies: list[tuple[int, bytes]] = []
        self._new_references: list[Reference] = []
        self._ids: dict[tuple[int, bytes], int] = {}  # QoS 2 of this batch: (queue, message id) -> position
        self._made: list[int] = []  # queues that have got a reference to the current message
        self._hit: list[str] = []  # which limits it ran into

    def do(self, batch: list[Append]) -> list[Appended]:
        answers = [self._append(item) for item in batch]
        self._write()
        return answers

    def _append(self, item: Append) -> Appended:
        if item.inbound is not None:
            refusal = self._record_inbound(item.inbound)
            if refusal is not None:
                return refusal
        body = self._bodies.next_id
        is_shared = int(len(item.deliveries) > 1)
        dropped: list[tuple[int, int]] = []
        self._made.clear()
        self._hit.clear()
        positions = tuple([self._deliver(item, delivery, body, is_shared, dropped) for delivery in item.deliveries])
        if self._made:
            self._new_bodies.append((self._bodies.allocate(), item.body))
            if is_shared:
                self._bodies.shared(body, len(self._made))
        return Appended(positions, dropped=tuple(dropped), hit=tuple(self._hit))

    def _record_inbound(self, inbound: Inbound) -> Appended | None:
        row = self._rows.get(inbound.queue_id)
        if row is None or row.epoch != inbound.epoch:
            return Appended((), is_stale=True)
        statement = "INSERT OR IGNORE INTO inbound VALUES (?, ?)"
        if not self._connection.execute(statement, (inbound.queue_id, inbound.packet_id)).rowcount:
            return Appended((), is_duplicate=True)
        return None

    def _deliver(
        self, item: Append, delivery: Delivery, body: int, is_shared: int, dropped: list[tuple[int, int]]
    ) -> int:
        """Refer to `body` in one queue; returns the position or a `Refused`."""
        queue_id, qos = delivery.queue_id, delivery.qos
        row = self._rows.touch(queue_id)
        if row is None:
            return _GONE
        message_id = item.message_id if qos == 2 and item.message_id else None
        if message_id is not None:
            known = self._known(queue_id, message_id)
            if known is not None:
                return known
        size = len(item.body)
        limit = full(row, size)
        if limit:
            before = len(dropped)
            has_room = self.make_room(row, size, dropped)
            self._hit += [limit] * (len(dropped) - before if has_room else 1)
            if not has_room:
                return _FULL
        self._made.append(queue_id)
        row.tail = position = row.tail + 1
        row.messages += 1
        row.bytes += size
        row.qos0 += not qos
        row.tenant.messages += 1
        row.tenant.bytes += size
        identifiers = ",".join(map(str, delivery.subscription_ids)) if delivery.subscription_ids else None
        self._new_references.append(
            (
                queue_id,
                position,
                body,
                size,
                qos,
                delivery.flags,
                item.expires_at_ms,
                message_id,
                identifiers,
                is_shared,
            )
        )
        if message_id is not None:
            self._ids[queue_id, message_id] = position
        return position

    def _known(self, queue_id: int, message_id: bytes) -> int | None:
        position = self._ids.get((queue_id, message_id))
        if position is not None:
            return position
        statement = "SELECT position FROM ref WHERE queue = ? AND message_id = ? AND qos = 2"
        for (stored,) in self._connection.execute(statement, (queue_id, message_id)):
            return int(stored)
        return None

    def make_room(self, row: QueueRow, size: int, dropped: list[tuple[int, int]]) -> bool:
        """Drop by policy, all that is needed or nothing. What may have been sent already (up to `reserved`) is spared."""
        is_qos0_only = row.overflow == Overflow.DROP_QOS0_FIRST
        if row.overflow == Overflow.REJECT or (is_qos0_only and not row.qos0):
            return False
        self._write()
        victims = self._victims(row, size, _DROPPABLE_QOS0 if is_qos0_only else _DROPPABLE)
        for position in victims:
            parameters = (row.queue_id, position)
            self._removed(row, self._connection.execute(schema.DELETE_ONE, parameters).fetchall())
            dropped.append(parameters)
        return bool(victims)

    def _victims(self, row: QueueRow, size: int, statement: str) -> list[int]:
        tenant = row.tenant
        messages = max(_over(row.messages + 1, row.max_messages), _over(tenant.messages + 1, tenant.max_messages))
        size_bytes = max(_over(row.bytes + size, row.max_bytes), _over(tenant.bytes + size, tenant.max_bytes))
        victims = []
        for position, freed in self._connection.execute(statement, (row.queue_id, max(row.head, row.reserved))):
            victims.append(position)
            messages -= 1
            size_bytes -= freed
            if messages <= 0 and size_bytes <= 0:
                return victims
        return []

    def _write(self) -> None:
        self._connection.executemany(schema.INSERT_BODY, self._new_bodies)
        self._connection.executemany(schema.INSERT_REF, self._new_references)
        self._new_bodies.clear()
        self._new_references.clear()


def _over(value: int, limit: int) -> int:
    return limit and value - limit


def full(row: QueueRow, size: int) -> str | None:
    """Name the limit that one more message of `size` bytes would break, None if there is room."""
    tenant = row.tenant
    if row.max_messages and row.messages >= row.max_messages:
        return "session_queued_messages"
    if row.max_bytes and row.bytes + size > row.max_bytes:
        return "session_queued_bytes"
    if tenant.max_messages and tenant.messages >= tenant.max_messages:
        return "queued_messages"
    if tenant.max_bytes and tenant.bytes + size > tenant.max_bytes:
        return "queued_bytes"
    return None
