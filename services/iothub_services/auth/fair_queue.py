"""A fair queue for work of which only a few pieces run at once: tenants take turns, and each tenant's work keeps its order.

Knows no work. Tenant id 0 stands for look-ups of a tenant by name: every tenant needs one before anything else, so every other turn is theirs.
The price: a client that makes up names, without any credential, gets every other turn, so that known tenants wait up to twice as long.
A caller gives its turn back, whatever the result of the work.
"""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred


class FairQueue:
    """`count` at once; must be used on the reactor thread."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: dict[int, deque[Deferred[None]]] = {}  # by tenant id, the next one first; none is empty
        self._is_giving = False
        self._was_nameless = False  # the last turn

    async def acquire(self, tenant_id: int) -> None:
        """Wait for a turn. The returned Deferred must not be cancelled."""
        if self._free:
            self._free -= 1
            return
        turn: Deferred[None] = Deferred()
        self._waiting.setdefault(tenant_id, deque()).append(turn)
        await turn

    def release(self) -> None:
        """End a turn; the next caller begins. A loop, not a recursion, because work may fail at once."""
        self._free += 1
        if self._is_giving:
            return
        self._is_giving = True
        try:
            while self._free and self._waiting:
                self._free -= 1
                self._next().callback(None)
        finally:
            self._is_giving = False

    def _next(self) -> Deferred[None]:
        self._was_nameless = 0 in self._waiting and (not self._was_nameless or len(self._waiting) == 1)
        tenant_id = 0 if self._was_nameless else next(filter(None, self._waiting))
        line = self._waiting.pop(tenant_id)
        turn = line.popleft()
        if line:
            self._waiting[tenant_id] = line  # behind the others
        return turn
