"""Blocking calls against the gateway in memory, with faults: for tests of drivers.

Knows no verb. A test sets `fault` to decide what becomes of each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeVar

from iothub.base.errors import BackendError
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.hbase.refusals import Effect, LostError
from tests.support.hbase.hbase_gateway import FakeGateway

T = TypeVar("T")


class Fault(Enum):
    """What becomes of a call."""

    NONE = "it is answered"
    UNSENT = "it never leaves"
    MOVED = "it never leaves, its connection has gone"
    LOST = "it may be done, and is not"
    UNANSWERED = "it is done, and its answer is lost"


class FakeCaller(Caller):
    """Calls a gateway in memory, one after another. `made`: the verbs that were called."""

    def __init__(self, gateway: FakeGateway) -> None:
        self.gateway = gateway
        self.fault: Callable[[Call[object]], Fault] = lambda _: Fault.NONE
        self.made: list[str] = []
        self.batches = 0

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        self.batches += bool(calls)
        return [self._one(call) for call in calls]

    def _one(self, call: Call[T]) -> T | BackendError:
        self.made.append(call.verb.name)
        fault = self.fault(call)
        may_be_written = fault is not Fault.UNSENT and call.verb.effect is not Effect.NONE
        if fault is Fault.MOVED:
            return LostError(f"{call.verb.name}: {fault.value}", retryable=True)
        if fault in (Fault.UNSENT, Fault.LOST):
            return BackendError(f"{call.verb.name}: {fault.value}", retryable=True, is_written=may_be_written)
        frame = self.gateway.answer(call.frame(1)[4:])
        if fault is Fault.UNANSWERED:
            return BackendError(f"{call.verb.name}: {fault.value}", retryable=True, is_written=may_be_written)
        try:
            return call.decode(frame)
        except BackendError as error:
            return error
