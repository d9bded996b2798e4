# cython: annotation_typing=False
"""Finds packet boundaries in a chunk and decodes PUBLISH and acknowledgements in place.

Knows no tenants, sessions or sockets, and no other packet: those go to the control plane whole. One Wire serves all connections; what it
decoded stands in its attributes until the next call.
"""

from __future__ import annotations

MALFORMED = 0x81
PROTOCOL_ERROR = 0x82
TOPIC_ALIAS_INVALID = 0x94

CONNECT = 1
PUBLISH = 3
PUBACK = 4
PUBREC = 5
PUBREL = 6
PUBCOMP = 7
SUBSCRIBE = 8
UNSUBSCRIBE = 10
PINGREQ = 12
DISCONNECT = 14
AUTH = 15

_PUBACK_CODES = frozenset((0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99))
_PUBREL_CODES = frozenset((0x00, 0x92))
_NOT_FROM_CLIENTS = frozenset(
    (CONNECT, 2, 9, 11, 13)
)  # a second CONNECT [MQTT-3.1.0-2]; CONNACK, SUBACK, UNSUBACK, PINGRESP
_FLAGS_0010 = frozenset((PUBREL, SUBSCRIBE, UNSUBSCRIBE))


def is_utf8(data: bytes) -> bool:
    """Whether bytes are a UTF-8 Encoded String: well-formed, no surrogates, no U+0000 [MQTT-1.5.4-1] [MQTT-1.5.4-2]."""
    if 0 in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class Wire:
    """The decoder. Every method that returns a Reason Code returns 0 when all is well."""

    def __init__(self) -> None:
        self.body = 0  # index of the byte after Remaining Length
        self.topic = b""
        self.payload = b""
        self.properties = b""
        self.packet_id = 0
        self.alias = 0  # 0: none
        self.expiry = -1  # seconds; -1: none
        self.is_plain = False  # the PUBLISH frame may be forwarded as it came
        self.is_repeat = False
        self.code = 0
        self.at = 0
        self.end = 0
        self.value = 0

    def measure(self, data: bytes, start: int, end: int, is_v5: bool) -> int:
        """Return the whole length of the packet at `start`; 0: its length is not there yet; -1: Malformed.

        A longer form than needed is refused in 5.0 [MQTT-1.5.5-1]; 3.x allows it.
        """
        index = start + 1
        shift = 0
        length = 0
        while index < end:
            byte = data[index]
            index += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if is_v5 and shift and byte == 0:
                    return -1
                self.body = index
                return index - start + length
            shift += 7
            if shift == 28:
                return -1
        return 0

    def read_publish(self, data: bytes, body: int, end: int, header: int, is_v5: bool, user_properties: int) -> int:
        """Decode a PUBLISH between `body` and `end` into topic, payload, properties, packet_id, alias, expiry, is_repeat (DUP).

        The Topic Name is not looked at: `check_topic_name` does, once per topic.
        """
        self.topic = b""
        code = self._read_publish(data, body, end, header, is_v5, user_properties)
        if code and not is_utf8(self.topic):
            return MALFORMED  # the first fault counts
        return code

    def _read_publish(self, data: bytes, body: int, end: int, header: int, is_v5: bool, user_properties: int) -> int:
        qos = header >> 1 & 3
        if qos == 3 or (qos == 0 and header & 8):
            return MALFORMED  # [MQTT-3.3.1-4] [MQTT-3.3.1-2]
        if end - body < 2:
            return MALFORMED
        at = body + 2
        topic_end = at + (data[body] << 8 | data[body + 1])
        if topic_end > end:
            return MALFORMED
        view = data  # slices of a C pointer make no slice objects
        self.topic = view[at:topic_end]
        at = topic_end
        self.is_repeat = header & 8 != 0
        self.packet_id = 0
        if qos:
            if at + 2 > end:
                return MALFORMED
            self.packet_id = data[at] << 8 | data[at + 1]
            at += 2
            if self.packet_id == 0:
                return PROTOCOL_ERROR  # [MQTT-2.2.1-3]
        self.alias = 0
        self.expiry = -1
        self.is_plain = True
        self.properties = b""
        if is_v5:
            if at < end and data[at] == 0:
                at += 1
            else:
                code = self._read_publish_properties(data, at, end, user_properties)
                if code:
                    return code
                at = self.at
        self.payload = view[at:end]
        return 0

    def read_ack(self, data: bytes, body: int, end: int, header: int, is_v5: bool, user_properties: int) -> int:
        """Decode PUBACK, PUBREC, PUBREL or PUBCOMP into packet_id and code."""
        kind = header >> 4
        if header & 15 != (2 if kind == PUBREL else 0):
            return MALFORMED  # [MQTT-2.1.3-1] [MQTT-3.6.1-1]
        length = end - body
        if length < 2:
            return MALFORMED
        self.packet_id = data[body] << 8 | data[body + 1]
        self.code = 0
        if self.packet_id == 0:
            return PROTOCOL_ERROR  # [MQTT-2.2.1-3]
        if length > 2 and not is_v5:
            return MALFORMED
        if length == 2:
            return 0
        self.code = data[body + 2]
        if self.code not in (_PUBACK_CODES if kind <= PUBREC else _PUBREL_CODES):
            return PROTOCOL_ERROR  # [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1]
        if length == 3:
            return 0
        return self._read_ack_properties(data, body + 3, end, user_properties)

    def _read_length(self, data: bytes, at: int, end: int) -> int:
        """Read a Property Length into `value` and `at`; the properties must fill at most what is left."""
        length = 0
        shift = 0
        while at < end and shift < 28:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    return MALFORMED  # [MQTT-1.5.5-1]
                if at + length > end:
                    return MALFORMED
                self.value = length
                self.at = at
                return 0
            shift += 7
        return MALFORMED

    def _read_publish_properties(self, data: bytes, at: int, end: int, user_properties: int) -> int:
        code = self._read_length(data, at, end)
        if code:
            return code
        first = at = self.at
        end = at + self.value
        seen = 0
        one = 1
        forwarded = b""
        while at < end:
            identifier = data[at]
            start = at
            at += 1
            if identifier == 0x26:
                user_properties -= 1
                if user_properties < 0:
                    return 0x97
                at = self._text(data, self._text(data, at, end), end)
            else:
                if identifier > 0x23:
                    return MALFORMED
                if seen >> identifier & 1:
                    return PROTOCOL_ERROR
                seen |= one << identifier
                if identifier == 0x01:
                    at += 1
                    if at <= end and data[at - 1] > 1:
                        return PROTOCOL_ERROR
                elif identifier == 0x02:
                    at += 4
                    if at > end:
                        return MALFORMED
                    self.expiry = int.from_bytes(data[at - 4 : at], "big")
                elif identifier == 0x03:
                    at = self._text(data, at, end)
                elif identifier == 0x08:
                    at = self._text(data, at, end)
                    if at == start + 3 or (at > 0 and (b"#" in data[start + 3 : at] or b"+" in data[start + 3 : at])):
                        return PROTOCOL_ERROR  # a Topic Name: [MQTT-4.7.3-1] [MQTT-3.3.2-14]
                elif identifier == 0x09:
                    at = self._binary(data, at, end)
                elif identifier == 0x23:
                    at += 2
                    if at > end:
                        return MALFORMED
                    self.alias = data[at - 2] << 8 | data[at - 1]
                    if self.alias == 0:
                        return TOPIC_ALIAS_INVALID  # [MQTT-3.3.2-8]
                else:
                    return PROTOCOL_ERROR if identifier == 0x0B else MALFORMED  # [MQTT-3.3.4-6]
            if at < 0 or at > end:
                return MALFORMED
            if identifier in (0x02, 0x23):
                forwarded += data[first:start]
                first = at
                self.is_plain = False
        self.properties = forwarded + data[first:end]
        self.at = end
        return 0

    def _read_ack_properties(self, data: bytes, at: int, end: int, user_properties: int) -> int:
        code = self._read_length(data, at, end)
        if code:
            return code
        at = self.at
        whole = end
        end = at + self.value
        has_reason = False
        while at < end:
            identifier = data[at]
            at += 1
            if identifier == 0x26:
                user_properties -= 1
                if user_properties < 0:
                    return 0x97
                at = self._text(data, self._text(data, at, end), end)
            elif identifier == 0x1F:
                if has_reason:
                    return PROTOCOL_ERROR
                has_reason = True
                at = self._text(data, at, end)
            else:
                return MALFORMED
            if at < 0 or at > end:
                return MALFORMED
        return 0 if at == whole else MALFORMED

    def _binary(self, data: bytes, at: int, end: int) -> int:
        """Return the index behind Binary Data at `at`, or -1."""
        if at < 0 or at + 2 > end:
            return -1
        at += 2 + (data[at] << 8 | data[at + 1])
        return at if at <= end else -1

    def _text(self, data: bytes, at: int, end: int) -> int:
        """Return the index behind a UTF-8 Encoded String at `at`, or -1."""
        behind = self._binary(data, at, end)
        if behind < 0 or not is_utf8(data[at + 2 : behind]):
            return -1
        return behind
