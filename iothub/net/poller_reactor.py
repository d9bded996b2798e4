"""The compiled poller beside Twisted: it waits for the hub's reactor, or is a reader of another one, whose `doRead` is a turn.

Knows no sockets and no MQTT; it lends the poller the reactor's time.
"""

# ruff: noqa: N802 - Twisted's callbacks have Twisted's names

from __future__ import annotations

import socket

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from iothub.base.clock import Clock
from iothub.engine.poller import Poller
from iothub.net.hub_reactor import PlaneReader
from iothub.net.ports import ChannelAcceptor, EnginePlane

_AT_ONCE = 0.0


@implementer(IReadDescriptor)
class PollerTransports(PlaneReader):
    """All sockets of this process in one private epoll descriptor, which Twisted watches like any other."""

    def __init__(self, plane: EnginePlane, clock: Clock, reactor: EPollReactor) -> None:
        self._plane = plane
        self._clock = clock
        self._reactor = reactor
        self._poller = Poller(plane, self._schedule)
        self.watch, self.wait = self._poller.watch, self._poller.wait  # type: ignore[method-assign]  # without a call of Python
        self._is_closed = False
        reactor.addReader(self)  # type: ignore[no-untyped-call]

    def listen(self, listening: socket.socket, acceptor: ChannelAcceptor) -> None:
        self._poller.listen(listening.detach(), acceptor)

    def adopt(self, connected: socket.socket, acceptor: ChannelAcceptor) -> None:
        self._poller.adopt(connected.detach(), acceptor)

    def stop_accepting(self, acceptor: ChannelAcceptor) -> None:
        self._poller.stop_accepting(acceptor)

    def tick(self) -> None:
        self._plane.tick()
        self._poller.tick(self._clock.monotonic())

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._reactor.removeReader(self)  # type: ignore[no-untyped-call]
            self._poller.close()

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self._poller.counters()
        return counters

    # --- Twisted's side

    def fileno(self) -> int:
        return int(self._poller.fileno())

    def doRead(self) -> None:
        self._poller.wait(_AT_ONCE)

    def connectionLost(self, reason: Failure) -> None:
        """Twisted ends every reader when it stops."""
        self.close()

    def logPrefix(self) -> str:
        return "poller"

    def _schedule(self) -> None:
        self._reactor.callLater(0, self._poller.settle)
