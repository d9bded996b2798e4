# cython: annotation_typing=False
"""One connection to HBase's gateway, without the connection: frames out, answers in, matched by sequence number.

Knows no socket, no time and no reactor. The gateway answers in the order of the calls, one after another; an answer that is not the
expected one is somebody else's data, and the connection must be given up.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from iothub.base.errors import BackendError
from iothub_services.hbase import thrift
from iothub_services.hbase.calls import Call
from iothub_services.hbase.refusals import Effect
from iothub_services.hbase.replies import Scanner
from iothub_services.hbase.thrift import ThriftError

_LENGTH_BYTES = 4
_SEQUENCES = 0x7FFFFFFF


class Receiver(Protocol):
    """Who gets the outcomes of calls: the frame of the answer, or what was in the way."""

    is_over: bool  # nobody waits any more: what was not sent need not be

    def on_outcome(self, index: int, outcome: bytes | BackendError) -> None: ...


class PendingCall:
    """A call without an outcome yet, and whose it is. `index`: of the call among the receiver's."""

    def __init__(self, call: Call[object], receiver: Receiver, index: int = 0) -> None:
        self.call = call
        self.receiver = receiver
        self.index = index
        self.sent_at = 0.0

    def succeed(self, frame: bytes) -> None:
        self.receiver.on_outcome(self.index, frame)

    def fail(self, kind: type[BackendError], reason: str, *, is_sent: bool = False, is_retryable: bool = True) -> None:
        """`is_sent`: a write may be written."""
        is_written = is_sent and self.call.verb.effect is not Effect.NONE
        self.receiver.on_outcome(self.index, kind(reason, retryable=is_retryable, is_written=is_written))


class Pipeline:
    """Calls in flight and the bytes that have arrived.

    Invariants: `in_flight` and `in_flight_bytes` count the calls that were sent and not answered; no more than one frame and what a
    read brought beyond it is kept, and no frame above `frame_bytes`. `count`: of all calls, on this connection and those before, so the number
    of the call that has opened a scanner says on which connection that was. `broken`: what the peer did against the protocol, "" for nothing;
    nothing that follows can be trusted then, and nothing is read any more. `is_too_large`: it is the answer to the first call in flight
    that does not fit a frame.
    """

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.in_flight_bytes = 0
        self.broken = ""
        self.is_too_large = False
        self.count = 0
        self._before = 0  # of those before
        self._sent: deque[tuple[PendingCall, int]] = deque()
        self._arrived = bytearray()
        self._needed = _LENGTH_BYTES

    @property
    def in_flight(self) -> int:
        return len(self._sent)

    def encode_call(self, pending: PendingCall) -> tuple[bytes, bytes]:
        """Return the frame of a call, in two pieces; it is now in flight. Not one to a scanner that this connection has not."""
        self.count += 1
        sequence = self.count & _SEQUENCES
        self._sent.append((pending, sequence))
        self.in_flight_bytes += pending.call.size
        return pending.call.pieces(sequence)

    def has(self, scanner: Scanner) -> bool:
        """Was this scanner opened on this connection? One of another connection may be somebody else's here."""
        age = (self.count - scanner.opened_by) & _SEQUENCES
        return age < self.count - self._before

    def receive(self, octets: bytes) -> list[tuple[PendingCall, bytes]]:
        """Take what has arrived; return the calls that it answers, each with its frame, in order. Look at `broken` afterwards."""
        self._arrived += octets
        answered: list[tuple[PendingCall, bytes]] = []
        if len(self._arrived) < self._needed or self.broken:
            return answered
        at = 0
        try:
            while (size := self._frame_size(at)) >= 0:
                start = at + _LENGTH_BYTES
                frame = bytes(self._arrived[start : start + size])
                answered.append((self._match(frame), frame))
                at = start + size
        except ThriftError as error:
            self.broken = str(error)
            at = len(self._arrived)
        del self._arrived[:at]
        return answered

    def lost(self) -> list[PendingCall]:
        """Forget the connection; return the calls that were in flight, in order. Sequence numbers go on: none has two meanings."""
        sent, self._sent = self._sent, deque()
        self._before = self.count
        self._arrived.clear()
        self._needed = _LENGTH_BYTES
        self.in_flight_bytes = 0
        self.broken = ""
        self.is_too_large = False
        return [pending for pending, _ in sent]

    def _frame_size(self, at: int) -> int:
        """Return the size of the frame at `at`; -1: it is not whole yet, and `_needed` says how much the buffer must hold."""
        here = len(self._arrived) - at
        self._needed = _LENGTH_BYTES
        if here < _LENGTH_BYTES:
            return -1
        size = int.from_bytes(self._arrived[at : at + _LENGTH_BYTES], "big")
        if size > self.frame_bytes:
            self.is_too_large = True
            raise ThriftError(f"an answer of {size} bytes, above the limit of {self.frame_bytes}")
        self._needed = _LENGTH_BYTES + size
        return size if here >= self._needed else -1

    def _match(self, frame: bytes) -> PendingCall:
        if not self._sent:
            raise ThriftError("an answer that nobody asked for")
        pending, sequence = self._sent[0]
        verb = pending.call.verb
        size = len(verb.head)
        if len(frame) <= verb.body_at or frame[4:size] != verb.head[4:] or frame[:3] != verb.head[:3]:
            raise ThriftError(f"an answer that is not one to {verb.name}")
        if frame[3] not in (thrift.REPLY, thrift.EXCEPTION):
            raise ThriftError(f"a message of kind {frame[3]} in place of an answer")
        if int.from_bytes(frame[size : verb.body_at], "big") != sequence:
            raise ThriftError(f"an answer out of step to {verb.name}")
        self._sent.popleft()
        self.in_flight_bytes -= pending.call.size
        return pending
