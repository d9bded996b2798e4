"""One TCP connection to a gateway, as Twisted has it, and the bounds of what goes over it.

Knows no call and no answer. Runs on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.interfaces import IAddress, IConnector, IDelayedCall
from twisted.internet.protocol import ClientFactory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one connection: calls in flight and their bytes, the largest frame, how long silence lasts until it is a failure.

    `rest_s`: so long a connection may have nothing to do until its gateway is asked whether it is there; `probe_timeout_s`: for that answer.
    `is_hasty`: calls that wait fail when every gateway was tried in vain; otherwise they wait for `timeout_s`.
    """

    in_flight: int = 64
    in_flight_bytes: int = 8 << 20
    frame_bytes: int = 16 << 20
    timeout_s: float = 10.0
    connect_timeout_s: float = 5.0
    rest_s: float = 3.0
    probe_timeout_s: float = 3.0
    is_hasty: bool = False

    @property
    def silence_s(self) -> float:
        """How long an idle gateway may be silent."""
        return min(self.probe_timeout_s, self.timeout_s)


class Reactor(Protocol):
    """What is needed of Twisted's."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, call: Callable[[], object], /) -> IDelayedCall: ...  # noqa: N802

    def connectTCP(self, host: str, port: int, factory: ClientFactory, timeout: float) -> IConnector: ...  # noqa: N802


class Owner(Protocol):
    """Who hears of a connection. Of an attempt that fails it hears `on_unreachable`, and nothing else."""

    def on_connected(self, wire: Wire) -> None: ...

    def on_received(self, wire: Wire, octets: bytes) -> None: ...

    def on_lost(self, wire: Wire, reason: str) -> None: ...

    def on_unreachable(self, reason: str) -> None: ...


class Wire(TwistedProtocol):
    """The owner's end of one connection."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def connectionMade(self) -> None:  # noqa: N802
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]
        self.transport.setTcpKeepAlive(True)  # type: ignore[union-attr]
        self._owner.on_connected(self)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        self._owner.on_received(self, data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802
        self._owner.on_lost(self, f"closed the connection ({_words(reason)})")

    def write(self, pieces: Sequence[bytes]) -> None:
        self.transport.writeSequence(pieces)  # type: ignore[union-attr]

    def drop(self) -> None:
        """End the connection without another word; what is still to be written is not."""
        self.transport.abortConnection()  # type: ignore[union-attr]


class Attempt(ClientFactory):
    """Makes the wire of one attempt."""

    noisy = False

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def buildProtocol(self, addr: IAddress | None) -> Wire:  # noqa: N802
        return Wire(self.owner)

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:  # noqa: N802
        self.owner.on_unreachable(f"cannot be reached ({_words(reason)})")


def _words(reason: Failure) -> str:
    return reason.getErrorMessage().rstrip(".")
