"""HBase for tools without a reactor: one connection, calls pipelined over a plain socket.

Knows no verb but the question whether a gateway is there: one that hangs accepts connections as well. The same pipeline as the reactor's
client, driven by `select`, so that a large batch cannot end in both sides waiting to be read.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

from iothub.base import log as logging
from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase.caller import Caller, asked_again
from iothub_services.hbase.calls import Call, server_type
from iothub_services.hbase.client import too_large
from iothub_services.hbase.pending_calls import SCANNER_GONE, Bounds
from iothub_services.hbase.pipeline import Pipeline
from iothub_services.hbase.refusals import Effect, LostError

log = logging.get(__name__)

T = TypeVar("T")

_READ_BYTES = 64 << 10
_REMEMBERED_S = 60.0

_found_out: dict[Endpoint, float] = {}
"""Gateways that did not answer, and when: a command has several callers, one after another, and asks such a gateway last."""


class _NoGatewayError(Exception):
    """Every gateway was tried; the text says what was in the way at each."""


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
        self._bounds = bounds or Bounds()
        self._monotonic = monotonic
        lately = monotonic() - _REMEMBERED_S
        self._gateways = deque(sorted(gateways, key=lambda each: _found_out.get(each, lately) > lately))
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
        self._pipeline.lost()

    @property
    def gateways(self) -> int:
        return len(self._gateways)

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        """Make calls as `Caller.call_many` says."""
        return asked_again(self._attempt, calls, self.gateways)

    def _attempt(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        results: list[T | BackendError | None] = [None] * len(calls)
        waiting: deque[_Ticket] = deque()
        for index, call in enumerate(calls):
            if call.size > self._bounds.frame_bytes:
                results[index] = too_large(call, self._bounds.frame_bytes)
            elif call.scanner is not None and not self._pipeline.has(call.scanner):
                results[index] = LostError(SCANNER_GONE, retryable=True)
            else:
                waiting.append(_Ticket(index, cast("Call[object]", call)))
        try:
            if waiting:
                self._exchange(self._connection(), waiting, calls, results, self._bounds.timeout_s)
        except _NoGatewayError as error:
            _fail(waiting, results, BackendError, str(error))
        except OSError as error:
            reason = self._told(error)
            is_too_large = self._pipeline.is_too_large  # that answer is too large at every gateway
            for place, ticket in enumerate(self._give_up(is_in_trouble=not is_too_large)):
                kind = BackendError if is_too_large and not place else LostError
                is_written = ticket.call.verb.effect is not Effect.NONE
                results[ticket.index] = kind(reason, retryable=True, is_written=is_written)
            _fail(waiting, results, LostError, reason)
        return cast("list[T | BackendError]", results)

    def _connection(self) -> socket.socket:
        """Return the connection, made if need be to the first gateway that answers. Raises _NoGatewayError."""
        if self._socket is not None:
            return self._socket
        reasons = []
        for _ in range(len(self._gateways)):
            try:
                return self._connect()
            except OSError as error:
                reasons.append(self._told(error))
                if len(reasons) < len(self._gateways):
                    log.warning("a gateway of HBase does not answer, the next one is asked", cause=reasons[-1])
                self._give_up()
        raise _NoGatewayError("; ".join(reasons))

    def _connect(self) -> socket.socket:
        """Raises OSError: the first gateway cannot be reached, or does not answer."""
        made = self._socket = socket.create_connection(self._gateways[0], self._bounds.connect_timeout_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        answer: list[int | BackendError | None] = [None]  # a refusal is one, too
        question = server_type()
        self._exchange(made, deque((_Ticket(0, question),)), [question], answer, self._bounds.silence_s)
        return made

    def _told(self, error: OSError) -> str:
        return f"HBase's gateway {self._gateways[0]}: {error.strerror or error}"

    def _exchange(
        self,
        connection: socket.socket,
        waiting: deque[_Ticket],
        calls: Sequence[Call[T]],
        results: list[T | BackendError | None],
        timeout_s: float,
    ) -> None:
        """Send and receive until every call has its answer.

        Raises:
            OSError: The connection is lost, broken or silent.
        """
        unsent = bytearray()
        moved_at = self._monotonic()
        while waiting or self._pipeline.in_flight:
            self._fill(waiting, unsent)
            rest_s = moved_at + timeout_s - self._monotonic()
            readable, writable, _ = select.select([connection], [connection] if unsent else [], [], max(rest_s, 0))
            if writable:
                del unsent[: connection.send(memoryview(unsent)[: 1 << 20])]
            answered = self._receive(connection) if readable else []
            if answered:
                moved_at = self._monotonic()
            elif rest_s <= 0:
                raise TimeoutError(f"has not answered for {timeout_s:g} s")
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

    def _give_up(self, *, is_in_trouble: bool = True) -> Iterable[_Ticket]:
        """Never use the connection again, and turn to the next gateway if this one is in trouble; return what was in flight."""
        sent = self._pipeline.lost()
        self.close()
        if is_in_trouble:
            _found_out[self._gateways[0]] = self._monotonic()
            self._gateways.rotate(-1)
        return sent


def _fail(
    waiting: Iterable[_Ticket], results: list[T | BackendError | None], kind: type[BackendError], reason: str
) -> None:
    for ticket in waiting:
        results[ticket.index] = kind(reason, retryable=True)


def _decoded(call: Call[T], frame: bytes) -> T | BackendError:
    try:
        return call.decode(frame)
    except BackendError as error:
        return error
