# cython: annotation_typing=False
"""A client's PUBLISH: its topic, alias, quota and right; then its route, and the store if anything durable is asked for.

Knows no packet boundaries and no sockets.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from iothub.base.ids import RUN, MessageIds
from iothub.base.reasons import Drop, Reason
from iothub.engine.answers import Answers
from iothub.engine.distribute import Distribution
from iothub.engine.filters import check_topic_name
from iothub.engine.inbound_qos2 import FINISHING, FREE, ROUTED, STORING, UNSTORED
from iothub.engine.message import Message, blocks, received
from iothub.engine.outbox import QueueTarget, StoredPublish, stored_publish
from iothub.engine.quota import RATE, SINK_BYTES, SINK_MESSAGES, Gate
from iothub.engine.router import Route
from iothub.engine.state import Connection, Session, TenantPlane, ack_slot
from iothub.engine.turn import Turn
from iothub.engine.wheel import Wheel
from iothub.engine.wire import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID, Wire

# What became of a PUBLISH that needs the store or a sink.
_ADMITTED = 0
_BLOCKED = 1  # it must wait, and nothing was done
_REFUSED = 2  # it was answered, or its connection ends

_ID_ENDS = [bytes((byte,)) for byte in range(256)]

REASONS = {
    0x81: Reason.MALFORMED,
    0x82: Reason.PROTOCOL_ERROR,
    0x90: Reason.TOPIC_NAME_INVALID,
    0x93: Reason.RECEIVE_MAXIMUM_EXCEEDED,
    0x94: Reason.TOPIC_ALIAS_INVALID,
    0x95: Reason.PACKET_TOO_LARGE,
    0x97: Reason.QUOTA,
}


class Publishing:
    """Takes PUBLISH packets that `wire` is about to decode."""

    def __init__(
        self,
        turn: Turn,
        wheel: Wheel,
        wire: Wire,
        distribution: Distribution,
        answers: Answers,
        message_ids: MessageIds,
    ) -> None:
        self.turn = turn
        self.wheel = wheel
        self.wire = wire
        self.distribution = distribution
        self.answers = answers
        self.message_ids = message_ids
        self.gate = Gate(turn)
        # Message ids that are allocated already: what they begin with, the last byte of each, and the batch they are for.
        self._id_head = b""
        self._next_id = self._end_id = 0
        self._id_time = 0.0

    def pause(self, connection: Connection) -> None:
        """Stop reading this client."""
        if not connection.is_paused:
            connection.is_paused = True
            connection.transport.pause()

    def fail(self, connection: Connection, code: int) -> None:
        """Close for a fault of the client."""
        self.turn.close(connection, REASONS.get(code, Reason.PROTOCOL_ERROR))

    def exceed(self, connection: Connection, code: int, limit: str) -> None:
        """Close for a limit of the tenant, and say which."""
        if connection.tenant is not None:
            self.turn.observer.limited(connection.tenant, connection.session, limit, 1)
        self.fail(connection, code)

    def publish(self, connection: Connection, data: bytes, at: int, length: int, header: int) -> bool:
        """Handle one PUBLISH; False: it must wait, nothing was done."""
        wire = self.wire
        session = connection.session
        tenant = connection.tenant
        if session is None or tenant is None:
            self.fail(connection, 0x82)
            return True
        code = wire.read_publish(data, wire.body, at + length, header, connection.version == 5, tenant.user_properties)
        if code == 0x97:
            self.exceed(connection, code, "user_properties")
            return True
        if code == 0:
            code = self._resolve_topic(connection, tenant)
        if code:
            self.fail(connection, code)
            return True
        qos = header >> 1 & 3
        if qos == 2 and session.inbound is not None:
            known = session.inbound.get(wire.packet_id, FREE)
            if known != FREE:
                return self._publish_again(connection, session, tenant, known)
        if qos and self._is_full(connection):
            if connection.version == 5:
                self.exceed(connection, 0x93, "inbound_maximum")  # [MQTT-3.3.4-7]
                return True
            connection.is_blocked = connection.is_unanswered = True
            self.pause(connection)
            return False
        wait = self.gate.admit(connection, session, tenant, length)
        if wait > 0.0:
            self._block(connection, wait)
            return False
        if wait < 0.0:
            self._refuse_quota(connection, session, tenant, qos, wait == RATE)
            return True
        if not session.may_publish(wire.topic, self.turn.grants):
            self._deny(connection, session, tenant, qos)
            return True
        return self._route(connection, session, tenant, data, at, length, header)

    def _is_full(self, connection: Connection) -> bool:
        """Whether one more QoS 1 or 2 is too many: not completed (5.0), or not answered (3.x, whose clients know no bound)."""
        if connection.version == 5:
            return connection.inbound_open >= connection.inbound_maximum
        return connection.pending is not None and len(connection.pending) >= connection.inbound_maximum

    def _resolve_topic(self, connection: Connection, tenant: TenantPlane) -> int:
        """Check the Topic Name, once per cached route, and take or set the alias."""
        wire = self.wire
        topic = wire.topic
        alias = wire.alias
        if alias > connection.topic_aliases:
            self.exceed(connection, TOPIC_ALIAS_INVALID, "topic_aliases")  # [MQTT-3.3.2-9]
            return TOPIC_ALIAS_INVALID
        if not topic and alias:
            aliases = connection.aliases_in
            known = None if aliases is None else aliases.get(alias)
            if known is None:
                return PROTOCOL_ERROR
            wire.topic = known
            return 0
        if topic not in tenant.router.cache.young:
            if not topic:
                return PROTOCOL_ERROR if connection.version == 5 else 0x90
            limits = tenant.limits
            code = check_topic_name(topic, limits.topic_levels, limits.topic_bytes)
            if code:
                if len(topic) > limits.topic_bytes:
                    self.exceed(connection, code, "topic_bytes")
                elif code == 0x90 and topic.count(b"/") >= limits.topic_levels:
                    self.exceed(connection, code, "topic_levels")
                return code
        if alias:
            if connection.aliases_in is None:
                connection.aliases_in = {}
            connection.aliases_in[alias] = topic
        return 0

    def _route(
        self,
        connection: Connection,
        session: Session,
        tenant: TenantPlane,
        data: bytes,
        at: int,
        length: int,
        header: int,
    ) -> bool:
        """Find the receivers, give them the message, answer; False: it must wait, nothing was done."""
        wire = self.wire
        qos = header >> 1 & 3
        retain = header & 1 == 1
        route = tenant.router.match(wire.topic)
        turn = self.turn
        if (
            turn.unstored_messages
            or turn.buffered_bytes
            or tenant.persistent_fanout is not None
            or tenant.sinks
            or tenant.is_held
            or turn.is_disk_short
            or turn.now >= turn.held_at
        ):
            verdict = self._admit_to_store(connection, session, tenant, route, qos, retain)
            if verdict != _ADMITTED:
                return verdict == _REFUSED
        if connection.blocked_since != 0.0 or connection.taken_meters:
            self.gate.forget(connection)
        message = self._message(session, qos, retain)
        if wire.is_plain and not wire.alias and len(route.targets) + len(route.groups) > 1:
            view = data
            self._keep_frame(connection, message, view[at : at + length])
        self._count(tenant, message, qos)
        if tenant.publish_hook is not None:
            replaced = tenant.publish_hook(session, message)
            if replaced is None:
                turn.drop(tenant, session, Drop.HOOK, 1)
                self._refuse(connection, session, qos, 0x87)
                return True
            if replaced is not message:
                message = replaced
                route = tenant.router.match(message.topic)
        self._give(connection, session, tenant, message, route, qos)
        return True

    def _give(
        self,
        connection: Connection,
        session: Session,
        tenant: TenantPlane,
        message: Message,
        route: Route,
        qos: int,
    ) -> None:
        """Deliver, store what must be stored, and answer now or after the commit. `qos` is the PUBLISH's own."""
        packet_id = self.wire.packet_id
        distribution = self.distribution
        queued = distribution.distribute(tenant, message, route, False)
        retain = message.retain
        code = 0
        if distribution.receivers == 0 and queued is None and not retain and distribution.direct == 0:
            self.turn.drop(tenant, session, Drop.NO_SUBSCRIBERS, 1)
            code = 0x10
        if retain and tenant.may_retain is not None:
            if not tenant.may_retain(message.topic, len(message.payload)):
                retain = False  # delivered, not retained
                code = 0x97
        if queued is not None or retain or (qos == 2 and session.is_persistent):
            self._store(connection, session, tenant, message, queued, retain, packet_id, qos, code)
            return
        if qos == 2 and code < 0x80:
            if session.inbound is None:
                session.inbound = {}
            session.inbound[packet_id] = ROUTED
            connection.inbound_open += 1
        self.answers.answer(connection, qos, packet_id, code)

    def _admit_to_store(
        self, connection: Connection, session: Session, tenant: TenantPlane, route: Route, qos: int, retain: bool
    ) -> int:
        """Hold back a publisher that is ahead of the store, or whose tenant stores too much; admitted, blocked, or refused already."""
        queues = self._count_queues(route, qos)
        needs_store = queues > 0 or retain or (qos == 2 and session.is_persistent)
        gate = self.gate
        if gate.must_wait_for_store(connection, needs_store):
            self._starve(connection)
            return _BLOCKED
        if needs_store and self.turn.is_disk_short:
            self._refuse_unstored(connection, session, tenant, qos)
            return _REFUSED
        if queues and tenant.persistent_fanout is not None:
            wait = tenant.persistent_fanout.take(queues, self.turn.now)
            if wait > 0.0 and gate.may_wait(connection, tenant, wait):
                self._block(connection, wait)
                return _BLOCKED
            if wait != 0.0:  # below 0: a calendar window is used up
                self.turn.observer.limited(tenant, session, "persistent_fanout", 1)
                self._refuse_quota(connection, session, tenant, qos, wait > 0.0)
                return _REFUSED
        return self._admit_to_sinks(connection, session, tenant, route, qos) if tenant.sinks else _ADMITTED

    def _admit_to_sinks(
        self, connection: Connection, session: Session, tenant: TenantPlane, route: Route, qos: int
    ) -> int:
        """Hold back a publisher whose message is for a sink or a peer that is full, or beyond the tenant's rates for sinks."""
        count = self._count_sinks(connection, route, qos)
        if count < 0:
            return _BLOCKED
        if not count:
            return _ADMITTED
        gate = self.gate
        size = len(self.wire.topic) + len(self.wire.payload) + len(self.wire.properties)
        for bit, meter, units, name in (
            (SINK_MESSAGES, tenant.sink_messages, count, "sink_messages"),
            (SINK_BYTES, tenant.sink_bytes, count * size, "sink_bytes"),
        ):
            if meter is None or connection.taken_meters & bit:
                continue
            wait = meter.take(units, self.turn.now)
            if wait > 0.0 and gate.may_wait(connection, tenant, wait):
                self._block(connection, wait)
                return _BLOCKED
            if wait != 0.0:
                self.turn.observer.limited(tenant, session, name, 1)
                self._refuse_quota(connection, session, tenant, qos, wait > 0.0)
                return _REFUSED
            connection.taken_meters |= bit
        return _ADMITTED

    def _count_sinks(self, connection: Connection, route: Route, qos: int) -> int:
        """How many sinks get this; -1: one of them, or a peer, is full, and its publisher is not read until there is room."""
        count = 0
        for target in route.targets:
            session: Session = target.session
            if session.is_peer and (qos == 0 or target.qos == 0):
                continue  # a peer drops QoS 0 before it is full, and what its clients have queues for is not for it
            if session.is_sink:
                if session.control.is_full:
                    self._wait_for(connection, session.control)
                    return -1
                if not session.is_peer:
                    count += 1
        for group in route.groups:
            full = self.distribution.full_peer(group, qos) if qos else None
            if full is not None:
                self._wait_for(connection, full)
                return -1
        return count

    def _wait_for(self, connection: Connection, sink: Any) -> None:
        """Stop reading a publisher until a sink, or a peer, has room."""
        connection.is_blocked = True
        self.pause(connection)
        self.turn.before_sinks.setdefault(sink, deque()).append(connection)

    def _keep_frame(self, connection: Connection, message: Message, frame: bytes) -> None:
        """The frame as it came is what several receivers of the same family get; flags and identifier are patched anyway."""
        if connection.version == 5:
            if message.qos:
                message.frame5_identified = frame
            else:
                message.frame5 = frame
        elif message.qos:
            message.frame3_identified = frame
        else:
            message.frame3 = frame

    def _count(self, tenant: TenantPlane, message: Message, qos: int) -> None:
        counters = self.turn.counters
        own = tenant.counters
        counters.publish_received += 1
        own.blocks_received += blocks(message)
        if qos == 0:
            counters.received_0 += 1
            own.received_0 += 1
        elif qos == 1:
            counters.received_1 += 1
            own.received_1 += 1
        else:
            counters.received_2 += 1
            own.received_2 += 1

    def _message(self, session: Session, qos: int, retain: bool) -> Message:
        wire = self.wire
        expires_at = 0.0
        if wire.expiry >= 0:
            expires_at = self.turn.wall_now() + wire.expiry
        return received(wire.topic, wire.payload, qos, retain, wire.properties, expires_at, session, session.client_id)

    def _count_queues(self, route: Route, qos: int) -> int:
        """How many persistent sessions this may be stored for; a shared group with any counts as one."""
        if qos == 0:
            return 0
        count = 0
        for target in route.targets:
            session: Session = target.session
            if target.qos and session.is_persistent and not session.is_sink:
                count += 1
        for group in route.groups:
            if group.has_persistent():
                count += 1
        return count

    def _publish_again(self, connection: Connection, session: Session, tenant: TenantPlane, known: int) -> bool:
        """A QoS 2 PUBLISH whose identifier is known: never routed twice [MQTT-4.3.3-10], only acknowledged, and stored if it was not.

        False: it must wait, nothing was done.
        """
        wire = self.wire
        if known in (ROUTED, FINISHING):
            self.answers.answer(connection, 2, wire.packet_id, 0)
        elif self._is_pending(connection, wire.packet_id):
            return True  # its PUBREC is on its way
        elif known == UNSTORED or session.is_persistent:
            if self.turn.is_held(tenant):
                self._starve(connection)
                return False
            route = tenant.router.match(wire.topic)
            if tenant.sinks and self._count_sinks(connection, route, 2) < 0:
                return False
            message = self._message(session, 2, False)
            queued = self.distribution.distribute(tenant, message, route, True)
            wire.is_repeat = True  # whatever its client says
            self._store(connection, session, tenant, message, queued, False, wire.packet_id, 2, 0)
        return True

    def _is_pending(self, connection: Connection, packet_id: int) -> bool:
        if connection.pending is not None:
            for slot in connection.pending:
                if slot.packet_id == packet_id and slot.qos == 2:
                    return True
        return False

    def _store(
        self,
        connection: Connection,
        session: Session,
        tenant: TenantPlane,
        message: Message,
        queued: list[QueueTarget] | None,
        retain: bool,
        packet_id: int,
        qos: int,
        code: int,
    ) -> None:
        """Send a message on its way to disk; its acknowledgement waits for the commit."""
        publish = stored_publish(tenant, message, [] if queued is None else queued, retain, session, packet_id)
        publish.code = code
        publish.has_direct = self.distribution.direct > 0
        publish.connection = connection
        if qos:
            slot = ack_slot(packet_id, qos)
            publish.slot = slot
            if connection.pending is None:
                connection.pending = []
            connection.pending.append(slot)
            connection.inbound_open += 1
            if qos == 2:
                if session.inbound is None:
                    session.inbound = {}
                session.inbound[packet_id] = STORING
                if session.is_persistent:
                    publish.inbound = session
                    publish.inbound_epoch = session.epoch
                    publish.is_repeat = self.wire.is_repeat
        connection.unstored += 1
        self.append(publish)

    def append(self, publish: StoredPublish) -> None:
        """Hand over to the store, and count it as not stored yet."""
        turn = self.turn
        message = publish.message
        if not message.message_id:
            message.message_id = self._message_id()
        turn.unstored_messages += 1
        turn.unstored_bytes += message.size
        if turn.queues is None or publish.tenant.sinks:
            turn.store.append(publish)
        else:
            turn.queues.append(publish)

    def _message_id(self) -> bytes:
        """Return a new message id: those of a batch are allocated many at a time."""
        if self._next_id == self._end_id or self._id_time != self.turn.now:
            self._id_time = self.turn.now
            self._id_head, self._next_id = self.message_ids.allocate_run()
            self._end_id = self._next_id + RUN
        number = self._next_id
        self._next_id = number + 1
        return self._id_head + _ID_ENDS[number]

    def _refuse_quota(
        self, connection: Connection, session: Session, tenant: TenantPlane, qos: int, is_rate: bool
    ) -> None:
        """Refuse what is over its rate, or beyond a day's allowance: 0x97 where 5.0 has an answer; else the connection ends, or QoS 0 is dropped."""
        self.gate.forget(connection)
        self.turn.drop(tenant, session, Drop.QUOTA, 1)
        if connection.version == 5:
            if qos:
                self._refuse(connection, session, qos, 0x97)
            elif is_rate:
                self.turn.close(connection, Reason.MESSAGE_RATE)
        elif is_rate:
            self.turn.close(connection, Reason.MESSAGE_RATE)
        elif qos:
            self.turn.close(connection, Reason.QUOTA)

    def _refuse_unstored(self, connection: Connection, session: Session, tenant: TenantPlane, qos: int) -> None:
        """Refuse what the disk has no room for; QoS 0 is dropped. Only in 5.0: older clients wait."""
        self.gate.forget(connection)
        self.turn.drop(tenant, session, Drop.STORE_FAILED, 1)
        if qos:
            self._refuse(connection, session, qos, 0x97)

    def _deny(self, connection: Connection, session: Session, tenant: TenantPlane, qos: int) -> None:
        """No right to publish there [MQTT3-3.3.5-2]."""
        self.gate.forget(connection)
        self.turn.drop(tenant, session, Drop.DENIED, 1)
        if connection.version < 5 and tenant.limits.close_on_denied:
            self.turn.close(connection, Reason.NOT_AUTHORIZED)
        else:
            self._refuse(connection, session, qos, 0x87)

    def _refuse(self, connection: Connection, session: Session, qos: int, code: int) -> None:
        """Refuse a PUBLISH.

        Invariant: an identifier that an earlier connection may have recorded is removed from the store before the answer. The answer frees the
        identifier at the client, and its next message under it would be taken for a repeat, and lost.
        """
        packet_id = self.wire.packet_id
        if qos == 2 and self.wire.is_repeat and session.is_persistent:
            if connection.pending is None:
                connection.pending = []
            slot = ack_slot(packet_id, qos)
            connection.pending.append(slot)
            connection.inbound_open += 1
            self.answers.refuse_later(session, slot, code)
        else:
            self.answers.answer(connection, qos, packet_id, code)

    def _block(self, connection: Connection, wait: float) -> None:
        """Stop reading a publisher over its rate; the wheel wakes it."""
        connection.is_blocked = True
        self.pause(connection)
        connection.wake_at = self.turn.now + wait
        self.wheel.schedule(connection.wake_at, connection)

    def _starve(self, connection: Connection) -> None:
        """Stop reading a publisher that is ahead of the store; the tick wakes it when there is room."""
        connection.is_blocked = True
        self.pause(connection)
        self.turn.starved.append(connection)
