"""Wills that have fired and are not stored yet: a session's next connection and its end wait for its own, a hub's stop for all.

Knows no Will and no store: the caller reports when one fires and when it is done.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from twisted.internet.defer import Deferred

from iothub.base.clock import Clock
from iothub.engine.state import Session

WAIT_S = 0.5
"""So long a client waits for the Will of its last connection. A store or a rate that takes longer keeps nobody from connecting."""


class _Waiting:
    """Somebody who waits for a session's Wills, not beyond `until`."""

    __slots__ = ("answer", "until")

    def __init__(self, until: float) -> None:
        self.answer: Deferred[bool] = Deferred()
        self.until = until


class Firing:
    """On the reactor thread. Invariant: a session is here as long as one of its Wills is under way."""

    def __init__(self, clock: Clock, on_settled: Callable[[Session], None]) -> None:
        self._clock = clock
        self._on_settled = on_settled
        self._under_way: Counter[Session] = Counter()
        self._waiting: dict[Session, list[_Waiting]] = {}
        self._limited: set[Session] = set()  # those for which somebody does not wait for ever
        self._overtaken: set[Session] = set()  # those whose client has not waited, so that nobody else has to

    def __len__(self) -> int:
        """How many Wills are under way."""
        return self._under_way.total()

    @property
    def sessions(self) -> list[Session]:
        """Return those with Wills under way."""
        return list(self._under_way)

    def begin(self, session: Session) -> None:
        """A Will of the session has fired; `done` follows once."""
        self._under_way[session] += 1

    def done(self, session: Session) -> None:
        """The Will is stored, or will never be."""
        self._under_way[session] -= 1
        if self._under_way[session]:
            return
        del self._under_way[session]
        self._limited.discard(session)
        self._overtaken.discard(session)
        for waiting in self._waiting.pop(session, ()):
            waiting.answer.callback(True)
        self._on_settled(session)

    async def settled(self, session: Session, within_s: float = WAIT_S) -> bool:
        """Return when none of the session's Wills is under way. False: one still is, and the time is over."""
        if session not in self._under_way:
            return True
        if session in self._overtaken:
            return False
        waiting = _Waiting(self._clock.monotonic() + within_s)
        self._waiting.setdefault(session, []).append(waiting)
        if within_s < math.inf:
            self._limited.add(session)
        return await waiting.answer

    def hurry(self, session: Session) -> None:
        """A client comes: whoever waits for the session's Wills waits no longer than it may."""
        until = self._clock.monotonic() + WAIT_S
        for waiter in self._waiting.get(session, ()):
            waiter.until = min(waiter.until, until)
            self._limited.add(session)

    def overtake(self, session: Session) -> bool:
        """The session's client goes on without its Will. False: it has done so already."""
        is_first = session not in self._overtaken
        self._overtaken.add(session)
        return is_first

    def run_due(self) -> None:
        """Answer those who have waited long enough."""
        now = self._clock.monotonic()
        over: list[_Waiting] = []
        for session in list(self._limited):
            waiting = self._waiting.pop(session)
            over += [each for each in waiting if each.until <= now]
            left = [each for each in waiting if each.until > now]
            if left:
                self._waiting[session] = left
            if all(each.until == math.inf for each in left):
                self._limited.discard(session)
        for each in over:  # not earlier: whoever goes on may end another session's wait
            each.answer.callback(False)
