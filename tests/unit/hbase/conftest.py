"""A client of HBase with everything in memory: Twisted's memory reactor, and for each connection a wire that a test plays the gateway on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.interfaces import IConnector
from twisted.internet.protocol import ClientFactory
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase import calls, wire
from iothub_services.hbase.calls import Call
from iothub_services.hbase.client import HBaseClient
from iothub_services.hbase.connection import OnOutcome
from iothub_services.hbase.wire import Bounds
from tests.support.hbase.hbase_gateway import FakeGateway, framed, split_frames

T = TypeVar("T")

ONE = (Endpoint("one", 9090),)
TWO = (Endpoint("one", 9090), Endpoint("two", 9090))

_IS_THERE = calls.SERVER_TYPE.name.encode()


class Wire:
    """One connection, seen from the gateway. Whether it is there, it says at once, unless it hangs."""

    disconnecting = False

    def __init__(self, factory: ClientFactory, gateway: FakeGateway, host: str, *, is_hung: bool) -> None:
        self.gateway = gateway
        self.host = host
        self.is_hung = is_hung
        self.questions = 0
        self.asked = b""  # the last one
        self.requests: list[bytes] = []
        self.is_aborted = False
        self._rest = b""
        self.protocol = factory.buildProtocol(None)
        assert self.protocol is not None
        self.protocol.makeConnection(self)  # type: ignore[arg-type]

    # what a transport does

    def writeSequence(self, frames: Sequence[bytes]) -> None:
        whole, self._rest = split_frames(self._rest + b"".join(frames))
        for frame in whole:
            if _IS_THERE not in frame:
                self.requests.append(frame)
                continue
            self.questions += 1
            self.asked = frame
            if not self.is_hung:
                self.send(framed(self.gateway.answer(frame)))

    def setTcpNoDelay(self, _: bool) -> None: ...

    def setTcpKeepAlive(self, _: bool) -> None: ...

    def abortConnection(self) -> None:
        self.is_aborted = True

    # what the gateway does

    def answer(self, count: int | None = None) -> int:
        """Answer the oldest requests; return how many."""
        answered = 0
        while self.requests and (count is None or answered < count) and not self.is_aborted:
            self.send(framed(self.gateway.answer(self.requests.pop(0))))
            answered += 1
        return answered

    def send(self, octets: bytes) -> None:
        assert self.protocol is not None
        self.protocol.dataReceived(octets)

    def lose(self) -> None:
        assert self.protocol is not None
        self.protocol.connectionLost(Failure(ConnectionDone()))  # type: ignore[no-untyped-call]


class Attempt:
    """One connectTCP that has neither succeeded nor failed yet."""

    def __init__(self, host: str, factory: ClientFactory) -> None:
        self.host = host
        self.factory = factory
        self.is_given_up = False

    def disconnect(self) -> None:
        self.is_given_up = True

    def refuse(self) -> None:
        failure = Failure(ConnectionRefusedError())  # type: ignore[no-untyped-call]
        self.factory.clientConnectionFailed(self, failure)  # type: ignore[arg-type]


class World(Clock):
    """The reactor, with a clock that moves when told to, and all connections that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.gateway = FakeGateway()
        self.gateway.tables[b"t"] = {}
        self.gateways: dict[str, FakeGateway] = {}  # by host, where it is another one
        self.client: HBaseClient | None = None
        self.attempts: list[Attempt] = []  # of the client's connections
        self.probing: list[Attempt] = []
        self.wires: list[Wire] = []

    def connectTCP(self, host: str, port: int, factory: ClientFactory, timeout: float) -> IConnector:
        made = Attempt(host, factory)
        assert isinstance(factory, wire.Attempt)
        is_probe = self.client is not None and factory.owner not in self.client.connections
        (self.probing if is_probe else self.attempts).append(made)
        return made  # type: ignore[return-value]

    def accept(self, *hung: str) -> list[Wire]:
        """Let every open attempt succeed; return the new wires. The gateways at these hosts hang."""
        attempts, self.attempts = self.attempts, []
        return self._connect(attempts, hung)

    def accept_probes(self) -> list[Wire]:
        """Let the attempts of probers succeed."""
        attempts, self.probing = self.probing, []
        return self._connect(attempts, ())

    def _connect(self, attempts: Sequence[Attempt], hung: Sequence[str]) -> list[Wire]:
        made = [
            Wire(
                attempt.factory,
                self.gateways.get(attempt.host, self.gateway),
                attempt.host,
                is_hung=attempt.host in hung,
            )
            for attempt in attempts
        ]
        self.wires += made
        return made

    def refuse(self) -> list[str]:
        """Let every open attempt fail; return the hosts."""
        attempts, self.attempts = self.attempts, []
        for attempt in attempts:
            attempt.refuse()
        return [attempt.host for attempt in attempts]

    def serve(self) -> None:
        """Answer everything, on every wire, until there is nothing left."""
        while sum(wire.answer() for wire in self.wires):
            pass


@pytest.fixture
def world() -> World:
    return World()


class AskedClient(HBaseClient):
    """A client whose calls are made one by one, each with a Deferred for its outcome."""

    def call(self, call: Call[T]) -> Deferred[T]:
        answer: Deferred[T] = Deferred()
        self.begin([call], _One(call, answer))
        return answer


class _One:
    """Gives a single call's outcome to its Deferred."""

    is_over = False

    def __init__(self, call: Call[T], answer: Deferred[T]) -> None:
        self._call = call
        self._answer = answer

    def on_outcome(self, _index: int, outcome: bytes | BackendError) -> None:
        try:
            if isinstance(outcome, BackendError):
                raise outcome
            result = self._call.decode(outcome)
        except BackendError as error:
            self._answer.errback(error)
        else:
            self._answer.callback(result)


MakeClient = Callable[..., AskedClient]


@pytest.fixture
def make_client(world: World) -> MakeClient:
    """Make an open client; without jitter the longest pauses are taken."""

    def make(
        gateways: Sequence[Endpoint] = ONE,
        each: int = 1,
        on_outcome: OnOutcome = lambda _verb, _result, _seconds: None,
        **bounds: float,
    ) -> AskedClient:
        client = AskedClient(
            world,
            gateways,
            connections=each * len(gateways),
            bounds=Bounds(**bounds),  # type: ignore[arg-type]
            on_outcome=on_outcome,
            jitter=lambda: 1.0,
        )
        world.client = client
        client.open()
        client.thread = 0  # the test's thread is the worker's as well
        return client

    return make
