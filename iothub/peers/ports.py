"""What links need from others, and the values that cross their border.

Knows no socket, no reactor and no account store: who dials, who receives and who observes are Protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.peers.frames import FrameType


class PeerId(NamedTuple):
    """One life of one hub. Everything that is kept about a peer is keyed by this, never by the node number alone."""

    node: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """A peer as its row of the accounts has it. `address`: "host:port" or "unix:PATH"."""

    node: int
    incarnation: int
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this hub is, as its HELLO says."""

    installation: str
    node: int
    incarnation: int
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """`frame_bytes` bounds one frame, `link_bytes` what waits for one peer.

    `window_bytes`: written and not taken by the kernel yet, so what a ping or an acknowledgement waits behind.
    """

    frame_bytes: int = 16 << 20
    link_bytes: int = 64 << 20
    window_bytes: int = 1 << 20

    @property
    def batch_bytes(self) -> int:
        """How much of small messages shares a frame: a fraction of what stops their publishers."""
        return min(64 << 10, self.frame_bytes // 4, self.link_bytes // 16)


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One peer as `cluster status` and the metrics show it; times in seconds, None where there is none. Counts begin with the incarnation."""

    peer: PeerId
    name: str
    address: str
    state: Literal["up", "down", "refused"]
    since_s: float
    unacknowledged_bytes: int
    last_refusal: PeerRefusal | None
    round_trip_s: float | None
    sent_bytes: int
    received_bytes: int
    reconnects: int


class Wire(Protocol):
    """One connection, dialled or accepted.

    `certified_node`: the node number that the other side's certificate is for; None without TLS, where `address` alone lets nobody else in.
    """

    address: str
    certified_node: int | None

    def write(self, data: bytes) -> None:
        """Add to what is sent; the kernel gets it once a turn."""
        ...

    def unsent(self) -> int:
        """Return how many bytes the kernel has not taken yet."""
        ...

    def close(self) -> None:
        """Read no more bytes from it, in this turn either; what was written last is still sent."""
        ...


class WireOwner(Protocol):
    """What a wire gives its events to."""

    def received(self, data: bytes) -> None:
        """Take bytes, never after `Wire.close`."""
        ...

    def lost(self, reason: str) -> None:
        """Note that the wire is closed, by whichever side. Exactly once, and later than the call that caused it."""
        ...


class Dialer(Protocol):
    """Connects to peers."""

    def dial(self, address: PeerAddress, owner_of: Callable[[Wire], WireOwner], failed: Callable[[str], None]) -> None:
        """Call exactly one of the two, later than this call and within `links.CONNECT_S`; `failed` gets the reason."""
        ...


class Receiver(Protocol):
    """Who takes reliable frames of a type."""

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Apply a frame: it counts as applied when this returns. Raises BadFrameError: the link closes."""
        ...

    def peer_up(self, peer: PeerId) -> None:
        """Note a peer that was never linked before. A link that comes back after a flap loses nothing, and is not noted."""
        ...

    def peer_gone(self, peer: PeerId) -> None:
        """Forget this incarnation: it never comes back, and frames that it has not acknowledged are dropped. Only after `peer_up`."""
        ...


class Announcer(Protocol):
    """Sends what must arrive. Fulfilled by `iothub.peers.links`."""

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int: ...


class LinkObserver(Protocol):
    """What happens to links, for log, metrics, alarms and events; called in the turn in which it happens."""

    def link_up(self, peer: PeerId, name: str, address: str) -> None: ...

    def link_down(self, peer: PeerId, reason: LinkClose, detail: str) -> None: ...

    def refused(self, node: int | None, address: str, refusal: PeerRefusal, detail: str, *, by_peer: bool) -> None:
        """`node`: None when the other side did not say, or could not prove, who it is. `by_peer`: it is this hub that was refused."""
        ...

    def peer_gone(self, peer: PeerId, dropped_frames: int, dropped_bytes: int) -> None: ...
