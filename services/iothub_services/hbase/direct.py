"""HBase for tools without a reactor: one connection, calls pipelined over a plain socket.

Knows no verb. The same pipeline as the reactor's client, driven by `select`, so that a large batch cannot end in both sides waiting to
be read.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from iothub.errors import BackendError
from iothub.units import Endpoint
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.hbase.client import too_large
from iothub_services.hbase.lane import Bounds
from iothub_services.hbase.pipeline import Pipeline
from iothub_services.hbase.refusals import Effect

T = TypeVar("T")

_READ_BYTES = 64 << 10


class _Ticket:
    __slots__ = ("call", "index")

    def __init__(self, index: int, call: Call[object]) -> None:
        self.index = index
        self.call = call


class DirectCaller(Caller):
    """Blocking calls over a connection of its own, made when first needed and made anew, to the next gateway, after a failure.

    For one thread at a time. Bounds are those of a lane.
    """

    def __init__(
        self,
        gateways: Sequence[Endpoint],
        bounds: Bounds | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateways = deque(gateways)
        self._bounds = bounds or Bounds()
        self._monotonic = monotonic
        self._socket: socket.socket | None = None
        self._pipeline: Pipeline[_Ticket] = Pipeline(self._bounds.frame_bytes)

    def __enter__(self) -> DirectCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        """Make calls, pipelined; return the result or the error of each, in their order."""
        results: list[T | BackendError | None] = [None] * len(calls)
        waiting: deque[_Ticket] = deque()
        for index, call in enumerate(calls):
            if call.size > self._bounds.frame_bytes:
                results[index] = too_large(call, self._bounds.frame_bytes)
            else:
                waiting.append(_Ticket(index, cast("Call[object]", call)))
        try:
            if waiting:
                self._exchange(self._connection(), waiting, calls, results)
        except OSError as error:
            self._fail(f"HBase's gateway {self._gateways[0]}: {error.strerror or error}", waiting, results)
        return cast("list[T | BackendError]", results)

    def _connection(self) -> socket.socket:
        """Return the connection, made if need be to the first gateway that accepts one."""
        if self._socket is not None:
            return self._socket
        for attempt in range(len(self._gateways), 0, -1):
            try:
                made = socket.create_connection(self._gateways[0], self._bounds.connect_timeout_s)
            except OSError:
                if attempt == 1:
                    raise
                self._gateways.rotate(-1)
            else:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.setblocking(False)
                self._socket = made
                return made
        raise AssertionError("no gateways")

    def _exchange(
        self,
        connection: socket.socket,
        waiting: deque[_Ticket],
        calls: Sequence[Call[T]],
        results: list[T | BackendError | None],
    ) -> None:
        """Send and receive until every call has its answer.

        Raises:
            OSError: The connection is lost, broken or silent.
        """
        unsent = bytearray()
        moved_at = self._monotonic()
        while waiting or self._pipeline.in_flight:
            self._fill(waiting, unsent)
            rest_s = moved_at + self._bounds.timeout_s - self._monotonic()
            readable, writable, _ = select.select([connection], [connection] if unsent else [], [], max(rest_s, 0))
            if writable:
                del unsent[: connection.send(memoryview(unsent)[: 1 << 20])]
            answered = self._receive(connection) if readable else []
            if answered:
                moved_at = self._monotonic()
            elif rest_s <= 0:
                raise TimeoutError(f"has not answered for {self._bounds.timeout_s:g} s")
            for ticket, frame in answered:
                results[ticket.index] = _decoded(calls[ticket.index], frame)
            if self._pipeline.broken:
                raise ConnectionError(f"sent {self._pipeline.broken}")

    def _fill(self, waiting: deque[_Ticket], unsent: bytearray) -> None:
        pipeline, bounds = self._pipeline, self._bounds
        while waiting and pipeline.in_flight < bounds.in_flight and pipeline.in_flight_bytes < bounds.in_flight_bytes:
            for piece in pipeline.send(waiting.popleft()):
                unsent += piece

    def _receive(self, connection: socket.socket) -> list[tuple[_Ticket, bytes]]:
        octets = connection.recv(_READ_BYTES)
        if not octets:
            raise ConnectionError("closed the connection")
        return self._pipeline.receive(octets)

    def _fail(self, reason: str, waiting: deque[_Ticket], results: list[T | BackendError | None]) -> None:
        """Give the connection up, never to use it again, and turn to the next gateway."""
        self.close()
        self._gateways.rotate(-1)
        for ticket in self._pipeline.lost():
            is_written = ticket.call.verb.effect is not Effect.NONE
            results[ticket.index] = BackendError(reason, retryable=True, is_written=is_written)
        for ticket in waiting:
            results[ticket.index] = BackendError(reason, retryable=True)


def _decoded(call: Call[T], frame: bytes) -> T | BackendError:
    try:
        return call.decode(frame)
    except BackendError as error:
        return error
