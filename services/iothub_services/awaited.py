"""Callback-style calls of the stores' threads as awaitables.

Knows no store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred

from iothub_services.queues.port import (
    Claim,
    DueRecord,
    Expired,
    ExpiryMark,
    Page,
    Place,
    Purged,
    QueueLimits,
    QueueStats,
    Rebuilt,
)
from iothub_services.queues.threads import LoadedPage, Read, RetainedPage
from iothub_services.queues.writer import QueueWriter
from iothub_services.retained.port import RetainedBody, RetainedTopic


def awaited(start: Callable[[Callable[[Any], None], Callable[[Exception], None]], None]) -> Deferred[Any]:
    """Fire with what `start`'s first callback gets, or fail with what its second one gets."""
    answer: Deferred[Any] = Deferred()
    start(answer.callback, answer.errback)
    return answer


_PAGE_RECORDS = 128
_PAGE_BYTES = 256 << 10


class AwaitedQueues:
    """The rare verbs of the virtual queues; fulfils `iothub_services.sessions.port.QueueAdmin`."""

    def __init__(self, writer: QueueWriter) -> None:
        self._writer = writer

    async def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int) -> None:
        await self._call("create", tenant_id, queue_id, limits, first_epoch)

    async def claim(self, queue_id: int, owner: bytes) -> Claim:
        claim: Claim = await self._call("claim", queue_id, owner)
        return claim

    async def drop(self, queue_id: int) -> int:
        return int(await self._call("drop", queue_id))

    async def load(self, queue_id: int, epoch: int, after: int) -> LoadedPage:
        op = Read(queue_id, epoch, after, _PAGE_RECORDS, _PAGE_BYTES)
        page: LoadedPage = await awaited(lambda done, failed: self._writer.load(op, done, failed))
        return page

    async def stats(self, queue_id: int) -> QueueStats:
        """Raises NotFoundError: there is no such queue."""
        stats: QueueStats = await self._call("stats", queue_id)
        return stats

    async def stats_of(self, queue_ids: list[int]) -> dict[int, QueueStats]:
        """Return where those of these queues stand that are there."""
        stats: dict[int, QueueStats] = await self._call("stats_of", queue_ids)
        return stats

    async def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        """Read records as they are stored. Raises StaleEpochError: somebody has claimed the queue meanwhile."""
        page: Page = await self._call("read", queue_id, epoch, after, count, size_bytes)
        return page

    async def drop_tenant(self, tenant_id: int) -> None:
        await self._call("drop_tenant", tenant_id)

    async def purge(self, queue_id: int, upto: int = 0) -> Purged:
        """Drop some of what is stored; see `QueueStore.purge`."""
        purged: Purged = await self._call("purge", queue_id, upto)
        return purged

    async def expire(self, now_ms: int, count: int, after: ExpiryMark) -> Expired:
        expired: Expired = await self._call("expire", now_ms, count, after)
        return expired

    async def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        removed: tuple[DueRecord, ...] = await self._call("expire_unsent", now_ms, records)
        return removed

    async def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        await self._call("set_limits", changes)

    async def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        await self._call("set_tenant_limits", tenant_id, messages, size_bytes)

    async def tails(self, queue_ids: list[int]) -> dict[int, int]:
        tails: dict[int, int] = await self._call("tails", queue_ids)
        return tails

    async def existing(self, queue_ids: list[int]) -> set[int]:
        """Return which of these queues are there."""
        existing: set[int] = await self._call("existing", queue_ids)
        return existing

    async def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt:
        """Only where the store says that it needs it (`iothub_services.queues.sqlite.store`)."""
        rebuilt: Rebuilt = await self._call("rebuild", places, now_us)
        return rebuilt

    async def list_queues(self, tenant_id: int) -> list[QueueStats]:
        queues: list[QueueStats] = await self._call("list_queues", tenant_id)
        return queues

    def _call(self, name: str, *args: object) -> Awaitable[Any]:
        return awaited(lambda done, failed: self._writer.call(name, args, done, failed))


class AwaitedRetained:
    """The rare verbs of the retained store."""

    def __init__(self, writer: QueueWriter) -> None:
        self._writer = writer

    async def load(self, tenant_id: int) -> list[RetainedTopic]:
        topics: list[RetainedTopic] = await self._call("load", tenant_id)
        return topics

    async def page(self, tenant_id: int, after: bytes, count: int) -> list[RetainedTopic]:
        """Return the first topics that follow `after`."""
        op = RetainedPage(tenant_id, after, count)
        topics: list[RetainedTopic] = await awaited(lambda done, failed: self._writer.load(op, done, failed))
        return topics

    async def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        bodies: list[RetainedBody] = await self._call("fetch", tenant_id, list(topics))
        return bodies

    async def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        return int(await self._call("delete", tenant_id, list(topics)))

    async def settle(self, tenant_id: int) -> None:
        """Wait until every write that was asked for is durable: an empty verb takes its place behind them."""
        await self._call("delete", tenant_id, [])

    async def expire(self, now_ms: int, count: int) -> list[tuple[int, bytes]]:
        expired: list[tuple[int, bytes]] = await self._call("expire", now_ms, count)
        return expired

    async def drop_tenant(self, tenant_id: int) -> None:
        await self._call("drop_tenant", tenant_id)

    def _call(self, name: str, *args: object) -> Awaitable[Any]:
        return awaited(lambda done, failed: self._writer.call_retained(name, args, done, failed))
