"""Two hubs whose links carry frames at once, as long as they are up: for what travels over links.

Frames are kept while a link is down and come in their order when it is up again, as `iothub.peers.links` does it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.task import Clock as Reactor

from iothub.base.errors import UnavailableError
from iothub.peers.commands import LinkCommands
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.records.admin_commands import Verbs


class PairedLinks:
    """One hub's side. Fulfils `iothub.peers.commands.CommandLinks`."""

    def __init__(self, me: PeerId) -> None:
        self.me = me
        self.others: dict[PeerId, Callable[[PeerId, FrameType, bytes], None]] = {}
        self.waiting: deque[tuple[PeerId, FrameType, bytes]] = deque()
        self.sent: list[FrameType] = []
        self.full: set[PeerId] = set()
        self.closed: list[str] = []  # why the other side has closed a link
        self.is_down = False
        self._is_delivering = False

    def up(self) -> tuple[PeerId, ...]:
        return tuple(self.others)

    def is_full(self, peer: PeerId) -> bool:
        return peer in self.full

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        if peer not in self.others:
            raise UnavailableError("hub 9 is gone")
        self.sent.append(frame_type)
        self.waiting.append((peer, frame_type, body))
        self.deliver()

    def deliver(self) -> None:
        """Deliver what waits; a frame that is sent meanwhile comes after this one, as on a connection."""
        if self._is_delivering or self.is_down:
            return
        self._is_delivering = True
        while self.waiting:
            peer, frame_type, body = self.waiting.popleft()
            if peer in self.others:
                try:
                    self.others[peer](self.me, frame_type, body)
                except BadFrameError as error:
                    self.closed.append(str(error))
        self._is_delivering = False


class LinkedHub:
    """A hub with admin commands over links; `own`: what it answers for itself."""

    def __init__(self, node: int, own: Verbs) -> None:
        self.links = PairedLinks(PeerId(node, 1))
        self.reactor = Reactor()
        self.commands = LinkCommands(self.links, own, self.reactor.callLater)

    @property
    def peer(self) -> PeerId:
        return self.links.me

    def link(self, *others: LinkedHub) -> None:
        for other in others:
            self.links.others[other.peer] = other.commands.frame
            other.links.others[self.peer] = self.commands.frame

    def lose(self, other: LinkedHub) -> None:
        """The other one is gone, and never comes back."""
        del self.links.others[other.peer]
        self.commands.peer_gone(other.peer)
