"""Messages of shared groups between this hub and one other: those that were sent there, and those that came from there for members here.

Knows no router and no other hub: `iothub.peers.groups` chooses anew. Kept for one incarnation, as the `RoutedPeer` that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from iothub.base.errors import LocalProtocolError, UnavailableError
from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.ports import ABSENT, CONGESTED, READY
from iothub.engine.router import Group, Subscription
from iothub.engine.state import Session, TenantPlane
from iothub.peers.frames import FrameType
from iothub.peers.group_frames import GroupCongested, GroupNumbers, GroupPublish, in_frames
from iothub.peers.groups import Groups, Kept
from iothub.peers.ports import PeerId

CONGESTED_S = 1.0
"""So long a group's members at a hub count as congested when that hub has said so: a client that reads again needs no frame."""
_CONGESTED_GROUPS = 1_024  # of which this is known

_GroupKey = tuple[int, bytes, bytes]


class GroupLink(Protocol):
    """What is asked of the link. Fulfilled by `iothub.peers.routed_peer`."""

    id: PeerId
    batch_bytes: int

    def flush_more_later(self) -> None:
        """Call `PeerGroups.flush` when the turn ends, or before anything is announced."""
        ...

    def send_frame(self, frame_type: FrameType, body: bytes) -> None:
        """Raises UnavailableError: the link takes no more; LocalProtocolError: the frame is too large."""
        ...

    def announce(self, frame_type: FrameType, body: bytes) -> None:
        """Send, in order; what the link does not take now waits."""
        ...

    def await_applied(self, on_applied: Callable[[], None]) -> bool:
        """Call back once the hub has applied all that was announced and is waited for, or is gone. False: it has."""
        ...


class Arrival:
    """A message from the other hub, for one member here; fulfils the engine's `GroupArrival`. `number`: that hub's, 0 for QoS 0.

    `is_taken`: the other hub knows that a client here may have it, with QoS 2; before it does, `member` waits for it.
    """

    __slots__ = ("_peer", "filter", "is_taken", "member", "message", "name", "number", "tenant")

    def __init__(self, peer: PeerGroups, tenant: TenantPlane, message: Message, publish: GroupPublish) -> None:
        self._peer = peer
        self.number = publish.number
        self.tenant = tenant
        self.message = message
        self.name = publish.name
        self.filter = publish.filter
        self.is_taken = False
        self.member: Subscription | None = None

    def done(self) -> None:
        self._peer.finish(self)

    def returned(self) -> None:
        self._peer.place(self)


class PeerGroups:
    """One other hub.

    Invariants: each arrival with a number is answered once, DONE or NONE, unless the hub that sent it is gone: then it is this hub's own.
    With QoS 2 no client gets one before that hub has acknowledged GROUP_TAKEN.
    """

    def __init__(self, groups: Groups, link: GroupLink) -> None:
        self._groups = groups
        self._plane = groups.plane
        self._link = link
        self._is_gone = False
        self._kept: dict[int, Kept] = {}
        self._batch = bytearray()  # records of messages, until the turn ends
        self._batched: list[tuple[TenantPlane, Message, int]] = []  # whose those are, with their numbers
        self._congested_until: dict[_GroupKey, float] = {}
        self._arrivals: dict[int, Arrival] = {}
        self._said_congested: dict[_GroupKey, float] = {}
        self._done: list[int] = []  # to be answered at the end of the turn, as the next three
        self._none: list[int] = []
        self._full: list[int] = []
        self._taken: list[Arrival] = []
        self._is_answering = False

    # --- to members at the other hub

    def readiness(self, subscription: Subscription, message: Message) -> int:
        """Say whether a member there takes a message, by what is known here: ABSENT, CONGESTED or READY."""
        session: Session = subscription.session
        tenant = session.tenant
        if self._groups.is_refused_by(self._link.id):
            return ABSENT
        if message.qos and tenant.buffered_bytes >= tenant.limits.buffered_bytes:
            return ABSENT  # it could not be kept
        if self._congested_until:
            key = (tenant.tenant_id, subscription.group or b"", subscription.filter)
            if self._congested_until.get(key, 0.0) > self._plane.turn.now:
                return CONGESTED
        return READY

    def send(self, tenant: TenantPlane, message: Message, group: Group, routed: bytes) -> None:
        """Send a message for one member there when the turn ends. QoS 1 and 2 are kept until it is known what became of them."""
        number = 0
        if message.qos:
            number = self._groups.next_number()
            self._kept[number] = self._groups.keep(tenant, message, group)
        record = GroupPublish(number, group.name, group.filter, routed).encode()
        if len(self._batch) + len(record) > self._link.batch_bytes:
            self.flush()
        self._link.flush_more_later()
        self._batch += record
        self._batched.append((tenant, message, number))

    def flush(self) -> None:
        """Send what waits; what the link does not take is chosen anew, or dropped by name."""
        if not self._batched:
            return
        body, batched = bytes(self._batch), self._batched
        self._batch.clear()
        self._batched = []
        try:
            self._link.send_frame(FrameType.GROUP_PUBLISH, body)
        except UnavailableError:
            self._note_not_sent(batched, Drop.LINK_FULL)
        except LocalProtocolError:
            self._note_not_sent(batched, Drop.TOO_LARGE)

    def take_done(self, answer: GroupNumbers) -> None:
        for number in answer.numbers:
            kept = self._kept.pop(number, None)
            if kept is not None:
                self._groups.forget(kept)

    def take_none(self, answer: GroupNumbers) -> None:
        """Nobody there takes these."""
        full = set(answer.full)
        for number in answer.numbers:
            kept = self._kept.pop(number, None)
            if kept is None:
                continue
            if number in full:
                self.take_congested(GroupCongested(kept.tenant.tenant_id, kept.name, kept.filter))
            self._groups.choose_anew(kept, self._link.id, Drop.QUEUE_FULL if number in full else Drop.SESSION_ENDED)

    def take_taken(self, answer: GroupNumbers) -> None:
        """From now on a client there may have these with QoS 2: nobody else gets them, unless they are returned."""
        for number in answer.numbers:
            kept = self._kept.get(number)
            if kept is not None:
                kept.is_taken = True

    def take_congested(self, said: GroupCongested) -> None:
        if len(self._congested_until) >= _CONGESTED_GROUPS:
            self._congested_until.clear()
        self._congested_until[said.tenant_id, said.name, said.filter] = self._plane.turn.now + CONGESTED_S

    def _note_not_sent(self, batched: list[tuple[TenantPlane, Message, int]], reason: Drop) -> None:
        for tenant, message, number in batched:
            kept = self._kept.pop(number, None)
            if kept is None:
                self._plane.turn.drop(tenant, message.publisher, reason, 1)
            else:
                self._groups.choose_anew(kept, self._link.id, reason)

    # --- to members here

    def refuse(self, publish: GroupPublish) -> None:
        """Nobody of its tenant is here any more."""
        if publish.number:
            self._none.append(publish.number)
            self._answer_later()

    def take_publish(self, tenant: TenantPlane, message: Message, publish: GroupPublish) -> None:
        """Take a message for one member here."""
        arrival = Arrival(self, tenant, message, publish)
        if publish.number:
            self._arrivals[publish.number] = arrival
        self.place(arrival)

    def place(self, arrival: Arrival) -> None:
        """Give it to a member that is connected here, or return it."""
        distribution, message = self._plane.distribution, arrival.message
        member = _still_there(arrival.member) or distribution.member_here(
            arrival.tenant, message, arrival.name, arrival.filter
        )
        arrival.member = None
        if member is None:
            self._return(arrival, Drop.QUEUE_FULL if distribution.are_members_full else Drop.SESSION_ENDED)
            return
        self._note_congestion(arrival, member.session)
        qos = min(message.qos, member.qos)
        if qos == 2 and not arrival.is_taken and not self._is_gone:
            arrival.member = member
            self._taken.append(arrival)
            self._plane.turn.hold(arrival.tenant, message.size)
            self._answer_later()
        elif not distribution.give_here(member, message, arrival if qos else None) or not qos:
            self.finish(arrival)

    def finish(self, arrival: Arrival) -> None:
        """Nobody else may have it."""
        if self._arrivals.pop(arrival.number, None) is not None:
            self._done.append(arrival.number)
            self._answer_later()

    def _return(self, arrival: Arrival, reason: Drop) -> None:
        """Nobody here takes it: the hub that has sent it chooses anew; if that is gone, this one does."""
        tenant, message = arrival.tenant, arrival.message
        if self._arrivals.pop(arrival.number, None) is not None:
            self._none.append(arrival.number)
            if reason is Drop.QUEUE_FULL:
                self._full.append(arrival.number)
            self._answer_later()
        elif arrival.number == 0 or not self._plane.redistribution.redistribute_message(
            tenant, message, arrival.name, arrival.filter
        ):
            self._plane.turn.drop(tenant, message.publisher, reason, 1)

    def _note_congestion(self, arrival: Arrival, session: Session) -> None:
        """Say so, from time to time, when no member here is without a backlog: else one of those would have been chosen."""
        if session.backlog is None and (session.connection is None or not session.connection.is_congested):
            return
        key = (arrival.tenant.tenant_id, arrival.name, arrival.filter)
        now = self._plane.turn.now
        if self._is_gone or self._said_congested.get(key, now) > now:
            return
        if len(self._said_congested) >= _CONGESTED_GROUPS:
            self._said_congested.clear()
        self._said_congested[key] = now + CONGESTED_S / 2
        self._link.announce(FrameType.GROUP_CONGESTED, GroupCongested(*key).encode())

    # --- answers, once a turn

    def _answer_later(self) -> None:
        if not self._is_answering:
            self._is_answering = True
            self._groups.later(self._answer)

    def _answer(self) -> None:
        self._is_answering = False
        done, self._done = self._done, []
        none, self._none = self._none, []
        full, self._full = set(self._full), []
        taken, self._taken = self._taken, []
        if self._is_gone:
            self._take(taken)
            return
        for numbers in in_frames(done):
            self._link.announce(FrameType.GROUP_DONE, GroupNumbers(numbers).encode())
        for numbers in in_frames(none):
            among = [number for number in numbers if number in full]
            self._link.announce(FrameType.GROUP_NONE, GroupNumbers(numbers, among).encode())
        if taken:
            for numbers in in_frames([arrival.number for arrival in taken]):
                self._link.announce(FrameType.GROUP_TAKEN, GroupNumbers(numbers).encode())
            self._link.await_applied(lambda: self._groups.later(partial(self._take, taken)))

    def _take(self, taken: list[Arrival]) -> None:
        """The hub that has sent these gives them to nobody else now, or is gone."""
        for arrival in taken:
            self._plane.turn.hold(arrival.tenant, -arrival.message.size)
            arrival.is_taken = True
            self.place(arrival)

    # --- ends

    def close_tenant(self, tenant: TenantPlane) -> None:
        """A tenant is closed here: from now on its messages are the other hub's alone."""
        for number, kept in [(number, kept) for number, kept in self._kept.items() if kept.tenant is tenant]:
            del self._kept[number]
            self._groups.forget(kept)

    def end(self) -> None:
        """The other hub is gone: what it had is chosen anew, but for what a client there may have got with QoS 2."""
        self._is_gone = True
        kept_there, self._kept = self._kept, {}
        for kept in kept_there.values():
            if kept.is_taken:
                self._groups.drop(kept)
            else:
                self._groups.choose_anew(kept, self._link.id, Drop.SESSION_ENDED)
        self._arrivals.clear()


def _still_there(member: Subscription | None) -> Subscription | None:
    """Return a member that was chosen in an earlier turn; None: it has left, or its client has."""
    if member is None:
        return None
    session: Session = member.session
    is_there = session.connection is not None and session.subscriptions.get((member.group, member.filter)) is member
    return member if is_there else None
