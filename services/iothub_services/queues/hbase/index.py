# cython: annotation_typing=False
"""Which queues there are on HBase, whose they are, and what each tenant has stored.

Knows the rows of table `queue_index` and keys; knows no record and no queue's state.

Theory: every verb of the port names a queue only by its id, and its rows begin with id and tenant. So the queues are kept in memory, read
from the index at the start. One that another hub has made meanwhile is found by its meta row, whose key begins with the id: the tenant is
behind it. The index row is put before a queue is made and deleted after it was dropped, so the index may name queues that are not there,
never miss one.

Row `tenant | queue id`, cell `i:q`: 1. Its key says all, nobody reads the cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from iothub.base.errors import BackendError, NotFoundError
from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Mutation, Scan
from iothub_services.hbase.pages import first_rows, pages
from iothub_services.queues.port import TenantUsage
from iothub_services.queues.remote.tenant import RemoteQueue, Tenant

T = TypeVar("T")

COLUMN = b"i:q"
CELL = b"\1"
ROWS_AT_ONCE = 500  # of one call
_SAME_ID = 4  # rows of one queue id that are looked at: dropped ones of other tenants may be before it


class KnownQueue(RemoteQueue):
    """One queue. `key` is K, with which all its rows begin."""

    __slots__ = ("key",)

    def __init__(self, queue_id: int, tenant_id: int, tenant: Tenant) -> None:
        RemoteQueue.__init__(self, queue_id, tenant_id, tenant)
        self.key = keys.queue_key(queue_id, tenant_id)


class QueueIndex:
    """The queues of a namespace.

    Invariants: a tenant's sum is that of its known queues. Sums change only in the writing thread; `find` may run in any.
    """

    def __init__(self, caller: Caller, table: bytes, queues_table: bytes) -> None:
        self._caller = caller
        self._table = table
        self._queues_table = queues_table
        self._known: dict[int, KnownQueue] = {}
        self._tenants: dict[int, Tenant] = {}

    # --- in memory

    def get(self, queue_id: int) -> KnownQueue | None:
        """Return a queue if this hub has heard of it."""
        return self._known.get(queue_id)

    def add(self, tenant_id: int, queue_id: int) -> KnownQueue:
        """Know a queue from now on."""
        return self._known.setdefault(queue_id, KnownQueue(queue_id, tenant_id, self.tenant(tenant_id)))

    def forget(self, queue_id: int) -> None:
        """The queue is gone: it leaves the sums."""
        known = self._known.pop(queue_id, None)
        if known is not None:
            known.holds(0, 0)
            known.tenant = Tenant()  # answers about it are ignored from now on

    def tenant(self, tenant_id: int) -> Tenant:
        return self._tenants.setdefault(tenant_id, Tenant())

    def usage(self, tenant_id: int) -> TenantUsage:
        """Look, without making anything: any thread may ask."""
        tenant = self._tenants.get(tenant_id)
        return TenantUsage(0, 0) if tenant is None else TenantUsage(tenant.messages, tenant.bytes)

    # --- in HBase

    def listed(self, tenant_id: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield (tenant id, queue id) of a tenant's queues, or of all, ascending. Raises BackendError."""
        start = b"" if tenant_id is None else keys.tenant_key(tenant_id)
        scan = Scan(self._table, start, keys.prefix_end(start), (COLUMN,), caching=ROWS_AT_ONCE)
        for rows in pages(self._caller, scan):
            yield from (keys.queue_of_index(row.key) for row in rows)

    def enter(self, tenant_id: int, queue_id: int) -> None:
        """Put the row of a queue that is about to be made. Raises BackendError."""
        self._caller.call(calls.mutate_row(self._table, keys.index_key(tenant_id, queue_id), {COLUMN: CELL}))

    def remove_names(self, queues: Iterable[tuple[int, int]]) -> None:
        """Delete the rows of queues, (tenant id, queue id), that were dropped. Raises BackendError."""
        gone = [Mutation(keys.index_key(*queue), {}, (COLUMN,)) for queue in queues]
        parts = [gone[at : at + ROWS_AT_ONCE] for at in range(0, len(gone), ROWS_AT_ONCE)]
        all_of(self._caller.call_many([calls.mutate_rows(self._table, part) for part in parts]))

    def existing(self, queue_id: int) -> KnownQueue:
        """Return a queue, looked for in HBase if need be. Raises NotFoundError, BackendError."""
        self.find((queue_id,))
        known = self._known.get(queue_id)
        if known is None:
            raise unknown(queue_id)
        return known

    def find(self, queue_ids: Iterable[int]) -> None:
        """Look for those queues that are not known yet: another hub may have made them. Raises BackendError."""
        missing = sorted(set(queue_ids).difference(self._known))
        for at in range(0, len(missing), ROWS_AT_ONCE):
            self._find(missing[at : at + ROWS_AT_ONCE])

    def _find(self, queue_ids: Sequence[int]) -> None:
        starts = [keys.reverse_bits(queue_id) for queue_id in queue_ids]
        scans = [Scan(self._queues_table, start, keys.prefix_end(start), (b"m",), caching=_SAME_ID) for start in starts]
        found = all_of(first_rows(self._caller, scans, _SAME_ID))
        rows = {
            keys.index_key(tenant_id, queue_id): (tenant_id, queue_id)
            for row in (row for rows in found for row in rows if row.key.endswith(keys.META))
            if len(row.key) == keys.QUEUE_KEY_BYTES + 1
            for queue_id, tenant_id in (keys.split_queue_key(row.key),)
        }
        if rows:
            for row in self._caller.call(calls.get_rows(self._table, list(rows), (COLUMN,))):
                self.add(*rows[row.key])


def all_of(outcomes: Iterable[T | BackendError]) -> list[T]:
    """Return the results of calls. Raises the first error, one that will not pass before one that may."""
    results: list[T] = []
    errors: list[BackendError] = []
    for outcome in outcomes:
        if isinstance(outcome, BackendError):
            errors.append(outcome)
        else:
            results.append(outcome)
    if errors:
        raise min(errors, key=lambda error: error.retryable)
    return results


def unknown(queue_id: int) -> NotFoundError:
    """Return the error for a queue that is not there."""
    return NotFoundError(f"queue {queue_id} does not exist")
