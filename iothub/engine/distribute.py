# cython: annotation_typing=False
"""From a route to its sessions: No Local, effective QoS, fan-out limits, the member of each shared group; which of them have a queue.

Knows no bytes and no acknowledgements. Transient receivers get their copy at once; persistent ones are returned for the store. Another hub
that has receivers gets one copy for all of them, and serves those that need no queue (`distribute_arrived`).
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.outbound import Outbound
from iothub.engine.outbox import QueueTarget, target_of
from iothub.engine.ports import ABSENT, CONGESTED, READY
from iothub.engine.router import Group, Route, Subscription, Target, without_no_local
from iothub.engine.state import Session, TenantPlane
from iothub.engine.turn import Turn

_MANY = 16  # receivers; messages with fewer do not hold up a turn


class Slices:
    """Messages on their way to many receivers, taken when they were routed; those before `at` have them all.

    Messages for the same receivers travel together until the first receiver is served: one write each instead of one for each message.
    """

    def __init__(self, targets: list[Target]) -> None:
        self.messages: list[Message] = []
        self.targets = targets
        self.at = 0


class Distribution:
    """Gives one message to everybody on its route. `direct`: how many got it without a queue in the last call.

    Invariant: while a tenant has slices, whatever else it routes lines up behind them, so that nothing overtakes on the way to a receiver.
    """

    def __init__(self, turn: Turn, outbound: Outbound) -> None:
        self.turn = turn
        self.outbound = outbound
        self.direct = 0
        self.receivers = 0
        self.allowed = 0
        self.slice: int = turn.limits.fanout_slice
        self.budget: int = turn.limits.turn_deliveries
        self.spent = 0  # of it, since the batch began
        self.skip_direct = False
        self.are_members_full = False

    def distribute(
        self, tenant: TenantPlane, message: Message, route: Route, skip_direct: bool
    ) -> list[QueueTarget] | None:
        """Deliver to transient receivers and QoS 0 receivers; return the persistent ones, None if there are none.

        `skip_direct`: a repeated QoS 2 PUBLISH, the receivers without a queue have it already.
        """
        queued: list[QueueTarget] | None = None
        if self._begin(tenant, message, len(route.targets), skip_direct):
            queued = self._line_up(tenant, message, route)
        else:
            for target in route.targets:
                queued = self._give(tenant, message, target, queued)
        for group in route.groups:
            subscription = self.choose(group, message)
            if subscription is not None:
                queued = self._give_member(tenant, message, group, subscription, queued)
        self._finish(tenant, message)
        return queued

    def _begin(self, tenant: TenantPlane, message: Message, count: int, skip_direct: bool) -> bool:
        """Begin a message with `count` targets; True: it has to line up."""
        self.skip_direct = skip_direct
        self.direct = 0
        self.receivers = 0
        self.allowed = tenant.fanout
        payload = len(message.payload)
        if payload * self.allowed > tenant.fanout_bytes:
            self.allowed = max(1, tenant.fanout_bytes // payload)
        if count >= _MANY:
            self.spent += count
        return tenant.slices is not None or count > self.slice or (count >= _MANY and self.spent > self.budget)

    def _finish(self, tenant: TenantPlane, message: Message) -> None:
        """Count the receivers; drop by name those that are beyond the bound."""
        if not self.skip_direct:  # else it was counted when it came first
            tenant.counters.fanout += self.receivers if self.receivers < self.allowed else self.allowed
        if self.receivers > self.allowed:
            left_out = self.receivers - self.allowed
            self.turn.drop(tenant, message.publisher, Drop.FANOUT, left_out)
            name = "fanout" if self.allowed == tenant.fanout else "fanout_bytes"
            self.turn.observer.limited(tenant, message.publisher, name, left_out)

    # --- from other hubs

    def distribute_frame(self, tenant: TenantPlane, messages: list[Message]) -> list[bytes]:
        """Deliver what another hub has routed; return the Topic Names of messages with RETAIN 1."""
        retained: list[bytes] = []
        topic = b""
        route: Route | None = None
        for message in messages:
            if route is None or message.topic is not topic:  # messages on one topic come together, and share it
                topic = message.topic
                route = tenant.router.match(topic)
            self.distribute_arrived(tenant, message, route)
            if message.retain:
                retained.append(topic)
        return retained

    def distribute_arrived(self, tenant: TenantPlane, message: Message, route: Route) -> None:
        """Deliver what another hub has routed to those here who need no queue.

        Invariant: queues, sinks, shared groups and other hubs get it from the hub where it was published. From here they would get it twice.
        """
        lines_up = self._begin(tenant, message, len(route.targets), False)
        direct: list[Target] | None = [] if lines_up else None
        for target in route.targets:
            rest = self._part_arrived(message, target)
            if rest is None:
                continue
            if direct is not None:
                direct.append(rest)
            else:
                qos = message.qos if message.qos < rest.qos else rest.qos
                retain = message.retain and rest.retain_as_published
                self.outbound.deliver(rest.session, message, qos, retain, rest.identifiers, None)
        if direct:
            self._join_arrived(tenant, message, direct)
        self._finish(tenant, message)

    def _part_arrived(self, message: Message, target: Target) -> Target | None:
        """Return what a session gets of a message from another hub, and count it as a receiver; None: nothing."""
        session: Session = target.session
        if session.is_sink:
            return None
        if session.is_persistent and message.qos and session.tenant.changing is not None:
            changed = session.tenant.changing.as_of(message, target)
            if changed is None:
                return None
            target = changed
        if target.has_no_local and session is message.publisher:
            rest = without_no_local(target)
            if rest is None:
                return None
            target = rest
        if session.is_persistent and ((message.qos and target.qos) or session.connection is None):
            return None
        # Not earlier: all its subscriptions decide whether it comes through the queue.
        if session.tenant.routing is not None:
            routed = session.tenant.routing.routed(message, target)
            if routed is None:
                return None
            target = routed
        self.receivers += 1
        return target if self.receivers <= self.allowed else None

    def _join_arrived(self, tenant: TenantPlane, message: Message, direct: list[Target]) -> None:
        """Line up behind what is delivered in slices, or drop: what a link brings pauses nobody, so it has a bound of its own."""
        if tenant.sliced >= self.turn.limits.sliced_receivers or tenant.buffered_bytes >= tenant.most_buffered_bytes:
            self.turn.drop(tenant, message.publisher, Drop.QUEUE_FULL, len(direct))
        else:
            self._join(tenant, message, direct)

    # --- many receivers

    def _line_up(self, tenant: TenantPlane, message: Message, route: Route) -> list[QueueTarget] | None:
        """Take the receivers now, serve those that need no queue slice by slice. Shared groups have no order to keep."""
        direct: list[Target] = []
        queued: list[QueueTarget] | None = None
        for target in route.targets:
            session: Session = target.session
            qos = message.qos if message.qos < target.qos else target.qos
            if session.is_sink or (
                session.is_persistent and (qos > 0 or (session.connection is None and self._stores_qos0(session, None)))
            ):
                queued = self._give(tenant, message, target, queued)
                continue
            if target.has_no_local and session is message.publisher:
                rest = without_no_local(target)
                if rest is None:
                    continue
                target = rest
            self.receivers += 1
            if self.receivers <= self.allowed and not self.skip_direct:
                direct.append(target)
        self.direct += len(direct)
        if direct:
            self._join(tenant, message, direct)
        return queued

    def _join(self, tenant: TenantPlane, message: Message, direct: list[Target]) -> None:
        """Put a message at the end of what its tenant has in slices."""
        if tenant.slices is None:
            tenant.slices = []
            self.turn.slicing.append(tenant)
        waiting: list[Slices] = tenant.slices
        last: Slices | None = waiting[-1] if waiting else None
        if last is None or last.at or last.targets != direct:
            last = Slices(direct)
            waiting.append(last)
        last.messages.append(message)
        tenant.sliced += len(direct)
        self.turn.hold(tenant, message.size)

    def go_on(self) -> None:
        """Serve one slice of receivers of the tenant whose turn it is, across as many of its messages as that takes."""
        slicing = self.turn.slicing
        tenant = slicing.pop(0)
        left = self.slice
        waiting = tenant.slices or []
        while waiting and left > 0:
            first: Slices = waiting[0]
            count = len(first.messages)
            end = min(len(first.targets), first.at + max(1, left // count))
            left -= (end - first.at) * count
            self._serve(tenant, first, end)
            if end == len(first.targets):
                del waiting[0]
                for message in first.messages:
                    self.turn.hold(tenant, -message.size)
        if waiting:
            slicing.append(tenant)
        else:
            tenant.slices = None

    def _serve(self, tenant: TenantPlane, slices: Slices, end: int) -> None:
        """Deliver to the receivers before `end`."""
        messages = slices.messages
        targets = slices.targets
        tenant.sliced -= (end - slices.at) * len(messages)
        while slices.at < end:
            target = targets[slices.at]
            slices.at += 1
            for message in messages:
                qos = message.qos if message.qos < target.qos else target.qos
                retain = message.retain and target.retain_as_published
                self.outbound.deliver(target.session, message, qos, retain, target.identifiers, None)

    # --- shared groups

    def redistribute(
        self, tenant: TenantPlane, message: Message, name: bytes, filter: bytes, is_durable: bool
    ) -> list[QueueTarget] | None:
        """A member's session ended before it acknowledged this: another member of the group gets it, §4.8.2. `receivers` is 0: there is none.

        `is_durable`: a store had the message, so members whose queue stores it come first.
        """
        self.receivers = 0
        for group in tenant.router.match(message.topic).groups:
            if group.name == name and group.filter == filter:
                subscription = self._storing(group, message) if is_durable else None
                if subscription is None:
                    subscription = self.choose(group, message)
                if subscription is not None:
                    self.allowed = 1
                    self.skip_direct = False
                    return self._give_member(tenant, message, group, subscription, None)
        return None

    def _give(
        self, tenant: TenantPlane, message: Message, target: Target, queued: list[QueueTarget] | None
    ) -> list[QueueTarget] | None:
        session: Session = target.session
        if session.is_sink:  # no receiver among others: no bound of a fan-out leaves it out
            if session.is_peer:
                self._give_peer(tenant, message, target)
                return queued
            if queued is None:
                queued = []
            queued.append(target_of(session, message.qos, message.retain, (), False))
            return queued
        if target.has_no_local and session is message.publisher:
            rest = without_no_local(target)  # [MQTT-3.8.3-3]
            if rest is None:
                return queued
            target = rest
        qos = message.qos if message.qos < target.qos else target.qos
        retain = message.retain and target.retain_as_published  # [MQTT-3.3.1-12] [MQTT-3.3.1-13]
        return self._give_session(tenant, message, session, qos, retain, target.identifiers, None, queued)

    def _give_peer(self, tenant: TenantPlane, message: Message, target: Target) -> None:
        """Send a message to another hub, unless its clients get this QoS from their queues (`target.qos` 0)."""
        if (target.qos or not message.qos) and not self.skip_direct:
            self.direct += 1
            session: Session = target.session
            session.control.send(tenant, message)

    def _give_member(
        self,
        tenant: TenantPlane,
        message: Message,
        group: Group,
        subscription: Subscription,
        queued: list[QueueTarget] | None,
    ) -> list[QueueTarget] | None:
        qos = message.qos if message.qos < subscription.qos else subscription.qos
        retain = message.retain and subscription.retain_as_published
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        return self._give_session(tenant, message, subscription.session, qos, retain, identifiers, group, queued)

    def _give_session(
        self,
        tenant: TenantPlane,
        message: Message,
        session: Session,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        group: Group | None,
        queued: list[QueueTarget] | None,
    ) -> list[QueueTarget] | None:
        self.receivers += 1
        if self.receivers > self.allowed:
            return queued
        if session.is_persistent and (qos > 0 or (session.connection is None and self._stores_qos0(session, group))):
            if queued is None:
                queued = []
            queued.append(target_of(session, qos, retain, identifiers, group is not None))
        elif session.is_peer:
            if not self.skip_direct:
                self.direct += 1
                session.control.send_to_group(tenant, message, group)
        elif not self.skip_direct and self.outbound.deliver(session, message, qos, retain, identifiers, group):
            self.direct += 1
        return queued

    def _stores_qos0(self, session: Session, group: Group | None) -> bool:
        """Whether the queue of a session without a connection here gets QoS 0: not while the hub that has its client delivers it."""
        return session.tenant.limits.store_qos0 and (group is not None or not session.is_online_elsewhere())

    def _storing(self, group: Group, message: Message) -> Subscription | None:
        """Choose a persistent member by hash of the publisher: of those online, else of all; None: there is none."""
        persistent = [member for member in group.persistent_members() if member.qos]
        online = [
            member
            for member in persistent
            if member.session.connection is not None or member.session.is_online_elsewhere()
        ]
        return _by_publisher(online or persistent, message)

    def choose(self, group: Group, message: Message) -> Subscription | None:
        """Members that are online here in turn, then those elsewhere in turn; congested ones only if all are.

        Nobody online: one persistent member, by hash of the publisher. O(1) while all are congested, else O(those that are passed over).
        """
        members = group.members
        count = len(members)
        if count == 0:
            return None
        if group.full_at == self.turn.reliefs:
            subscription = members[group.turn % count]
            session: Session = subscription.session
            connection = session.connection
            if connection is not None and not connection.is_closing:
                group.turn += 1
                return subscription
        are_all_here = True
        elsewhere: Subscription | None = None
        behind = 0  # the member of `elsewhere`
        congested: Subscription | None = None
        congested_elsewhere: Subscription | None = None
        for step in range(count):
            index = (group.turn + step) % count
            subscription = members[index]
            session = subscription.session
            connection = session.connection
            if connection is None:
                are_all_here = False
                group.full_at = -1
                if elsewhere is None:
                    readiness = self._readiness_elsewhere(session, subscription, message)
                    if readiness == READY:
                        elsewhere = subscription
                        behind = index + 1
                    elif readiness == CONGESTED and congested_elsewhere is None:
                        congested_elsewhere = subscription
                continue
            if connection.is_closing:
                continue
            if session.backlog is None and not connection.is_congested:
                group.turn = index + 1
                return subscription
            if congested is None:
                congested = subscription
        if elsewhere is not None:
            group.turn = behind
            return elsewhere
        if congested is None:
            congested = congested_elsewhere
        if congested is not None:
            if are_all_here:
                group.full_at = self.turn.reliefs
            group.turn += 1
            return congested
        return _by_publisher(group.persistent_members(), message)

    def _readiness_elsewhere(self, session: Session, subscription: Subscription, message: Message) -> int:
        """Ask another hub for a member there; a persistent one whose client it has gets through its queue what that stores."""
        if session.is_peer:
            readiness: int = session.control.readiness(subscription, message)
            return readiness
        if session.is_persistent and message.qos and subscription.qos and session.is_online_elsewhere():
            return READY
        return ABSENT

    def full_peer(self, group: Group, qos: int) -> Any:
        """Return the full hub to which a message of a group would have to go; None: somebody else takes it, or nobody is there."""
        found = None
        for subscription in group.members:
            session: Session = subscription.session
            if session.is_peer:
                if subscription.qos or not qos:
                    if not session.control.is_full:
                        return None
                    found = session.control
            elif session.is_persistent or session.connection is not None:
                return None
        return found

    # --- members here, for other hubs

    def member_here(self, tenant: TenantPlane, message: Message, name: bytes, filter: bytes) -> Subscription | None:
        """Choose a member that is connected here and needs no queue for this message; None: there is none.

        `are_members_full`: there are members, and none has room.
        """
        self.are_members_full = False
        for group in tenant.router.match(message.topic).groups:
            if group.name == name and group.filter == filter:
                return self._choose_here(group, message)
        return None

    def _choose_here(self, group: Group, message: Message) -> Subscription | None:
        members = group.members
        count = len(members)
        congested: Subscription | None = None
        for step in range(count):
            index = (group.turn + step) % count
            subscription = members[index]
            session: Session = subscription.session
            connection = session.connection
            if connection is None or connection.is_closing:
                continue
            if session.is_persistent and message.qos and subscription.qos:
                continue  # the hub where it was published appends to its queue
            if session.backlog is None and not connection.is_congested:
                group.turn = index + 1
                return subscription
            if congested is None and self.outbound.has_room(session, message):
                congested = subscription
            self.are_members_full = congested is None
        if congested is not None:
            group.turn += 1
        return congested

    def give_here(self, subscription: Subscription, message: Message, arrival: Any) -> bool:
        """Deliver what another hub has sent to a member that `member_here` has chosen; False: it was dropped by name."""
        qos = message.qos if message.qos < subscription.qos else subscription.qos
        retain = message.retain and subscription.retain_as_published
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        return self.outbound.deliver(subscription.session, message, qos, retain, identifiers, arrival)


def _by_publisher(members: list[Subscription], message: Message) -> Subscription | None:
    """Choose by a hash of the publisher, the same at every hub; None: there is nobody."""
    return members[crc32(message.publisher_client_id.encode()) % len(members)] if members else None
