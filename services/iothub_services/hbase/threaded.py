"""HBase for worker threads: a batch of calls hops to the reactor once, is pipelined there, and comes back whole.

Knows no verb: calls are encoded and answers decoded in the worker's own thread, the reactor moves bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from twisted.python.threadable import isInIOThread

from iothub.base.errors import BackendError, LocalProtocolError
from iothub_services.hbase.caller import Caller, asked_again
from iothub_services.hbase.calls import Call
from iothub_services.hbase.client import HBaseClient
from iothub_services.hbase.refusals import Effect

T = TypeVar("T")

PATIENCE_S = 120.0


class ThreadCaller(Caller):
    """Blocking calls over the reactor's client.

    A batch ends when every call has its outcome, which the lanes see to as long as the reactor turns; after `patience_s` it is given
    up all the same: what was not sent yet never is, and what was not answered may be written.
    """

    def __init__(
        self, client: HBaseClient, call_in_reactor: Callable[[Callable[[], None]], None], patience_s: float = PATIENCE_S
    ) -> None:
        self._client = client
        self._call_in_reactor = call_in_reactor
        self._patience_s = patience_s

    @property
    def gateways(self) -> int:
        return len(self._client.gateways)

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        """Make calls as `Caller.call_many` says.

        Raises:
            LocalProtocolError: Called on the reactor thread, which must not wait.
        """
        if not calls:
            return []
        if isInIOThread():  # type: ignore[no-untyped-call]
            raise LocalProtocolError("a blocking call to HBase on the reactor thread; use HBaseClient.call there")
        return asked_again(self._attempt, calls, self.gateways)

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


class _Batch:
    """Collects the outcomes of one batch: filled on the reactor thread, read by the worker when it is whole or given up."""

    def __init__(self, count: int) -> None:
        self.is_over = False
        self._filling: list[bytes | BackendError | None] = [None] * count
        self.outcomes = self._filling
        self._missing = count
        self._whole = threading.Event()

    def answered(self, index: int, outcome: bytes | BackendError) -> None:
        self._filling[index] = outcome
        self._missing -= 1
        if not self._missing:
            self._whole.set()

    def wait(self, seconds: float) -> None:
        if not self._whole.wait(seconds):
            self.is_over = True
            self.outcomes = list(self._filling)  # what comes later changes nothing any more
