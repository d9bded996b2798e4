"""The session directory of one worker: a lock per (tenant, Client Identifier), so that take-overs happen one after another.

Knows no sessions and no peers; many workers get a directory of their own behind the same Protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from twisted.internet.defer import DeferredLock


class LocalDirectory:
    """In-process `SessionDirectory`. Invariant: a key is kept only while somebody holds or awaits its lock."""

    def __init__(self) -> None:
        self._locks: dict[tuple[int, str], DeferredLock] = {}

    @asynccontextmanager
    async def holding(self, tenant_id: int, client_id: str) -> AsyncIterator[None]:
        key = (tenant_id, client_id)
        lock = self._locks.setdefault(key, DeferredLock())
        await lock.acquire()
        try:
            yield
        finally:
            lock.release()
            if not lock.locked and not lock.waiting:
                self._locks.pop(key, None)
