"""The session directory of one worker: a lock per (tenant, Client Identifier), so that take-overs happen one after another.

Knows no sessions and no peers; many workers get a directory of their own behind the same Protocol.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType

from twisted.internet.defer import Deferred

Key = tuple[int, str]
Waiting = deque[Deferred[None]]


class LocalDirectory:
    """In-process `SessionDirectory`. Invariant: a key is kept only while somebody holds its lock; with it those who wait, the first first."""

    def __init__(self) -> None:
        self._held: dict[Key, Waiting | None] = {}  # None: nobody waits, as nearly always

    def holding(self, tenant_id: int, client_id: str) -> Hold:
        return Hold(self._held, (tenant_id, client_id))


class Hold:
    """One `async with` on one key. A free lock is taken without waiting for anything."""

    __slots__ = ("_held", "_key")

    def __init__(self, held: dict[Key, Waiting | None], key: Key) -> None:
        self._held = held
        self._key = key

    async def __aenter__(self) -> None:
        held, key = self._held, self._key
        if key not in held:
            held[key] = None
            return
        waiting = held[key]
        if waiting is None:
            waiting = held[key] = deque()
        turn: Deferred[None] = Deferred()
        waiting.append(turn)
        await turn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        waiting = self._held[self._key]
        if waiting:
            waiting.popleft().callback(None)  # the lock goes from hand to hand: it is never free in between
        else:
            del self._held[self._key]
