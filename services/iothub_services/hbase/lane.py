"""One lane to HBase: a connection that is made again when it is lost, the calls in flight on it, and the calls that wait for it.

Knows neither queues nor tables. Runs on the reactor thread.

Theory: a gateway answers the calls of a connection in order, so a queue whose calls all take one lane sees them done in order.
That must survive failures: when the connection is lost, *everything* in the lane fails, what was in flight as "may be written" and
what waited as "certainly not", so that no call overtakes an earlier one that its caller will repeat. A time-out is silence, not
slowness: as long as answers come, a deep pipeline may take its time; when none has come for `timeout_s` while something waits, the
connection is aborted and never used again, because the answer that is late would be taken for the next one's.
Batches are served in turn, one call each, and every other turn is a single call's: a batch of thousands keeps nobody waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.interfaces import IAddress, IConnector, IDelayedCall
from twisted.internet.protocol import ClientFactory, connectionDone
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure

from iothub.errors import BackendError
from iothub.units import Endpoint
from iothub_services.hbase.calls import Call
from iothub_services.hbase.pipeline import Pipeline
from iothub_services.hbase.refusals import Effect

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


class Reactor(Protocol):
    """What a lane needs of Twisted's."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, call: Callable[[], object]) -> IDelayedCall: ...  # noqa: N802

    def connectTCP(self, host: str, port: int, factory: ClientFactory, timeout: float) -> IConnector: ...  # noqa: N802


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one lane: calls in flight and their bytes, the largest frame, how long silence lasts until it is a failure."""

    in_flight: int = 64
    in_flight_bytes: int = 8 << 20
    frame_bytes: int = 16 << 20
    timeout_s: float = 10.0
    connect_timeout_s: float = 5.0


class Sink(Protocol):
    """Who gets the outcomes of calls: the frame of the answer, or what was in the way."""

    is_over: bool  # nobody waits any more: what was not sent needs not be

    def answered(self, index: int, outcome: bytes | BackendError) -> None: ...


class Ticket:
    """A call on its way, and where its outcome goes."""

    __slots__ = ("began", "call", "index", "sink")

    def __init__(self, call: Call[object], sink: Sink, index: int = 0) -> None:
        self.call = call
        self.sink = sink
        self.index = index
        self.began = 0.0


class Meter(Protocol):
    """Hears of every call that was sent: `result` is answered, lost or silent; seconds from sending to outcome."""

    def sent(self, verb: str, result: str, seconds: float) -> None: ...


class Lane:
    """A connection to one of several gateways, with its calls.

    Invariants: at most `bounds.in_flight` calls and about `in_flight_bytes` are in flight (one call more, if it alone is larger);
    every ticket gets exactly one outcome; while anything is in flight or waits, an answer comes, or everything fails, within `timeout_s`.
    """

    def __init__(
        self,
        reactor: Reactor,
        gateways: Sequence[Endpoint],
        first: int,
        bounds: Bounds,
        jitter: Callable[[], float],
        meter: Meter,
    ) -> None:
        self._reactor = reactor
        self._gateways = gateways
        self._at = first % len(gateways)
        self._bounds = bounds
        self._jitter = jitter  # 0..1
        self._meter = meter
        self._pipeline: Pipeline[Ticket] = Pipeline(bounds.frame_bytes)
        self._singles: deque[Ticket] = deque()
        self._feeds: deque[deque[Ticket]] = deque()
        self._is_single_next = False
        self._wire: _Wire | None = None
        self._connector: IConnector | None = None
        self._pause: IDelayedCall | None = None
        self._watch: IDelayedCall | None = None
        self._moved_at = 0.0  # the last answer, or when the wait for one began
        self._failures = 0  # since the last answer
        self._is_closed = False
        self.problem = f"HBase's gateway {self.gateway} is not connected yet"  # "" while connected
        self.waiting_bytes = 0  # of single calls

    # --- for the client

    @property
    def is_up(self) -> bool:
        return self._wire is not None

    @property
    def in_flight(self) -> int:
        return self._pipeline.in_flight

    @property
    def waiting(self) -> int:
        """Single calls that are not sent yet."""
        return len(self._singles)

    @property
    def _is_idle(self) -> bool:
        return not (self._pipeline.in_flight or self._singles or self._feeds)

    @property
    def gateway(self) -> Endpoint:
        """The gateway that is used, or tried next."""
        return self._gateways[self._at]

    def open(self) -> None:
        """Begin to connect; the lane stays connected from now on."""
        self._is_closed = False
        self._connect()

    def offer(self, tickets: Iterable[Ticket]) -> None:
        """Send calls in this order as soon as there is room, in turn with those of others; their caller keeps their number bounded."""
        feed = deque(tickets)
        if self._accepts(feed):
            self._feeds.append(feed)
            self._begin()

    def offer_one(self, ticket: Ticket) -> None:
        """Send one call as soon as there is room; look at `waiting` and `waiting_bytes` first."""
        if self._accepts((ticket,)):
            self._singles.append(ticket)
            self.waiting_bytes += ticket.call.size
            self._begin()

    def _accepts(self, tickets: Collection[Ticket]) -> bool:
        if self._is_closed:
            _fail(tickets, self.problem, is_retryable=False)
        if self._is_idle:
            self._moved_at = self._reactor.seconds()
        return bool(tickets) and not self._is_closed

    def _begin(self) -> None:
        if self._watch is None:
            self._watch = self._reactor.callLater(self._bounds.timeout_s, self._look)
        if self._wire is not None:
            self._pump(self._wire)

    def close(self) -> None:
        """Give up the connection; whatever had no answer fails now. Idempotent."""
        self._is_closed = True
        self.problem = "HBase's client is closed"
        for timer in (self._pause, self._watch):
            if timer is not None and timer.active():
                timer.cancel()
        self._pause = self._watch = None
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.drop()
        elif self._connector is not None:
            self._connector.disconnect()
        self._fail_all("lost", is_retryable=False)

    # --- the connection

    def _connect(self) -> None:
        self._pause = None
        gateway = self.gateway
        factory = _Factory(self)
        timeout_s = min(self._bounds.connect_timeout_s, self._bounds.timeout_s)
        self._connector = self._reactor.connectTCP(gateway.host, gateway.port, factory, timeout=timeout_s)

    def made(self, wire: _Wire) -> None:
        """Send what has waited for the connection."""
        if self._is_closed:
            wire.drop()
            return
        self._wire = wire
        self.problem = ""
        self._moved_at = self._reactor.seconds()
        self._pump(wire)

    def received(self, wire: _Wire, octets: bytes) -> None:
        """Hand out answers, and send what now has room."""
        if wire is not self._wire:
            return  # given up: what is late belongs to nobody
        answered = self._pipeline.receive(octets)
        if answered:
            self._answered(answered, wire)
        if self._pipeline.broken and wire is self._wire:
            self._give_up(wire, f"sent {self._pipeline.broken}", "lost")

    def _answered(self, answered: Sequence[tuple[Ticket, bytes]], wire: _Wire) -> None:
        now = self._moved_at = self._reactor.seconds()
        self._failures = 0
        for ticket, _ in answered:
            self._meter.sent(ticket.call.verb.name, "answered", now - ticket.began)
        is_low = (
            self._pipeline.in_flight * 2 <= self._bounds.in_flight
        )  # many calls in one write, not one after each answer
        if is_low and not self._pipeline.broken:
            self._pump(wire)
        for ticket, frame in answered:
            ticket.sink.answered(ticket.index, frame)

    def lost(self, wire: _Wire, reason: str) -> None:
        """Fail everything and go on to the next gateway; not for a connection that was given up already."""
        if wire is self._wire:
            self._step_on(reason)
            self._fail_all("lost")

    def missed(self, reason: str) -> None:
        """Try the next gateway: no connection came about, and the calls wait on."""
        if not self._is_closed:
            self._step_on(reason)

    def _give_up(self, wire: _Wire, reason: str, result: str) -> None:
        """Abort the connection, never to use it again, and fail everything on it."""
        self._step_on(reason)
        wire.drop()
        self._fail_all(result)

    def _step_on(self, reason: str) -> None:
        """Be without a connection, and plan the next one. The callers' turn comes after that: they may offer more."""
        self._wire = None
        self.problem = f"HBase's gateway {self.gateway} {reason}"
        self._failures += 1
        self._at = (self._at + 1) % len(self._gateways)
        self._pause = self._reactor.callLater(self._pause_s(), self._connect)

    def _pause_s(self) -> float:
        """Every gateway is tried at once; then less and less often, never all lanes at the same moment."""
        rounds = (self._failures - 1) // len(self._gateways)
        is_same_round = self._failures % len(self._gateways) != 0
        longest = (
            FIRST_PAUSE_S / 4
            if is_same_round and not rounds
            else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(rounds, 10))
        )
        return longest * (0.5 + self._jitter() / 2)

    def _look(self) -> None:
        """See whether there has been silence for too long; the timer is set anew rather than moved at each answer."""
        self._watch = None
        if self._is_idle:
            return
        rest_s = self._moved_at + self._bounds.timeout_s - self._reactor.seconds()
        if rest_s > 0:
            self._watch = self._reactor.callLater(rest_s, self._look)
        elif self._wire is not None:
            self._give_up(self._wire, f"has not answered for {self._bounds.timeout_s:g} s", "silent")
        else:
            self._fail_all("lost")

    # --- the calls

    def _pump(self, wire: _Wire) -> None:
        """Fill the pipeline, all in one write."""
        pipeline, bounds = self._pipeline, self._bounds
        now = self._reactor.seconds()
        pieces: list[bytes] = []
        while pipeline.in_flight < bounds.in_flight and pipeline.in_flight_bytes < bounds.in_flight_bytes:
            ticket = self._next()
            if ticket is None:
                break
            if not ticket.sink.is_over:
                ticket.began = now
                pieces += pipeline.send(ticket)
        if pieces:
            wire.send(pieces)

    def _next(self) -> Ticket | None:
        """Return whose turn it is: single calls and batches take turns, and so do the batches."""
        singles, feeds = self._singles, self._feeds
        self._is_single_next = not self._is_single_next
        if singles and (self._is_single_next or not feeds):
            ticket = singles.popleft()
            self.waiting_bytes -= ticket.call.size
            return ticket
        if not feeds:
            return None
        feed = feeds.popleft()
        ticket = feed.popleft()
        if feed:
            feeds.append(feed)
        return ticket

    def _fail_all(self, result: str, *, is_retryable: bool = True) -> None:
        """Tell everybody `problem`."""
        now = self._reactor.seconds()
        sent = list(self._pipeline.lost())
        waiting = [*self._singles, *(ticket for feed in self._feeds for ticket in feed)]
        self._singles.clear()
        self._feeds.clear()
        self.waiting_bytes = 0
        problem = self.problem
        for ticket in sent:
            self._meter.sent(ticket.call.verb.name, result, now - ticket.began)
        _fail(sent, problem, is_sent=True, is_retryable=is_retryable)
        _fail(waiting, problem, is_retryable=is_retryable)


def _fail(tickets: Iterable[Ticket], reason: str, *, is_sent: bool = False, is_retryable: bool = True) -> None:
    for ticket in tickets:
        is_written = is_sent and ticket.call.verb.effect is not Effect.NONE
        ticket.sink.answered(ticket.index, BackendError(reason, retryable=is_retryable, is_written=is_written))


class _Wire(TwistedProtocol):
    """The lane's end of one TCP connection."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def connectionMade(self) -> None:  # noqa: N802
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]
        self.transport.setTcpKeepAlive(True)  # type: ignore[union-attr]
        self._lane.made(self)

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        self._lane.received(self, data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802
        self._lane.lost(self, f"closed the connection ({_words(reason)})")

    def send(self, pieces: Sequence[bytes]) -> None:
        self.transport.writeSequence(pieces)  # type: ignore[union-attr]

    def drop(self) -> None:
        """End the connection without another word; what is still to be written is not."""
        self.transport.abortConnection()  # type: ignore[union-attr]


class _Factory(ClientFactory):
    """Makes the wire of one attempt."""

    noisy = False

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def buildProtocol(self, addr: IAddress | None) -> _Wire:  # noqa: N802
        return _Wire(self._lane)

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:  # noqa: N802
        self._lane.missed(f"cannot be reached ({_words(reason)})")


def _words(reason: Failure) -> str:
    return reason.getErrorMessage().rstrip(".")
