"""Wills that have fired and are not stored yet: a session's end waits for its own, a hub's stop for all.

Knows no Will and no store: the caller reports when one fires and when it is done.
"""

from __future__ import annotations

from collections import Counter

from twisted.internet.defer import Deferred

from iothub.engine.state import Session


class Firing:
    """On the reactor thread. Invariant: a session is here as long as one of its Wills is under way."""

    def __init__(self) -> None:
        self._under_way: Counter[Session] = Counter()
        self._waiting: dict[Session, list[Deferred[None]]] = {}

    def __len__(self) -> int:
        """How many Wills are under way."""
        return self._under_way.total()

    def begin(self, session: Session) -> None:
        """A Will of the session has fired; `done` follows once."""
        self._under_way[session] += 1

    def done(self, session: Session) -> None:
        """The Will is stored, or will never be."""
        self._under_way[session] -= 1
        if self._under_way[session]:
            return
        del self._under_way[session]
        for waiting in self._waiting.pop(session, ()):
            waiting.callback(None)

    async def settled(self, session: Session) -> None:
        """Return when none of the session's Wills is under way."""
        if session in self._under_way:
            waiting: Deferred[None] = Deferred()
            self._waiting.setdefault(session, []).append(waiting)
            await waiting
