"""The probe of the REST API's process: any answer in HTTP is one, and silence is none (`iothub.hub.api_probe`)."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from iothub.hub.api_probe import PATIENCE_S, probe


class Asked:
    """One probe of a server that a test plays."""

    def __init__(self, address: str = "http://127.0.0.1:8081") -> None:
        self.reactor: Any = MemoryReactorClock()
        self.answers: list[bool] = []
        probe(self.reactor, address, self.answers.append)
        self.host, self.port, self.factory = self.reactor.tcpClients[0][:3]
        self.transport = StringTransport()

    def connect(self) -> Any:
        made = self.factory.buildProtocol(None)
        made.makeConnection(self.transport)
        return made


@pytest.mark.parametrize(
    ("received", "is_alive"),
    [([b"HTTP/1.1 200 OK\r\n"], True), ([b"HT", b"TP/1.1 503 "], True), ([b"SSH-2.0-OpenSSH"], False)],
)
def test_answer_in_http_is_one(received: list[bytes], is_alive: bool) -> None:
    asked = Asked()
    connection = asked.connect()
    for data in received:
        connection.dataReceived(data)

    assert asked.transport.value().startswith(b"GET /livez HTTP/1.1\r\n")
    assert asked.transport.disconnected
    connection.connectionLost()
    assert asked.answers == [is_alive]
    assert asked.reactor.getDelayedCalls() == []


def test_silence_ends() -> None:
    asked = Asked()
    connection = asked.connect()

    asked.reactor.advance(PATIENCE_S)
    assert asked.transport.disconnected
    connection.connectionLost()

    assert asked.answers == [False]
    assert asked.reactor.getDelayedCalls() == []


def test_closed_and_refused_connections_are_no_answers() -> None:
    closed, refused = Asked(), Asked()

    closed.connect().connectionLost()
    refused.factory.clientConnectionFailed(None, Failure(ConnectionRefusedError()))

    assert closed.answers == refused.answers == [False]
    assert closed.reactor.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("address", "host"),
    [("http://0.0.0.0:80", "127.0.0.1"), ("http://[::]:80", "::1"), ("http://[::1]:80", "::1")],
)
def test_server_at_every_address_is_asked_over_loopback(address: str, host: str) -> None:
    assert (Asked(address).host, Asked(address).port) == (host, 80)
