"""One connection to HBase: made again when it is lost, with the calls in flight on it and those that wait for it.

Knows neither queues nor tables. Runs on the reactor thread.

Theory: a gateway answers the calls of a connection in order, so a queue whose calls all take one connection sees them done in order.
That must survive failures: when the connection is lost, *everything* on it fails, what was in flight as "may be written" and
what waited as "certainly not", so that no call overtakes an earlier one that its caller will repeat. A time-out is silence, not
slowness: as long as answers come, a deep pipeline may take its time; when none has come for `timeout_s` while something waits, the
connection is aborted and never used again, because the answer that is late would be taken for the next one's.
A gateway that hangs accepts connections all the same. So a new connection, and one that has rested, is asked a question first that costs
nothing: until it is answered nothing else is sent, and when it is not, nothing is lost: what waits goes to the next gateway.
A scanner is known by a small number that its gateway counts for all clients: a call to one goes out on the connection that has opened it,
or not at all.
Batches are served in turn, one call each: a batch of thousands keeps nobody waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IConnector, IDelayedCall

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.gateways import Gateways
from iothub_services.hbase.pipeline import PendingCall, Pipeline
from iothub_services.hbase.refusals import LostError
from iothub_services.hbase.wire import Attempt, Bounds, Reactor, Wire

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
_TICK_S = 0.01  # clocks and timers do not agree to the last bit
_SCANNER_GONE = "the connection to HBase's gateway on which the scanner was opened is gone: open it anew"

OnOutcome = Callable[[str, str, float], None]
"""Called for every call that was sent: its verb; `answered`, `lost` or `silent`; the seconds from sending to outcome."""


class _ProbeReceiver:
    """Receives the answer to the question whether a gateway is there: that it came says everything."""

    is_over = False

    def on_outcome(self, index: int, outcome: bytes | BackendError) -> None: ...


class Connection:
    """A connection to one of several gateways, with its calls. `jitter`: 0..1.

    Invariants: at most `bounds.in_flight` calls and about `in_flight_bytes` are in flight (one call more, if it alone is larger);
    every call gets exactly one outcome; while anything is in flight or waits, an answer comes, or everything fails, within `timeout_s`.
    While `_probe` runs, the question to the gateway is in flight and nothing else is.
    """

    def __init__(
        self,
        reactor: Reactor,
        gateways: Gateways,
        first: int,
        bounds: Bounds,
        jitter: Callable[[], float],
        on_outcome: OnOutcome,
    ) -> None:
        self._reactor = reactor
        self._gateways = gateways
        self._home = self._at = first % len(gateways)
        self._bounds = bounds
        self._jitter = jitter
        self._on_outcome = on_outcome
        self._pipeline = Pipeline(bounds.frame_bytes)
        self._batches: deque[deque[PendingCall]] = deque()
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

    # --- for the client

    @property
    def is_up(self) -> bool:
        return self._wire is not None and self._is_greeted

    @property
    def in_flight(self) -> int:
        return 0 if self._probe is not None else self._pipeline.in_flight

    @property
    def _is_idle(self) -> bool:
        return not (self.in_flight or self._batches)

    @property
    def gateway(self) -> Endpoint:
        """The gateway that is used, or tried next."""
        return self._gateways[self._at]

    def open(self) -> None:
        """Begin to connect; from now on a lost connection is made again."""
        self._is_closed = False
        self._connect()

    def open_later(self) -> None:
        """The same after a pause: whoever has just failed there knows."""
        self._is_closed = False
        self._pause = self._reactor.callLater(LONGEST_PAUSE_S, self._connect)

    def send_calls(self, batch: Sequence[PendingCall]) -> None:
        """Send calls in this order as soon as there is room, in turn with other batches; their caller keeps their number bounded."""
        if self._is_closed:
            for pending in batch:
                pending.fail(BackendError, self.problem, is_retryable=False)
            return
        if self._is_idle:
            self._moved_at = self._reactor.seconds()
        self._batches.append(deque(batch))
        if self._watch is None:
            self._watch = self._reactor.callLater(self._bounds.timeout_s, self._check_silence)
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

    def on_connected(self, wire: Wire) -> None:
        """Ask the gateway whether it is there: one that hangs accepts connections as well."""
        if self._is_closed:
            wire.drop()
            return
        self._wire = wire
        self._is_greeted = False
        self._ask(wire)

    def _ask(self, wire: Wire) -> None:
        self._probe = self._reactor.callLater(self._bounds.silence_s, self._on_no_answer)
        wire.write(self._pipeline.encode_call(PendingCall(calls.server_type(), _ProbeReceiver())))

    def _end_probe(self) -> None:
        """Forget the question, which is all that is in flight."""
        if self._probe is not None:
            _cancel(self._probe)
            self._probe = None
            self._pipeline.lost()

    def _on_no_answer(self) -> None:
        if self._wire is not None:
            self._give_up(self._wire, f"has not answered for {self._bounds.silence_s:g} s", "silent")

    def _on_there(self, wire: Wire) -> None:
        """The gateway is there: send what has waited for that, unless it has said more than it was asked."""
        _cancel(self._probe)
        self._probe = None
        if self._is_greeted:
            self._failures = 0
        self._is_greeted = True
        self.problem = ""
        if self._rest is None:
            self._rest = self._reactor.callLater(self._bounds.rest_s, self._check_idle)
        if not self._pipeline.broken:
            self._pump(wire)

    def _check_idle(self) -> None:
        """Nobody would notice that the gateway of an idle connection hangs, or that the one of its choice is back."""
        self._rest = None
        wire = self._wire
        if wire is None:
            return
        rested_s = self._reactor.seconds() - self._moved_at if self._is_idle and self._probe is None else 0.0
        is_rested = rested_s > self._bounds.rest_s - _TICK_S
        if is_rested and self._at != self._home and self._gateways.is_well(self._home):
            self._return_to_preferred(wire)
            return
        pause_s = self._bounds.rest_s if is_rested else self._bounds.rest_s - rested_s
        self._rest = self._reactor.callLater(pause_s, self._check_idle)
        if is_rested:
            self._ask(wire)

    def _return_to_preferred(self, wire: Wire) -> None:
        """The gateway of its first choice answers again, and no call is under way."""
        self._wire = None
        wire.drop()
        self._pipeline.lost()
        self._at = self._home
        self.problem = f"HBase's gateway {self.gateway} is not connected yet"
        self._connect()

    def on_received(self, wire: Wire, octets: bytes) -> None:
        """Hand out answers, and send what now has room."""
        if wire is not self._wire:
            return  # given up: what is late belongs to nobody
        answered = self._pipeline.receive(octets)
        if answered:
            self._on_answers(answered, wire)
        if self._pipeline.broken and wire is self._wire:
            self._give_up(wire, f"sent {self._pipeline.broken}", "lost")

    def _on_answers(self, answered: Sequence[tuple[PendingCall, bytes]], wire: Wire) -> None:
        now = self._moved_at = self._reactor.seconds()
        if self._probe is not None:
            self._on_there(wire)
            return
        self._failures = 0
        for pending, _ in answered:
            self._on_outcome(pending.call.verb.name, "answered", now - pending.sent_at)
        # many calls in one write, not one after each answer
        is_low = self._pipeline.in_flight * 2 <= self._bounds.in_flight
        if is_low and not self._pipeline.broken:
            self._pump(wire)
        for pending, frame in answered:
            pending.succeed(frame)

    def on_lost(self, wire: Wire, reason: str) -> None:
        """Go on to the next gateway; not for a connection that was given up already."""
        if wire is self._wire:
            self._step_on(reason, "lost")

    def on_unreachable(self, reason: str) -> None:
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

        The callers' turn comes last: they may send more. Where nothing was in flight, what waits goes to the next gateway.
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
            return
        self._pipeline.lost()  # what had arrived and was no answer
        if self._bounds.is_hasty and self._failures >= len(self._gateways):
            self._fail_waiting()

    def _pause_s(self) -> float:
        """Every gateway is tried at once; then less and less often, never all connections at the same moment."""
        rounds = (self._failures - 1) // len(self._gateways)
        is_same_round = self._failures % len(self._gateways) != 0
        longest = (
            FIRST_PAUSE_S / 4
            if is_same_round and not rounds
            else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(rounds, 10))
        )
        return longest * (0.5 + self._jitter() / 2)

    def _check_silence(self) -> None:
        """See whether there has been silence for too long; the timer is set anew rather than moved at each answer."""
        self._watch = None
        if self._is_idle:
            return
        rest_s = self._moved_at + self._bounds.timeout_s - self._reactor.seconds()
        if rest_s > 0:
            self._watch = self._reactor.callLater(rest_s, self._check_silence)
        elif self._wire is not None and self._probe is None:
            self._give_up(self._wire, f"has not answered for {self._bounds.timeout_s:g} s", "silent")
        elif self._bounds.is_hasty:  # until every gateway was tried
            self._watch = self._reactor.callLater(self._bounds.timeout_s, self._check_silence)
        else:
            self._fail_waiting()

    # --- the calls

    def _pump(self, wire: Wire) -> None:
        """Fill the pipeline, all in one write; not while the gateway has not said that it is there. Callers' turn comes last."""
        if self._probe is not None:
            return
        pipeline, bounds, batches = self._pipeline, self._bounds, self._batches
        now = self._reactor.seconds()
        pieces: list[bytes] = []
        strays: list[PendingCall] = []
        while batches and pipeline.in_flight < bounds.in_flight and pipeline.in_flight_bytes < bounds.in_flight_bytes:
            batch = batches.popleft()
            pending = batch.popleft()
            if batch:
                batches.append(batch)
            if pending.receiver.is_over:
                continue
            if pending.call.scanner is not None and not pipeline.has(pending.call.scanner):
                strays.append(pending)
                continue
            pending.sent_at = now
            pieces += pipeline.encode_call(pending)
        if pieces:
            wire.write(pieces)
        for stray in strays:
            stray.fail(LostError, _SCANNER_GONE)

    def _fail_all(self, result: str, *, is_retryable: bool = True) -> None:
        """Fail what was in flight and what waits."""
        now = self._reactor.seconds()
        large = int(self._pipeline.is_too_large)  # that answer is too large at every gateway
        sent = self._pipeline.lost()
        for pending in sent:
            self._on_outcome(pending.call.verb.name, result, now - pending.sent_at)
        kind = LostError if is_retryable else BackendError
        problem, waiting = self.problem, self._take_waiting()
        for place, pending in enumerate(sent):
            pending.fail(BackendError if place < large else kind, problem, is_sent=True, is_retryable=is_retryable)
        for pending in waiting:
            pending.fail(kind, problem, is_retryable=is_retryable)

    def _fail_waiting(self) -> None:
        """No connection came about in time: that another gateway would answer is not to be hoped for."""
        troubles = [f"HBase's gateway {gateway} {trouble}" for gateway, trouble in self._gateways.troubles.items()]
        problem = "; ".join(troubles) or self.problem
        for pending in self._take_waiting():
            pending.fail(BackendError, problem)

    def _take_waiting(self) -> list[PendingCall]:
        waiting = [pending for batch in self._batches for pending in batch]
        self._batches.clear()
        return waiting


def _cancel(timer: IDelayedCall | None) -> None:
    if timer is not None and timer.active():
        timer.cancel()
