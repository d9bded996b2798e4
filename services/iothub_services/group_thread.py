# cython: annotation_typing=False
"""A thread that runs a blocking driver with group commit: whatever arrived while one commit ran goes into the next.

Knows no driver and no reactor: `execute` does a batch in one commit, `call_in_reactor` brings the answers back, one call per batch.

Theory: order is kept through every failure. A batch whose commit failed for a reason that may pass is tried again, before
anything that came later, until each of its operations has waited `RetryPolicy.give_up_s` (or what `submit` said); then it is answered
with the error. What waits behind such a batch has the same limit. A batch that can never succeed is taken apart, so that one bad
operation does not fail the others. The alarm about a failing store ends when a commit has really written something: an operation that had nothing
to write proves nothing, so `probe` is called, again and again while nothing else is written. Without a probe the kind of work that failed must
succeed: a commit for a commit, idle work for idle work.

Invariant: after an operation that was given up, nothing later of the same source is done until the source knows of it. Otherwise the later one
would overtake the earlier one, which the source repeats.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError

log = logging.get(__name__)

Op = TypeVar("Op")
Answer = TypeVar("Answer")

FOREVER_S = math.inf

CallInReactor = Callable[[Callable[[], None]], None]

_COMMIT, _IDLE = "commit", "idle work"  # kinds of work

_QUIET_S = 0.25  # so long nothing must have come before idle work begins
_SLICE_S = 0.01  # pause between two slices of idle work
_IDLE_CHECK_S = 5.0  # how often to ask for idle work when there was none
_PROBE_S = 1.0  # how often to try whether a failing store works again


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may wait (then `is_full`: callers stop their sources) and what goes into one commit."""

    waiting: int = 20_000
    waiting_bytes: int = 64 << 20
    commit: int = 2_000
    commit_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a failing store is tried again; all zero: not at all."""

    retry_s: float = 0.0
    give_up_s: float = 0.0


class Source:
    """Where operations come from that must not overtake each other: none is done behind one of them that was given up.

    `may_skip`: those behind one that was given up, and that is not written for certain, are done all the same: the source is notified of each.
    Written by the reactor thread; `is_cut` by the one that does the batches.
    """

    __slots__ = ("is_cut", "may_skip", "waiting")

    def __init__(self, *, may_skip: bool = False) -> None:
        self.is_cut = False
        self.may_skip = may_skip
        self.waiting = 0  # for whoever submits


class Waiting:
    """One operation on its way. `op`: None if this is the operation. `until`: then it is given up."""

    __slots__ = ("op", "size_bytes", "source", "until")

    def __init__(self, op: Any, size_bytes: int = 0, source: Source | None = None) -> None:
        self.op = op
        self.size_bytes = size_bytes
        self.source = source
        self.until = 0.0

    def take_answer(self, answer: Any) -> None:
        """The operation is done, or is given up: then this is an exception."""
        raise NotImplementedError


class _Calling(Waiting):
    """Hands its answer to a callback."""

    __slots__ = ("callback",)

    def __init__(self, op: Any, size_bytes: int, source: Source | None, callback: Callable[[Any], None]) -> None:
        self.op = op
        self.size_bytes = size_bytes
        self.source = source
        self.until = 0.0
        self.callback = callback

    def take_answer(self, answer: Any) -> None:
        self.callback(answer)


class OperationQueue:
    """What waits for a thread. `put` is for the reactor thread, the rest for the one that does the batches.

    Invariant: `is_asleep` is set each time before the thread looks at what is pending, and taken back by who wakes it: no operation is
    overlooked, and the thread is woken once.
    """

    def __init__(self) -> None:
        self.pending: list[Waiting] = []  # one list for ever: it grows at its end while the thread takes from its front
        self.is_asleep = False  # the thread may be waiting: wake it
        self.is_closing = False  # nothing more is taken
        self.wakeup = threading.Condition()
        self.submitted = self.submitted_bytes = 0  # written by the reactor thread only
        self.answered = self.answered_bytes = 0  # written by the one that does the batches only

    def put(self, operation: Waiting, until: float) -> None:
        """Put one at the end; it is given up then."""
        self.submitted += 1
        self.submitted_bytes += operation.size_bytes
        operation.until = until
        self.pending.append(operation)
        if self.is_asleep:
            with self.wakeup:
                self.is_asleep = False
                self.wakeup.notify()

    def is_empty(self) -> bool:
        """Whether nothing is pending; then whoever puts something there wakes the thread."""
        self.is_asleep = True
        return not self.pending

    def take(self, count: int, size_bytes: int) -> list[Waiting]:
        """Take from the front, until they are as many or have as many bytes."""
        pending = self.pending
        last = min(len(pending), count)
        end = size = 0
        while end < last and size < size_bytes:
            waiting: Waiting = pending[end]
            size += waiting.size_bytes
            end += 1
        batch = pending[:end]
        del pending[:end]
        return batch

    def count_answered(self, batch: list[Waiting]) -> None:
        """They wait no more."""
        size = 0
        for waiting in batch:
            size += waiting.size_bytes
        self.answered += len(batch)
        self.answered_bytes += size


class _Answered:
    """A batch and its answers, on their way to the reactor."""

    def __init__(
        self, batch: list[Waiting], answers: list[Any], call_in_reactor: Callable[[Callable[[], None]], None]
    ) -> None:
        self.batch = batch
        self.answers = answers
        self.call_in_reactor = call_in_reactor
        self.at = 0

    def hand_out(self) -> None:
        """Give each its answer."""
        batch, answers = self.batch, self.answers
        count = len(batch)
        try:
            while self.at < count:
                at = self.at
                self.at += 1
                waiting: Waiting = batch[at]
                waiting.take_answer(answers[at])
        finally:
            if self.at < count:  # one raised: the others get their answers all the same
                self.call_in_reactor(self.hand_out)


class GroupThread(Generic[Op, Answer]):
    """One thread for one driver.

    `submit` and `is_full` are for the reactor thread; `execute` and `idle` run in the thread. `execute` returns one answer
    per operation, in order (an exception object is an answer as well); when it raises, nothing of the batch was done.
    `probe` commits something small, or raises BackendError.

    Invariants: callbacks run in the order of `submit` (but for those that are given up earlier than others), each exactly once, also
    when the thread is closed. What was given up without being tried has not been written.
    """

    def __init__(  # noqa: PLR0913 - the collaborators of one thread, all by name
        self,
        name: str,
        execute: Callable[[list[Op]], list[Answer | Exception]],
        call_in_reactor: CallInReactor,
        clock: Clock,
        *,
        bounds: Bounds | None = None,
        retry_policy: RetryPolicy | None = None,
        idle: Callable[[], bool] | None = None,
        probe: Callable[[], None] | None = None,
        on_alarm: Callable[[str, str], None] | None = None,
        on_commit: Callable[[str, float], None] | None = None,
        consequence: str = "nothing new is acknowledged until this is over",
    ) -> None:
        self.name = name
        self._consequence = consequence  # of a failure, for the alarm
        self._execute = execute
        self._call_in_reactor = call_in_reactor
        self._clock = clock
        self._bounds = bounds or Bounds()
        self._retry_policy = retry_policy or RetryPolicy()
        self._idle = idle
        self._probe = probe
        self._on_alarm = on_alarm
        self._on_commit = on_commit  # (name, seconds), in the thread
        self.queue = OperationQueue()
        self._wakeup = self.queue.wakeup
        self._failing = ""  # what the last commit failed of
        self._failed: set[str] = set()  # which kinds of work have failed and not succeeded since
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name=f"iothub-{name}", daemon=True)

    def start(self) -> GroupThread[Op, Answer]:
        """Start the thread. What was submitted before goes into the first batch."""
        self._thread.start()
        return self

    @property
    def waiting(self) -> int:
        """Operations without an answer; the batch in work included."""
        return self.queue.submitted - self.queue.answered

    @property
    def waiting_bytes(self) -> int:
        return self.queue.submitted_bytes - self.queue.answered_bytes

    @property
    def is_full(self) -> bool:
        """Sources should pause; what is submitted nevertheless is accepted."""
        return self.waiting >= self._bounds.waiting or self.waiting_bytes >= self._bounds.waiting_bytes

    @property
    def is_failing(self) -> bool:
        """The store refused the last commit, and none has succeeded since."""
        return bool(self._failing)

    @property
    def is_closing(self) -> bool:
        return self.queue.is_closing

    def submit(
        self,
        op: Op,
        callback: Callable[[Answer | Exception], None],
        size_bytes: int = 0,
        give_up_s: float | None = None,
        source: Source | None = None,
    ) -> None:
        """Put an operation into the next batch; `callback` gets its answer, or the exception, in the reactor thread.

        `give_up_s`: a limit of its own; `FOREVER_S`: it fails only with the thread's end, or when it cannot succeed.
        """
        self.put(_Calling(op, size_bytes, source, callback), give_up_s)

    def put(self, operation: Waiting, give_up_s: float | None = None) -> None:
        """The same, for who has made it."""
        if self.queue.is_closing:
            raise BackendError(f"{self.name} is closed", retryable=False)
        give_up_s = self._retry_policy.give_up_s if give_up_s is None else give_up_s
        self.queue.put(operation, self._clock.monotonic() + give_up_s)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Do what was submitted and end the thread; a failing commit is tried once more only. False: it still runs."""
        self.end()
        if self._thread.ident is None:
            self.drain()
        else:
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            return True
        log.warning(
            "store thread did not end in time; waiting changes are not written", store=self.name, waiting=self.waiting
        )
        return False

    def end(self) -> None:
        """Take nothing more; the thread does what was submitted and ends. Nobody waits for it."""
        with self._wakeup:
            self.queue.is_closing = True
            self._wakeup.notify()

    def drain(self) -> None:
        """Do what was submitted in the caller's thread: for a thread that was never started."""
        while self.queue.pending:
            self._do(self._take())

    # --- in the thread

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._do(batch)

    def _next_batch(self) -> list[Waiting] | None:
        pause = _QUIET_S
        with self._wakeup:
            while self.queue.is_empty():
                if self.queue.is_closing:
                    return None
                if self._failing and self._probe is not None:
                    pause = _PROBE_S
                elif self._idle is None:
                    self._wakeup.wait()
                    continue
                if not self._wakeup.wait(pause) and not self.queue.pending:
                    pause = self._idle_slice()
            self.queue.is_asleep = False
            return self._take()

    def _idle_slice(self) -> float:
        """See whether a failing store works again, else do a slice of idle work; without the lock. Returns how long to wait for the next."""
        self._wakeup.release()
        try:
            if self._failing and self._probe is not None:
                self._end_failure()
            elif self._idle is not None:
                has_more = self._idle()
                self._works(_IDLE)
                return _SLICE_S if has_more else _IDLE_CHECK_S
        except BackendError as error:
            self._fails(error, _IDLE)
        except Exception as error:  # edge: a defect must not end the thread
            log.error("defect in a store's idle work", store=self.name, exc_info=error)
        finally:
            self._wakeup.acquire()
        return _IDLE_CHECK_S

    def _take(self) -> list[Waiting]:
        return self.queue.take(self._bounds.commit, self._bounds.commit_bytes)

    def _do(self, batch: list[Waiting], *, was_uncertain: bool = False) -> None:
        """Do a batch until each of its operations is answered. `was_uncertain`: an attempt before may have written them."""
        while batch := self._without_cut(batch, was_uncertain):
            begun = self._clock.monotonic()
            try:
                answers = self._execute(_operations(batch))
            except BackendError as error:
                if not error.retryable:
                    self._do_apart(batch, error, was_uncertain)
                    return
                was_uncertain |= error.is_written
                error.is_written = was_uncertain
                batch = self._after_failure(batch, error)
            except Exception as error:  # edge: a defect must not end the thread
                if len(batch) == 1:
                    log.error("defect in a store's thread", store=self.name, exc_info=error)
                self._do_apart(batch, error, was_uncertain)
                return
            else:
                self._succeeded(self._clock.monotonic() - begun)
                self._deliver(batch, answers)
                return

    def _do_apart(self, batch: list[Waiting], error: Exception, was_uncertain: bool) -> None:
        """Do each by itself. That `error` says something was written is not handed on: it may be of others, and each is asked for anew."""
        if len(batch) > 1:
            for waiting in batch:
                self._do([waiting], was_uncertain=was_uncertain)
        else:
            error = _uncertain(error) if was_uncertain else error
            _cut(batch, error)
            self._deliver(batch, [error])
            if isinstance(error, BackendError):
                self._fails(error)  # damage, above all: somebody must look at it

    def _without_cut(self, batch: list[Waiting], was_uncertain: bool) -> list[Waiting]:
        """Answer those that are behind one of their source that was given up; return the others."""
        cut = _of_cut(batch)
        if not cut:
            return batch
        text = f"{self.name}: what its source sent before was given up"
        self._deliver(cut, [BackendError(text, retryable=True, is_written=was_uncertain)] * len(cut))
        return [waiting for waiting in batch if waiting.source is None or not waiting.source.is_cut]

    def _after_failure(self, batch: list[Waiting], error: BackendError) -> list[Waiting]:
        """Answer those that have waited long enough; wait; return the rest, to be tried again."""
        now = self._clock.monotonic()
        is_over = self.queue.is_closing or not self._retry_policy.retry_s
        given_up = [waiting for waiting in batch if is_over or waiting.until <= now]
        if given_up:
            _cut(given_up, error)
            self._deliver(given_up, [error] * len(given_up))
        self._give_up_pending(now, error)
        self._fails(error)
        rest = [] if is_over else [waiting for waiting in batch if waiting.until > now]
        if rest:
            with self._wakeup:
                self._wakeup.wait_for(lambda: self.queue.is_closing, self._retry_policy.retry_s)
        return rest

    def _give_up_pending(self, now: float, error: BackendError) -> None:
        """Those behind a failing batch do not wait longer than those in it."""
        pending = self.queue.pending
        waiting = pending[:]  # what is appended meanwhile stays behind these
        pending[: len(waiting)] = [one for one in waiting if one.until > now]
        given_up = [one for one in waiting if one.until <= now]
        if given_up:
            untried = BackendError(str(error), retryable=True)
            _cut(given_up, untried)
            self._deliver(given_up, [untried] * len(given_up))

    def _fails(self, error: BackendError, kind: str = _COMMIT) -> None:
        self._failed.add(kind)
        text = str(error)
        if text != self._failing:
            self._failing = text
            self._alarm(f"{text}; {self._consequence}")

    def _succeeded(self, duration_s: float) -> None:
        self.commits += 1
        if self._on_commit is not None:
            self._on_commit(self.name, duration_s)
        with contextlib.suppress(BackendError):
            self._works(_COMMIT)

    def _works(self, kind: str) -> None:
        """A piece of work was done. Raises BackendError: the store does not write all the same."""
        self._failed.discard(kind)
        if self._failing and (self._probe is not None or not self._failed):
            self._end_failure()

    def _end_failure(self) -> None:
        """The failure is over if the store really writes. Raises BackendError: it is not."""
        if self._probe is not None:
            try:
                self._probe()
            except BackendError as error:
                self._fails(error)
                raise
        self._failing = ""
        self._failed.clear()
        self._alarm("")

    def _alarm(self, text: str) -> None:
        on_alarm = self._on_alarm
        if on_alarm is not None:
            self._call_in_reactor(lambda: on_alarm(f"{self.name}_failing", text))

    def _deliver(self, batch: list[Waiting], answers: list[Answer | Exception]) -> None:
        if len(batch) != len(answers):
            raise AssertionError(f"{self.name}: {len(answers)} answers to {len(batch)} operations")
        self.queue.count_answered(batch)
        self._call_in_reactor(_Answered(batch, answers, self._call_in_reactor).hand_out)


def _operations(batch: list[Waiting]) -> list[Any]:
    operations: list[Any] = []
    for waiting in batch:
        operations.append(waiting if waiting.op is None else waiting.op)  # noqa: PERF401 - compiled, this is faster
    return operations


def _of_cut(batch: list[Waiting]) -> list[Waiting]:
    """Return those behind one of their source that was given up."""
    cut: list[Waiting] = []
    for waiting in batch:
        source = waiting.source
        if source is not None and source.is_cut:
            cut.append(waiting)
    return cut


def _uncertain(error: Exception) -> BackendError:
    """Say of what failed for good that it may be written all the same."""
    if not isinstance(error, BackendError):
        return BackendError(str(error), retryable=False, is_written=True)
    error.is_written = True
    return error


def _cut(given_up: list[Waiting], error: Exception) -> None:
    """Let nothing be done that is behind these."""
    is_written = getattr(error, "is_written", False)
    for waiting in given_up:
        source = waiting.source
        if source is not None and (is_written or not source.may_skip):
            source.is_cut = True
