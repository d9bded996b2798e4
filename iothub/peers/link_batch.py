# cython: annotation_typing=False
"""The messages of a turn for one other hub, on their way to its link.

Knows no route and no tenant's state. Compiled: every message to another hub passes through it.
"""

from __future__ import annotations

from typing import Any

from iothub.base.errors import LocalProtocolError, UnavailableError
from iothub.base.reasons import Drop
from iothub.engine.routed import RoutedBatch
from iothub.engine.turn import Turn
from iothub.peers.frames import FrameType

_PUBLISH = FrameType.PUBLISH


class LinkBatch(RoutedBatch):
    """Base of `RoutedPeer`. `link`: fulfils `PeerLink`. `has_more`: something else waits for the end of the turn, too: see `flush_more`."""

    def __init__(self, turn: Turn, link: Any) -> None:
        super().__init__(turn, link.batch_bytes)
        self.link = link
        self.has_more = False

    def flush(self) -> None:
        """Fulfils the engine's `Peer`."""
        self.is_flush_due = False
        self.flush_messages()
        if self.has_more:
            self.has_more = False
            self.flush_more()

    def flush_more(self) -> None:
        """Send what else was gathered for the hub."""
        raise NotImplementedError

    def flush_messages(self) -> None:
        """Fulfils `RoutedBatch`."""
        body = self.take_records()
        if not body:
            return
        try:
            self.link.send(_PUBLISH, body)
        except UnavailableError:
            self.drop(body, Drop.LINK_FULL)
        except LocalProtocolError:
            self.drop(body, Drop.TOO_LARGE)
        self.note_load()

    def note_load(self) -> None:
        """Look how full the link is."""
        self.is_half_full = self.link.is_half_full()
        if self.is_half_full and not self.is_full and self.link.is_full():
            self.set_full(True)

    def drop(self, body: bytes, reason: Drop) -> None:
        """Drop messages that the link does not take, by name."""
        raise NotImplementedError

    def set_full(self, is_full: bool) -> None:
        """Let publishers wait for it, or no more."""
        raise NotImplementedError
