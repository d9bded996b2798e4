"""What was stored here for sessions whose clients other hubs have: those hubs hear of it, with the message, and the other way round.

Knows no store, no log and no router: which hub has a session is in its `Place`.

    a message is stored for a session -> QUEUED to the hub that has its client -> if that session has caught up it gets it from memory, else
        the hub reads its queue
    the log says that a hub has the client of a session from now on -> QUEUED without a message: how far this hub has written to its queue

Invariant: what this hub stores for a session is sent to the hub that has the client by this hub's own view of the log, and when that view
changes, how far it has stored is sent to the other hub. So what is lost is lost with a link or a hub, and the look at the tails finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iothub.engine.message import Message
from iothub.engine.outbox import QueueTarget
from iothub.engine.plane import Plane
from iothub.engine.state import Session, TenantPlane
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.peers.queued_frames import Queued, Receiver, decode_queued
from iothub.peers.routed_peer import RoutedPeer
from iothub.peers.routes import Routes

QUEUED_TYPES = (FrameType.QUEUED,)

OnPeers = Callable[[], object]


class QueuedPeers:
    """Fulfils the engine's `Elsewhere`, and `Receiver` of `QUEUED_TYPES`. On the reactor thread."""

    def __init__(self, routes: Routes, plane: Plane, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon`: calls back when the running turn is over."""
        self._routes = routes
        self._plane = plane
        self._call_soon = call_soon
        self._on_peers: OnPeers = _nobody
        plane.storage.tell(self)

    def watch(self, on_peers: OnPeers) -> None:
        """Call when a hub has come or is gone: what was sent before may be lost; at composition."""
        self._on_peers = on_peers

    # --- what is stored here

    def queued(self, tenant: TenantPlane, message: Message, receivers: list[tuple[QueueTarget, int]]) -> None:
        """Fulfils `Elsewhere`."""
        of_hub: dict[int, list[Receiver]] = {}
        for target, position in receivers:
            session: Session = target.session
            receiver = Receiver(
                session.client_id, session.queue_id, position, target.qos, target.retain, target.identifiers
            )
            of_hub.setdefault(_holder(session), []).append(receiver)
        for node, theirs in of_hub.items():
            peer = self._peer(tenant, node)
            if peer is not None:
                peer.send_queued(tenant, message, theirs)

    def connected(self, session: Session) -> None:
        """The log says that another hub has this session's client from now on: it hears how far its queue was written here, if it was.

        Each time: what the log says may be long over, and the client elsewhere again.
        """
        peer = self._peer(session.tenant, _holder(session))
        if peer is not None and session.announced:
            peer.send_queued(session.tenant, None, [Receiver(session.client_id, session.queue_id, session.announced)])
            self._call_soon(peer.flush)

    def _peer(self, tenant: TenantPlane, node: int) -> RoutedPeer | None:
        """Return the hub, if it has the tenant open; else it looks at the tails when it is linked."""
        peer = self._routes.at_node(node)
        return peer if peer is not None and tenant.tenant_id in peer.opened else None

    # --- what other hubs have stored

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`."""
        self._on_peers()

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`."""
        self._on_peers()

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError: it is malformed, or of a tenant that the peer has not open."""
        sender = self._routes.peer(peer)
        if sender is None:
            return  # it is gone, or this hub is closing
        if frame_type != FrameType.QUEUED:
            raise BadFrameError(f"a frame of type {frame_type.name}")
        arrived = [(record, record.decode_message()) for record in decode_queued(body)]
        for record, _ in arrived:
            sender.require_open(record.tenant_id)
        for record, message in arrived:
            tenant = self._routes.tenant(record.tenant_id)
            if tenant is not None:  # else its last client has left since
                self._take(tenant, record, message)

    def _take(self, tenant: TenantPlane, record: Queued, message: Message | None) -> None:
        """A session that has moved on, or has ended, is passed over: whoever has it hears of it, or reads its queue."""
        taken: list[tuple[Session, int, int, bool, tuple[int, ...]]] = []
        for each in record.receivers:
            session = tenant.sessions.get(each.client_id)
            if session is None or not session.is_persistent or session.queue_id != each.queue_id:
                continue
            if message is None:
                self._plane.announce(session, each.position)
            else:
                taken.append((session, each.position, each.qos, each.retain, each.identifiers))
        if message is not None and taken:
            self._plane.queued_arrived(message, taken)


def _holder(session: Session) -> int:
    control: Any = session.control
    node: int = control.place.holder
    return node


def _nobody() -> None:
    """Nobody looks at anything."""
