"""What code that may block needs of HBase: batches of calls, and single ones.

Knows no verb: calls are encoded and answers decoded in the thread that makes them, the reactor moves bytes. Drivers of stores are written
against `Caller`. Worker threads of a hub have a `ThreadCaller` over the hub's client, tools and sweeps a `DirectCaller` of their own.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from twisted.internet.base import BlockingResolver
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.threads import blockingCallFromThread

from iothub.base.errors import BackendError, LocalProtocolError
from iothub.base.units import Endpoint
from iothub_services.hbase.calls import Call
from iothub_services.hbase.client import HBaseClient
from iothub_services.hbase.refusals import Effect, LostError
from iothub_services.hbase.wire import Bounds

T = TypeVar("T")
Asked = TypeVar("Asked")

PATIENCE_S = 120.0


class Caller(ABC):
    """Blocking calls, for any number of threads."""

    @abstractmethod
    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        """Make calls, pipelined; return the result or the error of each, in their order.

        Calls with the same pin are done in their order, each after the one before it was answered, whether well or with a refusal.
        Where all of them only read, those whose gateway was lost are made again, at each other gateway. A write is its caller's to repeat.
        """

    def call(self, call: Call[T]) -> T:
        """Make one call. Raises BackendError."""
        (outcome,) = self.call_many([call])
        if not isinstance(outcome, BackendError):
            return outcome
        try:
            raise outcome
        finally:
            del (
                outcome
            )  # else this frame keeps the error, which keeps this frame and those of all callers with what they hold

    def call_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Make calls, pipelined; return the results of all.

        Raises BackendError when one has failed, the first one's; it is written for certain not only if all have failed so.
        """
        outcomes = self.call_many(calls)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BackendError)]
        if not failed:
            return [outcome for outcome in outcomes if not isinstance(outcome, BackendError)]
        failed[0].is_written = len(failed) < len(outcomes) or any(error.is_written for error in failed)
        try:
            raise failed[0]
        finally:
            del failed, outcomes  # as in `call`


class ThreadCaller(Caller):
    """Blocking calls over a client that another thread's reactor turns: a batch hops there once and comes back whole.

    A batch ends when every call has its outcome, which the client sees to as long as the reactor turns; after `patience_s` it is given
    up all the same: what was not sent yet never is, and what was not answered may be written.
    """

    def __init__(
        self,
        client: HBaseClient,
        call_in_reactor: Callable[[Callable[[], None]], object],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._client = client
        self._call_in_reactor = call_in_reactor
        self._patience_s = patience_s

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        """Make calls as `Caller.call_many` says.

        Raises:
            LocalProtocolError: Called on the reactor thread, which must not wait.
        """
        if not calls:
            return []
        if threading.get_ident() == self._client.thread:
            raise LocalProtocolError("a blocking call to HBase on the reactor thread, which would wait for itself")
        is_repeatable = all(call.verb.is_repeatable for call in calls)
        return asked_again(self._attempt, calls, len(self._client.gateways) if is_repeatable else 0)

    def _attempt(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        batch = _Batch(len(calls))
        self._call_in_reactor(lambda: self._client.begin(calls, batch))
        batch.wait(self._patience_s)
        outcomes = zip(calls, batch.outcomes, strict=True)
        return [self._result(call, outcome) for call, outcome in outcomes]

    def _result(self, call: Call[T], outcome: bytes | BackendError | None) -> T | BackendError:
        if isinstance(outcome, BackendError):
            return outcome
        if outcome is None:
            return BackendError(
                f"HBase did not finish {call.verb.name} within {self._patience_s:g} s",
                retryable=True,
                is_written=call.verb.effect is not Effect.NONE,
            )
        try:
            return call.decode(outcome)
        except BackendError as error:
            return error


class DirectCaller(ThreadCaller):
    """Blocking calls without a hub's reactor, over one connection of its own. They fail as soon as every gateway was tried in vain."""

    def __init__(self, gateways: Sequence[Endpoint], bounds: Bounds | None = None) -> None:
        self._reactor = _process_reactor()
        hasty = replace(bounds or Bounds(), is_hasty=True)
        client = HBaseClient(self._reactor, gateways, connections=1, bounds=hasty)
        super().__init__(client, self._reactor.callFromThread)
        self._reactor.callFromThread(client.open)

    def __enter__(self) -> DirectCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the connection; later calls fail. Idempotent."""
        blockingCallFromThread(self._reactor, self._client.close)


def asked_again(
    attempt: Callable[[Sequence[Asked]], list[T | BackendError]], asked: Sequence[Asked], times: int
) -> list[T | BackendError]:
    """Ask, which gives the result or the error of each, and repeat it up to `times` times where the gateway was lost."""
    outcomes = attempt(asked)
    for _ in range(times):
        lost = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, LostError)]
        if not lost:
            break
        for index, outcome in zip(lost, attempt([asked[index] for index in lost]), strict=True):
            outcomes[index] = outcome
    return outcomes


class _Batch:
    """Collects the outcomes of one batch: filled on the reactor thread, read by the worker when it is whole or given up."""

    def __init__(self, count: int) -> None:
        self.is_over = False
        self._filling: list[bytes | BackendError | None] = [None] * count
        self.outcomes = self._filling
        self._missing = count
        self._whole = threading.Event()

    def on_outcome(self, index: int, outcome: bytes | BackendError) -> None:
        self._filling[index] = outcome
        self._missing -= 1
        if not self._missing:
            self._whole.set()

    def wait(self, seconds: float) -> None:
        if not self._whole.wait(seconds):
            self.is_over = True
            self.outcomes = list(self._filling)  # what comes later changes nothing any more


class _ToolReactor(EPollReactor):
    # Twisted's is the wall clock: when that is set back, no timer is due for as long.
    seconds = staticmethod(time.monotonic)


@cache
def _process_reactor() -> EPollReactor:
    """Return the reactor of those in this process who have none: its thread ends with the process."""
    reactor = _ToolReactor()  # type: ignore[no-untyped-call]
    reactor.installResolver(BlockingResolver())  # the usual one has threads that a process waits for at its end
    thread = threading.Thread(
        target=reactor.run, kwargs={"installSignalHandlers": False}, name="hbase-tools", daemon=True
    )
    thread.start()
    return reactor
