# cython: annotation_typing=False
"""What a frame of messages is to the hub that gets it.

Knows no link, and of routes only which tenants are open where. Compiled: every message from another hub passes through it.
"""

from __future__ import annotations

from typing import Any

from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.routed import decode_routed, tenant_of_routed
from iothub.engine.state import TenantPlane
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId

_PUBLISH = FrameType.PUBLISH


class ArrivedMessages:
    """Base of `Routes`: messages are delivered here, and every other frame is taken there.

    `_peers`: a `RoutedPeer` of each hub that is linked; `_tenants`: by tenant id, what is kept of those that are open here; `_place_of`: how far
    a hub has said that it has applied the session log; `_observers`: fulfil `RouteObserver`.
    """

    def __init__(self, plane: Plane, place_of: Any) -> None:
        self._plane = plane
        self._place_of = place_of
        self._peers: dict[PeerId, Any] = {}
        self._tenants: dict[int, Any] = {}
        self._observers: list[Any] = []

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError: it is malformed, or of a tenant that the peer has not open."""
        sender = self._peers.get(peer)
        if sender is None:
            return  # it is gone, or this hub is closing
        if frame_type == _PUBLISH:
            self._take_messages(sender, body)
        else:
            self._take_other(sender, frame_type, body)

    def _take_other(self, sender: Any, frame_type: FrameType, body: bytes) -> None:
        """Take a frame that has no messages."""
        raise NotImplementedError

    def _take_messages(self, sender: Any, body: bytes) -> None:
        """Nothing of a frame is delivered that cannot be read to its end: it comes again."""
        for here, messages in read_messages(body, sender.opened, self._tenants):
            tenant: TenantPlane = here.tenant
            if tenant.changing is not None:
                tenant.changing.arriving(sender.id, self._place_of(sender.id))
            if tenant.routing is not None:
                tenant.routing.arriving(sender.id)
            topics = self._plane.publish_arrived(tenant, messages)
            for topic in topics:
                for observer in self._observers:
                    observer.retained_arrived(sender.id, tenant.tenant_id, topic)


def read_messages(body: bytes, opened: set[int], tenants: dict[int, Any]) -> list[tuple[Any, list[Message]]]:
    """Return (open tenant, messages) in their order, of those tenants that are open here.

    `opened`: tenants that the sender has open; `tenants`: those that are open here. Raises BadFrameError: some of it cannot be read, or is of a
    tenant that the sender has not open.
    """
    if not body:
        raise BadFrameError("a PUBLISH without a message")
    arrived: list[tuple[Any, list[Message]]] = []
    at = 0
    size = len(body)
    while at < size:
        tenant_id = tenant_of_routed(body, at)
        if tenant_id not in opened:
            raise BadFrameError(f"a frame of tenant {tenant_id}, which the sender has not open")
        here = tenants.get(tenant_id)
        messages: list[Message] = []
        if here is None:  # its last client has left since
            at = decode_routed(body, at, tenant_id, {}, {}, messages)
        else:
            tenant: TenantPlane = here.tenant
            at = decode_routed(body, at, tenant_id, tenant.sessions.awake, tenant.router.cache.young, messages)
            arrived.append((here, messages))
        if at < 0:
            raise BadFrameError(f"a PUBLISH of tenant {tenant_id} that cannot be read")
    return arrived
