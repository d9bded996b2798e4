"""A compiled socket that has ended is referred to by nobody: the garbage collector does not look at sockets, so one in a circle would stay."""

from __future__ import annotations

import contextlib
import gc
import sys

import pytest

from iothub.base.reasons import Reason
from iothub.net.acceptor import Acceptor
from iothub.net.ports import Channel

pytestmark = [
    pytest.mark.parametrize("twin", ["compiled"], indirect=True),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # of what other tests left to the collector
]

_OWN = 3  # the list of the test, the name of its loop, the argument of `getrefcount`


class Seen:
    """Every socket that comes to a listener, also one that never gets to the plane."""

    def __init__(self) -> None:
        self.channels: list[Channel] = []
        self.acceptors: set[Acceptor] = set()

    def references(self, hub) -> list[int]:
        """Return who else refers to each, when all are gone and what is only put off is over."""
        hub.until(lambda: not any(gate.connections for gate in hub.listeners.gates().values()))
        hub.ticks(3)  # a socket that has just written is looked at again at the next tick
        hub.thread.call(hub.listeners.close)  # one that was closed politely is looked at again seconds later
        for acceptor in self.acceptors:
            acceptor._accepted.clear()  # one with a handshake is, when the time for CONNECT is over
        gc.collect()
        return [sys.getrefcount(each) - _OWN for each in self.channels]


@pytest.fixture
def seen(monkeypatch) -> Seen:
    all_of_them = Seen()
    accepted = Acceptor.accepted

    def note(acceptor: Acceptor, channel: Channel, ip: str, port: int) -> bool:
        all_of_them.acceptors.add(acceptor)
        all_of_them.channels.append(channel)
        return accepted(acceptor, channel, ip, port)

    monkeypatch.setattr(Acceptor, "accepted", note)
    return all_of_them


def test_socket_is_forgotten_however_it_ends(start_one, transport, seen) -> None:
    """The client leaves; the hub closes, and is read to the end; the hub resets; the hub has no room."""
    hub = start_one()
    ends = (
        lambda _connection, client: client.close(),
        lambda connection, _client: hub.thread.call(lambda: hub.plane.close(connection, Reason.QUOTA)),
        lambda connection, _client: hub.thread.call(lambda: connection.transport.fail(Reason.QUOTA, abort=True)),
    )
    for end in ends:
        client = hub.client(transport)
        client.send(b"hello")
        assert client.receive() == b"hello"
        end(hub.plane.connections[-1], client)
        hub.until(lambda: all(connection.lost_for for connection in hub.plane.connections))
        client.close()
    hub.plane.is_full = True
    with contextlib.suppress(OSError):
        hub.client(transport).receive()
    hub.plane.connections.clear()
    hub.plane.closed.clear()

    assert seen.references(hub) == [0, 0, 0, 0]


@pytest.mark.parametrize("transport", ["tls", "ws", "wss"], indirect=True)
def test_socket_that_never_opens_is_forgotten(start_one, transport, seen) -> None:
    """The client says nothing, half a handshake, or nonsense, and leaves or is closed."""
    hub = start_one()
    for said in (b"", b"GET /mqtt HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01", b"\xff" * 100):
        client = hub.connect(transport)
        client.sendall(said)
        client.close()
    hub.until(lambda: len(seen.channels) == 4)

    assert seen.references(hub) == [0, 0, 0, 0]
    assert hub.plane.connections == []
