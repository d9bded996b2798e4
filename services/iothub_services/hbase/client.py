"""The client of HBase for everybody on the reactor: some lanes, and the rule which call takes which.

Knows no table and no queue. Calls with the same pin take the same lane, so they are done in order; other threads come by
`ThreadCaller`, tools without a reactor use `DirectCaller`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar
from zlib import crc32

from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase.calls import Call
from iothub_services.hbase.connection import Lane
from iothub_services.hbase.gateway_prober import Scout
from iothub_services.hbase.gateways import Gateways
from iothub_services.hbase.pending_calls import Bounds, Meter, Sink, Ticket
from iothub_services.hbase.wire import Reactor

T = TypeVar("T")


class SilentMeter:
    """For whoever counts nothing."""

    def sent(self, verb: str, result: str, seconds: float) -> None:
        """Hear of a call."""


class HBaseClient:
    """Lanes to one or several gateways, and a scout at each that is in trouble.

    Invariants: everything but the constructor runs on the reactor thread; each gateway is the first choice of equally many lanes.
    """

    def __init__(
        self,
        reactor: Reactor,
        gateways: Sequence[Endpoint],
        *,
        lanes_each: int = 2,
        bounds: Bounds | None = None,
        meter: Meter | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.gateways = Gateways(gateways, self._send_scout)
        self._reactor = reactor
        self._scouts: dict[Endpoint, Scout] = {}
        count = lanes_each * len(gateways)
        chosen = meter or SilentMeter()
        self.lanes = [Lane(reactor, self.gateways, at, self.bounds, jitter, chosen) for at in range(count)]

    def open(self) -> None:
        """Begin to connect; calls may be made at once, they wait for their connection."""
        for lane in self.lanes:
            lane.open()

    def close(self) -> None:
        """Give up the connections; calls without an answer fail. Idempotent."""
        for lane in self.lanes:
            lane.close()
        for scout in self._scouts.values():
            scout.close()
        self._scouts.clear()
        self.gateways.forget()

    def _send_scout(self, gateway: Endpoint) -> None:
        bounds = self.bounds
        scout = Scout(self._reactor, gateway, bounds.frame_bytes, bounds.silence_s, self._is_back)
        self._scouts[gateway] = scout
        scout.open()

    def _is_back(self, gateway: Endpoint) -> None:
        del self._scouts[gateway]
        self.gateways.answers(gateway)

    @property
    def is_up(self) -> bool:
        """Has every lane a connection?"""
        return all(lane.is_up for lane in self.lanes)

    @property
    def problem(self) -> str:
        """Return why the first lane without a connection has none, "" when all have one."""
        return next((lane.problem for lane in self.lanes if not lane.is_up), "")

    def lane(self, pin: bytes) -> Lane:
        """Return the lane of a pin."""
        return self.lanes[crc32(pin) % len(self.lanes)]

    def is_full(self, pin: bytes) -> bool:
        """Do as many single calls wait for this pin's lane as may be in flight on it? Then `call` refuses."""
        lane = self.lane(pin)
        return lane.waiting >= self.bounds.in_flight or lane.waiting_bytes >= self.bounds.in_flight_bytes

    def call(self, call: Call[T]) -> Deferred[T]:
        """Make one call.

        The Deferred fails with a BackendError: HBase refused (`HBaseError`), the connection was lost, nothing was answered in time,
        or too much is waiting already (retryable, certainly not written).
        """
        answer: Deferred[T] = Deferred()
        if self.is_full(call.pin):
            answer.errback(BackendError(f"too many calls are waiting for HBase ({call.verb.name})", retryable=True))
        elif call.size > self.bounds.frame_bytes:
            answer.errback(too_large(call, self.bounds.frame_bytes))
        else:
            self.lane(call.pin).offer_one(Ticket(call, _One(call, answer)))
        return answer

    def begin(self, calls: Sequence[Call[object]], sink: Sink) -> None:
        """Make many calls; `sink` gets the outcome of each by its index. For callers that keep what they have to say bounded."""
        feeds: dict[Lane, list[Ticket]] = {}
        for index, call in enumerate(calls):
            if call.size > self.bounds.frame_bytes:
                sink.answered(index, too_large(call, self.bounds.frame_bytes))
            else:
                feeds.setdefault(self.lane(call.pin), []).append(Ticket(call, sink, index))
        for lane, tickets in feeds.items():
            lane.offer(tickets)


def too_large(call: Call[object], limit: int) -> BackendError:
    """Return the error for a call that the gateway would hang up on."""
    return BackendError(
        f"{call.verb.name} has {call.size} bytes, more than hbase.frame_limit allows ({limit}); "
        "split it, or raise that and the gateway's hbase.regionserver.thrift.framed.max_frame_size_in_mb",
        retryable=False,
    )


class _One:
    """Gives a single call's outcome to its Deferred."""

    __slots__ = ("_answer", "_call", "is_over")

    def __init__(self, call: Call[T], answer: Deferred[T]) -> None:
        self._call = call
        self._answer = answer
        self.is_over = False

    def answered(self, index: int, outcome: bytes | BackendError) -> None:
        if isinstance(outcome, BackendError):
            self._answer.errback(outcome)
            return
        try:
            result = self._call.decode(outcome)
        except BackendError as error:
            self._answer.errback(error)
        else:
            self._answer.callback(result)
