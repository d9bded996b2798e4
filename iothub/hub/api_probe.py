"""Asks the process of the REST API whether it answers: one request over loopback, without a key.

Knows no process. Any answer in HTTP counts: a server that is busy, or whose accounts are away, is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from twisted.internet import protocol
from twisted.python.failure import Failure

PATIENCE_S = 5.0
_REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_ANSWER = b"HTTP/1."
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - not to bind there

OnAnswer = Callable[[bool], None]


def probe(reactor: Any, address: str, on_answer: OnAnswer) -> None:
    """Call `on_answer` once, whether the server at a URL answers: `PATIENCE_S` to connect, and as long for the answer."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    reactor.connectTCP(_ANY.get(host, host), parts.port or 80, _Probe(reactor, on_answer), timeout=PATIENCE_S)


class _Probe(protocol.ClientFactory):
    noisy = False

    def __init__(self, reactor: Any, on_answer: OnAnswer) -> None:
        self._reactor = reactor
        self._on_answer = on_answer

    def buildProtocol(self, _address: object) -> protocol.Protocol:  # noqa: N802 - Twisted's name
        return _Connection(self._reactor, self._on_answer)

    def clientConnectionFailed(self, _connector: object, _reason: Failure) -> None:  # noqa: N802 - Twisted's name
        self._on_answer(False)


class _Connection(protocol.Protocol):
    """Invariant: it is alive if the first bytes say so; the end of the connection, whoever ends it, is what is reported."""

    def __init__(self, reactor: Any, on_answer: OnAnswer) -> None:
        self._on_answer = on_answer
        self._received = b""
        self._end = reactor.callLater(PATIENCE_S, self._abort)

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name
        self.transport.write(_REQUEST)  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self._received += data
        if len(self._received) >= len(_ANSWER):
            self._abort()

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:  # noqa: N802 - Twisted's name
        del reason
        if self._end.active():
            self._end.cancel()
        self._on_answer(self._received.startswith(_ANSWER))

    def _abort(self) -> None:
        self.transport.abortConnection()  # type: ignore[union-attr]
