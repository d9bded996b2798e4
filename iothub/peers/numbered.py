# cython: annotation_typing=False
"""The frames of a link that have a number: kept until they are acknowledged, written within a window, applied once and in order.

Knows no HELLO, no ping and no evidence. What a message to or from another hub passes through is here, and compiled: the rest is `Link`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TypeAlias

from iothub.base.clock import BootClock
from iothub.base.errors import LocalProtocolError, UnavailableError
from iothub.peers.frames import BadFrameError, FrameType, ack_frame
from iothub.peers.ports import LinkSettings, PeerId, Wire

ACK_S = 0.02
ACK_FRAMES = 256
ACK_BYTES = 256 << 10
NOT_DUE = float("inf")

_HEADER = Struct(">BIQ")
_NUMBER_BYTES = 8
_ACK_S, _ACK_FRAMES, _ACK_BYTES, _NOT_DUE = ACK_S, ACK_FRAMES, ACK_BYTES, NOT_DUE  # as C numbers

Apply: TypeAlias = Callable[[PeerId, FrameType, bytes], bool]
"""Apply a frame of a peer, and say whether its acknowledgement is waited for. Raises BadFrameError."""


def do_nothing() -> None:
    """Messages are sent one by one; nobody ticks."""


class NumberedFrames:
    """Base of `Link`: both directions of one incarnation of a peer, over whatever connection there is.

    Invariants: own numbers are contiguous: those up to `_acknowledged` are forgotten, then come `_written`, then `_waiting`.
    `applied` is the last number whose frame has been applied, and nothing above it was ever acknowledged: received is not applied.
    A number is applied at most once, in order, over any number of connections. Frames are written in a window, so that what has no number never
    waits behind more than that; nothing here stops the reading. A link that is over keeps nothing.
    `flush` sends what somebody gathers for the peer: whatever is announced goes behind it.
    """

    def __init__(
        self,
        peer: PeerId,
        features: frozenset[int],
        settings: LinkSettings,
        clock: BootClock,
        apply: Apply,
        on_behind: Callable[[], None],
    ) -> None:
        """`on_behind`: called when a frame has to wait for the connection."""
        self.peer = peer
        self.applied = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self.batch_bytes = settings.batch_bytes
        self.is_over = False
        self.flush: Callable[[], None] = do_nothing
        self._features = features
        self._frame_bytes = settings.frame_bytes
        self._link_bytes = settings.link_bytes
        self._window_bytes = settings.window_bytes
        self._clock = clock
        self._apply = apply
        self._on_behind = on_behind
        self._wire: Wire | None = None
        self._acknowledged = 0
        self._overtook: deque[tuple[int, int]] = deque()  # see `Link`
        self._written: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._kept_bytes = 0
        self._last_number = 0  # of the frame that was sent last
        self._last_ack = 0  # sent over this connection
        self._unanswered_bytes = 0  # applied since
        self._ack_due = NOT_DUE

    @property
    def unacknowledged_frames(self) -> int:
        return len(self._written) + len(self._waiting)

    @property
    def unacknowledged_bytes(self) -> int:
        return self._kept_bytes

    @property
    def load_bytes(self) -> int:
        """What `link_bytes` bounds: unacknowledged plus unsent."""
        return self._load()

    def is_full(self) -> bool:
        """Tell whether `link_bytes` wait: publishers whose messages the peer needs are not read any more."""
        return self._load() >= self._link_bytes

    def is_half_full(self) -> bool:
        return 2 * self._load() >= self._link_bytes

    def is_ack_due(self) -> bool:
        """Tell whether an acknowledgement waits for a tick."""
        return self._ack_due != _NOT_DUE

    def _load(self) -> int:
        return self._kept_bytes + (self._wire.unsent() if self._wire is not None else 0)

    def end(self) -> None:
        """The peer is gone, or this hub stops: nothing is kept from now on, whoever still has this link."""
        self.is_over = True
        self._wire = None
        self.flush = do_nothing
        self._written.clear()
        self._waiting.clear()
        self._overtook.clear()
        self._kept_bytes = 0

    # --- what is sent

    def send(self, frame_type: FrameType, body: bytes) -> int:
        """Return the frame's number. Raises UnavailableError and LocalProtocolError as `Links.send`."""
        if frame_type not in self._features:
            raise UnavailableError(f"peer {self.peer.node} does not understand {frame_type.name}; upgrade it")
        if self.is_over:
            raise UnavailableError(f"no link to peer {self.peer.node}, incarnation {self.peer.incarnation}")
        if self._kept_bytes >= 2 * self._link_bytes:
            raise UnavailableError(f"link_full: {self._kept_bytes} bytes wait for peer {self.peer.node}")
        return self._keep(frame_type, body)

    def announce(self, frame_type: FrameType, body: bytes) -> int:
        """Return the frame's number; 0: the peer does not know the type. Raises LocalProtocolError as `Links.announce`."""
        self.flush()
        return self._keep(frame_type, body) if frame_type in self._features and not self.is_over else 0

    def _keep(self, frame_type: FrameType, body: bytes) -> int:
        size = _NUMBER_BYTES + len(body)
        if size > self._frame_bytes:
            raise LocalProtocolError(f"a frame of {len(body)} bytes, expected at most {self._frame_bytes}")
        number = self._last_number = self._last_number + 1
        data = _HEADER.pack(frame_type, size, number) + body
        self._kept_bytes += len(data)
        self._waiting.append(data)
        self._write_waiting()
        if self._waiting:  # what the connection has taken makes nothing due
            self._on_behind()
        return number

    def _write_waiting(self) -> None:
        wire = self._wire
        if wire is None:
            return
        while self._waiting and wire.unsent() < self._window_bytes:
            data = self._waiting.popleft()
            self._written.append(data)
            self.sent_bytes += len(data)
            wire.write(data)

    def _write(self, data: bytes) -> None:
        if self._wire is not None:
            self.sent_bytes += len(data)
            self._wire.write(data)

    def _forget_acknowledged(self, number: int) -> None:
        """At the begin of a connection, `_waiting` may hold what was acknowledged by HELLO alone."""
        while self._acknowledged < number:
            frames = self._written or self._waiting
            self._kept_bytes -= len(frames.popleft())
            self._acknowledged += 1

    # --- what is applied

    def apply_frame(self, frame_type: FrameType, number: int, body: bytes) -> None:
        """Take a frame of this connection that has a number. Raises BadFrameError."""
        if number <= self.applied:
            return  # was applied over an earlier connection
        if number != self.applied + 1:
            raise BadFrameError(f"frame {number}, expected {self.applied + 1}")
        is_waited_for = self._apply(self.peer, frame_type, body)
        if is_waited_for:
            self.flush()
        self.applied = number
        if self._overtook and self._overtook[0][1] <= number:
            self._confirm()
        self._unanswered_bytes += len(body)
        if is_waited_for or number - self._last_ack >= _ACK_FRAMES or self._unanswered_bytes >= _ACK_BYTES:
            self._acknowledge()
        elif self._ack_due == _NOT_DUE:
            self._ack_due = self._clock.boottime() + _ACK_S

    def _confirm(self) -> None:
        """Look whether what acknowledgements have overtaken is applied here."""
        raise NotImplementedError

    def _acknowledge(self) -> None:
        self._ack_due = _NOT_DUE
        self._unanswered_bytes = 0
        if self._wire is not None and self.applied > self._last_ack:
            self._last_ack = self.applied
            self._write(ack_frame(self.applied, self._last_number))
