"""Links of two or more hubs on wires that deliver when a test says so."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable

from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.peers.cluster_clock import HubClock
from iothub.peers.frames import FrameType
from iothub.peers.links import Links
from iothub.peers.ports import Identity, LinkSettings, PeerAddress, PeerId, Wire, WireOwner
from iothub.peers.ticking import Ticking
from iothub.testing.clock import ManualClock

ADDRESS = "unix:peer-{}"


class OneEnd:
    """One end of a connection. `arrived`: what the other end wrote and this one has not read; fulfils `Wire`."""

    def __init__(self, address: str, certified_node: int | None = None) -> None:
        self.address = address
        self.certified_node = certified_node
        self.other: OneEnd | None = None
        self.owner: WireOwner | None = None
        self.arrived: deque[bytes] = deque()
        self.written = b""
        self.is_closed = self.is_over = False
        self.taken = True  # False: the kernel takes nothing
        self._unsent = 0

    def write(self, data: bytes) -> None:
        self.written += data
        if not self.taken:
            self._unsent += len(data)
        elif self.other is not None:
            self.other.arrived.append(data)

    def unsent(self) -> int:
        return self._unsent

    def close(self) -> None:
        self.is_closed = True
        self.arrived.clear()

    def read(self) -> bool:
        """Give what has arrived to the owner at once; tell whether anything has."""
        if self.is_closed or not self.arrived or self.owner is None:
            return False
        data = b"".join(self.arrived)
        self.arrived.clear()
        self.owner.received(data)
        return True

    def end(self, reason: str = "closed") -> bool:
        """Tell the owner that the connection is over, if an end of it is closed and what came before has been read."""
        is_ended = self.is_closed or (self.other is not None and self.other.is_closed and not self.arrived)
        if self.is_over or self.owner is None or not is_ended:
            return False
        self.is_over = self.is_closed = True
        self.owner.lost(reason)
        return True


class NotingObserver:
    """Notes what it is told; fulfils `LinkObserver`."""

    def __init__(self) -> None:
        self.ups: list[PeerId] = []
        self.downs: list[tuple[PeerId, LinkClose, str]] = []
        self.refusals: list[tuple[int | None, PeerRefusal, bool]] = []
        self.gone: list[tuple[PeerId, int, int]] = []

    def link_up(self, peer: PeerId, name: str, address: str) -> None:
        self.ups.append(peer)

    def link_down(self, peer: PeerId, reason: LinkClose, detail: str) -> None:
        self.downs.append((peer, reason, detail))

    def refused(self, node: int | None, address: str, refusal: PeerRefusal, detail: str, *, by_peer: bool) -> None:
        self.refusals.append((node, refusal, by_peer))

    def peer_gone(self, peer: PeerId, dropped_frames: int, dropped_bytes: int) -> None:
        self.gone.append((peer, dropped_frames, dropped_bytes))


class NotedFrames:
    """Notes what it is given; fulfils `Receiver`. `applying` is called with each frame first."""

    def __init__(self) -> None:
        self.frames: list[tuple[PeerId, FrameType, bytes]] = []
        self.ups: list[PeerId] = []
        self.gone: list[PeerId] = []
        self.applying: Callable[[PeerId, FrameType, bytes], None] = lambda *_: None

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.frames]

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        self.applying(peer, frame_type, body)
        self.frames.append((peer, frame_type, body))

    def peer_up(self, peer: PeerId) -> None:
        self.ups.append(peer)

    def peer_gone(self, peer: PeerId) -> None:
        self.gone.append(peer)


class Attempts:
    """Notes who is dialled; fulfils `Dialer`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[PeerAddress, Callable[[Wire], WireOwner], Callable[[str], None]]] = []

    def dial(self, address: PeerAddress, owner_of: Callable[[Wire], WireOwner], failed: Callable[[str], None]) -> None:
        self.waiting.append((address, owner_of, failed))


class LinkedHub:
    """One hub's `Links`, and all that they were told and gave away."""

    def __init__(self, clock: ManualClock, node: int, incarnation: int = 1, **settings: int) -> None:
        self.id = PeerId(node, incarnation)
        self.me = Identity("installation", node, incarnation, f"hub-{node}", "0.1.0")
        self.row = PeerAddress(node, incarnation, self.me.name, ADDRESS.format(node))
        self._clock = clock
        self.observer = NotingObserver()
        self.receiver = NotedFrames()
        self.dialer = Attempts()
        self.wall_ahead_s = 0.0  # of the other hubs', whose time it goes by
        self.ticks = 0
        self.ticking = Ticking(clock, self._tick, lambda _at: None)
        self.links = Links(
            self.me,
            LinkSettings(**settings),
            clock,
            random.Random(node),
            self.dialer,
            self.observer,
            self.tell_clock,
            self.ticking.changed,
        )
        self.links.register((FrameType.REQUEST, FrameType.ROWS), self.receiver)
        self.links.register((FrameType.ANSWER,), self.receiver, is_waited_for=True)

    def tell_clock(self) -> HubClock:
        return HubClock(self._clock.wall() + self.wall_ahead_s, self._clock.wall())

    def tick_if_due(self) -> None:
        """As a hub whose timer is set to what its links ask for."""
        if self._clock.boottime() >= self.ticking.at:
            self.ticking.run()

    def _tick(self, now: float) -> float:
        self.ticks += 1
        self.links.tick(now)
        return self.links.due()

    def connect(self, other: LinkedHub) -> tuple[OneEnd, OneEnd]:
        """Let an attempt of this hub reach `other`; returns the ends of both."""
        _, owner_of, _ = self.dialer.waiting.pop(0)
        mine, theirs = OneEnd(other.row.address), OneEnd("unix")
        mine.other, theirs.other = theirs, mine
        theirs.owner = other.links.accepted(theirs)
        mine.owner = owner_of(mine)
        return mine, theirs


def settle(ends: Iterable[OneEnd]) -> None:
    """Deliver until nothing is under way."""
    while any(end.read() or end.end() for end in ends):
        pass


def linked(clock: ManualClock, **settings: int) -> tuple[LinkedHub, LinkedHub, OneEnd, OneEnd]:
    """Return hub 1 and hub 2 with a link that is up, and its ends."""
    one, two = LinkedHub(clock, 1, **settings), LinkedHub(clock, 2, **settings)
    one.links.members([two.row])
    two.links.members([one.row])
    mine, theirs = one.connect(two)
    settle((mine, theirs))
    return one, two, mine, theirs
