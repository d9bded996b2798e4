"""Twisted's epoll reactor, which gives the message plane its turns directly.

Knows no plane and no socket. Between a wake-up and a reader's first read Twisted makes a context for the log and asks whether the descriptor is
still valid: a dozen calls, more than the plane takes to hand on a message. The plane logs through `iothub.base.log` and frees its own descriptors.
"""

# ruff: noqa: N802, N815 - Twisted's names

from __future__ import annotations

from twisted.internet.epollreactor import EPollReactor
from twisted.python import log


class PlaneReader:
    """A reader that is served directly: its `doRead` raises nothing, answers nothing, and ends nothing but by `removeReader`."""

    def doRead(self) -> None:
        raise NotImplementedError


class HubReactor(EPollReactor):
    """Serves whoever is no `PlaneReader` as Twisted does. Invariant: who was removed while others were served is not served any more."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events, at most so many seconds, and serve them."""
        selectables = self._selectables
        for number, event in self._poller.poll(-1 if timeout is None else timeout, len(selectables)):
            selectable = selectables.get(number)
            if isinstance(selectable, PlaneReader):
                selectable.doRead()
            elif selectable is not None:
                log.callWithLogger(selectable, self._doReadOrWrite, selectable, number, event)  # type: ignore[no-untyped-call]

    doIteration = doPoll
