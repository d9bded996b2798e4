"""What is sent to another hub in its order, whatever its link takes at the moment.

Knows no frame's meaning.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from iothub.base.errors import UnavailableError
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId


class PeerSender(Protocol):
    """Fulfilled by `iothub.peers.links`."""

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int: ...


class Frame(Protocol):
    """A body that knows its type."""

    @property
    def TYPE(self) -> FrameType: ...  # noqa: N802 - a constant of the class

    def encode(self) -> bytes: ...


class LinkedPeer:
    """Another hub, from the first link to it until it is gone. Invariant: frames stay in order: what a full link does not take waits."""

    def __init__(self, peer: PeerId, links: PeerSender) -> None:
        self._peer = peer
        self._links = links
        self._unsent: deque[Frame] = deque()

    def send(self, frame: Frame) -> None:
        if self._unsent or not self._try(frame):
            self._unsent.append(frame)

    def send_again(self) -> None:
        """The peer has applied frames, so its link takes more."""
        while self._unsent and self._try(self._unsent[0]):
            self._unsent.popleft()

    def _try(self, frame: Frame) -> bool:
        try:
            self._links.send(self._peer, frame.TYPE, frame.encode())
        except UnavailableError:
            return False
        return True
