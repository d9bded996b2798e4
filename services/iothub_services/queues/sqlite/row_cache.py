# cython: annotation_typing=False
"""The rows of table `queue` as the one writer sees them: loaded when needed, changed in memory, written once per commit.

Knows counters and limits; knows no records and no SQL but its own row's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from iothub_services.queues.port import Overflow, QueueLimits, QueueStats, TenantUsage
from iothub_services.queues.sqlite import schema

_CACHED_ROWS = 100_000


class Tenant:
    """The sum over a tenant's queues, and its bounds (0: none)."""

    __slots__ = ("bytes", "max_bytes", "max_messages", "messages", "tenant_id")

    def __init__(self, tenant_id: int = 0, messages: int = 0, size_bytes: int = 0) -> None:
        self.tenant_id = tenant_id
        self.messages = messages
        self.bytes = size_bytes
        self.max_messages = 0
        self.max_bytes = 0


_NOBODY = Tenant()


class QueueRow:
    """One queue. `reserved`: up to it a position may have been sent before. `tenant`: the cache's, once it is there.

    Of the newest `young_messages` the journal has the only copy: they are counted in memory, and in the table only when they are moved there.
    `moved`: the last position that was not among them when the row was written.
    """

    __slots__ = (
        "bytes",
        "epoch",
        "head",
        "is_changed",
        "max_bytes",
        "max_messages",
        "messages",
        "moved",
        "overflow",
        "owner",
        "qos0",
        "queue_id",
        "reserved",
        "tail",
        "tenant",
        "tenant_id",
        "young",
        "young_bytes",
        "young_messages",
        "young_qos0",
    )

    def __init__(self, queue_id: int, tenant_id: int, epoch: int, limits: QueueLimits) -> None:
        self.queue_id = queue_id
        self.tenant_id = tenant_id
        self.tenant = _NOBODY
        self.tail = 0
        self.head = 0
        self.epoch = epoch
        self.reserved = 0
        self.messages = 0
        self.bytes = 0
        self.qos0 = 0
        self.owner = b""
        self.is_changed = False  # more than what an append changes
        self.moved = 0
        self.young: Any = None  # of the journal, which keeps it here
        self.young_messages = self.young_bytes = self.young_qos0 = 0
        self.set_limits(limits)

    def set_limits(self, limits: QueueLimits) -> None:
        self.max_messages = limits.messages
        self.max_bytes = limits.bytes
        self.overflow = int(limits.overflow)

    def stats(self) -> QueueStats:
        limits = QueueLimits(self.max_messages, self.max_bytes, Overflow(self.overflow))
        return QueueStats(
            self.queue_id, self.tenant_id, self.messages, self.bytes, self.head, self.tail, self.epoch, limits
        )


class QueueRowCache:
    """Rows and sums.

    Invariants: a changed row is in `_dirty` until `write`; sums agree with the rows; after `forget` both are what is committed.
    """

    def __init__(
        self, connection: sqlite3.Connection, on_usage: Callable[[int, TenantUsage], None] | None = None
    ) -> None:
        """`on_usage`: gets the sums of each tenant now, and after each commit of those that it may have changed."""
        self._connection = connection
        self._on_usage = on_usage
        self._rows: dict[int, QueueRow] = {}
        self._dirty: dict[int, QueueRow] = {}
        self._tenants: dict[int, Tenant] = {}
        self._before: dict[
            Tenant, tuple[int, int]
        ] = {}  # sums as committed, of tenants that this transaction may change
        self.sum_up()

    def get(self, queue_id: int) -> QueueRow | None:
        """Return the row, for reading."""
        row = self._rows.get(queue_id)
        if row is None:
            found = self._connection.execute(schema.SELECT_QUEUE, (queue_id,)).fetchone()
            if found is None:
                return None
            row = row_of(found)
            self._adopt(row)
        return row

    def touch(self, queue_id: int) -> QueueRow | None:
        """Return the row, to be changed."""
        row = self._dirty.get(queue_id)
        if row is None:
            row = self.get(queue_id)
            if row is not None:
                self._dirty[queue_id] = row
                tenant = row.tenant
                if tenant not in self._before:
                    self._before[tenant] = (tenant.messages, tenant.bytes)
        return row

    def known(self, queue_id: int) -> QueueRow | None:
        """Return the row if it is in memory: one that has changed since the last commit is."""
        return self._rows.get(queue_id)

    def tenant(self, tenant_id: int) -> Tenant:
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = Tenant(tenant_id)
        return tenant

    def usage(self, tenant_id: int) -> TenantUsage:
        """Look, without making anything: any thread may ask."""
        tenant = self._tenants.get(tenant_id)
        return TenantUsage(0, 0) if tenant is None else TenantUsage(tenant.messages, tenant.bytes)

    def insert(self, row: QueueRow) -> None:
        counters = (row.tail, row.head, row.epoch, row.reserved, row.messages, row.bytes, row.qos0)
        self._connection.execute(
            schema.INSERT_QUEUE, (row.queue_id, row.tenant_id, *counters, *_rarely(row), row.moved)
        )
        self._adopt(row)

    def insert_full(self, row: QueueRow) -> None:
        """Insert a row with the counters of what is stored already."""
        self.insert(row)
        self.touch(row.queue_id)
        row.tenant.messages += row.messages
        row.tenant.bytes += row.bytes

    def remove(self, row: QueueRow) -> None:
        """The queue (touched before) is dropped: its counters leave the sums."""
        row.tenant.messages -= row.messages
        row.tenant.bytes -= row.bytes
        self._rows.pop(row.queue_id, None)
        self._dirty.pop(row.queue_id, None)
        self._connection.execute("DELETE FROM queue WHERE id = ?", (row.queue_id,))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what was changed, inside the transaction that changed it."""
        if self._dirty:
            rows = self._dirty.values()
            connection.executemany(
                schema.UPDATE_COUNTERS,
                [_counters(row) for row in rows],
            )
            changed = [
                (row.head, row.epoch, row.reserved, *_rarely(row), row.queue_id) for row in rows if row.is_changed
            ]
            connection.executemany(schema.UPDATE_QUEUE, changed)
            for row in rows:
                row.is_changed = False
            self._dirty.clear()

    def forget(self) -> None:
        """The transaction failed."""
        self._rows.clear()
        self._dirty.clear()
        for tenant, (messages, size_bytes) in self._before.items():
            tenant.messages, tenant.bytes = messages, size_bytes
        self._before.clear()

    def settle(self) -> None:
        """The transaction is committed."""
        self.report(self._before)
        self._before.clear()
        if len(self._rows) > _CACHED_ROWS:
            self._rows = {queue_id: row for queue_id, row in self._rows.items() if row.young is not None}

    def evict(self) -> None:
        """Rows were written with SQL: read them anew. What was changed is written before."""
        self._rows.clear()

    def _adopt(self, row: QueueRow) -> None:
        row.tenant = self.tenant(row.tenant_id)
        self._rows[row.queue_id] = row

    def sum_up(self) -> None:
        """Count what the table has, and only that."""
        for tenant in self._tenants.values():
            tenant.messages = tenant.bytes = 0
        statement = "SELECT tenant, sum(messages), sum(bytes) FROM queue GROUP BY tenant"
        for tenant_id, messages, size_bytes in self._connection.execute(statement):
            tenant = self.tenant(tenant_id)
            tenant.messages = messages
            tenant.bytes = size_bytes
        self.report(self._tenants.values())

    def report(self, tenants: Iterable[Tenant]) -> None:
        if self._on_usage is not None:
            for tenant in tenants:
                self._on_usage(tenant.tenant_id, TenantUsage(tenant.messages, tenant.bytes))


def row_of(columns: tuple[int, int, int, int, int, int, int, int, int, int, int, int, bytes, int]) -> QueueRow:
    """Build a row from the columns of table `queue`, in their order."""
    row = QueueRow(columns[0], columns[1], columns[4], QueueLimits(columns[9], columns[10], Overflow(columns[11])))
    row.tail, row.head = columns[2], columns[3]
    row.reserved, row.messages, row.bytes, row.qos0 = columns[5:9]
    row.owner, row.moved = columns[12:14]
    return row


def _counters(row: QueueRow) -> tuple[int, ...]:
    """Return what is stored of them: without what only the journal has, which is the end of the queue."""
    messages, size_bytes = row.messages - row.young_messages, row.bytes - row.young_bytes
    moved = row.tail - row.young_messages
    return (row.tail, messages, size_bytes, row.qos0 - row.young_qos0, moved, row.queue_id)


def _rarely(row: QueueRow) -> tuple[int | bytes, ...]:
    return (row.max_messages, row.max_bytes, row.overflow, row.owner)
