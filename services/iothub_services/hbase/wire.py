"""One TCP connection to a gateway, as Twisted has it, for whoever owns it: a lane, or a scout.

Knows no call and no answer. Runs on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.interfaces import IAddress, IConnector, IDelayedCall
from twisted.internet.protocol import ClientFactory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure


class Reactor(Protocol):
    """What is needed of Twisted's."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, call: Callable[[], object]) -> IDelayedCall: ...  # noqa: N802

    def connectTCP(self, host: str, port: int, factory: ClientFactory, timeout: float) -> IConnector: ...  # noqa: N802


class Owner(Protocol):
    """Who hears of a connection. Of an attempt that fails it hears `missed`, and nothing else."""

    def made(self, wire: Wire) -> None: ...

    def received(self, wire: Wire, octets: bytes) -> None: ...

    def lost(self, wire: Wire, reason: str) -> None: ...

    def missed(self, reason: str) -> None: ...


class Wire(TwistedProtocol):
    """The owner's end of one connection."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def connectionMade(self) -> None:  # noqa: N802
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]
        self.transport.setTcpKeepAlive(True)  # type: ignore[union-attr]
        self._owner.made(self)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        self._owner.received(self, data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802
        self._owner.lost(self, f"closed the connection ({_words(reason)})")

    def send(self, pieces: Sequence[bytes]) -> None:
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
        self.owner.missed(f"cannot be reached ({_words(reason)})")


def _words(reason: Failure) -> str:
    return reason.getErrorMessage().rstrip(".")
