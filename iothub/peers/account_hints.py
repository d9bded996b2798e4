"""Hubs tell each other that the accounts have changed, so that each looks at once: a right that was revoked at one hub ends at all.

Knows no accounts. The change log stays the truth, and each hub looks at it by itself as well: a hint that is lost costs time alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from iothub.base.errors import UnavailableError
from iothub.peers.frames import FrameType, number_in, pack, unpack
from iothub.peers.ports import PeerId

HINT_TYPES = (FrameType.ACCOUNTS,)


class HintLinks(Protocol):
    """What hints ask of the links. Fulfilled by `iothub.peers.links`."""

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int: ...

    def up(self) -> tuple[PeerId, ...]: ...


class AccountHints:
    """Fulfils `Receiver`. On the reactor thread.

    Invariant: a hub that was told of a change tells nobody of it. So each change is told once by each hub that has read it before it was told.
    """

    def __init__(self, links: HintLinks, look: Callable[[], object]) -> None:
        """`look`: reads the change log now."""
        self._links = links
        self._look = look
        self._newest = -1  # the last change that was read here or told
        self._is_reading = False

    def note_read(self, change: int | None) -> None:
        """This hub has read the change log up to here, or found nothing new: tell the others, unless one of them has told it."""
        self._is_reading = True
        if change is None or change == self._newest:
            return
        self._newest = change
        body = pack({"change": change})
        for peer in self._links.up():
            try:
                self._links.send(peer, FrameType.ACCOUNTS, body)
            except UnavailableError:
                continue  # it looks by itself

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError."""
        del peer, frame_type
        change = number_in(unpack(body), "change")
        if change != self._newest and self._is_reading:  # a hub that starts has not begun to read, and will read all
            self._newest = change
            self._look()

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: it reads the change log when it begins."""

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: nothing is kept of it."""
