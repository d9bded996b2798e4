"""Redis for the reactor: calls are gathered for a millisecond at most, make one pipeline, and one hop to a thread and back.

Knows no key. Runs on the reactor thread but for `_work`.

Theory: one thread has the connection, and one batch is under way at a time; what is called meanwhile is gathered and goes next, so the batches are
as large as the load. When a server does not answer, the first calls wait for one time-out. From then on the client is `is_degraded`: every call
fails at once, gathered ones too, and only a PING of the client's own, after a growing pause, finds out when the server is back. An idle client
sends a PING every second, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Protocol, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from iothub.base import log as logging
from iothub.base.errors import BackendError
from iothub_services.redis.blocking import Pauses
from iothub_services.redis.calls import (
    Argument,
    Call,
    RedisRefusedError,
    RedisUnavailableError,
    Reply,
    command,
    single,
)
from iothub_services.redis.link import Link, LinkLostError, is_lost

log = logging.get(__name__)

STOP_S = 2.0
_LOOK_S = 1.0
_PING = command("PING")


class Reactor(Protocol):
    """What the client needs of Twisted's."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, call: Callable[[], object], /) -> IDelayedCall: ...  # noqa: N802

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> None: ...  # noqa: N802


@dataclass(frozen=True, slots=True)
class Bounds:
    """Calls that may wait and their bytes; of one pipeline; `gather_s`: how long the first call of a pipeline waits for others."""

    waiting: int = 20_000
    waiting_bytes: int = 32 << 20
    batch: int = 512
    batch_bytes: int = 1 << 20
    gather_s: float = 0.001
    gather_calls: int = 32  # this many are sent without waiting for more


class Meter(Protocol):
    """Called for every pipeline: calls in it, refused ones, seconds from sending to the last answer; `is_lost`: there was no answer."""

    def done(self, calls: int, refused: int, seconds: float, *, is_lost: bool) -> None: ...

    def bypassed(self, calls: int) -> None:
        """Calls failed at once."""


@dataclass(slots=True)
class _Group:
    """Calls that go one after another, and who waits for them."""

    calls: Sequence[Call]
    answer: Deferred[list[Reply]]
    size: int


_Batch = tuple[list[_Group], list[Call], float]


class RedisClient:
    """Made, started, closed; calls before the start wait for it.

    Invariants: no more than `Bounds.waiting` calls and their bytes wait, those under way included; every call has one outcome.
    `on_state`: called with the reason when the client becomes degraded, and with "" when that is over.
    """

    def __init__(
        self,
        link: Link,
        reactor: Reactor,
        *,
        bounds: Bounds | None = None,
        meter: Meter | None = None,
        on_state: Callable[[str], None] | None = None,
        pauses: Pauses | None = None,
    ) -> None:
        self._link = link
        self._reactor = reactor
        self._bounds = bounds or Bounds()
        self._meter = meter
        self._on_state = on_state
        self._pauses = pauses or Pauses()
        self._gathered: deque[_Group] = deque()
        self._batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._timer: IDelayedCall | None = None
        self._probe_timer: IDelayedCall | None = None
        self._look_timer: IDelayedCall | None = None
        self._is_busy = False
        self._is_closed = False
        self.waiting = 0
        self.waiting_bytes = 0
        self.trouble = ""

    @property
    def is_degraded(self) -> bool:
        """Redis is by-passed: it does not answer, or refuses us."""
        return bool(self.trouble)

    def start(self) -> None:
        self._thread = Thread(target=self._work, name="iothub-redis", daemon=True)
        self._thread.start()
        self._probe()  # so that the first call need not find out
        self._look_again()

    def close(self, timeout_s: float = STOP_S) -> None:
        """Fail what waits; the thread ends after the pipeline that is under way. Blocks until then, no longer than this."""
        if self._is_closed:
            return
        self._is_closed = True
        for timer in (self._timer, self._probe_timer, self._look_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._fail_gathered("Redis: the hub is stopping")
        self._batches.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    # --- calls

    async def run(self, *arguments: Argument) -> Reply:
        """Make one call. Raises BackendError."""
        return single((await self.run_many([command(*arguments)]))[0])

    def run_many(self, calls: Sequence[Call]) -> Awaitable[list[Reply]]:
        """Make calls one after another with none of others between; fires with the answer or the error of each."""
        answer: Deferred[list[Reply]] = Deferred()
        group = _Group(calls, answer, sum(call.size for call in calls))
        trouble = self._refusal(group)
        if trouble:
            if self._meter is not None:
                self._meter.bypassed(len(calls))
            answer.callback([RedisUnavailableError(trouble)] * len(calls))
            return answer
        self.waiting += len(calls)
        self.waiting_bytes += group.size
        self._gathered.append(group)
        self._gather()
        return answer

    def _refusal(self, group: _Group) -> str:
        """Say why these cannot wait."""
        if self._is_closed:
            return "Redis: the hub is stopping"
        if self.trouble:
            return self.trouble
        bounds = self._bounds
        is_full = self.waiting and (
            self.waiting + len(group.calls) > bounds.waiting or self.waiting_bytes + group.size > bounds.waiting_bytes
        )
        return "Redis does not answer fast enough; too many calls wait for it" if is_full else ""

    # --- batches

    def _gather(self) -> None:
        """Send when there is enough, else in a moment; while a pipeline is under way they wait for its end."""
        if self._is_busy or self._thread is None or not self._gathered:
            return
        if self.waiting >= self._bounds.gather_calls:
            self._send()
        elif self._timer is None:
            self._timer = self._reactor.callLater(self._bounds.gather_s, self._send)

    def _send(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        if self._is_busy or not self._gathered:
            return
        groups: list[_Group] = []
        calls: list[Call] = []
        size_bytes = 0
        while self._gathered and len(calls) < self._bounds.batch and size_bytes < self._bounds.batch_bytes:
            group = self._gathered.popleft()
            groups.append(group)
            calls += group.calls
            size_bytes += group.size
        self._put(groups, calls)

    def _put(self, groups: list[_Group], calls: list[Call]) -> None:
        self._is_busy = True
        self._batches.put((groups, calls, self._reactor.seconds()))

    def _work(self) -> None:
        """In the thread."""
        while (batch := self._batches.get()) is not None:
            outcomes: list[Reply]
            try:
                outcomes = self._link.exchange(batch[1])
            except LinkLostError as error:
                outcomes = [error] * len(batch[1])
            except Exception as error:  # edge: a defect must not end the thread
                log.error("defect in the calls to Redis", exc_info=error)
                outcomes = [RedisRefusedError(f"defect: {error!r}")] * len(batch[1])
            self._reactor.callFromThread(self._done, batch, outcomes)
            del batch, outcomes  # nothing is kept while the thread waits
        self._link.close()

    def _done(self, batch: _Batch, outcomes: list[Reply]) -> None:
        groups, calls, began = batch
        self._is_busy = False
        has_lost = is_lost(outcomes) or (not groups and isinstance(outcomes[0], RedisUnavailableError))
        if self._meter is not None and groups:
            refused = sum(isinstance(outcome, BackendError) for outcome in outcomes)
            self._meter.done(len(calls), refused, self._reactor.seconds() - began, is_lost=has_lost)
        if has_lost:
            self._degrade(str(outcomes[-1]))
        else:
            self._recover()
        at = 0
        for group in groups:
            end = at + len(group.calls)
            self._answer(group, outcomes[at:end])
            at = end
        if not self._is_closed:
            self._gather()

    def _answer(self, group: _Group, outcomes: list[Reply]) -> None:
        self.waiting -= len(group.calls)
        self.waiting_bytes -= group.size
        if group.answer.called:  # its caller has gone
            return
        group.answer.callback(outcomes)

    # --- a server that does not answer, or refuses us

    def _look_again(self) -> None:
        """Probe an idle server, so that the alarm does not wait for the next CONNECT."""
        self._look_timer = self._reactor.callLater(_LOOK_S, self._look_again)
        if not (self._is_busy or self._gathered or self.trouble):
            self._put([], [_PING])

    def _degrade(self, trouble: str) -> None:
        if self._is_closed:
            return
        is_news = not self.trouble
        self.trouble = trouble
        if is_news:
            log.warning("Redis unavailable; bypassed until it answers", cause=trouble)
            self._notify(trouble)
        self._fail_gathered(trouble)
        self._probe_timer = self._reactor.callLater(self._pauses.next_s(), self._probe)

    def _probe(self) -> None:
        self._probe_timer = None
        self._put([], [_PING])

    def _recover(self) -> None:
        self._pauses.reset()
        if self.trouble:
            self.trouble = ""
            log.info("Redis answers again")
            self._notify("")

    def _notify(self, trouble: str) -> None:
        if self._on_state is not None:
            self._on_state(trouble)

    def _fail_gathered(self, trouble: str) -> None:
        gathered, self._gathered = self._gathered, deque()
        if self._meter is not None and gathered:
            self._meter.bypassed(sum(len(group.calls) for group in gathered))
        for group in gathered:
            self._answer(group, [cast("Reply", RedisUnavailableError(trouble))] * len(group.calls))
