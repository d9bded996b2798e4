"""What a lane is given: its bounds, calls on their way, who gets their outcomes and who counts them.

Knows no connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from iothub.base.errors import BackendError
from iothub_services.hbase.calls import Call
from iothub_services.hbase.refusals import Effect


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one lane: calls in flight and their bytes, the largest frame, how long silence lasts until it is a failure.

    `rest_s`: so long a lane may have nothing to do until its gateway is asked whether it is there; `probe_timeout_s`: for that answer.
    """

    in_flight: int = 64
    in_flight_bytes: int = 8 << 20
    frame_bytes: int = 16 << 20
    timeout_s: float = 10.0
    connect_timeout_s: float = 5.0
    rest_s: float = 3.0
    probe_timeout_s: float = 3.0

    @property
    def silence_s(self) -> float:
        """How long an idle gateway may be silent."""
        return min(self.probe_timeout_s, self.timeout_s)


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


SCANNER_GONE = "the connection to HBase's gateway on which the scanner was opened is gone: open it anew"
"""Why a call to a scanner is not sent."""


def fail(
    tickets: Iterable[Ticket],
    kind: type[BackendError],
    reason: str,
    *,
    is_sent: bool = False,
    is_retryable: bool = True,
) -> None:
    """Tell those who wait. `is_sent`: what writes may be written."""
    for ticket in tickets:
        is_written = is_sent and ticket.call.verb.effect is not Effect.NONE
        ticket.sink.answered(ticket.index, kind(reason, retryable=is_retryable, is_written=is_written))
