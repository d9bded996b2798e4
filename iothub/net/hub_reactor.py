"""Twisted's epoll reactor, for a hub whose message plane waits itself.

Knows no plane and no socket. For each wake-up Twisted looks at its timers, waits, and makes a context for the log: more than the plane takes to
hand on a message. So the plane waits for its own sockets, and for Twisted's descriptor as one more of them; Twisted has its turn when it has
something to do.
"""

# ruff: noqa: N802, N815 - Twisted's names

from __future__ import annotations

import math
import time
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.python import log


class PlaneReader:
    """A reader that can wait for others. It ends by `removeReader` alone; what it raises is a defect, which the reactor logs."""

    def watch(self, fileno: int) -> None:
        """Let `wait` look at a descriptor of somebody else, too."""
        raise NotImplementedError

    def wait(self, until: float) -> bool:
        """Wait for what there is to read, and read it; True: monotonic `until` has come, the other descriptor is ready, or others wait for a turn."""
        raise NotImplementedError


class HubReactor(EPollReactor):
    """Serves whoever is not its plane as Twisted does.

    Invariant: who was removed while others were served is not served any more. A second plane is a reader like any other.
    """

    # Twisted's is the wall clock: when that is set back, no timer is due for as long.
    seconds = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._plane: PlaneReader | None = None
        super().__init__()  # type: ignore[no-untyped-call]

    def addReader(self, reader: Any) -> None:
        if self._plane is None and isinstance(reader, PlaneReader):
            reader.watch(self._poller.fileno())
            self._plane = reader
        elif reader is not self._plane:
            super().addReader(reader)  # type: ignore[no-untyped-call]

    def removeReader(self, reader: Any) -> None:
        if reader is self._plane:
            self._plane = None
        else:
            super().removeReader(reader)  # type: ignore[no-untyped-call]

    def removeAll(self) -> list[Any]:
        plane, self._plane = self._plane, None
        others: list[Any] = super().removeAll()  # type: ignore[no-untyped-call]
        return others if plane is None else [*others, plane]

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events, at most so many seconds, and serve them. The plane's alone do not end it."""
        plane = self._plane
        if plane is None:
            return self._serve(-1 if timeout is None else timeout)
        until = math.inf if timeout is None else self.seconds() + timeout
        while not plane.wait(until):
            if self._newTimedCalls or self._justStopped or self._plane is not plane:
                return None
            timers = self._pendingTimedCalls
            if timers and timers[0].time < until:  # it was moved
                until = timers[0].time
        return self._serve(0)

    def _serve(self, timeout: float) -> None:
        selectables = self._selectables
        for number, event in self._poller.poll(timeout, len(selectables)):
            selectable = selectables.get(number)
            if selectable is not None:
                log.callWithLogger(selectable, self._doReadOrWrite, selectable, number, event)  # type: ignore[no-untyped-call]

    doIteration = doPoll
