"""The hub's reactor: the message plane's turns, and whoever else is read."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from iothub.net.hub_reactor import HubReactor, PlaneReader


@implementer(IReadDescriptor)
class Reader:
    """One end of a pair of sockets with something to read. Notes what it is asked."""

    def __init__(self) -> None:
        self.end, self.other = socket.socketpair()
        self.other.send(b"x")
        self.asked: list[str] = []
        self.on_read: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return self.end.fileno()

    def doRead(self) -> None:
        self.asked.append("doRead")
        self.end.recv(1)
        self.on_read()

    def logPrefix(self) -> str:
        self.asked.append("logPrefix")
        return "reader"

    def connectionLost(self, _reason: Failure) -> None:
        self.asked.append("connectionLost")

    def close(self) -> None:
        self.end.close()
        self.other.close()


class Plane(PlaneReader, Reader):
    """The same, served directly."""

    doRead = Reader.doRead  # noqa: N815


@pytest.fixture
def reactor() -> Iterator[HubReactor]:
    made = HubReactor()
    yield made
    for reader in made.removeAll():  # type: ignore[no-untyped-call]
        if not isinstance(reader, Reader):  # those with which a reactor wakes itself
            reader.connectionLost(Failure(ConnectionAbortedError()))  # type: ignore[no-untyped-call]
    made._poller.close()


@pytest.fixture
def made(reactor: HubReactor) -> Iterator[Callable[[type[Reader]], Reader]]:
    readers: list[Reader] = []

    def make(kind: type[Reader]) -> Reader:
        reader = kind()
        readers.append(reader)
        reactor.addReader(reader)  # type: ignore[no-untyped-call]
        return reader

    yield make
    for reader in readers:
        reactor.removeReader(reader)  # type: ignore[no-untyped-call]
        reader.close()


Make = Callable[[type[Reader]], Reader]


def test_plane_is_read_and_asked_nothing_else(reactor: HubReactor, made: Make) -> None:
    plane, other = made(Plane), made(Reader)

    reactor.doIteration(0)

    assert plane.asked == ["doRead"]
    assert other.asked == ["logPrefix", "doRead"]


def test_whoever_else_fails_is_closed_and_others_are_read(
    reactor: HubReactor, made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[object] = []
    monkeypatch.setattr("twisted.python.log.err", lambda *_, **__: logged.append(True))
    failing, plane = made(Reader), made(Plane)
    failing.on_read = lambda: 1 // 0  # type: ignore[assignment]

    reactor.doIteration(0)

    assert failing.asked == ["logPrefix", "doRead", "connectionLost"]
    assert plane.asked == ["doRead"]
    assert logged == [True]


@pytest.mark.parametrize("kind", [Plane, Reader])
def test_whoever_is_removed_meanwhile_is_not_read(reactor: HubReactor, made: Make, kind: type[Reader]) -> None:
    readers = made(kind), made(kind)
    for reader, other in (readers, readers[::-1]):
        reader.on_read = partial(reactor.removeReader, other)

    reactor.doIteration(0)

    assert sorted(reader.asked.count("doRead") for reader in readers) == [0, 1]
