# cython: annotation_typing=False
"""From a chunk of bytes to routed messages: the walk over packets, PUBLISH with all its checks, and both directions' acknowledgements.

Knows no sockets. CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT and AUTH go to the control plane whole, and the walk stops until it answers.
"""

from __future__ import annotations

from iothub.engine.connection import Connection
from iothub.engine.distribute import Distribution
from iothub.engine.filters import check_topic_name
from iothub.engine.message import Message
from iothub.engine.outbound import Outbound
from iothub.engine.outbox import AckSlot, QueueTarget, StoredPublish
from iothub.engine.ports import Control
from iothub.engine.quota import LATER, PASSED, RATE, Gate
from iothub.engine.router import Route
from iothub.engine.session import FINISHING, ROUTED, STORING, UNSTORED, Session
from iothub.engine.tenant import TenantPlane
from iothub.engine.turn import Turn
from iothub.engine.wheel import Wheel
from iothub.engine.wire import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID, Wire
from iothub.ids import MessageIds
from iothub.reasons import Drop, Reason

_REASONS = {
    0x81: Reason.MALFORMED,
    0x82: Reason.PROTOCOL_ERROR,
    0x90: Reason.TOPIC_NAME_INVALID,
    0x93: Reason.RECEIVE_MAXIMUM_EXCEEDED,
    0x94: Reason.TOPIC_ALIAS_INVALID,
    0x95: Reason.PACKET_TOO_LARGE,
    0x97: Reason.QUOTA,
}
_CONNECT = 0x10
_AUTH = 15
_FOR_CONTROL = frozenset((8, 10, 14, 15))


class Inbound:
    """Walks what clients send."""

    def __init__(
        self,
        turn: Turn,
        wheel: Wheel,
        outbound: Outbound,
        distribution: Distribution,
        control: Control,
        message_ids: MessageIds,
    ) -> None:
        self.turn = turn
        self.wheel = wheel
        self.outbound = outbound
        self.distribution = distribution
        self.control = control
        self.message_ids = message_ids
        self.wire = Wire()
        self.gate = Gate(turn)

    # --- the walk

    def feed(self, connection: Connection, data: bytes) -> None:
        """Take a chunk: parse it, or keep it while the parser stands still or a packet is incomplete."""
        turn = self.turn
        connection.last_seen = turn.now
        turn.counters.bytes_received += len(data)
        turn.counters.chunks += 1
        if connection.tenant is not None:
            connection.tenant.counters.bytes_received += len(data)
        partial = connection.partial
        if connection.is_waiting or connection.is_blocked:
            self._keep_more(connection, data)
        elif partial is not None:
            partial += data
            if len(partial) >= connection.needed:
                self.parse(connection)
        else:
            self.walk(connection, data)

    def parse(self, connection: Connection) -> None:
        """Walk over what was kept."""
        partial = connection.partial
        if partial is not None:
            connection.partial = None
            self.walk(connection, bytes(partial))

    def walk(self, connection: Connection, data: bytes) -> None:
        """Handle every complete packet of a chunk, in order; keep the rest."""
        at = 0
        end = len(data)
        needed = 0
        wire = self.wire
        while at < end and not (connection.is_waiting or connection.is_blocked or connection.is_closing):
            header = data[at]
            if not self._is_expected(connection, header):
                break
            length = wire.measure(data, at, end, connection.version == 5)
            if length <= 0:
                if length < 0:
                    self.fail(connection, 0x81)
                needed = end - at + 1
                break
            if length > connection.packet_bytes:
                self._exceed(connection, 0x95, "packet_bytes")  # before its body is there
                break
            if at + length > end:
                needed = length
                break
            if header >> 4 == 3:
                if not self._publish(connection, data, at, length, header):
                    break
            else:
                self._packet(connection, data, at, length, header)
            at += length
        if connection.is_closing:
            connection.partial = None
        elif at < end:
            connection.partial = bytearray(data[at:] if at else data)
            connection.needed = needed

    def _is_expected(self, connection: Connection, header: int) -> bool:
        """Before CONNECT was accepted only CONNECT [MQTT-3.1.0-1], once [MQTT-3.1.0-2], and AUTH may come; checked at the first byte."""
        if connection.version:
            return True
        if not connection.has_connect:
            if header == _CONNECT:
                return True
            self.fail(connection, 0x82 if header >> 4 not in (0, 1) else 0x81)
            return False
        if header >> 4 in (_AUTH, 14):
            return True
        self.fail(connection, 0x82)
        return False

    def _packet(self, connection: Connection, data: bytes, at: int, length: int, header: int) -> None:
        """Everything but PUBLISH."""
        kind = header >> 4
        wire = self.wire
        body = wire.body
        if 4 <= kind <= 7:
            tenant = connection.tenant
            limit = 0 if length < 7 or tenant is None else tenant.limits.user_properties
            if connection.version == 3 and kind == 6:
                header &= 0xF7  # 3.1 sets DUP when it sends a PUBREL again
            code = wire.read_ack(data, body, at + length, header, connection.version == 5, limit)
            if code:
                self.fail(connection, code)
            else:
                self._ack(connection, kind)
            return
        self.turn.counters.others_received[kind] += 1
        if kind == 12:
            if header != 0xC0 or length != 2:
                self.fail(connection, 0x81)
            else:
                self.outbound.send(connection, b"\xd0\x00")  # [MQTT-3.12.4-1]
        elif kind == 1:
            if connection.has_connect:
                self.fail(connection, 0x82)  # [MQTT-3.1.0-2]
            else:
                connection.has_connect = True
                self._to_control(connection, header, data[body : at + length])
        elif kind in _FOR_CONTROL and (kind != _AUTH or connection.version != 4):
            self._to_control(connection, header, data[body : at + length])
        else:
            self.fail(connection, 0x82 if kind else 0x81)

    def _to_control(self, connection: Connection, header: int, body: bytes) -> None:
        connection.is_waiting = True
        self.control.packet(connection, header, body)
        if connection.is_waiting and not connection.is_closing:
            self.pause(connection)

    def _keep_more(self, connection: Connection, data: bytes) -> None:
        """Bytes that the transport had read already when it was asked to pause; bounded."""
        limits = self.turn.limits
        if connection.partial is None:
            connection.partial = bytearray()
        connection.partial += data
        bound = limits.pre_connect_bytes if connection.version == 0 else connection.packet_bytes
        if len(connection.partial) > bound + limits.chunk_bytes:
            self.turn.close(connection, Reason.OVERLOAD)

    def pause(self, connection: Connection) -> None:
        """Stop reading this client."""
        if not connection.is_paused:
            connection.is_paused = True
            connection.transport.pause()

    def fail(self, connection: Connection, code: int) -> None:
        """Close for a fault of the client."""
        self.turn.close(connection, _REASONS.get(code, Reason.PROTOCOL_ERROR))

    def _exceed(self, connection: Connection, code: int, limit: str) -> None:
        """Close for a limit of the tenant, and say which."""
        if connection.tenant is not None:
            self.turn.observer.limited(connection.tenant, connection.session, limit, 1)
        self.fail(connection, code)

    # --- PUBLISH

    def _publish(self, connection: Connection, data: bytes, at: int, length: int, header: int) -> bool:
        """Handle one PUBLISH; False: it must wait, nothing was done."""
        wire = self.wire
        session = connection.session
        tenant = connection.tenant
        if session is None or tenant is None:
            self.fail(connection, 0x82)
            return True
        code = wire.read_publish(
            data, wire.body, at + length, header, connection.version == 5, tenant.limits.user_properties
        )
        if code == 0x97:
            self._exceed(connection, code, "user_properties")
            return True
        if code == 0:
            code = self._resolve_topic(connection, tenant)
        if code:
            self.fail(connection, code)
            return True
        qos = header >> 1 & 3
        known = 0
        if qos:
            if qos == 2 and session.inbound is not None:
                known = session.inbound.get(wire.packet_id, 0)
            if known == 0 and connection.inbound_open >= connection.inbound_maximum:
                if connection.version == 5 or connection.pending is None:
                    self._exceed(connection, 0x93, "inbound_maximum")  # [MQTT-3.3.4-7]
                    return True
                self._starve(connection)
                return False
        if known:
            self._publish_again(connection, session, tenant, known)
            return True
        verdict = self.gate.admit(connection, session, tenant, length)
        if verdict == LATER:
            self._block(connection, self.gate.wait)
            return False
        if verdict != PASSED:
            self._refuse_quota(connection, session, tenant, qos, verdict == RATE)
            return True
        if not session.may_publish(wire.topic, self.turn.grants):
            self._deny(connection, session, tenant, qos)
            return True
        return self._route(connection, session, tenant, data, at, length, header)

    def _resolve_topic(self, connection: Connection, tenant: TenantPlane) -> int:
        """Check the Topic Name, once per cached route, and take or set the alias."""
        wire = self.wire
        topic = wire.topic
        alias = wire.alias
        if alias > connection.topic_aliases:
            self._exceed(connection, TOPIC_ALIAS_INVALID, "topic_aliases")  # [MQTT-3.2.2-18]
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
                    self._exceed(connection, code, "topic_bytes")
                elif code == 0x90 and topic.count(b"/") >= limits.topic_levels:
                    self._exceed(connection, code, "topic_levels")
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
        wire = self.wire
        qos = header >> 1 & 3
        retain = header & 1 == 1
        route = tenant.router.match(wire.topic)
        gate = self.gate
        turn = self.turn
        if turn.unstored_messages or turn.buffered_bytes or tenant.persistent_fanout is not None:
            queues = self._count_queues(route, qos)
            needs_store = queues > 0 or retain or (qos == 2 and session.is_persistent)
            if gate.must_wait_for_store(connection, needs_store):
                self._starve(connection)
                return False
            if queues and tenant.persistent_fanout is not None:
                wait = tenant.persistent_fanout.take(queues, turn.now)
                if wait > 0.0 and gate.later(connection, tenant, wait) == LATER:
                    self._block(connection, gate.wait)
                    return False
                if wait != 0.0:  # below 0: a calendar window is used up
                    turn.observer.limited(tenant, session, "persistent_fanout", 1)
                    self._refuse_quota(connection, session, tenant, qos, wait > 0.0)
                    return True
        if connection.blocked_since != 0.0 or connection.taken_meters:
            gate.forget(connection)
        message = self._message(session, qos, retain)
        if wire.is_plain and not wire.alias and route.targets:
            frame = data[at : at + length]
            if connection.version == 5:
                if qos:
                    message.frame5_identified = frame
                else:
                    message.frame5 = frame
            elif qos:
                message.frame3_identified = frame
            else:
                message.frame3 = frame
        counters = turn.counters
        counters.publish_received += 1
        if qos == 0:
            counters.received_0 += 1
            tenant.counters.received_0 += 1
        elif qos == 1:
            counters.received_1 += 1
            tenant.counters.received_1 += 1
        else:
            counters.received_2 += 1
            tenant.counters.received_2 += 1
        if tenant.publish_hook is not None:
            replaced = tenant.publish_hook(session, message)
            if replaced is None:
                turn.drop(tenant, session, Drop.HOOK, 1)
                self._answer(connection, qos, wire.packet_id, 0x87)
                return True
            if replaced is not message:
                message = replaced
                route = tenant.router.match(message.topic)
        packet_id = wire.packet_id
        self.distribution.skip_direct = False
        queued = self.distribution.distribute(tenant, message, route)
        receivers = self.distribution.receivers
        code = 0
        if receivers == 0 and not retain:
            turn.drop(tenant, session, Drop.NO_SUBSCRIBERS, 1)
            code = 0x10
        if retain and message.payload and tenant.may_retain is not None:
            if not tenant.may_retain(message.topic, len(message.payload)):
                retain = False  # delivered, not retained
                code = 0x97
        if queued is None and not retain and not (qos == 2 and session.is_persistent):
            if qos == 2 and code < 0x80:
                if session.inbound is None:
                    session.inbound = {}
                session.inbound[packet_id] = ROUTED
                connection.inbound_open += 1
            self._answer(connection, qos, packet_id, code)
            return True
        self._store(connection, session, tenant, message, queued, retain, packet_id, code)
        return True

    def _message(self, session: Session, qos: int, retain: bool) -> Message:
        wire = self.wire
        expires_at = 0.0
        if wire.expiry >= 0:
            expires_at = self.turn.wall_now() + wire.expiry
        return Message(
            wire.topic, wire.payload, qos, retain, wire.properties, expires_at, b"", session, session.client_id
        )

    def _count_queues(self, route: Route, qos: int) -> int:
        """How many persistent sessions this may be stored for, shared groups counted as one each."""
        if qos == 0:
            return 0
        count = 0
        for target in route.targets:
            session: Session = target.session
            if target.qos and session.is_persistent:
                count += 1
        return count + len(route.groups)

    def _publish_again(self, connection: Connection, session: Session, tenant: TenantPlane, known: int) -> None:
        """A QoS 2 PUBLISH whose identifier is known: never routed twice [MQTT-4.3.3-10], only acknowledged, and stored if it was not."""
        wire = self.wire
        if known in (ROUTED, FINISHING):
            self._answer(connection, 2, wire.packet_id, 0)
        elif self._is_pending(connection, wire.packet_id):
            return  # its PUBREC is on its way
        elif known == UNSTORED or session.is_persistent:
            message = self._message(session, 2, False)
            self.distribution.skip_direct = True
            queued = self.distribution.distribute(tenant, message, tenant.router.match(wire.topic))
            self._store(connection, session, tenant, message, queued, False, wire.packet_id, 0)

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
        code: int,
    ) -> None:
        """Send a message on its way to disk; its acknowledgement waits for the commit."""
        publish = StoredPublish(tenant, message, [] if queued is None else queued, retain)
        publish.code = code
        publish.has_direct = self.distribution.direct > 0
        publish.publisher = session
        publish.connection = connection
        publish.packet_id = packet_id
        qos = message.qos
        if qos:
            slot = AckSlot(packet_id, qos)
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
        connection.unstored += 1
        self.append(publish)

    def append(self, publish: StoredPublish) -> None:
        """Hand over to the store and put it on the books."""
        turn = self.turn
        message = publish.message
        if not message.message_id:
            message.message_id = self.message_ids.allocate()
        turn.unstored_messages += 1
        turn.unstored_bytes += message.size
        turn.store.append(publish)

    # --- what a PUBLISH gets for an answer

    def _answer(self, connection: Connection, qos: int, packet_id: int, code: int) -> None:
        """PUBACK or PUBREC, in the order of the PUBLISHes of this connection [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""
        if qos == 0:
            return
        if connection.pending is None:
            self.outbound.send_ack(connection, 0x40 if qos == 1 else 0x50, packet_id, code)
        else:
            slot = AckSlot(packet_id, qos)
            slot.code = code
            connection.pending.append(slot)
            if qos == 1 or code >= 0x80:
                connection.inbound_open += 1

    def flush_answers(self, connection: Connection) -> None:
        """Send the acknowledgements at the front that are known by now."""
        pending = connection.pending
        if pending is None:
            return
        index = 0
        count = len(pending)
        while index < count:
            slot = pending[index]
            if slot.code < 0:
                break
            index += 1
            self.outbound.send_ack(connection, 0x40 if slot.qos == 1 else 0x50, slot.packet_id, slot.code)
            if (slot.qos == 1 or slot.code >= 0x80) and connection.inbound_open:
                connection.inbound_open -= 1
        if index == count:
            connection.pending = None
        elif index:
            del pending[:index]

    def _refuse_quota(
        self, connection: Connection, session: Session, tenant: TenantPlane, qos: int, is_rate: bool
    ) -> None:
        """Tenancy page, section 4: rate over its bound, or a day's allowance spent."""
        self.gate.forget(connection)
        self.turn.drop(tenant, session, Drop.QUOTA, 1)
        if connection.version == 5:
            if qos:
                self._answer(connection, qos, self.wire.packet_id, 0x97)
            elif is_rate:
                self.turn.close(connection, Reason.MESSAGE_RATE)
        elif is_rate:
            self.turn.close(connection, Reason.MESSAGE_RATE)
        elif qos:
            self.turn.close(connection, Reason.QUOTA)

    def _deny(self, connection: Connection, session: Session, tenant: TenantPlane, qos: int) -> None:
        """No right to publish there [MQTT-3.3.5-2]."""
        self.gate.forget(connection)
        self.turn.drop(tenant, session, Drop.DENIED, 1)
        if connection.version < 5 and tenant.limits.close_on_denied:
            self.turn.close(connection, Reason.NOT_AUTHORIZED)
        else:
            self._answer(connection, qos, self.wire.packet_id, 0x87)

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

    # --- acknowledgements

    def _ack(self, connection: Connection, kind: int) -> None:
        session = connection.session
        wire = self.wire
        if session is None:
            self.fail(connection, 0x82)
            return
        packet_id = wire.packet_id
        counters = self.turn.counters
        if kind == 4:
            counters.puback_received += 1
            if not self.outbound.puback(session, packet_id):
                self.fail(connection, 0x82)
            return
        counters.others_received[kind] += 1
        if kind == 5:
            if not self.outbound.pubrec(session, connection, packet_id, wire.code):
                self.fail(connection, 0x82)
        elif kind == 7:
            if not self.outbound.pubcomp(session, packet_id):
                self.fail(connection, 0x82)
        else:
            self._pubrel(connection, session, packet_id)

    def _pubrel(self, connection: Connection, session: Session, packet_id: int) -> None:
        """Forget the identifier, durably first for a persistent session, then PUBCOMP [MQTT-4.3.3-11]."""
        inbound = session.inbound
        known = 0 if inbound is None else inbound.get(packet_id, 0)
        if inbound is None or known == 0:
            self.outbound.send_ack(connection, 0x70, packet_id, 0x92)
        elif not session.is_persistent:
            del inbound[packet_id]
            self._complete(connection, packet_id)
        elif known != FINISHING:
            inbound[packet_id] = FINISHING
            self.turn.store.finish_inbound(session, packet_id)

    def _complete(self, connection: Connection, packet_id: int) -> None:
        if connection.inbound_open:
            connection.inbound_open -= 1
        self.outbound.send_ack(connection, 0x70, packet_id, 0)

    def finished(self, session: Session, packet_id: int) -> None:
        """The removal of an inbound identifier is durable."""
        inbound = session.inbound
        if inbound is None or inbound.get(packet_id, 0) != FINISHING:
            return
        del inbound[packet_id]
        if session.connection is not None:
            self._complete(session.connection, packet_id)
