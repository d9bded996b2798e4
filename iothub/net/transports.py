"""Make the twin that `iothub.net.backend` chose; the only module that names both.

Knows no listener and no MQTT.
"""

from __future__ import annotations

from twisted.internet.epollreactor import EPollReactor

from iothub.base.clock import Clock
from iothub.net.backend import Backend
from iothub.net.ports import EnginePlane, Transports
from iothub.net.twisted_transport import PlainReactor, TwistedTransports


def make_transports(backend: Backend, plane: EnginePlane, clock: Clock, reactor: PlainReactor) -> Transports:
    """Make the sockets' side of a process. The poller needs the epoll reactor; another gets the plain twin."""
    if backend == "compiled" and isinstance(reactor, EPollReactor):
        from iothub.net.poller_reactor import PollerTransports

        return PollerTransports(plane, clock, reactor)
    return TwistedTransports(plane, clock, reactor)
