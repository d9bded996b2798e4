"""Whose request may be under way: a receiver that does not answer soon holds none of the connections that all tenants share.

Knows no HTTP and no queue. For one event loop.

Invariants: of one tenant at most `OF_TENANT` requests are under way. A request has one of `CONNECTIONS` for `SOON_S` at most; after that it is
one of `SLOW` that wait longer, and where these are taken it ends. So receivers that hang, of however many tenants, delay others by seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from iothub_services.webhooks.sending import Sent

OF_TENANT = 8
CONNECTIONS = 64
SLOW = 256
SOON_S = 1.0


class Turns:
    """The requests of all tenants."""

    def __init__(self) -> None:
        self._of_tenant: dict[int, asyncio.Semaphore] = {}
        self._connections = asyncio.Semaphore(CONNECTIONS)
        self._slow = 0

    async def take(self, tenant_id: int, send: Callable[[], Coroutine[Any, Any, Sent]]) -> Sent:
        """Send when it is the tenant's turn, and return what came of it."""
        of_tenant = self._of_tenant.setdefault(tenant_id, asyncio.Semaphore(OF_TENANT))
        async with of_tenant:
            async with self._connections:
                task = asyncio.get_running_loop().create_task(send())
                try:
                    await asyncio.wait((task,), timeout=SOON_S)
                except asyncio.CancelledError:
                    await _end(task)
                    raise
            return task.result() if task.done() else await self._wait_longer(task)

    async def _wait_longer(self, task: asyncio.Task[Sent]) -> Sent:
        if self._slow >= SLOW:
            await _end(task)
            return Sent(False, 0, f"no answer in {SOON_S:g} s, and too many other receivers do not answer either")
        self._slow += 1
        try:
            return await task
        finally:
            self._slow -= 1


async def _end(task: asyncio.Task[Sent]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
