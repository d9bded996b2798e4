"""Every Control Packet to its bytes, both directions, in 3.1, 3.1.1 and 5.0.

Knows no connection. A packet that the version cannot express is a
defect of ours and raises LocalProtocolError; only properties, which 3.x has no place for, are left out silently there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from iothub.base.errors import LocalProtocolError
from iothub.mqtt import connect as flags_of
from iothub.mqtt import fields
from iothub.mqtt.constants import MAXIMUM_REMAINING_LENGTH, MQTT_3_1, MQTT_5_0, PROTOCOL_NAMES, PacketType
from iothub.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from iothub.mqtt.properties import NO_PROPERTIES, WILL_PROPERTIES, Properties, encode_properties
from iothub.mqtt.reason_codes import CONNACK_RETURN_CODES, SUBACK_RETURN_CODES, sendable_codes

_FLAGS_0010: Final = 2  # PUBREL, SUBSCRIBE, UNSUBSCRIBE [MQTT-2.1.3-1] [MQTT3-2.2.2-1]
_Encoded: TypeAlias = tuple[int, bytes]  # first byte, body
_BodyEncoder: TypeAlias = Callable[[Any, int], _Encoded]  # Any: each takes the one packet class it stands beside below


def encode(packet: Packet, version: int) -> bytes:
    """Encode one packet for a connection of `version` (3, 4 or 5). A CONNECT is encoded in its own version.

    Raises: LocalProtocolError if `packet` cannot be sent in this version.
    """
    if version not in PROTOCOL_NAMES:
        raise LocalProtocolError(f"there is no MQTT version {version}")
    first_byte, body = _ENCODERS[type(packet)](packet, version)
    if len(body) > MAXIMUM_REMAINING_LENGTH:
        raise LocalProtocolError(f"the packet has {len(body)} bytes, at most {MAXIMUM_REMAINING_LENGTH} can be sent")
    return bytes((first_byte,)) + fields.write_variable_byte_integer(len(body), "Remaining Length") + body


def _packet_id(packet_id: int) -> bytes:
    if not packet_id:  # [MQTT-2.2.1-4] [MQTT3-2.3.1-4]
        raise LocalProtocolError("the Packet Identifier is 0")
    return fields.write_two_byte_integer(packet_id, "Packet Identifier")


def _qos(qos: int) -> int:
    if not 0 <= qos <= 2:
        raise LocalProtocolError(f"the QoS is {qos}, must be 0, 1 or 2")
    return qos


def _properties(properties: Properties, place: int, version: int) -> bytes:
    return encode_properties(properties, place) if version == MQTT_5_0 else b""


def _code(code: int, allowed: frozenset[int], name: str) -> bytes:
    if code not in allowed:
        raise LocalProtocolError(f"{name}: code 0x{code:02X} cannot be sent in this version")
    return bytes((code,))


def _connect(packet: Connect, version: int) -> _Encoded:
    version = packet.version
    if version not in PROTOCOL_NAMES:
        raise LocalProtocolError(f"there is no MQTT version {version}")
    will, flags = packet.will, flags_of.CLEAN_START if packet.is_clean_start else 0
    parts = [
        _properties(packet.properties, PacketType.CONNECT, version),
        fields.write_string(packet.client_id, "Client Identifier"),
    ]
    if will is not None:
        flags |= flags_of.WILL | _qos(will.qos) << flags_of.WILL_QOS_SHIFT | will.is_retained * flags_of.WILL_RETAIN
        parts.append(_properties(will.properties, WILL_PROPERTIES, version))
        parts.append(fields.write_string(will.topic, "Will Topic"))
        parts.append(fields.write_binary(will.payload, "Will Payload"))
    if packet.username is not None:
        flags |= flags_of.USERNAME
        parts.append(fields.write_string(packet.username, "User Name"))
    if packet.password is not None:
        if packet.username is None and version != MQTT_5_0:
            raise LocalProtocolError("a Password without a User Name needs MQTT 5.0")
        flags |= flags_of.PASSWORD
        parts.append(fields.write_binary(packet.password, "Password"))
    name = fields.write_binary(PROTOCOL_NAMES[version], "Protocol Name")
    keep_alive = fields.write_two_byte_integer(packet.keep_alive_s, "Keep Alive")
    return PacketType.CONNECT << 4, b"".join((name, bytes((version, flags)), keep_alive, *parts))


def _connack(packet: Connack, version: int) -> _Encoded:
    """Encode CONNACK [MQTT-3.2.2-1] [MQTT-3.2.2-8]; 3.1 has no Session Present."""
    if packet.reason_code and packet.is_session_present:  # [MQTT-3.2.2-6] [MQTT3-3.2.2-4]
        raise LocalProtocolError("CONNACK: Session Present in a refusal")
    allowed = sendable_codes(PacketType.CONNACK) if version == MQTT_5_0 else CONNACK_RETURN_CODES
    flags = bytes((packet.is_session_present and version != MQTT_3_1,))
    code = _code(packet.reason_code, allowed, "CONNACK")
    return PacketType.CONNACK << 4, flags + code + _properties(packet.properties, PacketType.CONNACK, version)


def _publish(packet: Publish, version: int) -> _Encoded:
    if bool(packet.packet_id) != bool(_qos(packet.qos)):  # [MQTT-2.2.1-2] [MQTT3-2.3.1-5]
        raise LocalProtocolError("PUBLISH: a Packet Identifier belongs to QoS 1 and 2, and only there")
    if packet.is_duplicate and not packet.qos:  # [MQTT-3.3.1-2] [MQTT3-3.3.1-2]
        raise LocalProtocolError("PUBLISH: DUP with QoS 0")
    if not packet.topic and (version != MQTT_5_0 or packet.properties.topic_alias is None):
        raise LocalProtocolError("PUBLISH: neither a Topic Name nor a Topic Alias")
    first_byte = PacketType.PUBLISH << 4 | packet.is_duplicate << 3 | packet.qos << 1 | packet.is_retained
    topic = fields.write_string(packet.topic, "Topic Name")
    packet_id = _packet_id(packet.packet_id) if packet.qos else b""
    properties = _properties(packet.properties, PacketType.PUBLISH, version)
    return first_byte, b"".join((topic, packet_id, properties, packet.payload))


def _acknowledgement(packet_type: PacketType, flags: int = 0) -> _BodyEncoder:
    """Make the encoder of PUBACK, PUBREC, PUBREL or PUBCOMP; the short form says success without properties (§3.4.2.1)."""
    allowed = sendable_codes(packet_type)
    only_success = frozenset({0})

    def encode_body(packet: Acknowledgement, version: int) -> _Encoded:
        body = _packet_id(packet.packet_id)
        code = _code(packet.reason_code, allowed if version == MQTT_5_0 else only_success, packet_type.name)
        if version == MQTT_5_0 and (packet.reason_code or packet.properties != NO_PROPERTIES):
            body += code
            if packet.properties != NO_PROPERTIES:
                body += encode_properties(packet.properties, packet_type)
        return packet_type << 4 | flags, body

    return encode_body


def _subscribe(packet: Subscribe, version: int) -> _Encoded:
    if not packet.subscriptions:
        raise LocalProtocolError("SUBSCRIBE: there is no Topic Filter")
    parts = [_packet_id(packet.packet_id), _properties(packet.properties, PacketType.SUBSCRIBE, version)]
    for subscription in packet.subscriptions:
        parts.append(fields.write_string(subscription.topic_filter, "Topic Filter"))
        parts.append(bytes((_options(subscription, version),)))
    return PacketType.SUBSCRIBE << 4 | _FLAGS_0010, b"".join(parts)


def _options(subscription: Subscription, version: int) -> int:
    options = (
        subscription.is_no_local << 2 | subscription.is_retain_as_published << 3 | subscription.retain_handling << 4
    )
    if not 0 <= subscription.retain_handling <= 2 or (options and version != MQTT_5_0):
        raise LocalProtocolError("SUBSCRIBE: the Subscription Options cannot be sent in this version")
    return options | _qos(subscription.qos)


def _suback(packet: Suback, version: int) -> _Encoded:
    """Encode SUBACK [MQTT-3.9.3-2] [MQTT3-3.9.3-2]; its codes stand in the order of the Topic Filters [MQTT-3.9.3-1] [MQTT3-3.9.3-1]."""
    allowed = sendable_codes(PacketType.SUBACK) if version == MQTT_5_0 else SUBACK_RETURN_CODES
    head = _packet_id(packet.packet_id) + _properties(packet.properties, PacketType.SUBACK, version)
    return PacketType.SUBACK << 4, head + _codes(packet.reason_codes, allowed, "SUBACK")


def _unsubscribe(packet: Unsubscribe, version: int) -> _Encoded:
    if not packet.topic_filters:
        raise LocalProtocolError("UNSUBSCRIBE: there is no Topic Filter")
    head = _packet_id(packet.packet_id) + _properties(packet.properties, PacketType.UNSUBSCRIBE, version)
    filters = b"".join(fields.write_string(topic_filter, "Topic Filter") for topic_filter in packet.topic_filters)
    return PacketType.UNSUBSCRIBE << 4 | _FLAGS_0010, head + filters


def _unsuback(packet: Unsuback, version: int) -> _Encoded:
    """Encode UNSUBACK [MQTT-3.11.3-2], in the order of the Topic Filters [MQTT-3.11.3-1]; in 3.x it is the Packet Identifier alone."""
    head = _packet_id(packet.packet_id)
    if version != MQTT_5_0:
        return PacketType.UNSUBACK << 4, head
    head += encode_properties(packet.properties, PacketType.UNSUBACK)
    return PacketType.UNSUBACK << 4, head + _codes(packet.reason_codes, sendable_codes(PacketType.UNSUBACK), "UNSUBACK")


def _codes(codes: tuple[int, ...], allowed: frozenset[int], name: str) -> bytes:
    if not codes:
        raise LocalProtocolError(f"{name}: there is no code")
    return b"".join(_code(code, allowed, name) for code in codes)


def _pingreq(packet: Pingreq, version: int) -> _Encoded:
    return PacketType.PINGREQ << 4, b""


def _pingresp(packet: Pingresp, version: int) -> _Encoded:
    return PacketType.PINGRESP << 4, b""


def _disconnect(packet: Disconnect, version: int) -> _Encoded:
    """Encode DISCONNECT [MQTT-3.14.2-1]; a normal one without properties is empty (§3.14.2.1)."""
    allowed = sendable_codes(PacketType.DISCONNECT) if version == MQTT_5_0 else frozenset({0})
    code = _code(packet.reason_code, allowed, "DISCONNECT")
    if version != MQTT_5_0 or packet == Disconnect():
        return PacketType.DISCONNECT << 4, b""
    return PacketType.DISCONNECT << 4, code + encode_properties(packet.properties, PacketType.DISCONNECT)


def _auth(packet: Auth, version: int) -> _Encoded:
    """Encode AUTH [MQTT-3.15.2-1]."""
    if version != MQTT_5_0:
        raise LocalProtocolError("AUTH needs MQTT 5.0")
    code = _code(packet.reason_code, sendable_codes(PacketType.AUTH), "AUTH")
    if packet == Auth():
        return PacketType.AUTH << 4, b""
    return PacketType.AUTH << 4, code + encode_properties(packet.properties, PacketType.AUTH)


_ENCODERS: Final[dict[type, _BodyEncoder]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _acknowledgement(PacketType.PUBACK),
    Pubrec: _acknowledgement(PacketType.PUBREC),
    Pubrel: _acknowledgement(PacketType.PUBREL, _FLAGS_0010),
    Pubcomp: _acknowledgement(PacketType.PUBCOMP),
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: _pingreq,
    Pingresp: _pingresp,
    Disconnect: _disconnect,
    Auth: _auth,
}
