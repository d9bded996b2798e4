"""All links of this hub: who is dialled, whose HELLO is accepted or refused, and which link carries what.

Knows no socket and no reactor: a `Dialer` connects, wires bring bytes, and `tick` brings the time: at `due`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from iothub.base.clock import BootClock, SystemClock
from iothub.base.errors import UnavailableError
from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.peers import admission, frames
from iothub.peers.cluster_clock import HubClock
from iothub.peers.connection import Connection
from iothub.peers.frames import BadFrameError, FrameType, Hello
from iothub.peers.known_peer import KnownPeer
from iothub.peers.link import Link, OnAcknowledged
from iothub.peers.numbered import NOT_DUE
from iothub.peers.ports import (
    Dialer,
    Identity,
    LinkObserver,
    LinkSettings,
    LinkStatus,
    PeerAddress,
    PeerId,
    Receiver,
    Wire,
    WireOwner,
)
from iothub.peers.receivers import Receivers

CONNECT_S = 2.0
HELLO_S = 2.0
STRANGERS = 64  # connections that have not said HELLO
HELD_S = 2.0  # a link that breaks sooner counts as a failed attempt


def _machine_clock() -> HubClock:
    return HubClock(SystemClock.wall(), SystemClock.wall())


def _tell_nobody() -> None:
    """Somebody calls `tick` each few milliseconds."""


class Links:
    """Every link of this hub.

    Invariants: a node has one incarnation at a time; what is kept of an earlier one is gone before a frame of the next is taken,
    and an incarnation that is gone is never linked again. A peer has one connection at a time whose bytes are read: an earlier one
    is closed unread before it is said what has been applied, or frames applied in between would be sent again under the wrong count.
    """

    def __init__(
        self,
        me: Identity,
        settings: LinkSettings,
        clock: BootClock,
        rng: random.Random,
        dialer: Dialer,
        observer: LinkObserver,
        tell_clock: Callable[[], HubClock] = _machine_clock,
        on_change: Callable[[], None] = _tell_nobody,
    ) -> None:
        """`tell_clock`: what time it is here, as Unix times. `on_change`: called after whatever may move `due`, but for `tick`."""
        self._me = me
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._dialer = dialer
        self._observer = observer
        self._tell_clock = tell_clock
        self._on_change = on_change
        self._receivers = Receivers()
        self._watchers: list[OnAcknowledged] = []
        self._peers: dict[int, KnownPeer] = {}
        self._floors: dict[int, int] = {}  # node -> the least incarnation that is not gone
        self._strangers: dict[Connection, None] = {}  # accepted, oldest first
        self._is_closed = False

    def register(self, types: Iterable[FrameType], receiver: Receiver, *, is_waited_for: bool = False) -> None:
        """Give reliable frames of these types to `receiver`. Before the first wire: what is registered stands in every HELLO.

        `is_waited_for`: somebody waits for the acknowledgement, so it leaves in the turn in which the frame is applied.
        """
        for frame_type in types:
            self._receivers.by_type[frame_type] = (receiver, is_waited_for)

    def watch(self, on_acknowledged: OnAcknowledged) -> None:
        """Call as `OnAcknowledged` says, after each acknowledgement of a peer and at the begin of a connection."""
        self._watchers.append(on_acknowledged)

    def members(self, peers: Sequence[PeerAddress]) -> None:
        """Say who there is now, by the accounts' rows: dial those with a higher node number, forget those that are there no more.

        Invariant: looks at the rows follow one another, and a hub has its row before it says HELLO. So one that is known by its HELLO alone
        may be missing in the look that was under way, and not in the next one: then it was expelled before this hub had ever seen its row.
        """
        now = self._clock.boottime()
        listed = {row.node: row for row in peers if row.node != self._me.node}
        for row in listed.values():
            self._note_row(row, now)
        for peer in list(self._peers.values()):
            row_of_it = listed.get(peer.id.node)
            if row_of_it is None or row_of_it.incarnation != peer.id.incarnation:
                peer.looks_left -= 1
                if peer.looks_left <= 0:
                    self._forget(peer)
        self.changed()

    # Fulfils `iothub.peers.membership.MemberLinks`.

    def linked(self) -> tuple[PeerId, ...]:
        """Return the peers that were ever linked, up or not."""
        return tuple(peer.id for peer in self._peers.values() if peer.link is not None)

    def is_linked(self, peer: PeerId) -> bool:
        known = self._known(peer)
        return known is not None and known.is_up

    def down_for(self, peer: PeerId) -> float:
        """Return for how many seconds the link has been down, from when the peer was known; infinity: it is not."""
        known = self._known(peer)
        return float("inf") if known is None else self._clock.boottime() - known.since

    def mute(self, peer: PeerId) -> None:
        """Answer nothing of a peer, neither HELLO nor ping, and do not say why."""
        known = self._known(peer)
        if known is not None:
            known.is_muted = True
            self._shut(known)
            self.changed()

    def unmute(self, peer: PeerId) -> None:
        known = self._known(peer)
        if known is not None:
            known.is_muted = False
            self.changed()

    def expel(self, peer: PeerId) -> None:
        """Answer a peer that it is gone, and nothing else, also if it has never been linked. What waits for it is kept until `drop`."""
        known = self._known(peer)
        if known is not None:
            known.is_expelled, known.is_muted = True, False
            self._shut(known)
        else:
            self._link_none_up_to(peer)
        self.changed()

    def drop(self, peer: PeerId) -> None:
        """Go on without a peer, for good."""
        known = self._known(peer)
        if known is not None:
            self._forget(known)
        else:
            self._link_none_up_to(peer)
        self.changed()

    def _link_none_up_to(self, peer: PeerId) -> None:
        self._floors[peer.node] = max(self._floors.get(peer.node, 0), peer.incarnation + 1)

    def accepted(self, wire: Wire) -> WireOwner:
        """Return the owner of a wire that the listener has accepted."""
        connection = Connection(self, wire, None, self._clock.boottime() + HELLO_S)
        if self._is_closed:
            connection.close()
            return connection
        if len(self._strangers) >= STRANGERS:  # a peer says HELLO within milliseconds, so the oldest is none
            self._refuse(next(iter(self._strangers)), PeerRefusal.OVERLOAD, f"{STRANGERS} connections without HELLO")
        self._strangers[connection] = None
        self.changed()
        return connection

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        """Send a reliable frame, now or when the link is up again: it is kept until it is acknowledged or the peer is gone.

        Returns its number: the peer has applied it when `watch` says this number or a higher one.
        Raises UnavailableError: this incarnation was never linked, or is gone, or does not understand the type, or twice `link_bytes` wait
        for it. LocalProtocolError: the frame is too large.
        """
        return self.link_to(peer).send(frame_type, body)

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        """Send a reliable frame that must arrive: in the order of the calls, behind what `Link.flush` sends, however much waits.

        Returns its number as `send`. 0: the peer's HELLO does not name the type, so it is left out; or it was never linked, or is gone.
        Raises LocalProtocolError: the frame is too large.
        """
        link = self._link(peer)
        if link is None:
            return 0
        return link.announce(frame_type, body)

    def link_to(self, peer: PeerId) -> Link:
        """Return the link of a peer that was linked and is not gone: for who sends it much. It refuses everything once it is gone."""
        link = self._link(peer)
        if link is None:
            raise UnavailableError(f"no link to peer {peer.node}, incarnation {peer.incarnation}")
        return link

    def up(self) -> tuple[PeerId, ...]:
        """Return the peers whose link is up."""
        return tuple(peer.id for peer in self._peers.values() if peer.is_up)

    def evidence_age(self, peer: PeerId) -> float:
        """Return the seconds since the sending of the last ping that this peer has echoed; infinity without one."""
        link = self._link(peer)
        return float("inf") if link is None else self._clock.boottime() - link.evidence

    def clocks(self) -> dict[PeerId, HubClock]:
        """Return what time it is at the peers that have said it, linked now or not."""
        links = [peer.link for peer in self._peers.values() if peer.link is not None]
        return {link.peer: link.peer_clock for link in links if link.peer_clock is not None}

    def are_clocks_known(self) -> bool:
        """Tell whether every peer that is linked has said what time it is there; those that cannot are passed over."""
        return not any(
            peer.link.is_clock_unknown for peer in self._peers.values() if peer.link is not None and peer.is_up
        )

    def is_full(self, peer: PeerId) -> bool:
        """As `Link.is_full`; one that is not there is not."""
        link = self._link(peer)
        return link is not None and link.is_full()

    def needs_ticks(self) -> bool:
        """Tell whether anything can be due: a hub that is alone has no timer."""
        return bool(self._peers or self._strangers)

    def changed(self) -> None:
        """Say that `due` may have moved. Called by connections, and by what is called from outside here."""
        if self._peers or self._strangers:
            self._on_change()

    def due(self) -> float:
        """Return when `tick` has something to do, if nothing changes; infinity: never."""
        dues = [connection.deadline for connection in self._strangers]
        dues += map(self._due_of, self._peers.values())
        return min(dues, default=NOT_DUE)

    def tick(self, now: float) -> None:
        """Do what is due: pings, acknowledgements, silence, dialling. `now`: of `boottime`."""
        for connection in [each for each in self._strangers if now > each.deadline]:
            self._refuse(connection, PeerRefusal.TIMEOUT, f"no HELLO within {HELLO_S:.0f} s")
        for peer in list(self._peers.values()):
            if self._peers.get(peer.id.node) is peer:
                self._tick_peer(peer, now)

    def close(self) -> None:
        """Say that this hub stops, and close every link; what is unacknowledged is forgotten."""
        self._is_closed = True
        for connection in list(self._strangers):
            connection.close()
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                if peer.is_up:
                    peer.connection.wire.write(frames.encode(FrameType.LEAVING, b""))
                self._end(peer.connection, LinkClose.CLOSED, "")
            if peer.link is not None:
                peer.link.end()
        self._strangers.clear()
        self._peers.clear()

    def status(self) -> list[LinkStatus]:
        """Return what is known of each peer, by node number."""
        now = self._clock.boottime()
        return [self._peers[node].status(now) for node in sorted(self._peers)]

    def take_hello(self, connection: Connection, hello: Hello) -> None:
        """Link a peer that has said who it is, or refuse it by name. Called by connections alone."""
        found = self._fault_of(connection, hello)
        if found is not None:
            connection.node = hello.node if connection.node is None else connection.node
            return self._refuse(connection, *found)
        connection.node = hello.node
        peer = self._meet(connection, hello)
        if peer.is_muted:
            return self._end(connection, LinkClose.CLOSED, "")
        applied_by_peer = 0
        if hello.knows is not None and hello.knows[0] == self._me.incarnation:
            applied_by_peer = hello.knows[1]
        is_new = peer.link is None
        link = peer.link
        if link is None:
            tell = self._tell_clock if hello.protocol >= frames.CLOCK_PROTOCOL else None
            link = Link(
                peer.id,
                frozenset(hello.features),
                self._settings,
                self._clock,
                self._receivers,
                self._acknowledged,
                tell,
                self.changed,
            )
        if not link.can_resume(applied_by_peer):
            return self._refuse(connection, PeerRefusal.NUMBERS, f"frame {applied_by_peer} cannot be its last one")
        peer.link = link
        self._begin(peer, link, connection, applied_by_peer)
        if is_new:
            for receiver in self._receivers.all():
                receiver.peer_up(peer.id)
        return None

    def take_refusal(self, connection: Connection, refusal: PeerRefusal, detail: str) -> None:
        """Note that the other side refuses this hub. Called by connections alone."""
        self._note_refusal(connection, refusal, detail, by_peer=True)
        self._end(connection, LinkClose.REFUSED, refusal.value)

    def take_leaving(self, connection: Connection) -> None:
        """Note that the peer stops: it is not dialled any more, and its row will say the rest. Called by connections alone."""
        peer = self._peers.get(connection.node) if connection.node is not None else None
        if peer is not None and peer.connection is connection:
            peer.has_left = True
        self._end(connection, LinkClose.LEFT, "")

    def take_bad_frame(self, connection: Connection, error: BadFrameError) -> None:
        """Close a connection whose other side breaks the protocol, and say why. Called by connections alone."""
        self._refuse(connection, PeerRefusal.MALFORMED, str(error))

    def take_loss(self, connection: Connection, reason: str) -> None:
        """Note that a connection is lost. Called by connections alone."""
        self._end(connection, LinkClose.LOST, reason)

    def _fault_of(self, connection: Connection, hello: Hello) -> tuple[PeerRefusal, str] | None:
        known, dialled = self._peers.get(hello.node), connection.dialled
        return (
            admission.fault_of_identity(self._me, hello, connection.wire.certified_node)
            or admission.fault_of_way(self._me, hello, dialled.node if dialled is not None else None)
            or admission.fault_of_incarnation(
                hello, known.id.incarnation if known is not None else 0, self._floor(hello.node)
            )
        )

    def _meet(self, connection: Connection, hello: Hello) -> KnownPeer:
        """Return the peer that has said HELLO. An earlier incarnation of it is gone."""
        known = self._peers.get(hello.node)
        if known is not None and known.id.incarnation == hello.incarnation:
            known.name = hello.name
            return known
        address = connection.wire.address
        if known is not None:
            address = known.address
            if known.connection is connection:
                known.connection = None  # it is the new one's
            self._forget(known)
        return self._add_peer(PeerId(hello.node, hello.incarnation), hello.name, address, self._clock.boottime())

    def _begin(self, peer: KnownPeer, link: Link, connection: Connection, applied_by_peer: int) -> None:
        if peer.connection is not None and peer.connection is not connection:
            self._end(peer.connection, LinkClose.RELINKED, "")  # unread, before it is said what has been applied
        self._strangers.pop(connection, None)
        peer.connection = connection
        peer.refusal = None
        peer.since = self._clock.boottime()
        connection.begin(link, self._settings.frame_bytes)
        if connection.dialled is None:
            connection.wire.write(self._hello(peer))
        link.attach(connection.wire, applied_by_peer, peer.since)
        self._observer.link_up(peer.id, peer.name, peer.address)

    def _acknowledged(self, peer: PeerId, applied: int, arrived: int) -> None:
        for watcher in self._watchers:
            watcher(peer, applied, arrived)

    def _refuse(self, connection: Connection, refusal: PeerRefusal, detail: str) -> None:
        self._note_refusal(connection, refusal, detail, by_peer=False)
        connection.wire.write(frames.refused_frame(refusal.value, detail))
        self._end(connection, LinkClose.BAD_FRAME, detail)

    def _note_refusal(self, connection: Connection, refusal: PeerRefusal, detail: str, *, by_peer: bool) -> None:
        peer = self._peers.get(connection.node) if connection.node is not None else None
        if peer is not None and not (peer.is_up and peer.connection is not connection):
            peer.refusal = refusal
            if peer.connection is connection:
                peer.backoff.note_refusal(self._clock.boottime())
        self._observer.refused(connection.node, connection.wire.address, refusal, detail, by_peer=by_peer)

    def _end(self, connection: Connection, reason: LinkClose, detail: str) -> None:
        """Close a connection; its peer is dialled again when it is due."""
        connection.close()
        self._strangers.pop(connection, None)
        peer = self._peers.get(connection.node) if connection.node is not None else None
        if peer is None or peer.connection is not connection:
            return
        now = self._clock.boottime()
        peer.connection = None
        was_up = peer.is_up
        if was_up and now - peer.since >= HELD_S:
            peer.backoff.note_success()
        if peer.backoff.due <= now:
            peer.backoff.note_failure(now)
        if was_up and peer.link is not None:
            peer.link.detach()
            peer.since = now
            self._observer.link_down(peer.id, reason, detail)

    def _forget(self, peer: KnownPeer) -> None:
        """Give up an incarnation for good, and by name what it has not acknowledged."""
        if peer.connection is not None:
            self._end(peer.connection, LinkClose.PEER_GONE, "")
        del self._peers[peer.id.node]
        self._floors[peer.id.node] = peer.id.incarnation + 1
        frames_left, bytes_left = 0, 0
        if peer.link is not None:
            frames_left, bytes_left = peer.link.unacknowledged_frames, peer.link.unacknowledged_bytes
            peer.link.end()
        self._observer.peer_gone(peer.id, frames_left, bytes_left)
        if peer.link is not None:
            for receiver in self._receivers.all():
                receiver.peer_gone(peer.id)

    def _note_row(self, row: PeerAddress, now: float) -> None:
        peer = self._peers.get(row.node)
        if row.incarnation < max(self._floors.get(row.node, 0), peer.id.incarnation if peer is not None else 0):
            return  # the row was read before the peer came again
        if peer is not None and peer.id.incarnation < row.incarnation:
            self._forget(peer)
            peer = None
        if peer is None:
            peer = self._add_peer(PeerId(row.node, row.incarnation), row.name, row.address, now)
        peer.name, peer.address, peer.looks_left = row.name, row.address, 1
        self._dial_if_due(peer, now)

    def _add_peer(self, peer: PeerId, name: str, address: str, now: float) -> KnownPeer:
        added = self._peers[peer.node] = KnownPeer(peer, name, address, self._rng, now)
        return added

    def _tick_peer(self, peer: KnownPeer, now: float) -> None:
        connection = peer.connection
        if connection is None:
            self._dial_if_due(peer, now)
        elif connection.link is None:
            if now > connection.deadline:
                self._end(connection, LinkClose.LOST, f"no HELLO within {HELLO_S:.0f} s")
        elif connection.link.is_silent(now):
            self._end(connection, LinkClose.SILENT, "")
        else:
            connection.link.tick(now)

    def _due_of(self, peer: KnownPeer) -> float:
        connection = peer.connection
        if connection is None:
            return peer.backoff.due if self._is_to_be_dialled(peer) else NOT_DUE
        return connection.deadline if connection.link is None else connection.link.due

    def _is_to_be_dialled(self, peer: KnownPeer) -> bool:
        """One that is expelled is, so it hears that it is gone."""
        is_free = peer.connection is None and not peer.is_dialled
        return is_free and peer.id.node >= self._me.node and not (peer.is_muted or peer.has_left)

    def _dial_if_due(self, peer: KnownPeer, now: float) -> None:
        if now < peer.backoff.due or not self._is_to_be_dialled(peer):
            return
        peer.is_dialled = True
        address = PeerAddress(peer.id.node, peer.id.incarnation, peer.name, peer.address)
        self._dialer.dial(address, partial(self._dialled, peer), partial(self._not_dialled, peer))

    def _dialled(self, peer: KnownPeer, wire: Wire) -> WireOwner:
        """Say HELLO on a wire that was dialled, if the peer is still wanted."""
        peer.is_dialled = False
        connection = Connection(self, wire, peer.id, self._clock.boottime() + HELLO_S)
        if self._peers.get(peer.id.node) is not peer or peer.connection is not None:
            connection.close()
            return connection
        peer.connection = connection
        wire.write(self._hello(peer))
        self.changed()
        return connection

    def _not_dialled(self, peer: KnownPeer, _reason: str) -> None:
        peer.is_dialled = False
        peer.backoff.note_failure(self._clock.boottime())
        self.changed()

    def _hello(self, peer: KnownPeer) -> bytes:
        me, link = self._me, peer.link
        features = tuple(sorted(int(each) for each in self._receivers.by_type))
        knows = (peer.id.incarnation, link.applied) if link is not None else None
        return Hello(
            frames.PROTOCOL, me.installation, me.node, me.incarnation, me.name, me.version, features, knows
        ).encode()

    def _known(self, peer: PeerId) -> KnownPeer | None:
        known = self._peers.get(peer.node)
        return known if known is not None and known.id == peer else None

    def _floor(self, node: int) -> int:
        """Return the least incarnation of a node that is not gone."""
        known = self._peers.get(node)
        return known.id.incarnation + 1 if known is not None and known.is_expelled else self._floors.get(node, 0)

    def _shut(self, peer: KnownPeer) -> None:
        if peer.connection is not None:
            self._end(peer.connection, LinkClose.PEER_GONE, "")

    def _link(self, peer: PeerId) -> Link | None:
        known = self._known(peer)
        return known.link if known is not None else None
