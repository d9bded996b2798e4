# cython: annotation_typing=False
"""One client's byte stream as the plane sees it: what arrived and is not yet a packet, what must leave, and what CONNECT agreed on.

Knows no sockets (its `transport` does) and does no work itself: `feed` and `lost` hand over to the plane.
"""

from __future__ import annotations

from socket import inet_aton, inet_ntoa
from typing import TYPE_CHECKING, Any

from iothub.base.reasons import Reason
from iothub.engine.limits import ListenerInfo
from iothub.engine.outbox import AckSlot
from iothub.engine.ports import Transport
from iothub.engine.session import Session
from iothub.engine.tenant import TenantPlane

if TYPE_CHECKING:
    from iothub.engine.plane import Plane


NOTHING = bytearray()
"""What every connection with nothing to send has for its `out`: whoever appends takes a buffer of its own first (`Turn.touch`)."""
_PINNED = memoryview(NOTHING)  # who forgets to gets a BufferError, and no stranger's bytes


def _pack_peer(peer: str) -> int:
    """An IPv4 address and its port as one number, which needs no object; 0: it is something else."""
    host, _, port = peer.rpartition(":")
    try:
        packed = int.from_bytes(inet_aton(host), "big") << 16 | int(port)
    except (OSError, ValueError):
        return 0
    return packed if _peer_name(packed) == peer else 0


def _peer_name(packed: int) -> str:
    return f"{inet_ntoa((packed >> 16).to_bytes(4, 'big'))}:{packed & 0xFFFF}"


class Connection:
    """One network connection.

    `version` is 0 before CONNECT was accepted. `is_waiting`: the control plane has a packet; `is_blocked`: a PUBLISH waits for a quota or the
    store; in both cases the parser stands still and the transport is paused. `is_unanswered`: blocked until an answer to the client makes room.
    `is_closing`: noted for burial; nothing is parsed any more. `out` is NOTHING before
    anything was sent, and again after a `rest`.
    """

    def __init__(
        self, plane: Plane, transport: Transport, listener: ListenerInfo, peer: str, certificate_subject: str | None
    ) -> None:
        self.plane = plane
        self.transport = transport
        self.out = NOTHING
        self.session: Session | None = None
        self.tenant: TenantPlane | None = None
        self.version = 0
        self.listener = listener
        self._peer_text: str | None = peer  # None: it is in `_peer_packed`
        self._peer_packed = 0
        self.certificate_subject = certificate_subject
        self.control: Any = None
        self.partial: bytearray | None = None
        self.needed = 0  # bytes that `partial` must have before there is something to parse
        self.is_waiting = False
        self.is_blocked = False
        self.is_unanswered = False
        self.is_paused = False
        self.is_closing = False
        self.is_lost = False
        self.is_buried = False
        self.is_dirty = False  # listed for waking at the end of the batch
        self.is_congested = False  # what was written in an earlier batch is still in `out`
        self.is_watched = False  # its out-buffer is on the books
        self.has_connect = False  # the first packet was seen
        self.is_held_up = False  # behind its blocked PUBLISH is a packet that nothing may go before
        self.accounted = 0  # bytes of `out` that are on the books
        self.kept_bytes = 0  # of `partial`
        self.close_reason: Reason | None = None
        self.farewell = b""
        self.timer: Any = None
        self.last_seen = 0.0
        self.blocked_since = 0.0
        self.wake_at = 0.0  # when the wheel ends a quota's wait; 0.0: it does not
        self.taken_meters = 0  # which meters the blocked PUBLISH has passed already
        self.keep_alive_s = 0
        self.packet_bytes = 0  # largest packet that the client may send
        self.maximum_packet_size = 0  # largest that it accepts; 0: none
        self.inbound_maximum = 0
        self.inbound_open = 0  # QoS 1/2 of the client not yet completed on this connection
        self.pending: list[AckSlot] | None = None  # acknowledgements that wait, in the order of their PUBLISHes
        self.unstored = 0
        self.aliases_in: dict[int, bytes] | None = None
        self.topic_aliases = 0
        self.aliases_out: dict[bytes, int] | None = None  # 0: seen once
        self.topic_alias_maximum = 0
        self.next_alias = 1

    @property
    def peer(self) -> str:
        """Address and port of the client, as logs and events name it."""
        return _peer_name(self._peer_packed) if self._peer_text is None else self._peer_text

    @property
    def peer_ip(self) -> str:
        """The address without the port."""
        if self._peer_text is None:
            return inet_ntoa((self._peer_packed >> 16).to_bytes(4, "big"))
        return self._peer_text.rpartition(":")[0].strip("[]")

    def rest(self) -> None:
        """Keep less: nothing happens for a while, as far as the transport knows. Costs too much for every turn."""
        if not self.out and not self.is_dirty:  # dirty: its buffer was just given to it, for what comes next
            self.out = NOTHING
        if self._peer_text is not None and self._peer_text[:1] != "[":
            self._peer_packed = _pack_peer(self._peer_text)
            if self._peer_packed:
                self._peer_text = None

    def is_stalled(self) -> bool:
        """Whether the parser stands still."""
        return self.is_waiting or self.is_blocked or self.is_closing

    def feed(self, data: bytes) -> None:
        """Take decrypted, unframed MQTT bytes from the transport. Never raises; may ask the transport to pause or close."""
        self.plane.feed(self, data)

    def lost(self, reason: Reason) -> None:
        """The socket is gone; called by the transport exactly once."""
        self.plane.lost(self, reason)
