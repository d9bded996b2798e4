"""One link to one incarnation of one peer, over whatever connection it has at the moment: acknowledgements, resend, evidence.

Knows no HELLO and no dialling: `iothub/peers/links.py` says when a connection begins and ends. `iothub/peers/numbered.py` has the numbered frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from iothub.base.clock import BootClock
from iothub.peers.cluster_clock import HubClock
from iothub.peers.frames import BadFrameError, FrameType, ack_of, echo_frame, echo_of, number_frame, number_of
from iothub.peers.numbered import NOT_DUE, Apply, NumberedFrames, do_nothing
from iothub.peers.ports import LinkSettings, PeerId, Wire

PING_S = 0.25
SILENT_S = 2.0
CLOCK_TRIP_S = 1.0  # an echo that took longer says too little about the other side's clock
MOST_OVERTAKING = (
    1024  # acknowledgements heard that have overtaken what is on its way; a later one is heard when there is room
)

_NS = 1_000_000_000
_MS = 1000
_NEVER = float("-inf")
AT_ONCE = float("-inf")

OnAcknowledged: TypeAlias = Callable[[PeerId, int, int], None]
"""Take the last number that a peer has applied, and the last one before which all is applied here that it had sent by then."""


class Link(NumberedFrames):
    """What is kept for one incarnation of a peer from its first HELLO until it is gone, also while it has no connection.

    Invariants: an acknowledgement overtakes frames. It says which was the last of them, and `on_acknowledged` hears of that, too, when that one is
    applied here: what the peer sends from then on, it has sent knowing what was acknowledged, and nothing older follows. Each has its own last
    frame: what the peer sends after one that was heard must not be taken for older because a later one has overtaken it, too.
    `peer_clock`: as the last echo said that came soon; None: none has.
    """

    def __init__(
        self,
        peer: PeerId,
        features: frozenset[int],
        settings: LinkSettings,
        clock: BootClock,
        apply: Apply,
        on_acknowledged: OnAcknowledged = lambda _peer, _applied, _arrived: None,
        tell_clock: Callable[[], HubClock] | None = None,
        on_behind: Callable[[], None] = do_nothing,
    ) -> None:
        """`tell_clock`: this hub's, as Unix times, for echoes; None: the peer does not understand it, and does not say its own."""
        super().__init__(peer, features, settings, clock, apply, on_behind)
        self.evidence = _NEVER
        self.round_trip_s: float | None = None
        self.peer_clock: HubClock | None = None
        self.connections = 0
        self._settings = settings
        self._on_acknowledged = on_acknowledged
        self._tell_clock = tell_clock
        self._begun = _NEVER  # of this connection
        self._heard = (
            0  # the last acknowledgement; not HELLO's: the peer may route more before it says what that has overtaken
        )
        self._confirmed = 0  # the last acknowledgement that has overtaken nothing any more
        # `_overtook`: acknowledgements heard, and the last frame that each has overtaken
        self._unheard: tuple[int, int] | None = None  # the newest one, while MOST_OVERTAKING wait
        self._first_ping_ns = self._last_ping_ns = 0
        self._ping_due = AT_ONCE

    @property
    def is_up(self) -> bool:
        return self._wire is not None

    @property
    def is_clock_unknown(self) -> bool:
        """Tell whether the peer will say what time it is there, and has not yet."""
        return self._tell_clock is not None and self.peer_clock is None

    def can_resume(self, applied_by_peer: int) -> bool:
        """Tell whether the peer can have applied this number last: not below what it acknowledged, not above what was sent."""
        return self._acknowledged <= applied_by_peer <= self._acknowledged + self.unacknowledged_frames

    def attach(self, wire: Wire, applied_by_peer: int, now: float) -> None:
        """Begin a connection, both sides of which have said HELLO, and send again what the peer has not applied."""
        self._forget_acknowledged(applied_by_peer)
        self._written.extend(self._waiting)
        self._waiting, self._written = self._written, deque()
        self._wire = wire
        self._begun = now
        self._last_ack = (
            self.applied - 1 if self.connections else 0
        )  # HELLO has said it, and no frame that it has overtaken
        self._first_ping_ns = int(now * _NS)
        self.connections += 1
        self._ping(now)
        self.flush()
        self._acknowledge()
        self._write_waiting()
        self._on_acknowledged(self.peer, self._heard, self._confirmed)

    def detach(self) -> None:
        """Note that the connection is over; what is unacknowledged waits for the next one."""
        self._wire = None

    def take_frame(self, frame_type: FrameType, body: bytes) -> None:
        """Take a frame of this connection that has no number. Raises BadFrameError."""
        if frame_type == FrameType.PING:
            self._answer_ping(body)
        elif frame_type == FrameType.ECHO:
            self._note_echo(*echo_of(body))
        elif frame_type == FrameType.ACK:
            self._note_acknowledgement(*ack_of(body))
        else:
            raise BadFrameError(f"a second {frame_type.name}")

    def is_silent(self, now: float) -> bool:
        """Tell whether the last ping that was echoed was sent too long ago. A connection has this time for its first echo."""
        return now > self._silent_from

    @property
    def _silent_from(self) -> float:
        return max(self.evidence, self._begun) + SILENT_S

    @property
    def due(self) -> float:
        """Return when `tick` has something to do, or the link is silent; infinity: while there is no connection."""
        if self._wire is None:
            return NOT_DUE
        if self._waiting:
            return AT_ONCE  # nothing says that the connection takes more
        return min(self._ping_due, self._ack_due, self._silent_from)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._wire is None:
            return
        if now >= self._ping_due:
            self._ping(now)
        if now >= self._ack_due:
            self._acknowledge()
        self._write_waiting()

    def _note_acknowledgement(self, number: int, overtaken: int) -> None:
        if number > self._acknowledged + len(self._written):
            raise BadFrameError(f"frame {number} acknowledged, which was not sent over this connection")
        self._forget_acknowledged(number)
        self._write_waiting()
        self._unheard = number, overtaken
        self._confirm()

    def _confirm(self) -> None:
        """Look whether what acknowledgements have overtaken is applied here."""
        overtook = self._overtook
        while overtook and overtook[0][1] <= self.applied:
            self._confirmed = overtook.popleft()[0]
        if self._unheard is not None and len(overtook) < MOST_OVERTAKING:
            self._heard, overtaken = self._unheard
            if overtaken <= self.applied:
                self._confirmed = self._heard
            else:
                overtook.append(self._unheard)
            self._unheard = None
        self._on_acknowledged(self.peer, self._heard, self._confirmed)

    def _answer_ping(self, body: bytes) -> None:
        number = number_of(FrameType.PING, body)
        bound = 2 * (self._settings.window_bytes + self._settings.frame_bytes)
        if (
            self._wire is not None and self._wire.unsent() <= bound
        ):  # who sends pings and does not read gets no more echoes
            self._write(self._echo(number))

    def _echo(self, number: int) -> bytes:
        if self._tell_clock is None:
            return number_frame(FrameType.ECHO, number)
        clock = self._tell_clock()
        return echo_frame(number, (max(0, int(clock.machine * _MS)), max(0, int(clock.goes_by * _MS))))

    def _note_echo(self, sent_ns: int, times_ms: tuple[int, int] | None) -> None:
        if not self._first_ping_ns <= sent_ns <= self._last_ping_ns:
            raise BadFrameError("an echo of a ping that was not sent over this connection")
        sent = sent_ns / _NS
        self.evidence = max(self.evidence, sent)
        self.round_trip_s = max(0.0, self._clock.boottime() - sent)
        if times_ms is not None and self.round_trip_s <= CLOCK_TRIP_S:
            middle = sent + self.round_trip_s / 2
            self.peer_clock = HubClock(times_ms[0] / _MS - middle, times_ms[1] / _MS - middle)

    def _ping(self, now: float) -> None:
        self._ping_due = (now // PING_S + 1) * PING_S  # the same for every link: one tick sends all pings
        self._last_ping_ns = int(now * _NS)
        self._write(number_frame(FrameType.PING, self._last_ping_ns))
