# cython: annotation_typing=False
"""The one gate to the wire: right, expiry, size and rate of each delivery are checked here, then it is encoded into the out-buffer.

Knows no backlog, no queue and no routing: it sends one delivery now, or refuses it by name.
"""

from __future__ import annotations

from iothub.base.reasons import Drop, Reason
from iothub.engine.encode import (
    append_ack,
    append_frame,
    assemble,
    frame_size,
    has_frame,
    identifier_at,
    own_properties,
    shared_frame,
)
from iothub.engine.limits import DeviceMeters
from iothub.engine.message import Message, blocks
from iothub.engine.state import Connection, Session
from iothub.engine.turn import Turn
from iothub.engine.wire import PUBACK

_NO_METERS = DeviceMeters()


class Emission:
    """Encodes deliveries and acknowledgements into `connection.out`."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    # --- deliveries

    def emit(
        self,
        session: Session,
        connection: Connection,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        may_have_been_sent: bool,
    ) -> bool:
        """Send a delivery now; one that fails a check is counted and its position skipped."""
        tenant = session.tenant
        turn = self.turn
        if not session.may_receive(message.topic, turn.grants):
            return self._refuse(session, qos, Drop.DENIED)
        if tenant.deliver_hook is not None and not tenant.deliver_hook(session, message):
            return self._refuse(session, qos, Drop.HOOK)
        expiry = -1
        if message.expires_at > 0.0:
            left = message.expires_at - turn.wall_now()
            if left <= 0.0:
                if not may_have_been_sent:
                    return self._refuse(session, qos, Drop.EXPIRED)  # [MQTT-3.3.2-5]
                left = 0.0
            expiry = int(left)
        is_v5 = connection.version == 5
        frame: bytes | None = None  # None: nobody else needs it
        if is_v5 and (expiry >= 0 or identifiers or connection.topic_alias_maximum):
            frame = self._own_frame(connection, message, qos > 0, expiry, identifiers)
        elif has_frame(message):
            frame = shared_frame(message, is_v5, qos > 0)
        size = frame_size(message, is_v5, qos > 0) if frame is None else len(frame)
        if connection.maximum_packet_size and size > connection.maximum_packet_size:
            return self._refuse(session, qos, Drop.TOO_LARGE)  # [MQTT-3.1.2-24] [MQTT-3.1.2-25]
        if not connection.is_dirty:
            turn.touch(connection)
        out = connection.out
        start = len(out)
        at = append_frame(out, message, is_v5, qos > 0, size) if frame is None else self._append(out, frame, qos)
        header = 0x30 | qos << 1
        if retain:
            header |= 1
        if qos:
            if may_have_been_sent:
                header |= 8  # [MQTT-3.3.1-1]
            self._identify(session, out, at, qos)
        out[start] = header
        self._count(session, message, qos, size)
        return True

    def _append(self, out: bytearray, frame: bytes, qos: int) -> int:
        """Append a frame; return where its Packet Identifier stands."""
        start = len(out)
        out += frame
        return start + identifier_at(frame) if qos else 0

    def _identify(self, session: Session, out: bytearray, at: int, qos: int) -> None:
        """Take the next position and write its Packet Identifier [MQTT-2.2.1-4]."""
        window = session.window
        if window is not None:
            packet_id = window.send(qos)
            out[at] = packet_id >> 8
            out[at + 1] = packet_id & 0xFF

    def _own_frame(
        self, connection: Connection, message: Message, is_identified: bool, expiry: int, identifiers: tuple[int, ...]
    ) -> bytes:
        """Encode a frame for this receiver only."""
        alias = 0
        topic = message.topic
        if connection.topic_alias_maximum:
            alias = self._alias(connection, topic)
            if alias < 0:
                alias = -alias
                topic = b""
        properties = own_properties(message, expiry, identifiers, alias)
        return assemble(topic, message.payload, properties, True, is_identified)

    def _refuse(self, session: Session, qos: int, reason: Drop) -> bool:
        """Drop a delivery that reached the gate: its position is treated as complete."""
        self.turn.drop(session.tenant, session, reason, 1)
        if qos and session.window is not None:
            session.window.skip()
        return False

    def _count(self, session: Session, message: Message, qos: int, size: int) -> None:
        counters = self.turn.counters
        own = session.tenant.counters
        counters.publish_sent += 1
        counters.bytes_sent += size
        own.publish_sent += 1
        own.bytes_sent += size
        own.blocks_delivered += blocks(message)
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

    def has_allowance(self, session: Session, message: Message) -> bool:
        """Ask the outbound meters; what one of them has granted stays granted until the delivery went out."""
        tenant = session.tenant
        if tenant.outbound_messages is None and tenant.outbound_bytes is None and session.meters is None:
            return True
        now = self.turn.now
        size = len(message.topic) + len(message.payload) + len(message.properties)
        own = session.meters or _NO_METERS
        passed = session.passed_meters
        for bit, meter, units in (
            (1, own.outbound_messages, 1),
            (2, own.outbound_bytes, size),
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
        """Append one whole control packet; one that the client does not accept ends its connection instead [MQTT-3.1.2-24]."""
        if connection.is_closing:
            return
        if connection.maximum_packet_size and len(packet) > connection.maximum_packet_size:
            self.turn.close(connection, Reason.PACKET_TOO_LARGE)
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
        if kind == PUBACK:
            counters.puback_sent += 1
        else:
            counters.others_sent[kind] += 1
        if connection.tenant is not None:
            connection.tenant.counters.bytes_sent += size
        if len(connection.out) > 2 * turn.out_hard_bytes:
            turn.close(connection, Reason.SLOW_CONSUMER)
