"""The session directory of one hub: a lock per (tenant, Client Identifier), so that take-overs happen one after another.

Knows no sessions and no peers; a hub with links asks the others, too: `iothub.hub.cluster.session_directory`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable
from types import TracebackType
from typing import Protocol

from twisted.internet.defer import Deferred

from iothub_services.sessions.port import Key, Purpose

Waiting = deque[Deferred[float]]


class SessionLocks:
    """In-process `SessionDirectory`. Invariant: a key is kept only while somebody holds its lock; with it those who wait, the first first."""

    def __init__(self) -> None:
        self._held: dict[Key, Waiting | None] = {}  # None: nobody waits, as nearly always
        self._next: Waiting = deque()  # whose turn has come
        self._is_handing = False

    def holding(self, tenant_id: int, client_id: str, purpose: Purpose = Purpose.CONNECT) -> Hold:
        return Hold(self, (tenant_id, client_id), purpose)

    def left(self, tenant_id: int, client_id: str) -> None:
        """Nobody else has to know."""

    def keys(self) -> Iterable[Key]:
        """Return the keys whose locks are held."""
        return self._held.keys()

    def acquire(self, key: Key, purpose: Purpose = Purpose.CONNECT) -> Deferred[float] | None:
        """Take a free lock and return None, or get in line for a held one and return one's turn."""
        del purpose
        held = self._held
        if key not in held:
            held[key] = None
            return None
        waiting = held[key]
        if waiting is None:
            waiting = held[key] = deque()
        turn: Deferred[float] = Deferred()
        waiting.append(turn)
        return turn

    def give(self, key: Key) -> None:
        """Hand the lock to the next in line: it is never free in between. One after the other, not one inside the other: lines can be long."""
        waiting = self._held[key]
        if not waiting:
            del self._held[key]
            return
        self._next.append(waiting.popleft())
        if self._is_handing:
            return
        self._is_handing = True
        try:
            while self._next:
                self._next.popleft().callback(0.0)
        finally:
            self._is_handing = False


class Locks(Protocol):
    """What a `Hold` is made of."""

    def acquire(self, key: Key, purpose: Purpose) -> Awaitable[float] | None: ...

    def give(self, key: Key) -> None: ...


class Hold:
    """One `async with` on one key. A free lock is taken without waiting for anything."""

    __slots__ = ("_directory", "_key", "_purpose")

    def __init__(self, directory: Locks, key: Key, purpose: Purpose) -> None:
        self._directory = directory
        self._key = key
        self._purpose = purpose

    async def __aenter__(self) -> float:
        waiting = self._directory.acquire(self._key, self._purpose)
        return 0.0 if waiting is None else await waiting

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._directory.give(self._key)
