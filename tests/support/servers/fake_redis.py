"""Redis without a server, for unit tests: fakeredis behind our wire, with silence, replicas and lost connections at will."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from fakeredis import FakeServer
from fakeredis._clients._sync import FakeRedisConnection
from redis import exceptions

from iothub.base.units import Endpoint
from iothub.testing.clock import ManualClock
from iothub_services.redis.blocking import BlockingRedis, Pauses
from iothub_services.redis.calls import Call, RedisUnavailableError, Reply, command
from iothub_services.redis.link import Link
from iothub_services.redis.wire import RedisWire, WireOptions, refusal

TIMEOUT_S = 1.0


class FakeRedis:
    """One server. `is_silent`: it takes calls, does them, and says nothing until the time-out; `is_down`: nobody can connect."""

    def __init__(self, clock: ManualClock | None = None, role: bytes = b"master") -> None:
        self.clock = clock or ManualClock()
        self.server = FakeServer()
        self.role = role
        self.is_down = False
        self.is_silent = False
        self.is_full = False  # as above `maxmemory`, it queues nothing between MULTI and EXEC
        self.connects = 0
        self.pipelines: list[list[tuple[object, ...]]] = []
        self.refusals: list[str] = []  # what it answers to the next calls, without doing them
        self.wires: list[FakeWire] = []

    def connect(self) -> FakeWire:
        self.connects += 1
        if self.is_down:
            raise RedisUnavailableError("Redis at here:1: Connection refused")
        if self.is_silent:
            self.clock.advance(TIMEOUT_S)
            raise RedisUnavailableError("Redis at here:1: Timeout connecting to server")
        connection = FakeRedisConnection(host="here", port=1, db=0, server=self.server, protocol=2)
        connection.connect()
        self.wires.append(FakeWire(self, connection))
        return self.wires[-1]

    def open_wire(self, _endpoint: Endpoint, _options: WireOptions) -> FakeWire:
        """As `iothub_services.redis.wire.open_wire`."""
        return self.connect()

    def cut(self) -> None:
        """Every connection is lost: a restart that loses no data."""
        for wire in self.wires:
            wire.is_cut = True

    def flush(self) -> None:
        self.blocking().run("FLUSHALL")

    def link(self) -> Link:
        return Link(self.connect, self.clock, TIMEOUT_S)

    def blocking(self) -> BlockingRedis:
        return BlockingRedis(self.link(), self.clock, Pauses(lambda: 1.0))


class FakeWire:
    """Fulfils `iothub_services.redis.wire.Wire`. There are no octets to read: fakeredis has answers."""

    def __init__(self, server: FakeRedis, connection: FakeRedisConnection) -> None:
        self._server = server
        self._connection = connection
        self._wire = RedisWire(connection, "Redis at here:1")
        self._roles = 0
        self._refused: list[str] = []
        self.is_cut = False
        self.is_closed = False

    def is_usable(self) -> bool:
        return not self.is_cut and self._wire.is_usable()

    def send(self, calls: Sequence[Call]) -> None:
        if self.is_cut:
            raise RedisUnavailableError("Redis at here:1: Connection closed by server.", is_written=True)
        self._server.pipelines.append([call.arguments for call in calls])
        if calls[0].arguments[0] == "ROLE":  # fakeredis has none
            self._roles += 1
            return
        self._refused = [self._server.refusals.pop(0) for _ in calls if self._server.refusals]
        if not self._refused:
            self._wire.send(_not_queued(calls) if self._server.is_full else calls)

    def read(self, count: int) -> list[Reply]:
        if self._server.is_silent:
            self._server.clock.advance(TIMEOUT_S)
            raise RedisUnavailableError("Redis at here:1: timed out", is_written=True)
        return [self._answer() for _ in range(count)]

    def _answer(self) -> Reply:
        if self._roles:
            self._roles -= 1
            return [self._server.role, 0, []]
        if self._refused:
            return refusal(self._refused.pop(0))
        try:
            return _plain(self._connection.read_response())
        except exceptions.ResponseError as error:
            return refusal(_said(error))

    def close(self) -> None:
        self.is_closed = True
        self._wire.close()


def _not_queued(calls: Sequence[Call]) -> list[Call]:
    """Return something that is refused when it is queued, in place of each call of a transaction."""
    sent, is_queueing = [], False
    for call in calls:
        is_queueing &= call.arguments[0] != "EXEC"
        sent.append(command("GET") if is_queueing else call)
        is_queueing |= call.arguments[0] == "MULTI"
    return sent


def _plain(answer: Any) -> Reply:
    """Replace redis-py's errors inside of an answer, which EXEC has."""
    if isinstance(answer, list):
        return [_plain(each) for each in answer]
    return refusal(_said(answer)) if isinstance(answer, exceptions.ResponseError) else cast("Reply", answer)


def _said(error: exceptions.ResponseError) -> str:
    """Return the server's text, whose code redis-py takes off."""
    if isinstance(error, exceptions.ExecAbortError):
        return f"EXECABORT {error}"
    return f"NOSCRIPT {error}" if isinstance(error, exceptions.NoScriptError) else str(error)
