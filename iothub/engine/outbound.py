# cython: annotation_typing=False
"""From a session to its client's out-buffer: windows, backlog, drop policy, encoding, and the pages of a virtual queue that was left behind.

Knows no routing and no publisher. Everything with QoS > 0 for a persistent session comes out of its queue: from memory with the commit's
notification while it is caught up, from pages otherwise (storage page, sections 5 and 6).
"""

from __future__ import annotations

from typing import Any

from iothub.engine.connection import Connection
from iothub.engine.encode import append_ack, assemble, identifier_at, own_properties, shared_frame
from iothub.engine.message import Delivery, Message
from iothub.engine.session import Session
from iothub.engine.turn import Turn
from iothub.engine.window import SPAN, WAIT_PUBCOMP, Window
from iothub.reasons import Drop, Reason

_WATCH_BYTES = 16 << 10  # a smaller out-buffer is not on the books


class Outbound:
    """Delivers, refills windows and asks the store for what it needs."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    # --- deliveries that come from memory

    def deliver(
        self, session: Session, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], group: Any
    ) -> bool:
        """Give a message to a transient session, or QoS 0 to a persistent one, now or by its backlog; False: dropped, and counted."""
        connection = session.connection
        if connection is None:
            self.turn.drop(
                session.tenant, session, Drop.QOS0_OFFLINE if session.is_persistent else Drop.SESSION_ENDED, 1
            )
            return False
        if session.replay_topics is not None:
            session.replay_topics.add(message.topic)
        if qos == 0:
            if session.backlog_qos0 or not self._has_allowance(session, message):
                return self._hold(session, Delivery(message, 0, retain, identifiers, 0, group))
            return self._deliver_qos0(session, connection, message, retain, identifiers)
        window = session.window
        if window is None:
            return False
        if (
            session.backlog is None
            and window.has_room()
            and len(connection.out) <= self.turn.out_hard_bytes
            and self._has_allowance(session, message)
        ):
            return self._emit(session, connection, message, qos, retain, identifiers, False)
        if window.has_room():
            self.turn.wait(session)  # no acknowledgement will move it
        return self._hold(session, Delivery(message, qos, retain, identifiers, 0, group))

    def _deliver_qos0(
        self, session: Session, connection: Connection, message: Message, retain: bool, identifiers: tuple[int, ...]
    ) -> bool:
        """Two conditions (R16): more buffered than the soft limit, and the socket does not take it. The hard cap needs no second one."""
        turn = self.turn
        waiting = len(connection.out)
        if waiting:
            if not connection.is_dirty:
                connection.is_congested = True  # written in an earlier batch, and still here
            if waiting > turn.out_hard_bytes or (
                connection.is_congested
                and (waiting + session.backlog_bytes > turn.out_soft_bytes or turn.overload_level() > 0)
            ):
                turn.drop(session.tenant, session, Drop.QOS0_SLOW, 1)
                return False
        return self._emit(session, connection, message, 0, retain, identifiers, False)

    def _hold(self, session: Session, delivery: Delivery) -> bool:
        """Put a delivery into the backlog, or drop it: the newest goes."""
        tenant = session.tenant
        limits = tenant.limits
        turn = self.turn
        if (
            session.backlog_length() >= limits.backlog_messages
            or session.backlog_bytes + delivery.message.size > limits.backlog_bytes
            or tenant.buffered_bytes >= limits.buffered_bytes
            or turn.buffered_bytes >= turn.limits.buffered_bytes
        ):
            turn.drop(tenant, session, Drop.QOS0_SLOW if delivery.qos == 0 else Drop.QUEUE_FULL, 1)
            return False
        session.push(delivery)
        turn.hold(tenant, delivery.message.size)
        return True

    # --- the window

    def pump(self, session: Session) -> None:
        """Move the backlog into the window as far as it goes; then ask for a page if the queue has more."""
        connection = session.connection
        window = session.window
        if connection is None or window is None or connection.is_closing:
            return
        turn = self.turn
        while session.backlog is not None:
            delivery = session.peek()
            if delivery is None or not self._advance(session, connection, window, delivery):
                break
            turn.hold(session.tenant, -session.pop())
        if session.is_persistent:
            if session.backlog is None:
                while window.taken < session.loaded and window.is_within_span():
                    self._skip(window)
            self._note_head(session, window)
            self.want_page(session)

    def _advance(self, session: Session, connection: Connection, window: Window, delivery: Delivery) -> bool:
        """Send or skip the first delivery of the backlog; False: it must wait."""
        turn = self.turn
        position = delivery.position
        message = delivery.message
        if position:
            if position <= window.taken:
                return True
            while window.taken + 1 < position:  # the queue has a gap: dropped or expired there
                if not window.is_within_span():
                    return False
                self._skip(window)
            if not window.is_within_span():
                return False
            if window.is_released(position):
                window.take_released()
                return True
        if delivery.qos == 0:
            if len(connection.out) > turn.out_soft_bytes or not self._has_allowance(session, message):
                turn.wait(session)
                return False
            if position:
                window.skip()
            self._emit(session, connection, message, 0, delivery.retain, delivery.identifiers, False)
            return True
        if not window.has_room():
            return False
        if position > window.reserved:
            self._reserve(session, window, position)
            return False
        if len(connection.out) > turn.out_hard_bytes or not self._has_allowance(session, message):
            turn.wait(session)
            return False
        may_have_been_sent = position > 0 and position <= window.sent_upto
        if position and position + turn.limits.reserve_step // 2 > window.reserved:
            self._reserve(session, window, position)  # ahead of need, so that nobody waits
        self._emit(
            session, connection, message, delivery.qos, delivery.retain, delivery.identifiers, may_have_been_sent
        )
        return True

    def _skip(self, window: Window) -> None:
        if window.is_released(window.taken + 1):
            window.take_released()
        else:
            window.skip()

    def _reserve(self, session: Session, window: Window, position: int) -> None:
        """Make "may have been sent" durable before the first send, in steps; never lowered while the hub lives."""
        step = self.turn.limits.reserve_step
        upto = position + step - 1
        if window.asked_reserved < position + step // 2:
            window.asked_reserved = upto
            self.turn.store.reserve(session, upto)

    # --- encoding

    def _emit(
        self,
        session: Session,
        connection: Connection,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        may_have_been_sent: bool,
    ) -> bool:
        """The one gate to the wire: right, expiry and size are checked here; a delivery that fails is counted and its position skipped."""
        tenant = session.tenant
        turn = self.turn
        if not session.receives_everything and not session.may_receive(message.topic, turn.grants):
            return self._refuse(session, qos, Drop.DENIED)
        if tenant.deliver_hook is not None and not tenant.deliver_hook(session, message):
            return self._refuse(session, qos, Drop.HOOK)
        is_v5 = connection.version == 5
        topic_length = len(message.topic)
        expiry = -1
        if message.expires_at > 0.0:
            left = message.expires_at - turn.wall_now()
            if left <= 0.0:
                if not may_have_been_sent:
                    return self._refuse(session, qos, Drop.EXPIRED)  # [MQTT-3.3.2-5]
                left = 0.0
            expiry = int(left)
        if is_v5 and (expiry >= 0 or identifiers or connection.topic_alias_maximum):
            alias = 0
            topic = message.topic
            if connection.topic_alias_maximum:
                alias = self._alias(connection, topic)
                if alias < 0:
                    alias = -alias
                    topic = b""
                    topic_length = 0
            properties = own_properties(message, expiry, identifiers, alias)
            frame = assemble(topic, message.payload, properties, True, qos > 0)
        else:
            frame = shared_frame(message, is_v5, qos > 0)
        size = len(frame)
        if connection.maximum_packet_size and size > connection.maximum_packet_size:
            return self._refuse(session, qos, Drop.TOO_LARGE)  # [MQTT-3.1.2-24] [MQTT-3.1.2-25]
        if not connection.is_dirty:
            turn.touch(connection)
        out = connection.out
        start = len(out)
        out += frame
        header = 0x30 | qos << 1
        if retain:
            header |= 1
        if qos:
            window = session.window
            if window is None:
                return False
            if may_have_been_sent:
                header |= 8  # [MQTT-3.3.1-1]
                turn.counters.retransmitted += 1
            packet_id = window.send(qos)
            at = start + identifier_at(frame, topic_length)
            out[at] = packet_id >> 8
            out[at + 1] = packet_id & 0xFF
        out[start] = header
        self._count(session, qos, size)
        return True

    def _refuse(self, session: Session, qos: int, reason: Drop) -> bool:
        """Drop a delivery that reached the gate: its position is treated as complete."""
        self.turn.drop(session.tenant, session, reason, 1)
        if qos and session.window is not None:
            session.window.skip()
        return False

    def _count(self, session: Session, qos: int, size: int) -> None:
        counters = self.turn.counters
        own = session.tenant.counters
        counters.publish_sent += 1
        counters.bytes_sent += size
        own.publish_sent += 1
        own.bytes_sent += size
        if qos == 0:
            counters.delivered_0 += 1
            own.delivered_0 += 1
        elif qos == 1:
            counters.delivered_1 += 1
            own.delivered_1 += 1
        else:
            counters.delivered_2 += 1
            own.delivered_2 += 1

    def _alias(self, connection: Connection, topic: bytes) -> int:
        """Return 0 for none, the new alias to announce, or minus the alias that replaces the topic. Only repeated topics get one."""
        aliases = connection.aliases_out
        if aliases is None:
            aliases = connection.aliases_out = {}
        alias = aliases.get(topic, -1)
        if alias > 0:
            return -alias
        if alias < 0:
            if len(aliases) < 2 * connection.topic_alias_maximum + 64:
                aliases[topic] = 0
            return 0
        if connection.next_alias > connection.topic_alias_maximum:
            return 0  # [MQTT-3.1.2-26]
        aliases[topic] = connection.next_alias
        connection.next_alias += 1
        return aliases[topic]

    def _has_allowance(self, session: Session, message: Message) -> bool:
        """Ask the outbound meters; what one of them has granted stays granted until the delivery went out."""
        tenant = session.tenant
        if (
            tenant.outbound_messages is None
            and tenant.outbound_bytes is None
            and session.device_outbound_messages is None
            and session.device_outbound_bytes is None
        ):
            return True
        now = self.turn.now
        size = len(message.topic) + len(message.payload) + len(message.properties)
        passed = session.passed_meters
        for bit, meter, units in (
            (1, session.device_outbound_messages, 1),
            (2, session.device_outbound_bytes, size),
            (4, tenant.outbound_messages, 1),
            (8, tenant.outbound_bytes, size),
        ):
            if meter is not None and not passed & bit:
                if meter.take(units, now) != 0.0:
                    session.passed_meters = passed
                    self.turn.wait(session)
                    return False
                passed |= bit
        session.passed_meters = 0
        return True

    # --- acknowledgements to the client

    def send_ack(self, connection: Connection, header: int, packet_id: int, code: int) -> None:
        """Append PUBACK, PUBREC, PUBREL or PUBCOMP; a client that lets them pile up is closed."""
        if connection.is_closing:
            return
        if not connection.is_dirty:
            self.turn.touch(connection)
        size = append_ack(connection.out, header, packet_id, code if connection.version == 5 else 0)
        self._count_control(connection, header, size)

    def send(self, connection: Connection, packet: bytes) -> None:
        """Append one whole control packet."""
        if connection.is_closing:
            return
        if not connection.is_dirty:
            self.turn.touch(connection)
        connection.out += packet
        self._count_control(connection, packet[0], len(packet))

    def _count_control(self, connection: Connection, header: int, size: int) -> None:
        turn = self.turn
        counters = turn.counters
        counters.bytes_sent += size
        kind = header >> 4
        if kind == 4:
            counters.puback_sent += 1
        else:
            counters.others_sent[kind] += 1
        if connection.tenant is not None:
            connection.tenant.counters.bytes_sent += size
        if len(connection.out) > 2 * turn.out_hard_bytes:
            turn.close(connection, Reason.SLOW_CONSUMER)

    # --- the virtual queue of a persistent session

    def notify(
        self, session: Session, message: Message, position: int, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """A commit gave this session `position`. Only the position after `loaded` may come from memory; anything else means a page."""
        if position > session.announced:
            session.announced = position
        if session.connection is None or session.is_behind:
            return
        if position <= session.loaded:
            return
        limits = session.tenant.limits
        if (
            position != session.loaded + 1
            or session.backlog_length() >= limits.backlog_messages
            or session.backlog_bytes >= limits.backlog_bytes
            or session.tenant.buffered_bytes >= limits.buffered_bytes
        ):
            session.is_behind = True
            self.want_page(session)
            return
        session.loaded = position
        session.push(Delivery(message, qos, retain, identifiers, position))
        self.turn.hold(session.tenant, message.size)
        self.pump(session)

    def want_page(self, session: Session) -> None:
        """Ask for the next page, if the session is behind, nobody is reading and the backlog is short."""
        if not session.is_behind or session.is_reading or session.connection is None:
            return
        limits = self.turn.limits
        if session.backlog_length() * 2 > limits.page_messages or session.backlog_bytes * 2 > limits.page_bytes:
            return
        session.is_reading = True
        self.turn.store.read(session, session.loaded, limits.page_messages, limits.page_bytes)

    def page(self, session: Session, records: list[Any], upto: int, is_short: bool) -> None:
        """A page came. Caught up: it was short, was read after the claim, and everything announced is loaded."""
        if session.stale_pages:
            session.stale_pages -= 1  # asked for by an earlier connection
            return
        session.is_reading = False
        if session.connection is None or session.is_discarded:
            return
        before = session.loaded
        for record in records:
            if record.position > session.loaded:
                session.loaded = record.position
                session.push(
                    Delivery(
                        record.message, record.qos, bool(record.flags & 1), record.subscription_ids, record.position
                    )
                )
                self.turn.hold(session.tenant, record.message.size)
        session.loaded = max(session.loaded, upto)
        if is_short and session.loaded >= session.announced:
            session.is_behind = False
        elif session.loaded == before:
            self.turn.wait(session)  # no progress: the store had no answer; again at the next tick
            return
        self.pump(session)

    def _note_head(self, session: Session, window: Window) -> None:
        """Move the durable head in batches of positions; the tick takes the rest."""
        if window.base > window.asked_head:
            if window.base - window.asked_head >= self.turn.limits.ack_batch:
                self.flush_head(session)
            elif not session.is_lagging:
                session.is_lagging = True
                self.turn.lagging.append(session)

    def flush_head(self, session: Session) -> None:
        """Make the head durable up to what the client has completed."""
        window = session.window
        if window is not None and window.base > window.asked_head:
            window.asked_head = window.base
            self.turn.store.ack(session, window.base)

    def start(self, session: Session) -> None:
        """A connection was bound: repeat PUBREL for what was released, in order of position, then walk the queue from its head."""
        connection = session.connection
        window = session.window
        if connection is None or window is None:
            return
        if session.is_persistent:
            if window.released is not None:
                for position in window.released:
                    self.send_ack(connection, 0x62, position % SPAN + 1, 0)  # [MQTT-4.4.0-1]
                    self.turn.counters.retransmitted += 1
            session.is_behind = True  # caught up only by a page read after the claim
        self.pump(session)

    # --- acknowledgements from the client

    def puback(self, session: Session, packet_id: int) -> bool:
        """False: a Protocol Error."""
        window = session.window
        if window is None:
            return True
        position = window.find(packet_id)
        if position == 0:
            return True
        state = window.state(position)
        if state == 1:
            window.complete(position)
            if session.backlog is not None or session.is_persistent:
                self.pump(session)
            return True
        return state == 0

    def pubrec(self, session: Session, connection: Connection, packet_id: int, code: int) -> bool:
        """PUBREL follows once "released" is durable (persistent) or at once; a refusal completes the position [MQTT-4.3.3-3]."""
        window = session.window
        position = 0 if window is None else window.find(packet_id)
        if window is None or position == 0 or window.state(position) == 0:
            if code < 0x80:
                self.send_ack(connection, 0x62, packet_id, 0x92)
            return True
        state = window.state(position)
        if state == 1:
            return False
        if state == 2:
            if code >= 0x80:
                window.complete(position)
                self.pump(session)
            elif session.is_persistent:
                window.set_state(position, 3)
                self.turn.store.release(session, position)
            else:
                window.set_state(position, WAIT_PUBCOMP)
                self.send_ack(connection, 0x62, packet_id, 0)
        elif state == WAIT_PUBCOMP and connection.version < 5:
            self.send_ack(connection, 0x62, packet_id, 0)
        return True

    def released(self, session: Session, position: int) -> None:
        """PUBREC of this position is durable: PUBREL may leave [MQTT-4.3.3-4]."""
        connection = session.connection
        window = session.window
        if connection is None or window is None or window.state(position) != 3:
            return
        window.set_state(position, WAIT_PUBCOMP)
        self.send_ack(connection, 0x62, position % SPAN + 1, 0)

    def pubcomp(self, session: Session, packet_id: int) -> bool:
        """Any code completes it: 0x92 after a repeated PUBREL is success."""
        window = session.window
        position = 0 if window is None else window.find(packet_id)
        if window is None or position == 0:
            return True
        state = window.state(position)
        if state == WAIT_PUBCOMP:
            window.complete(position)
            self.pump(session)
            return True
        return state == 0
