"""Takes frames of links for what is made when another hub is there for the first time: a hub that is alone keeps and sends nothing.

Knows no frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId, Receiver

Core = TypeVar("Core", bound=Receiver)


class PeerReceiver(Generic[Core]):
    """Fulfils `Receiver` of links. On the reactor thread."""

    def __init__(self, make: Callable[[], Core]) -> None:
        """`make`: called once, when this hub has joined."""
        self._make = make
        self._core: Core | None = None

    def _made(self) -> Core:
        if self._core is None:
            self._core = self._make()
        return self._core

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`."""
        self._made().peer_up(peer)

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`."""
        self._made().peer_gone(peer)

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError."""
        self._made().frame(peer, frame_type, body)
