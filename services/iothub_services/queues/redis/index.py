# cython: annotation_typing=False
"""Which queues there are in Redis, whose they are, and what each tenant has stored.

Knows the sets of queues and each queue's head line; knows no record.

Theory: every verb of the port names a queue only by its id. Queues are kept in memory, read at the start; one that another hub has made
meanwhile is found by its own key. A tenant's set names a queue before it is made and until it was dropped, so it may name queues that are
not there, never miss one. A damaged queue is known, so that it can be dropped; once it was found damaged it is there for no other verb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, cast

from iothub.base.errors import NotFoundError
from iothub.records.causes import UNREADABLE
from iothub_services.queues.port import Overflow, QueueLimits, QueueStats, TenantUsage
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.sending import Sender, is_of_one_queue, looked, require
from iothub_services.queues.remote.tenant import RemoteQueue, Tenant
from iothub_services.redis.calls import Call, Reply, command

_NOBODY = 0  # no tenant
AT_ONCE = 1_000  # queues in one pipeline, members of a set in one answer

_FIELDS = ("tenant", "messages", "bytes", "head", "tail", "epoch", "max_messages", "max_bytes", "overflow")
_Fields: TypeAlias = "Sequence[bytes | None]"
_NO_HASH: list[Reply] = [b""] * len(_FIELDS)
"""The answer about a queue whose state is something else altogether."""


class KnownQueue(RemoteQueue):
    """One queue. `tail`: the last position that this hub has heard of."""

    __slots__ = ("tail",)

    def __init__(self, queue_id: int, tenant_id: int, tenant: Tenant) -> None:
        RemoteQueue.__init__(self, queue_id, tenant_id, tenant)
        self.tail = 0


class QueueIndex:
    """Invariants: a tenant's sum is that of its known queues. Sums change only in the writing thread."""

    def __init__(self, sender: Sender, names: Names) -> None:
        self._sender = sender
        self._names = names
        self._lost = sender.damage.lost
        self._known: dict[int, KnownQueue] = {}
        self._tenants: dict[int, Tenant] = {}

    # --- in memory

    def get(self, queue_id: int) -> KnownQueue | None:
        """Return a queue if this hub has heard of it, and it is not lost."""
        return None if queue_id in self._lost else self._known.get(queue_id)

    def tenant_of(self, queue_id: int) -> int | None:
        """Return whose queue this is, lost or not, if this hub has heard of it."""
        known = self._known.get(queue_id)
        return None if known is None else known.tenant_id

    def add(self, tenant_id: int, queue_id: int) -> KnownQueue:
        """Know a queue from now on."""
        return self._known.setdefault(queue_id, KnownQueue(queue_id, tenant_id, self.tenant(tenant_id)))

    def forget(self, queue_id: int) -> None:
        """The queue is gone: it leaves the sums."""
        known = self._known.pop(queue_id, None)
        if known is not None:
            known.holds(0, 0)
            known.tenant = Tenant()  # answers about it are ignored from now on

    def forget_all(self) -> int:
        """Everything is gone; returns how many queues were known."""
        known = list(self._known)
        for queue_id in known:
            self.forget(queue_id)
        return len(known)

    def tenant(self, tenant_id: int) -> Tenant:
        return self._tenants.setdefault(tenant_id, Tenant())

    def usage(self, tenant_id: int) -> TenantUsage:
        """Look, without making anything: any thread may ask."""
        tenant = self._tenants.get(tenant_id)
        return TenantUsage(0, 0) if tenant is None else TenantUsage(tenant.messages, tenant.bytes)

    # --- in Redis

    def load(self) -> None:
        """Learn which queues there are, and what they hold. Raises BackendError."""
        for member in self._members(self._names.tenants):
            tenant_id = int(member)
            for part in _chunks(sorted(map(int, self._members(self._names.of_tenant(tenant_id)))), AT_ONCE):
                for found in self._fields(part):
                    known = self._added(found, tenant_id)
                    if isinstance(known, QueueStats):
                        self.add(tenant_id, known.queue_id).holds(known.messages, known.bytes)

    def existing(self, queue_id: int) -> KnownQueue:
        """Return a queue, looked for in Redis if need be. Raises NotFoundError, BackendError."""
        self.find((queue_id,))
        known = self.get(queue_id)
        if known is None:
            raise unknown(queue_id)
        return known

    def find(self, queue_ids: Iterable[int]) -> None:
        """Look for those queues that are not known yet: another hub may have made them. In the writing thread. Raises BackendError."""
        missing = sorted(set(queue_ids).difference(self._known))
        for part in _chunks(missing, AT_ONCE):
            for found in self._fields(part, self._sender.write):
                self._added(found)

    def listed(self, tenant_id: int) -> list[int]:
        """Return the ids of a tenant's queues, ascending; some may not be there. Raises BackendError."""
        return sorted(map(int, self._members(self._names.of_tenant(tenant_id))))

    def existing_now(self, queue_ids: Sequence[int]) -> set[int]:
        """Return those that are there and not damaged, by the server where writes go. Raises BackendError."""
        found = self._fields(queue_ids, self._sender.write)
        return {stats.queue_id for each in found if (stats := self._stats(*each)) is not None}

    def stats(self, queue_ids: Sequence[int]) -> list[QueueStats]:
        """Return where queues stand, without those that are gone or damaged. Raises BackendError."""
        return [stats for found in self._fields(queue_ids) if (stats := self._stats(*found)) is not None]

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        """Return where all queues of a tenant stand. Raises BackendError."""
        found = self._fields(self.listed(tenant_id))
        return [stats for each in found if (stats := self._stats(*each, tenant_id)) is not None]

    def existing_stats(self, queue_id: int) -> QueueStats:
        """Return where one queue stands. Raises NotFoundError, BackendError."""
        for stats in self.stats((queue_id,)):
            return stats
        raise unknown(queue_id)

    def enter(self, tenant_id: int, queue_id: int) -> None:
        """Name a queue that is about to be made. Raises BackendError."""
        names = self._names
        calls = [command("SADD", names.tenants, tenant_id), command("SADD", names.of_tenant(tenant_id), queue_id)]
        require(self._sender.write(calls))

    def remove_names(self, queues: Iterable[tuple[int, int]]) -> None:
        """Name queues, (tenant id, queue id), no more. Raises BackendError."""
        calls: list[Call] = []
        for tenant_id, queue_id in queues:
            calls.append(command("SREM", self._names.of_tenant(tenant_id), queue_id))
            calls.append(command("ZREM", self._names.due, queue_id))
        require(self._sender.write(calls))

    def _fields(
        self, queue_ids: Sequence[int], ask: Callable[[Sequence[Call]], list[Reply]] | None = None
    ) -> list[tuple[int, _Fields]]:
        """Return what Redis says of those queues that are there. `ask`: `Sender.write` asks the server that takes writes."""
        calls = [command("HMGET", self._names.meta(queue_id), *_FIELDS) for queue_id in queue_ids]
        outcomes = (ask or self._sender.ask)(calls)
        answers = looked([_NO_HASH if is_of_one_queue(outcome) else outcome for outcome in outcomes])
        return [
            (queue_id, fields)
            for queue_id, fields in zip(queue_ids, cast("list[_Fields]", answers), strict=True)
            if any(field is not None for field in fields)
        ]

    def _added(self, found: tuple[int, _Fields], named_by: int = _NOBODY) -> QueueStats | None:
        """Know a queue from now on; return where it stands, None: it is damaged. `named_by`: whose it is if it does not say so itself."""
        queue_id, fields = found
        tenant_id = fields[0] or b""
        self.add(int(tenant_id) if tenant_id.isdigit() else named_by, queue_id)
        return self._stats(queue_id, fields, named_by)

    def _stats(self, queue_id: int, fields: _Fields, named_by: int = _NOBODY) -> QueueStats | None:
        """None: it is damaged. `named_by` as in `_added`."""
        if queue_id in self._lost:
            return None
        tenant_id = int(fields[0]) if fields[0] and fields[0].isdigit() else named_by
        try:
            messages, size_bytes, head, tail, epoch, most, most_bytes, overflow = map(
                int, cast("Sequence[bytes]", fields[1:])
            )
            limits = QueueLimits(most, most_bytes, Overflow(overflow))
        except UNREADABLE:
            self._sender.damaged(queue_id, "its state has something else where a number belongs")
            return None
        return QueueStats(queue_id, tenant_id, messages, size_bytes, head, tail, epoch, limits)

    def _members(self, key: bytes) -> Iterator[bytes]:
        """Yield what is in a set, whatever its size; some perhaps twice."""
        cursor: Reply = 0
        while True:
            answer = self._sender.read_one(command("SSCAN", key, cast("bytes | int", cursor), "COUNT", AT_ONCE))
            cursor, members = cast("list[Reply]", answer)
            yield from cast("list[bytes]", members)
            if cursor in (b"0", 0):
                return


def unknown(queue_id: int) -> NotFoundError:
    """Return the error for a queue that is not there."""
    return NotFoundError(f"queue {queue_id} does not exist")


def _chunks(queue_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for at in range(0, len(queue_ids), size):
        yield queue_ids[at : at + size]
