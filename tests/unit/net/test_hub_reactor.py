"""The hub's reactor: a message plane that waits for all, and whoever else is read."""

from __future__ import annotations

import ast
import configparser
import inspect
import select
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from iothub.net import hub_reactor
from iothub.net.hub_reactor import HubReactor, PlaneReader

ROOT = Path(__file__).resolve().parents[3]


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


class Plane(Reader, PlaneReader):
    """The same, which waits itself. `overslept`: it has waited for longer than a test takes, so a turn was due that it was not asked to give."""

    overslept = False

    def watch(self, fileno: int) -> None:
        self.epoll = select.epoll()
        for each in (fileno, self.fileno()):
            self.epoll.register(each, select.EPOLLIN)

    def wait(self, until: float) -> bool:
        numbers = {number for number, _ in self.epoll.poll(min(max(0.0, until - time.monotonic()), 5.0))}
        self.overslept |= not numbers and time.monotonic() < until
        if self.fileno() in numbers:
            self.doRead()
        return numbers != {self.fileno()}


@pytest.fixture
def reactor() -> Iterator[HubReactor]:
    made = HubReactor()
    yield made
    for reader in made.removeAll():
        if not isinstance(reader, Reader):  # those with which a reactor wakes itself
            reader.connectionLost(Failure(ConnectionAbortedError()))  # type: ignore[no-untyped-call]
    made._poller.close()


@pytest.fixture
def made(reactor: HubReactor) -> Iterator[Callable[[type[Reader]], Reader]]:
    readers: list[Reader] = []

    def make(kind: type[Reader]) -> Reader:
        reader = kind()
        readers.append(reader)
        reactor.addReader(reader)
        return reader

    yield make
    for reader in readers:
        reactor.removeReader(reader)
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


def test_what_the_plane_reads_alone_does_not_end_the_wait(reactor: HubReactor, made: Make) -> None:
    """Twisted's timers and descriptors are looked at when something is due."""
    plane = made(Plane)
    plane.other.send(b"yz")
    looked: list[object] = []
    reactor._serve = looked.append  # type: ignore[method-assign]

    reactor.doIteration(0.05)

    assert (plane.asked, looked) == (["doRead"] * 3, [0])


@pytest.mark.parametrize("is_set", [True, False])
def test_a_timer_that_the_plane_sets_or_moves_is_met(reactor: HubReactor, made: Make, is_set: bool) -> None:
    plane = made(Plane)
    called: list[bool] = []
    timer = None if is_set else reactor.callLater(100, called.append, True)
    reactor.runUntilCurrent()
    plane.on_read = lambda: reactor.callLater(0, called.append, True) if timer is None else timer.reset(0)  # type: ignore[assignment]

    reactor.doIteration(100)
    reactor.runUntilCurrent()

    assert called == [True]
    assert not plane.overslept  # type: ignore[attr-defined]


def test_reactor_stops_in_the_plane_s_turn(reactor: HubReactor, made: Make) -> None:
    plane = made(Plane)
    plane.on_read = reactor.stop

    reactor.run(installSignalHandlers=False)

    assert not reactor.running
    assert not plane.overslept  # type: ignore[attr-defined]


def test_a_plane_may_go_in_its_own_turn(reactor: HubReactor, made: Make) -> None:
    plane = made(Plane)
    plane.on_read = lambda: reactor.removeReader(plane)

    reactor.doIteration(100)
    assert not plane.overslept  # type: ignore[attr-defined]
    plane.other.send(b"y")
    reactor.doIteration(0)

    assert plane.asked == ["doRead"]


def test_a_plane_goes_with_all_others(reactor: HubReactor, made: Make) -> None:
    plane, second = made(Plane), made(Plane)

    assert {plane, second} <= set(reactor.removeAll())
    reactor.doIteration(0)

    assert (plane.asked, second.asked) == ([], [])


def test_private_names_of_twisted_that_are_used_are_there() -> None:
    """Twisted may rename them in any release: a new one comes with a change of the range in setup.cfg, and then this test says which has gone."""
    tree = ast.parse(inspect.getsource(hub_reactor))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_of_self(node)}
    used = {name for name in names if name.startswith("_")} - {"_plane", *vars(HubReactor)}
    plain = EPollReactor()  # type: ignore[no-untyped-call]

    missing = sorted(name for name in used if not hasattr(plain, name))

    for reader in plain.removeAll():  # type: ignore[no-untyped-call]
        reader.connectionLost(Failure(ConnectionAbortedError()))  # type: ignore[no-untyped-call]
    plain._poller.close()
    assert missing == []
    assert {"_poller", "_selectables", "_doReadOrWrite", "_newTimedCalls", "_pendingTimedCalls", "_justStopped"} == used


def _is_of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def test_range_of_twisted_ends_before_releases_that_nobody_has_tried() -> None:
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg")
    (twisted,) = [line for line in declared["options"]["install_requires"].splitlines() if line.startswith("twisted ")]
    _, _, bound = twisted.partition(",<")

    assert int(bound) == int(version("twisted").partition(".")[0]) + 1
