"""Routes between hubs, tenant by tenant: which hub has a tenant open, what its clients need, and who waits until all hubs know it.

Knows no socket, no reactor and no SUBSCRIBE: the engine says which subscriptions there are, and links carry frames.

    a broker is made -> OPEN to all hubs -> each answers with its routes (ROUTE ...) and OPENED with its place in the session log
                     -> the log is applied here up to there -> clients of the tenant are served
    a subscription -> ROUTE to the hubs that have the tenant open, at the end of the turn -> they have applied it -> SUBACK
    a PUBLISH -> one frame to each hub with a matching route -> it matches again -> its transient sessions, and effective QoS 0
        for a shared group -> one frame to one hub with a member, if none here takes it: see `iothub.peers.groups`
    a broker is dropped -> CLOSE

Invariant: nobody is acknowledged a subscription before each hub that serves publishers of the tenant routes by it. What that hub had routed before
may arrive later, however much it is: a subscription gets nothing of that, and nobody waits for it. A hub serves no publisher of a tenant before it
has every other hub's routes. So the cost of a subscribe grows with the hubs that have the tenant open, not with all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.routed import decode_routed, tenant_of_routed
from iothub.engine.state import Session, TenantPlane
from iothub.peers.announced import EVERYTHING, QOS0, Announced, Announcement
from iothub.peers.arrived import ArrivedMessages
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.group_frames import GroupCongested, GroupNumbers, GroupPublish, decode_group_publishes
from iothub.peers.groups import Groups
from iothub.peers.known import OwnPlace
from iothub.peers.options import Change, OptionChange, Pair, TenantOptions
from iothub.peers.places import NOWHERE, Offsets, joined
from iothub.peers.ports import PeerId
from iothub.peers.route_frames import Opened, RouteChange, TenantQuestion, changes, decode_close, encode_close
from iothub.peers.routed_peer import RoutedPeer, RouteLinks

MESSAGE_TYPES = (
    FrameType.PUBLISH,
    FrameType.GROUP_PUBLISH,
    FrameType.GROUP_DONE,
    FrameType.GROUP_NONE,
    FrameType.GROUP_CONGESTED,
)
_GROUP_TYPES = (*MESSAGE_TYPES[1:], FrameType.GROUP_TAKEN)

OnDone = Callable[[], None]
OnClosedAt = Callable[[PeerId, int], None]
OnClosed = Callable[[int], None]
PlaceOf = Callable[[PeerId], Offsets]


class RouteObserver(Protocol):
    """What else depends on which hubs have a tenant open, and on what they route."""

    def peer_opened(self, peer: PeerId, tenant_id: int) -> None:
        """A hub has opened a tenant."""

    def peer_left(self, peer: PeerId, tenant_id: int, *, is_gone: bool) -> None:
        """A hub has closed a tenant that it had open. `is_gone`: it is gone, and had the tenant open, or had not said whether."""

    def retained_arrived(self, peer: PeerId, tenant_id: int, topic: bytes) -> None:
        """A message with RETAIN 1 has come from a hub, and was delivered here."""


class _OpenTenant:
    """A tenant that is open here. `unanswered`: hubs whose routes are still missing; `place`: what must be known of the log before it is served."""

    def __init__(self, tenant: TenantPlane, plane: Plane, number: int, unanswered: set[PeerId]) -> None:
        self.tenant = tenant
        self.number = number
        self.unanswered = unanswered
        self.place: Offsets = NOWHERE
        self.is_served = False
        self.waiting: list[OnDone] = []
        self.announced: Announced | None = None  # while another hub has the tenant open
        self.options = TenantOptions(tenant, plane)


class Routes(ArrivedMessages):
    """Fulfils `Receiver` of links, and what the tenants' package asks of other hubs. On the reactor thread.

    Invariants: all that is kept of a peer is in its `RoutedPeer`, and goes with it. A peer is waited for by name (`unanswered`) before it was
    ever linked, if the accounts say that it is there.
    """

    _peers: dict[PeerId, RoutedPeer]
    _tenants: dict[int, _OpenTenant]
    _observers: list[RouteObserver]
    _place_of: PlaceOf

    def __init__(
        self, links: RouteLinks, plane: Plane, call_soon: Callable[[OnDone], object], own: OwnPlace | None = None
    ) -> None:
        """`call_soon`: calls back when the running turn is over. `own`: how far the session log is known here; None: there is none."""
        super().__init__(plane, _nowhere)
        self._links = links
        self._call_soon = call_soon
        self._own = own or OwnPlace()
        self._on_closed_at: list[OnClosedAt] = []
        self._on_closed: list[OnClosed] = []
        self._groups = Groups(plane, call_soon)
        self._members: frozenset[PeerId] = frozenset()
        self._at_node: dict[int, RoutedPeer] = {}  # those of `_peers`, by node number
        self._changed: dict[int, _OpenTenant] = {}
        self._is_called_soon = False
        self._number = 0

    def follow(self, place_of: PlaceOf) -> None:
        """Ask this how far another hub has said that it has applied the session log; at composition."""
        self._place_of = place_of

    def observe(self, observer: RouteObserver) -> None:
        """Notify `observer` from now on; at composition."""
        self._observers.append(observer)

    def watch(self, on_closed_at: OnClosedAt, on_closed: OnClosed) -> None:
        """Call with a hub and a tenant that it has closed, and with each tenant that is closed here; at composition."""
        self._on_closed_at.append(on_closed_at)
        self._on_closed.append(on_closed)

    # --- who there is

    def peer(self, peer: PeerId) -> RoutedPeer | None:
        """Return a hub that was linked and is not gone."""
        return self._peers.get(peer)

    def at_node(self, node: int) -> RoutedPeer | None:
        """Return the hub with a node number, if it was linked and is not gone."""
        return self._at_node.get(node)

    def having_open(self, tenant_id: int) -> list[RoutedPeer]:
        """Return the hubs that have a tenant open."""
        return [peer for peer in self._peers.values() if tenant_id in peer.opened]

    def members(self, peers: Iterable[PeerId]) -> None:
        """Say which hubs there are, without this one, as the accounts have it: each is waited for, linked or not."""
        former, self._members = self._members, frozenset(peers)
        known = self._members.union(self._peers)
        if former - known:  # never linked, and gone: nobody says what it knew
            self._own.note_gone()
        for here in list(self._tenants.values()):
            self._lost(here, here.unanswered - known)

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: announce to a new peer every tenant that is open here."""
        added = RoutedPeer(peer, self._links.link_to(peer), self._plane.turn, self._groups)
        self._peers[peer] = self._at_node[peer.node] = added
        for here in list(self._tenants.values()):
            if not here.is_served:
                here.unanswered.add(peer)
                self._lost(here, {each for each in here.unanswered if each.node == peer.node and each < peer})
            added.announce(FrameType.OPEN, TenantQuestion(here.tenant.tenant_id, here.number).encode())

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: it never comes back, and nobody waits for it. The observer hears it before those who waited go on."""
        gone = self._peers.pop(peer, None)
        if gone is None:
            return
        if self._at_node.get(peer.node) is gone:
            del self._at_node[peer.node]
        self._members -= {peer}
        self._own.note_gone()
        opened = list(gone.opened)
        for tenant_id in opened:
            self._note_left(peer, tenant_id, is_gone=True)
        gone.end()
        for here in list(self._tenants.values()):
            self._lost(here, {peer})
        for tenant_id in opened:
            self._stop_announcing(tenant_id)

    def acknowledged(self, peer: PeerId, applied: int, arrived: int) -> None:
        """A peer has applied frames of its link: `OnAcknowledged`."""
        found = self._peers.get(peer)
        if found is not None:
            found.acknowledged(applied, arrived)

    # --- tenants here

    def open_tenant(self, tenant: TenantPlane) -> None:
        """A tenant is about to have clients here: announce it to every hub, and ask each for its routes."""
        self._number += 1
        here = _OpenTenant(tenant, self._plane, self._number, set(self._members.union(self._peers)))
        self._tenants[tenant.tenant_id] = here
        if self.opened_at(tenant.tenant_id):
            self._announce(here)
        body = TenantQuestion(tenant.tenant_id, here.number).encode()
        for peer in self._peers.values():
            peer.announce(FrameType.OPEN, body)
        self._answered(here)

    def close_tenant(self, tenant: TenantPlane) -> None:
        """A tenant has nobody here any more."""
        here = self._tenants.get(tenant.tenant_id)
        if here is None or here.tenant is not tenant:
            return
        del self._tenants[tenant.tenant_id]
        self._forget_announced(here)
        body = encode_close(tenant.tenant_id)
        for peer in self._peers.values():
            peer.leave(tenant.tenant_id)
            peer.groups.close_tenant(tenant)
            peer.announce(FrameType.CLOSE, body)
        for on_closed in self._on_closed:
            on_closed(tenant.tenant_id)
        self._serve(here)

    def is_opened(self, tenant: TenantPlane) -> bool:
        here = self._tenants.get(tenant.tenant_id)
        return here is None or here.is_served

    def await_opened(self, tenant: TenantPlane, on_done: OnDone) -> bool:
        """Call back once every hub has answered or is gone, and what they know is known here: before that nobody may publish.

        False: there is nobody to wait for.
        """
        if self.is_opened(tenant):
            return False
        self._tenants[tenant.tenant_id].waiting.append(on_done)
        return True

    def await_routed(self, tenant: TenantPlane, filters: Iterable[bytes], on_done: OnDone) -> bool:
        """Call back once every hub that has the tenant open routes by these Topic Filters, or is gone. False: there is nobody to wait for."""
        here = self._tenants.get(tenant.tenant_id)
        if here is None or here.announced is None:
            return False
        awaited = here.announced.on_their_way(filters)
        if not awaited:
            return False
        left = len(awaited)

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                on_done()

        for announcement in awaited:
            announcement.waiting.append(done)
        return True

    def change_options(self, session: Session, pairs: Iterable[Pair]) -> OptionChange | None:
        """Subscriptions of a persistent session are about to change in the log; None: nothing depends on what another hub knows of it."""
        here = self._tenants.get(session.tenant.tenant_id)
        changed = [pair for pair in pairs if (pair[0] or pair[1]) is not None]
        if here is None or here.tenant is not session.tenant or not changed:
            return None
        options, tenant = here.options, here.tenant
        change = Change(session, changed, {peer.id: self._place_of(peer.id) for peer in self._peers.values()})
        options.begin(change)
        return OptionChange(options, change, lambda on_done: self.await_routed(tenant, change.filters(), on_done))

    def await_changes(self, session: Session, on_done: Callable[[], None]) -> bool:
        """Call back once every hub knows what changes of a session's subscriptions. False: nothing changes."""
        here = self._tenants.get(session.tenant.tenant_id)
        return here is not None and here.options.await_changes(session, on_done)

    # --- for what else hubs say to each other of a tenant: fulfils `TenantPeers`

    def is_open(self, tenant_id: int) -> bool:
        return tenant_id in self._tenants

    def tenant(self, tenant_id: int) -> TenantPlane | None:
        """Return a tenant that is open here."""
        here = self._tenants.get(tenant_id)
        return None if here is None else here.tenant

    def opened_at(self, tenant_id: int) -> list[PeerId]:
        return [peer.id for peer in self.having_open(tenant_id)]

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        found = self._peers.get(peer)
        if found is not None:
            found.announce(frame_type, body)

    def hold(self, tenant_id: int, *, is_held: bool) -> None:
        here = self._tenants.get(tenant_id)
        if here is not None:
            self._plane.hold_publishers_of(here.tenant, is_held)

    # --- what other hubs say

    def _take_other(self, sender: RoutedPeer, frame_type: FrameType, body: bytes) -> None:
        if frame_type in _GROUP_TYPES:
            self._take_group_frame(sender, frame_type, body)
        elif frame_type == FrameType.ROUTE:
            self._take_routes(sender, RouteChange.decode(body))
        elif frame_type == FrameType.OPEN:
            self._take_open(sender, TenantQuestion.decode(body))
        elif frame_type == FrameType.OPENED:
            self._take_opened(sender, Opened.decode(body))
        else:
            tenant_id = decode_close(body)
            sender.leave(tenant_id)
            if tenant_id in sender.opened:
                sender.opened.discard(tenant_id)
                self._stop_announcing(tenant_id)
                self._note_left(sender.id, tenant_id, is_gone=False)
            for on_closed_at in self._on_closed_at:
                on_closed_at(sender.id, tenant_id)

    def _take_group_frame(self, sender: RoutedPeer, frame_type: FrameType, body: bytes) -> None:
        groups = sender.groups
        if frame_type == FrameType.GROUP_PUBLISH:
            self._take_group_messages(sender, body)
        elif frame_type == FrameType.GROUP_DONE:
            groups.take_done(GroupNumbers.decode(body))
        elif frame_type == FrameType.GROUP_NONE:
            groups.take_none(GroupNumbers.decode(body))
        elif frame_type == FrameType.GROUP_TAKEN:
            groups.take_taken(GroupNumbers.decode(body))
        else:
            groups.take_congested(GroupCongested.decode(body))

    def _take_group_messages(self, sender: RoutedPeer, body: bytes) -> None:
        """Nothing of a frame is delivered that cannot be read to its end: it comes again."""
        arrived = [(publish, *self._read_group_message(sender, publish)) for publish in decode_group_publishes(body)]
        self._plane.turn.begin()  # whoever feeds the link ends the batch
        for publish, here, message in arrived:
            if here is None:  # its last client has left since
                sender.groups.refuse(publish)
            else:
                sender.groups.take_publish(here.tenant, message, publish)

    def _read_group_message(self, sender: RoutedPeer, publish: GroupPublish) -> tuple[_OpenTenant | None, Message]:
        tenant_id = tenant_of_routed(publish.routed, 0)
        sender.require_open(tenant_id)
        here = self._tenants.get(tenant_id)
        messages: list[Message] = []
        sessions, known = ({}, {}) if here is None else (here.tenant.sessions.awake, here.tenant.router.cache.young)
        end = decode_routed(publish.routed, 0, tenant_id, sessions, known, messages)
        if end != len(publish.routed) or len(messages) != 1 or not publish.fits(messages[0]):
            raise BadFrameError(f"a GROUP_PUBLISH of tenant {tenant_id} that cannot be read")
        return here, messages[0]

    def _take_open(self, sender: RoutedPeer, asked: TenantQuestion) -> None:
        sender.opened.add(asked.tenant_id)
        for observer in self._observers:
            observer.peer_opened(sender.id, asked.tenant_id)
        here = self._tenants.get(asked.tenant_id)
        if here is not None:
            announced = self._announce(here)
            everything, qos0 = announced.filters(EVERYTHING), announced.filters(QOS0)
            for body in changes(asked.tenant_id, everything, qos0, is_whole=True):
                sender.announce(FrameType.ROUTE, body)
        answer = Opened(asked.tenant_id, asked.number, here is not None, self._own.known())
        sender.announce(FrameType.OPENED, answer.encode())

    def _take_opened(self, sender: RoutedPeer, answer: Opened) -> None:
        here = self._tenants.get(answer.tenant_id)
        if here is None or here.number != answer.number:
            return  # it has been closed since
        if not answer.is_open:
            sender.leave(answer.tenant_id)
        here.place = joined(here.place, answer.place)
        self._answered(here, sender.id)

    def _take_routes(self, sender: RoutedPeer, change: RouteChange) -> None:
        sender.require_open(change.tenant_id)
        here = self._tenants.get(change.tenant_id)
        if here is None:
            return
        if change.is_whole:
            sender.leave(change.tenant_id)
        for topic_filter in change.everything:
            sender.subscribe(here.tenant, topic_filter, EVERYTHING)
        for topic_filter in change.qos0:
            sender.subscribe(here.tenant, topic_filter, QOS0)
        for topic_filter in change.removed:
            sender.unsubscribe(here.tenant, topic_filter)

    def _lost(self, here: _OpenTenant, peers: set[PeerId]) -> None:
        """These hubs are gone, and have not answered if they were asked."""
        for peer in here.unanswered & peers:
            self._note_left(peer, here.tenant.tenant_id, is_gone=True)
        self._answered(here, *peers)

    def _note_left(self, peer: PeerId, tenant_id: int, *, is_gone: bool) -> None:
        for observer in self._observers:
            observer.peer_left(peer, tenant_id, is_gone=is_gone)

    def _answered(self, here: _OpenTenant, *peers: PeerId) -> None:
        """These hubs have answered, or are gone."""
        here.unanswered.difference_update(peers)
        if not (here.unanswered or here.is_served or self._own.await_applied(here.place, lambda: self._answered(here))):
            self._serve(here)

    def _serve(self, here: _OpenTenant) -> None:
        """Clients of the tenant may publish."""
        here.is_served = True
        waiting, here.waiting = here.waiting, []
        for on_done in waiting:
            on_done()

    # --- what is announced to other hubs

    def _announce(self, here: _OpenTenant) -> Announced:
        """Count the subscriptions of a tenant from now on: another hub has it open."""
        if here.announced is None:
            tenant = here.tenant
            here.announced = tenant.interest = Announced(tenant, lambda: self._note_change(here))
            for held in here.options.held():
                here.announced.replace(None, held)
        return here.announced

    def _stop_announcing(self, tenant_id: int) -> None:
        """A hub has closed the tenant: after the last one nothing is announced."""
        here = self._tenants.get(tenant_id)
        if here is None or here.announced is None:
            return
        if not self.opened_at(tenant_id):
            self._forget_announced(here)

    def _forget_announced(self, here: _OpenTenant) -> None:
        announced, here.announced = here.announced, None
        here.tenant.interest = here.tenant.routing = None
        if announced is not None and announced.next is not None:
            announced.forget(announced.next)
            self._call_waiting(announced.next)

    def _note_change(self, here: _OpenTenant) -> None:
        self._changed[here.tenant.tenant_id] = here
        if not self._is_called_soon:
            self._is_called_soon = True
            self._call_soon(self._announce_changes)

    def _announce_changes(self) -> None:
        """Announce what has changed in the turn: one ROUTE for each tenant and hub, encoded once for all hubs."""
        self._is_called_soon = False
        changed, self._changed = self._changed, {}
        for here in changed.values():
            if here.announced is not None:
                self._announce_changes_of(here.tenant.tenant_id, here.announced)

    def _announce_changes_of(self, tenant_id: int, announced: Announced) -> None:
        announcement, announced.next = announced.next, None
        if announcement is None:
            return
        bodies = list(changes(tenant_id, *announced.take_changes()))
        unanswered: set[PeerId] = set()
        behind: set[PeerId] = set()
        announcement.unanswered, announcement.behind = unanswered, behind
        for peer in self.having_open(tenant_id):
            for body in bodies:
                peer.announce(FrameType.ROUTE, body)
            if peer.await_applied(partial(self._applied, announcement, peer.id)):
                unanswered.add(peer.id)
            if peer.await_arrived(partial(self._arrived, announced, announcement, peer.id)):
                behind.add(peer.id)
        if not unanswered:
            self._call_waiting(announcement)
        if not behind:
            announced.forget(announcement)

    def _applied(self, announcement: Announcement, peer: PeerId) -> None:
        if announcement.unanswered:
            announcement.unanswered.discard(peer)
            if not announcement.unanswered:
                self._call_waiting(announcement)

    def _arrived(self, announced: Announced, announcement: Announcement, peer: PeerId) -> None:
        if announcement.behind:
            announcement.behind.discard(peer)
            if not announcement.behind:
                announced.forget(announcement)

    def _call_waiting(self, announcement: Announcement) -> None:
        waiting, announcement.waiting = announcement.waiting, []
        for on_done in waiting:
            on_done()


def _nowhere(_peer: PeerId) -> Offsets:
    return NOWHERE
