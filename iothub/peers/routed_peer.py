"""One other hub as this one routes to it: its place in the routers of the tenants, and what of all that is announced it has applied.

Knows no tenant's state here. Fulfils the engine's `Peer`; kept for one incarnation, from the first link to it until it is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from iothub.base.errors import LocalProtocolError, UnavailableError
from iothub.base.reasons import Drop
from iothub.engine.filters import split_share
from iothub.engine.message import Message
from iothub.engine.ports import ABSENT, CONGESTED, READY
from iothub.engine.routed import decode_routed, encode_routed, tenant_of_routed
from iothub.engine.router import Group, Subscription
from iothub.engine.state import Session, TenantPlane
from iothub.engine.turn import Turn
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.groups import Groups
from iothub.peers.link_batch import LinkBatch
from iothub.peers.peer_groups import PeerGroups
from iothub.peers.ports import PeerId
from iothub.peers.queued_frames import Receiver, records

ROUTE_TYPES = (FrameType.OPEN, FrameType.OPENED, FrameType.CLOSE, FrameType.ROUTE, FrameType.GROUP_TAKEN)
"""Somebody waits for their acknowledgements."""

Waiting = deque[tuple[int, Callable[[], None]]]


class PeerLink(Protocol):
    """A link as routes use it. Fulfilled by `iothub.peers.link`. `batch_bytes`: a larger message has a frame of its own."""

    batch_bytes: int
    flush: Callable[[], None]

    def send(self, frame_type: FrameType, body: bytes) -> int: ...

    def announce(self, frame_type: FrameType, body: bytes) -> int: ...

    def is_full(self) -> bool: ...

    def is_half_full(self) -> bool: ...


class RouteLinks(Protocol):
    """What routes ask of the links. Fulfilled by `iothub.peers.links`."""

    def link_to(self, peer: PeerId) -> PeerLink: ...


class RoutedPeer(LinkBatch):
    """Another hub.

    Invariants: whatever anybody announces to it stands behind the messages that were routed before. `sessions` has those in the routers of
    tenants that are open here; each of them counts for `sinks` of its tenant while `is_full`.
    """

    def __init__(self, peer: PeerId, link: PeerLink, turn: Turn, groups: Groups) -> None:
        super().__init__(turn, link)
        self.id = peer
        self.groups = PeerGroups(groups, self)
        self.opened: set[int] = set()  # tenants that it has open
        self.sessions: dict[int, Session] = {}
        self._queued = bytearray()  # records of what was stored for sessions whose clients it has, until the turn ends
        self._announced = 0  # the link's number of what was announced last and is waited for
        self._applied = 0  # the link's number of what it has applied last
        self._arrived = 0  # the number at which all that it had sent before has arrived
        self._waiting: Waiting = deque()
        self._arriving: Waiting = deque()
        link.flush = self.flush

    # --- messages

    def send_queued(self, tenant: TenantPlane, message: Message | None, receivers: list[Receiver]) -> None:
        """Tell what was stored for sessions whose clients it has. A large message, and any while half of the link is used, is read from the queue.

        What the link does not take is lost: the hub finds it when it looks at the tails.
        """
        if message is not None and (self.is_half_full or message.size > self.batch_bytes):
            message = None
        for record in records(tenant.tenant_id, message, receivers, self.batch_bytes):
            if len(self._queued) + len(record) > self.batch_bytes:
                self._flush_queued()
            self.flush_more_later()
            self._queued += record

    def flush_more_later(self) -> None:
        """Fulfils `GroupLink`."""
        self.has_more = True
        self.flush_later()

    def flush_more(self) -> None:
        """Fulfils `LinkBatch`."""
        self.groups.flush()
        if self._queued:
            self._flush_queued()

    def _flush_queued(self) -> None:
        if not self._queued:
            return
        body = bytes(self._queued)
        self._queued.clear()
        with suppress(UnavailableError, LocalProtocolError):
            self.link.send(FrameType.QUEUED, body)
        self.note_load()

    def require_open(self, tenant_id: int) -> None:
        """Raises BadFrameError: it speaks of a tenant that it has not open."""
        if tenant_id not in self.opened:
            raise BadFrameError(f"a frame of tenant {tenant_id}, which the sender has not open")

    def readiness(self, subscription: Subscription, message: Message) -> int:
        """Fulfils `Peer`. As with `send`, QoS 0 may fill half of the link, and queues bring QoS 1 and 2 where `subscription.qos` is 0."""
        if subscription.qos == 0 if message.qos else self.is_half_full:
            return ABSENT
        readiness = self.groups.readiness(subscription, message)
        return CONGESTED if readiness == READY and self.is_full else readiness

    def send_to_group(self, tenant: TenantPlane, message: Message, group: Group) -> None:
        """Fulfils `Peer`."""
        self.groups.send(tenant, message, group, encode_routed(tenant.tenant_id, message))

    def send_frame(self, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `GroupLink`."""
        self.link.send(frame_type, body)
        self.note_load()

    def drop(self, body: bytes, reason: Drop) -> None:
        """Fulfils `LinkBatch`."""
        at = 0
        while at < len(body):
            tenant_id = tenant_of_routed(body, at)
            session = self.sessions.get(tenant_id)
            dropped: list[Message] = []
            at = decode_routed(
                body, at, tenant_id, {} if session is None else session.tenant.sessions.awake, {}, dropped
            )
            if session is not None:  # else it needs nothing of the tenant any more
                for message in dropped:
                    self.turn.drop(session.tenant, message.publisher, reason, 1)

    def set_full(self, is_full: bool) -> None:
        """Fulfils `LinkBatch`."""
        if is_full != self.is_full:
            self.is_full = is_full
            for session in self.sessions.values():
                session.tenant.sinks += 1 if is_full else -1

    # --- its routes

    def subscribe(self, tenant: TenantPlane, topic_filter: bytes, need: int) -> None:
        """Route to it what matches, from now on. `need`: see `iothub.peers.announced`."""
        session = self.sessions.get(tenant.tenant_id)
        if session is None:
            session = self.sessions[tenant.tenant_id] = Session(tenant, "", f"hub:{self.id.node}", False)
            session.is_sink = session.is_peer = True
            session.control = self
            tenant.sinks += self.is_full
        group, matched = split_share(topic_filter)
        subscription = Subscription(session, matched, group, need, retain_as_published=True)
        session.note(subscription)
        tenant.router.subscribe(subscription)

    def unsubscribe(self, tenant: TenantPlane, topic_filter: bytes) -> None:
        session = self.sessions.get(tenant.tenant_id)
        if session is not None:
            group, matched = split_share(topic_filter)
            session.forget(group, matched)
            tenant.router.unsubscribe(session, matched, group)

    def leave(self, tenant_id: int) -> None:
        """Route nothing of a tenant to it any more."""
        session = self.sessions.pop(tenant_id, None)
        if session is None:
            return
        for group, matched in list(session.subscriptions):
            session.tenant.router.unsubscribe(session, matched, group)
        session.forget_all()
        session.tenant.sinks -= self.is_full

    # --- what is announced to it

    def announce(self, frame_type: FrameType, body: bytes) -> None:
        """Send what must arrive."""
        number = self.link.announce(frame_type, body)
        if number and frame_type in ROUTE_TYPES:
            self._announced = number

    def offer(self, frame_type: FrameType, body: bytes) -> bool:
        """Announce what need not arrive; False: the link takes no more."""
        self.flush()
        try:
            self.link.send(frame_type, body)
        except UnavailableError:
            return False
        return True

    def await_applied(self, on_applied: Callable[[], None]) -> bool:
        """Call back once it has applied all `ROUTE_TYPES` that were announced to it, or is gone; False: it has."""
        if self._applied >= self._announced:
            return False
        self._waiting.append((self._announced, on_applied))
        return True

    def await_arrived(self, on_arrived: Callable[[], None]) -> bool:
        """Call back once, moreover, all has arrived that it had sent before it applied that, or it is gone; False: it has."""
        if self._arrived >= self._announced:
            return False
        self._arriving.append((self._announced, on_arrived))
        return True

    def acknowledged(self, applied: int, arrived: int) -> None:
        """It has applied the link's frames up to the first number, and nothing comes that it sent before it applied the second one."""
        self._applied, self._arrived = applied, arrived
        self.is_half_full = self.is_half_full and self.link.is_half_full()
        if self.is_full and not self.link.is_full():
            self.set_full(False)
        _call_back(self._waiting, applied)
        _call_back(self._arriving, arrived)

    def end(self) -> None:
        """It is gone: nobody waits for it, and nothing is routed to it."""
        self.flush()
        for tenant_id in list(self.sessions):
            self.leave(tenant_id)
        self.is_full = False
        self.opened.clear()
        self.groups.end()
        _call_back(self._waiting, self._announced)
        _call_back(self._arriving, self._announced)


def _call_back(waiting: Waiting, number: int) -> None:
    while waiting and waiting[0][0] <= number:
        waiting.popleft()[1]()
