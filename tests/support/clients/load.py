"""Publishers and subscribers at work together: begin them, wait for them.

Knows no packet: what each of them does is `publisher` and `subscriber`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from tests.support.clients.ledger import Ledger
from tests.support.clients.subscriber import Subscriber


async def settle(ready: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until `ready()`, at most this long."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not ready():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def drained(ledger: Ledger, subscribers: list[Subscriber], timeout_s: float) -> bool:
    """Wait until nothing acknowledged is missing and deliveries have stood still for a second.

    What was published and not acknowledged may still come, hence the standstill.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    still, last = 0.0, -1
    while asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.25)
        still = still + 0.25 if ledger.delivered == last else 0.0
        last = ledger.delivered
        if still >= 1.0 and not ledger.missing() and not any(one.held for one in subscribers if one.is_persistent):
            return True
    return False


def spawn(*coroutines: Coroutine[None, None, None]) -> list[asyncio.Task[None]]:
    return [asyncio.ensure_future(coroutine) for coroutine in coroutines]
