"""Which twin is made."""

from __future__ import annotations

from twisted.internet.task import Clock as TwistedClock

from iothub.net.transports import make_transports
from iothub.net.twisted_transport import TwistedTransports
from iothub.testing.clock import ManualClock
from iothub.testing.echo_plane import EchoPlane


def test_transports_on_another_reactor_than_epoll_are_the_plain_twin() -> None:
    """The poller needs a reactor that can watch an epoll descriptor."""
    for backend in ("plain", "compiled"):
        made = make_transports(backend, EchoPlane(), ManualClock(), TwistedClock())
        assert isinstance(made, TwistedTransports)
