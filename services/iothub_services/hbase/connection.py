"""One lane to HBase: a connection that is made again when it is lost, the calls in flight on it, and the calls that wait for it.

Knows neither queues nor tables. Runs on the reactor thread.

Theory: a gateway answers the calls of a connection in order, so a queue whose calls all take one lane sees them done in order.
That must survive failures: when the connection is lost, *everything* in the lane fails, what was in flight as "may be written" and
what waited as "certainly not", so that no call overtakes an earlier one that its caller will repeat. A time-out is silence, not
slowness: as long as answers come, a deep pipeline may take its time; when none has come for `timeout_s` while something waits, the
connection is aborted and never used again, because the answer that is late would be taken for the next one's.
A gateway that hangs accepts connections all the same. So a new connection, and one that has rested, is asked a question first that costs
nothing: until it is answered nothing else is sent, and when it is not, nothing is lost: what waits goes to the next gateway.
A scanner is known by a small number that its gateway counts for all clients: a call to one goes out on the connection that has opened it,
or not at all.
Batches are served in turn, one call each, and every other turn is a single call's: a batch of thousands keeps nobody waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from twisted.internet.interfaces import IConnector, IDelayedCall

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.gateways import Gateways
from iothub_services.hbase.pending_calls import SCANNER_GONE, Bounds, Meter, Ticket, fail
from iothub_services.hbase.pipeline import Pipeline
from iothub_services.hbase.refusals import LostError
from iothub_services.hbase.wire import Attempt, Reactor, Wire

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
_TICK_S = 0.01  # clocks and timers do not agree to the last bit


class _Nobody:
    """Who asks whether a gateway is there hears of the answer by other ways."""

    is_over = False

    def answered(self, index: int, outcome: bytes | BackendError) -> None: ...


class Lane:
    """A connection to one of several gateways, with its calls.

    Invariants: at most `bounds.in_flight` calls and about `in_flight_bytes` are in flight (one call more, if it alone is larger);
    every ticket gets exactly one outcome; while anything is in flight or waits, an answer comes, or everything fails, within `timeout_s`.
    While `_probe` runs, the question to the gateway is in flight and nothing else is.
    """

    def __init__(
        self,
        reactor: Reactor,
        gateways: Gateways,
        first: int,
        bounds: Bounds,
        jitter: Callable[[], float],
        meter: Meter,
    ) -> None:
        self._reactor = reactor
        self._gateways = gateways
        self._home = self._at = first % len(gateways)
        self._bounds = bounds
        self._jitter = jitter  # 0..1
        self._meter = meter
        self._pipeline: Pipeline[Ticket] = Pipeline(bounds.frame_bytes)
        self._singles: deque[Ticket] = deque()
        self._feeds: deque[deque[Ticket]] = deque()
        self._is_single_next = False
        self._wire: Wire | None = None
        self._connector: IConnector | None = None
        self._pause: IDelayedCall | None = None
        self._watch: IDelayedCall | None = None
        self._probe: IDelayedCall | None = None  # until the gateway has answered the question whether it is there
        self._rest: IDelayedCall | None = None  # until it is asked again
        self._is_greeted = False  # the gateway of this connection has answered
        self._moved_at = 0.0  # the last answer, or when the wait for one began
        self._failures = 0  # since the last answer
        self._is_closed = False
        self.problem = f"HBase's gateway {self.gateway} is not connected yet"  # "" while connected
        self.waiting_bytes = 0  # of single calls

    # --- for the client

    @property
    def is_up(self) -> bool:
        return self._wire is not None and self._is_greeted

    @property
    def in_flight(self) -> int:
        return 0 if self._probe is not None else self._pipeline.in_flight

    @property
    def waiting(self) -> int:
        """Single calls that are not sent yet."""
        return len(self._singles)

    @property
    def _is_idle(self) -> bool:
        return not (self.in_flight or self._singles or self._feeds)

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
            fail(tickets, BackendError, self.problem, is_retryable=False)
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
        for timer in (self._pause, self._watch, self._rest):
            _cancel(timer)
        self._pause = self._watch = self._rest = None
        self._end_probe()
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
        timeout_s = min(self._bounds.connect_timeout_s, self._bounds.timeout_s)
        self._connector = self._reactor.connectTCP(gateway.host, gateway.port, Attempt(self), timeout=timeout_s)

    def made(self, wire: Wire) -> None:
        """Ask the gateway whether it is there: one that hangs accepts connections as well."""
        if self._is_closed:
            wire.drop()
            return
        self._wire = wire
        self._is_greeted = False
        self._ask(wire)

    def _ask(self, wire: Wire) -> None:
        self._probe = self._reactor.callLater(self._bounds.silence_s, self._unanswered)
        wire.send(self._pipeline.send(Ticket(calls.server_type(), _Nobody())))

    def _end_probe(self) -> None:
        """Forget the question, which is all that is in flight."""
        if self._probe is not None:
            _cancel(self._probe)
            self._probe = None
            self._pipeline.lost()

    def _unanswered(self) -> None:
        if self._wire is not None:
            self._give_up(self._wire, f"has not answered for {self._bounds.silence_s:g} s", "silent")

    def _attended(self, wire: Wire) -> None:
        """The gateway is there: send what has waited for that, unless it has said more than it was asked."""
        _cancel(self._probe)
        self._probe = None
        if self._is_greeted:
            self._failures = 0
        self._is_greeted = True
        self.problem = ""
        if self._rest is None:
            self._rest = self._reactor.callLater(self._bounds.rest_s, self._look_idle)
        if not self._pipeline.broken:
            self._pump(wire)

    def _look_idle(self) -> None:
        """Nobody would notice that the gateway of an idle lane hangs, or that the one of its choice is back."""
        self._rest = None
        wire = self._wire
        if wire is None:
            return
        rested_s = self._reactor.seconds() - self._moved_at if self._is_idle and self._probe is None else 0.0
        is_rested = rested_s > self._bounds.rest_s - _TICK_S
        if is_rested and self._at != self._home and self._gateways.is_well(self._home):
            self._go_home(wire)
            return
        pause_s = self._bounds.rest_s if is_rested else self._bounds.rest_s - rested_s
        self._rest = self._reactor.callLater(pause_s, self._look_idle)
        if is_rested:
            self._ask(wire)

    def _go_home(self, wire: Wire) -> None:
        """The gateway of its first choice answers again, and no call is under way."""
        self._wire = None
        wire.drop()
        self._pipeline.lost()
        self._at = self._home
        self.problem = f"HBase's gateway {self.gateway} is not connected yet"
        self._connect()

    def received(self, wire: Wire, octets: bytes) -> None:
        """Hand out answers, and send what now has room."""
        if wire is not self._wire:
            return  # given up: what is late belongs to nobody
        answered = self._pipeline.receive(octets)
        if answered:
            self._answered(answered, wire)
        if self._pipeline.broken and wire is self._wire:
            self._give_up(wire, f"sent {self._pipeline.broken}", "lost")

    def _answered(self, answered: Sequence[tuple[Ticket, bytes]], wire: Wire) -> None:
        now = self._moved_at = self._reactor.seconds()
        if self._probe is not None:
            self._attended(wire)
            return
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

    def lost(self, wire: Wire, reason: str) -> None:
        """Go on to the next gateway; not for a connection that was given up already."""
        if wire is self._wire:
            self._step_on(reason, "lost")

    def missed(self, reason: str) -> None:
        """Try the next gateway: no connection came about, and the calls wait on."""
        if not self._is_closed:
            self._gateways.failed(self.gateway, reason)
            self._step_on(reason, "lost")

    def _give_up(self, wire: Wire, reason: str, result: str) -> None:
        """Abort the connection, never to use it again.

        In trouble is the gateway that does not say that it is there. One that has not answered a call may have waited for a slow region
        server, as the next one would: it is asked first whether it is there, and passed over when that has not helped.
        """
        is_asked = self._probe is not None
        if is_asked:
            self._gateways.failed(self.gateway, reason)
        wire.drop()
        self._step_on(reason, result, is_kept=not is_asked and not self._failures and self._gateways.is_well(self._at))

    def _step_on(self, reason: str, result: str, *, is_kept: bool = False) -> None:
        """Be without a connection, plan the next one, then fail what was in flight and what waits behind it.

        The callers' turn comes last: they may offer more. Where nothing was in flight, what waits goes to the next gateway.
        """
        self._end_probe()
        self._wire = None
        self.problem = f"HBase's gateway {self.gateway} {reason}"
        self._failures += 1
        if not is_kept:
            self._at = self._gateways.after(self._at)
        self._pause = self._reactor.callLater(self._pause_s(), self._connect)
        if self._pipeline.in_flight:
            self._fail_all(result)
        else:
            self._pipeline.lost()  # what had arrived and was no answer

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
        elif self._wire is not None and self._probe is None:
            self._give_up(self._wire, f"has not answered for {self._bounds.timeout_s:g} s", "silent")
        else:
            self._fail_waiting(BackendError)

    # --- the calls

    def _pump(self, wire: Wire) -> None:
        """Fill the pipeline, all in one write; not while the gateway has not said that it is there. Callers' turn comes last."""
        if self._probe is not None:
            return
        pipeline, bounds = self._pipeline, self._bounds
        now = self._reactor.seconds()
        pieces: list[bytes] = []
        strays: list[Ticket] = []
        while pipeline.in_flight < bounds.in_flight and pipeline.in_flight_bytes < bounds.in_flight_bytes:
            ticket = self._next()
            if ticket is None:
                break
            if ticket.sink.is_over:
                continue
            if ticket.call.scanner is not None and not pipeline.has(ticket.call.scanner):
                strays.append(ticket)
                continue
            ticket.began = now
            pieces += pipeline.send(ticket)
        if pieces:
            wire.send(pieces)
        fail(strays, LostError, SCANNER_GONE)

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
        large = int(self._pipeline.is_too_large)  # that answer is too large at every gateway
        sent = list(self._pipeline.lost())
        for ticket in sent:
            self._meter.sent(ticket.call.verb.name, result, now - ticket.began)
        kind = LostError if is_retryable else BackendError
        problem, waiting = self.problem, self._take_waiting()
        fail(sent[:large], BackendError, problem, is_sent=True, is_retryable=is_retryable)
        fail(sent[large:], kind, problem, is_sent=True, is_retryable=is_retryable)
        fail(waiting, kind, problem, is_retryable=is_retryable)

    def _fail_waiting(self, kind: type[BackendError]) -> None:
        """No connection came about in time."""
        fail(self._take_waiting(), kind, self.problem)

    def _take_waiting(self) -> list[Ticket]:
        waiting = [*self._singles, *(ticket for feed in self._feeds for ticket in feed)]
        self._singles.clear()
        self._feeds.clear()
        self.waiting_bytes = 0
        return waiting


def _cancel(timer: IDelayedCall | None) -> None:
    if timer is not None and timer.active():
        timer.cancel()
