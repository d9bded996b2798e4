# cython: annotation_typing=False
"""A link's connection on the message plane: a client of its channel, as an engine connection is, and the `Wire` of a link.

Knows no frame, no peer's state and neither twin. It has no packet to wait for before it may be read: its channel reads it at full size from its
first byte, and gives it a share of each round of its own, as if it were a tenant.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.base.reasons import Reason, WireRefusal
from iothub.net.ports import Channel
from iothub.peers.ports import WireOwner
from iothub.peers.tls import LinkTls, refusal_of


class _Fairness:
    """Where the poller keeps what this connection has used of a round."""

    __slots__ = ("share",)

    def __init__(self) -> None:
        self.share: object = None


class PeerConnection:
    """Fulfils `iothub.net.ports.EngineConnection` and `iothub.peers.ports.Wire`.

    Invariants: the owner gets no bytes after `close`; it hears `lost` once, and nothing after it.
    """

    def __init__(
        self, channel: Channel, address: str, tls: LinkTls | None, on_refused: Callable[[str], None] | None = None
    ) -> None:
        """`tls`: None: a Unix socket, or plain TCP on loopback. `on_refused`: gets why the other side does not want this hub."""
        self._on_refused = on_refused
        self.address = address
        self.certified_node = None if tls is None else tls.node
        self.out = bytearray()
        self.partial: bytearray | None = None
        self.tenant = _Fairness()
        self.session: object = self.tenant
        self._channel = channel
        self._tls = tls
        self._owner: WireOwner | None = None
        self._is_closed = False
        self._is_heard = False

    def belong_to(self, owner: WireOwner) -> None:
        """Give it its owner: before its first byte is read."""
        self._owner = owner

    # --- the link's side

    def write(self, data: bytes) -> None:
        if not self._is_closed:
            self.out += data
            self._channel.wake()

    def unsent(self) -> int:
        stream = self._channel.stream
        return len(self.out) + (0 if stream is None else stream.unsent)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._channel.close(drains=True)  # what was written last may say why: unread input must not reset it away

    # --- the channel's side

    def feed(self, data: bytes) -> None:
        self._is_heard = True
        if self._owner is not None and not self._is_closed:
            self._owner.received(data)

    def lost(self, reason: Reason) -> None:
        refusal = "" if self._tls is None else refusal_of(self._tls.ending)
        if not refusal and not self._is_heard and not self._is_closed:
            refusal = f"{WireRefusal.CLOSED}: the other hub ended the connection before it said anything"
        self._is_closed = True
        owner, self._owner = self._owner, None
        if refusal and self._on_refused is not None:
            self._on_refused(refusal)
        if owner is not None:
            owner.lost(refusal or reason.word)
