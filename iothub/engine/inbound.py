# cython: annotation_typing=False
"""From a chunk of bytes to packets: finds them, checks what may come when, and passes each to its handler.

Knows no sockets and no routes. CONNECT, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT and AUTH go to the control plane whole, and parsing
stops until it answers. `inbound_qos2` has the states of the Packet Identifiers under which clients publish with QoS 2.
"""

from __future__ import annotations

from iothub.base.reasons import Reason
from iothub.engine.answers import Answers
from iothub.engine.control_queue import ControlQueue
from iothub.engine.emission import Emission
from iothub.engine.publishing import Publishing
from iothub.engine.receipts import Receipts
from iothub.engine.state import Connection
from iothub.engine.turn import ACCEPTS_NOBODY, NOT_OVERLOADED, Turn
from iothub.engine.wire import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from iothub.mqtt.errors import MqttError
from iothub.mqtt.fixed_header import check_first_byte

_FOR_CONTROL = frozenset((SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH))
_RECEIPTS = frozenset((PUBACK, PUBREC, PUBCOMP))
_PASSED = frozenset((PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, PINGREQ))  # receipts may go before these
_LARGE = 64 << 10  # bytes of an incomplete packet: from here on it is counted, and grows only while there is room


class Inbound:
    """Parses what clients send."""

    def __init__(
        self,
        turn: Turn,
        publishing: Publishing,
        answers: Answers,
        receipts: Receipts,
        emission: Emission,
        control_queue: ControlQueue,
    ) -> None:
        self.turn = turn
        self.publishing = publishing
        self.wire = publishing.wire
        self.answers = answers
        self.receipts = receipts
        self.emission = emission
        self.control_queue = control_queue

    # --- packets

    def feed(self, connection: Connection, data: bytes) -> None:
        """Take a chunk: parse it, or keep it while the parser stands still or a packet is incomplete."""
        turn = self.turn
        connection.last_seen = turn.now
        turn.counters.bytes_received += len(data)
        if connection.tenant is not None:
            connection.tenant.counters.bytes_received += len(data)
        partial = connection.partial
        if connection.is_waiting or connection.is_blocked:
            self._keep_more(connection, data)
            self._read_ahead(connection)
        elif partial is not None:
            partial += data
            if len(partial) >= connection.needed:
                self.parse_kept(connection)
            elif len(partial) >= _LARGE:
                self._grow(connection, len(partial))
        else:
            self.parse(connection, data)

    def parse_kept(self, connection: Connection) -> None:
        """Parse what was kept."""
        partial = connection.partial
        if partial is not None:
            connection.partial = None
            if connection.kept_bytes:
                self.turn.keep(connection, 0)
            self.parse(connection, bytes(partial))

    def parse(self, connection: Connection, data: bytes) -> None:
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
            if length <= 0 or length > connection.packet_bytes or at + length > end:
                self._check_begun(connection, header, length)
                needed = length if length > 0 else end - at + 1
                break
            if header >> 4 == PUBLISH:
                if not self.publishing.publish(connection, data, at, length, header):
                    break
            else:
                self._packet(connection, data, at, length, header)
            at += length
        if connection.is_closing:
            connection.partial = None
        elif at < end:
            connection.partial = bytearray(data[at:] if at else data)
            connection.needed = needed
            self._read_ahead(connection)

    def _check_begun(self, connection: Connection, header: int, length: int) -> None:
        """Close for a packet that may not come, or is too long, without waiting for the rest of it."""
        if connection.version:
            if header >> 4 == CONNECT:
                self.fail(connection, 0x82)  # [MQTT-3.1.0-2]
                return
            try:
                check_first_byte(header, connection.version)
            except MqttError as error:
                self.turn.close(connection, error.reason)
                return
        if length < 0:
            self.fail(connection, 0x81)
        elif length > connection.packet_bytes:
            self.publishing.exceed(connection, 0x95, "packet_bytes")  # [MQTT-3.2.2-15]

    def _grow(self, connection: Connection, size: int) -> None:
        """Count an incomplete packet, or close: a tenant may have half of what may be buffered, an eighth under overload, nothing at its last level.

        No tenant pays for another one: one that holds little goes on under overload. Before CONNECT `connect_bytes` is the bound.
        """
        turn = self.turn
        tenant = connection.tenant
        if tenant is None:
            return
        turn.keep(connection, size)
        level = turn.overload_level()
        share = 2 if level == NOT_OVERLOADED else 8
        held = tenant.buffered_bytes
        if level >= ACCEPTS_NOBODY or held * share >= turn.most_buffered_bytes or held >= tenant.most_buffered_bytes:
            turn.close(connection, Reason.OVERLOAD)

    def _read_ahead(self, connection: Connection) -> None:
        """Take the acknowledgements behind a PUBLISH that waits for memory or for the store: they make room.

        What the client publishes keeps its order, and so do its acknowledgements; between the two the protocol promises none.
        """
        if not connection.is_blocked or connection.is_unanswered or connection.wake_at != 0.0:
            return
        self.publishing.pause(connection)
        connection.is_held_up = False
        session = connection.session
        partial = connection.partial
        if session is None or session.window is None or session.window.in_flight == 0 or partial is None:
            return
        at = 0
        data = bytes(partial)
        end = len(data)
        kept: bytearray | None = None
        while at < end and not connection.is_closing:
            kind = data[at] >> 4
            length = self.wire.measure(data, at, end, connection.version == 5)
            if length == 0 or at + length > end:
                break
            if kind not in _PASSED or length < 0:
                connection.is_held_up = True
                break
            if kind in _RECEIPTS:
                if kept is None:
                    kept = bytearray(data[:at])
                self._packet(connection, data, at, length, data[at])
            elif kept is not None:
                kept += data[at : at + length]
            at += length
        if kept is not None and not connection.is_closing:
            kept += data[at:]
            connection.partial = kept

    def _is_expected(self, connection: Connection, header: int) -> bool:
        """Before CONNECT was accepted only CONNECT [MQTT-3.1.0-1], once [MQTT-3.1.0-2], and AUTH may come; checked at the first byte."""
        if connection.version:
            return True
        if not connection.has_connect:
            if header == CONNECT << 4:
                return True
            self.fail(connection, 0x82 if header >> 4 > CONNECT else 0x81)
            return False
        if header in (AUTH << 4, DISCONNECT << 4):
            return True
        self.fail(connection, 0x81 if header >> 4 in (AUTH, DISCONNECT) else 0x82)
        return False

    def _packet(self, connection: Connection, data: bytes, at: int, length: int, header: int) -> None:
        """Everything but PUBLISH."""
        kind = header >> 4
        wire = self.wire
        body = wire.body
        if PUBACK <= kind <= PUBCOMP:
            tenant = connection.tenant
            limit = 0 if length < 7 or tenant is None else tenant.user_properties
            if connection.version == 3 and kind == PUBREL:
                header &= 0xF7  # 3.1 sets DUP when it sends a PUBREL again
            code = wire.read_ack(data, body, at + length, header, connection.version == 5, limit)
            if code == 0x97:
                self.publishing.exceed(connection, code, "user_properties")
            elif code:
                self.fail(connection, code)
            else:
                self._ack(connection, kind)
            return
        self.turn.counters.others_received[kind] += 1
        if kind == PINGREQ:
            if header != 0xC0 or length != 2:
                self.fail(connection, 0x81)
            else:
                self.emission.send(connection, b"\xd0\x00")  # [MQTT-3.12.4-1]
        elif kind == CONNECT:
            if connection.has_connect:
                self.fail(connection, 0x82)  # [MQTT-3.1.0-2] [MQTT3-3.1.0-2]
            else:
                connection.has_connect = True
                self._to_control(connection, header, data[body : at + length])
        elif kind in _FOR_CONTROL and (kind != AUTH or connection.version in (0, 5)):
            self._to_control(connection, header, data[body : at + length])
        else:
            self.fail(connection, 0x81 if kind in (0, AUTH) else 0x82)  # reserved, or a server's

    def _to_control(self, connection: Connection, header: int, body: bytes) -> None:
        connection.is_waiting = True
        self.control_queue.put(connection, header, body, self.turn.now)
        if connection.is_waiting and not connection.is_closing:
            self.publishing.pause(connection)

    def _keep_more(self, connection: Connection, data: bytes) -> None:
        """Bytes that the transport had read already when it was asked to pause; bounded."""
        limits = self.turn.limits
        if connection.partial is None:
            connection.partial = bytearray()
        connection.partial += data
        if len(connection.partial) >= _LARGE:
            self.turn.keep(connection, len(connection.partial))
        bound = limits.pre_connect_bytes if connection.version == 0 else connection.packet_bytes
        if len(connection.partial) > bound + limits.chunk_bytes:
            self.turn.close(connection, Reason.OVERLOAD)

    def fail(self, connection: Connection, code: int) -> None:
        """Close for a fault of the client."""
        self.publishing.fail(connection, code)

    # --- acknowledgements

    def _ack(self, connection: Connection, kind: int) -> None:
        session = connection.session
        wire = self.wire
        if session is None:
            self.fail(connection, 0x82)
            return
        packet_id = wire.packet_id
        counters = self.turn.counters
        if kind == PUBACK:
            counters.puback_received += 1
            if not self.receipts.puback(session, packet_id):
                self.fail(connection, 0x82)
            return
        counters.others_received[kind] += 1
        if kind == PUBREC:
            if not self.receipts.pubrec(session, connection, packet_id, wire.code):
                self.fail(connection, 0x82)
        elif kind == PUBCOMP:
            if not self.receipts.pubcomp(session, packet_id):
                self.fail(connection, 0x82)
        else:
            self.answers.pubrel(connection, session, packet_id)
