# cython: annotation_typing=False
"""The table in memory: messages of queues that the journal has and SQLite has not.

Knows positions, limits and the rows of queues; knows no file and no transaction.

Theory: a queue's young messages are a run of positions at its end, so they are a deque: an append adds at its right end, an acknowledgement takes
from its left. Whatever would take one from the middle, moves the whole run into SQLite first (`JournaledQueues`).

Invariants: a row's counters are of both, SQLite and what is young. `references` of a body counts the young ones. Nobody but the writer sees
positions above `visible`: they are not durable yet.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice

from iothub.engine.outbox import QueueTarget
from iothub_services.queues.journal.encoding import Delivered, GroupBuffer, write_single
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Append, Appended, Inbound, QueuedRecord, Refused
from iothub_services.queues.sqlite.append import Appending, full
from iothub_services.queues.sqlite.row_cache import QueueRow, QueueRowCache, Tenant

_GONE, _FULL = int(Refused.GONE), int(Refused.FULL)
_KNOWN = "SELECT position FROM ref WHERE queue = ? AND message_id = ? AND qos = 2"
_RELEASED = "SELECT position FROM released WHERE queue = ?"
_INBOUND = "SELECT packet_id FROM inbound WHERE queue = ?"


class Body:
    """One message. `stored_id`: its row in `body`, 0: none yet."""

    __slots__ = ("data", "expires_at_ms", "message_id", "references", "stored_id")

    def __init__(self, message_id: bytes, data: bytes, expires_at_ms: int) -> None:
        self.message_id = message_id
        self.data = data
        self.expires_at_ms = expires_at_ms
        self.references = 0
        self.stored_id = 0


def _new_body(message_id: bytes, data: bytes, expires_at_ms: int) -> Body:
    """Make one without Python's way of passing arguments."""
    body: Body = Body.__new__(Body)
    body.message_id = message_id
    body.data = data
    body.expires_at_ms = expires_at_ms
    body.references = 0
    body.stored_id = 0
    return body


Reference = tuple[int, int, int, int, tuple[int, ...], Body]  # the fields of `Placed`, and the message


class Young:
    """What one queue has in memory alone. `released`, `inbound`: all of the queue's, once they are loaded."""

    __slots__ = ("first", "ids", "inbound", "is_waiting", "last", "references", "released", "visible")

    def __init__(self, visible: int) -> None:
        self.references: deque[Reference] = deque()
        self.first = self.last = 0  # positions of its ends
        self.ids: dict[bytes, int] = {}  # of QoS 2 messages
        self.visible = visible
        self.is_waiting = False  # for its group to be durable
        self.released: set[int] | None = None
        self.inbound: set[int] | None = None


class Table:
    """All of them. In the writer's thread, or under its lock."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        rows: QueueRowCache,
        appending: Appending,
        move_out: Callable[[QueueRow], None],
    ) -> None:
        """`appending`: makes room in SQLite; `move_out` moves a queue's young messages there."""
        self._connection = connection
        self._rows = rows
        self._appending = appending
        self._move_out = move_out
        self.young: dict[int, QueueRow] = {}  # rows that have a `Young`
        self.count = 0  # young references
        self.tenants: set[Tenant] = set()  # whose sums have changed since the last group
        self._waiting: list[QueueRow] = []
        # Of the message that is being appended.
        self._group: GroupBuffer
        self._body: Body
        self._positions: list[int] = []
        self._made: list[Delivered] = []
        self._dropped: list[tuple[int, int]] = []
        self._hit: list[str] = []
        self._deadlines: list[tuple[int, int]] = []  # expiry, queue

    # --- a group

    def append(self, batch: list[Append], group: GroupBuffer) -> list[Appended]:
        return [self._append(item, group) for item in batch]

    def _append(self, item: Append, group: GroupBuffer) -> Appended:
        self._begin(group, item.message_id, item.body, item.expires_at_ms)
        if item.inbound is not None:
            refusal = self._record_inbound(item.inbound)
            if refusal is not None:
                return refusal
        for queue_id, qos, flags, subscription_ids in item.deliveries:
            self._deliver(queue_id, qos, flags, subscription_ids)
        return Appended(self._end(item.inbound), dropped=tuple(self._dropped), hit=tuple(self._hit))

    def append_operations(self, batch: list[AppendOperation], group: GroupBuffer) -> list[Appended | tuple[int, ...]]:
        """Do the same without an `Append` for each; positions alone are the answer if there is nothing else to say."""
        answers: list[Appended | tuple[int, ...]] = []
        for operation in batch:
            answers.append(self._append_operation(operation, group))  # noqa: PERF401 - compiled, this is faster
        return answers

    def _append_operation(self, operation: AppendOperation, group: GroupBuffer) -> Appended | tuple[int, ...]:
        publish = operation.publish
        inbound = operation.inbound
        expires_at = publish.message.expires_at
        expires_at_ms = int(expires_at * 1000) if expires_at else 0
        if inbound is None and len(publish.targets) == 1:
            positions = self._append_single(operation, publish.targets[0], expires_at_ms, group)
            if positions is not None:
                return positions
        self._begin(group, operation.message_id, operation.body, expires_at_ms)
        if inbound is not None:
            refusal = self._record_inbound(inbound)
            if refusal is not None:
                return refusal
        for target in publish.targets:
            self._deliver(target.queue_id, target.qos, target.flags(), target.identifiers)
        positions = self._end(inbound)
        if self._dropped or self._hit:
            return Appended(positions, dropped=tuple(self._dropped), hit=tuple(self._hit))
        return positions

    def _append_single(
        self, operation: AppendOperation, target: QueueTarget, expires_at_ms: int, group: GroupBuffer
    ) -> tuple[int, ...] | None:
        """Do one for one queue that has room, without lists for what it is made of; None: nothing was done, it is not as simple as that."""
        row = self._rows.touch(target.queue_id)
        data, message_id = operation.body, operation.message_id
        if row is None or (message_id and target.qos == 2) or full(row, len(data)):
            return None
        position = row.tail + 1
        body = _new_body(message_id, data, expires_at_ms)
        self.take(row, position, target.qos, target.flags(), target.identifiers, body)
        group.records += 1
        write_single(group.data, group.mark, message_id, data, expires_at_ms, target, position)
        return (position,)

    def _begin(self, group: GroupBuffer, message_id: bytes, data: bytes, expires_at_ms: int) -> None:
        """Begin a message."""
        self._group = group
        self._body = _new_body(message_id, data, expires_at_ms)
        self._positions = []
        self._made = []
        if self._dropped:
            self._dropped = []
        if self._hit:
            self._hit = []

    def _end(self, inbound: Inbound | None) -> tuple[int, ...]:
        """Write its record; return its positions."""
        body, made, group = self._body, self._made, self._group
        for queue_id, position in self._dropped:
            group.removed(queue_id, position)
        if made or inbound is not None:
            group.append(body.message_id, body.data if made else b"", body.expires_at_ms, made, inbound)
        return tuple(self._positions)

    def _record_inbound(self, inbound: Inbound) -> Appended | None:
        row = self._rows.get(inbound.queue_id)
        if row is None or row.epoch != inbound.epoch:
            return Appended((), is_stale=True)
        identifiers = self.inbound(row)
        if inbound.packet_id in identifiers:
            return Appended((), is_duplicate=True)
        identifiers.add(inbound.packet_id)
        return None

    def _deliver(self, queue_id: int, qos: int, flags: int, subscription_ids: tuple[int, ...]) -> None:
        """Give the message to one queue: a position, or a `Refused`."""
        body = self._body
        row = self._rows.touch(queue_id)
        if row is None:
            self._positions.append(_GONE)
            return
        if qos == 2 and body.message_id:
            known = self._known(row, body.message_id)
            if known:
                self._positions.append(known)
                return
        size = len(body.data)
        limit = full(row, size)
        if limit:
            before = len(self._dropped)
            self._move_out(row)
            has_room = self._appending.make_room(row, size, self._dropped)
            self._hit += [limit] * (len(self._dropped) - before if has_room else 1)
            if not has_room:
                self._positions.append(_FULL)
                return
        position = row.tail + 1
        self._made.append(self.take(row, position, qos, flags, subscription_ids, body))
        self._positions.append(position)

    def _known(self, row: QueueRow, message_id: bytes) -> int:
        """Return where the queue has this message of QoS 2, 0: nowhere."""
        young = row.young
        position = 0
        if young is not None:
            position = young.ids.get(message_id, 0)
        if not position and self.has_old(row):
            for (stored,) in self._connection.execute(_KNOWN, (row.queue_id, message_id)):
                position = stored
        return position

    def take(
        self, row: QueueRow, position: int, qos: int, flags: int, subscription_ids: tuple[int, ...], body: Body
    ) -> Reference:
        """Add a message at the end of a queue whose row is touched; return what is known of it."""
        young = row.young
        if young is None:
            young = self.of(row)
        elif young.references and young.last != position - 1:
            self._move_out(row)  # a run has no gaps
        if not young.references:
            young.first = position
        if not young.is_waiting:
            young.is_waiting = True
            self._waiting.append(row)
        reference = (row.queue_id, position, qos, flags, subscription_ids, body)
        young.references.append(reference)
        young.last = position
        body.references += 1
        if qos == 2 and body.message_id:
            young.ids[body.message_id] = position
        if body.expires_at_ms:
            heappush(self._deadlines, (body.expires_at_ms, row.queue_id))
        row.tail = position
        self._count(row, 1, len(body.data), 0 if qos else 1)
        return reference

    def acknowledge(self, row: QueueRow, upto: int) -> None:
        """Take what is young and at or below `upto` out of a queue whose row is touched."""
        young = row.young
        if young is None:
            return
        references = young.references
        messages = size = qos0 = 0
        while references and young.first <= upto:
            reference = references.popleft()
            young.first += 1
            body = reference[5]
            body.references -= 1
            messages += 1
            size += len(body.data)
            qos = reference[2]
            if not qos:
                qos0 += 1
            elif qos == 2 and body.message_id:
                young.ids.pop(body.message_id, None)
        if messages:
            self._count(row, -messages, -size, -qos0)
        if young.released:
            young.released = {position for position in young.released if position > upto}

    def _count(self, row: QueueRow, messages: int, size_bytes: int, qos0: int) -> None:
        row.messages += messages
        row.bytes += size_bytes
        row.qos0 += qos0
        tenant = row.tenant
        tenant.messages += messages
        tenant.bytes += size_bytes
        self.count += messages
        self.tenants.add(tenant)

    def settle(self) -> None:
        """What was taken is durable."""
        for row in self._waiting:
            young = row.young
            if young is not None:
                young.visible = row.tail
                young.is_waiting = False
        self._waiting.clear()

    # --- one queue

    def of(self, row: QueueRow) -> Young:
        """Return what a queue has here, made if need be."""
        young: Young | None = row.young
        if young is None:
            young = row.young = Young(row.tail)
            self.young[row.queue_id] = row
        return young

    def has_old(self, row: QueueRow) -> bool:
        """Whether SQLite has messages of this queue."""
        young = row.young
        return row.messages > (0 if young is None else len(young.references))

    def released(self, row: QueueRow) -> set[int]:
        """Return the released positions of a queue, to be changed."""
        young = self.of(row)
        if young.released is None:
            young.released = {position for (position,) in self._connection.execute(_RELEASED, (row.queue_id,))}
        return young.released

    def inbound(self, row: QueueRow) -> set[int]:
        """Return the open inbound Packet Identifiers of a queue, to be changed."""
        young = self.of(row)
        if young.inbound is None:
            young.inbound = {packet_id for (packet_id,) in self._connection.execute(_INBOUND, (row.queue_id,))}
        return young.inbound

    def forget(self, queue_id: int) -> None:
        """The queue ends; its young messages are moved out before."""
        self.young.pop(queue_id, None)

    def page(self, row: QueueRow, after: int, count: int, size_bytes: int) -> list[QueuedRecord]:
        """Return durable young records behind `after`, until they are as many or have as many bytes."""
        young = row.young
        records: list[QueuedRecord] = []
        if young is None or not young.references:
            return records
        start = max(after + 1 - young.first, 0)
        for _, position, qos, flags, subscription_ids, body in islice(young.references, start, start + count):
            if position > young.visible:
                break
            records.append(QueuedRecord(position, qos, flags, subscription_ids, body.expires_at_ms, body.data))
            size_bytes -= len(body.data)
            if size_bytes <= 0:
                break
        return records

    # --- all

    def due(self, now_ms: int) -> list[QueueRow]:
        """Return the queues that may have young messages whose time has come."""
        found: dict[int, QueueRow] = {}
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, queue_id = heappop(self._deadlines)
            row = self.young.get(queue_id)
            if row is not None:
                found[queue_id] = row
        return list(found.values())

    def clear(self) -> None:
        """Have nothing any more."""
        for row in self.take_all():
            row.young = None

    def take_all(self) -> list[QueueRow]:
        """Return the rows that have something here; what they have is the caller's."""
        rows = list(self.young.values())
        self.young.clear()
        self.count = 0
        self._waiting.clear()
        self._deadlines.clear()
        return rows
