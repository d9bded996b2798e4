"""One complete Control Packet of a client to its value: `decode_packet`, total over types, versions and bodies.

Knows no connection: whether a packet may come now is asked in `fixed_header` as far as one packet shows it, the rest by the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from iothub.base.errors import LocalProtocolError
from iothub.mqtt.connect import check_topic_name, decode_connect
from iothub.mqtt.constants import (
    MQTT_3_1,
    MQTT_5_0,
    STANDARD_LIMITS,
    UNKNOWN_VERSION,
    Limits,
    PacketType,
)
from iothub.mqtt.errors import LimitExceeded, MalformedPacket, ProtocolError
from iothub.mqtt.fields import FieldReader
from iothub.mqtt.fixed_header import check_first_byte
from iothub.mqtt.packets import (
    Auth,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from iothub.mqtt.properties import NO_PROPERTIES, Properties, decode_properties
from iothub.mqtt.reason_codes import allowed_codes

_CONNECT: Final = PacketType.CONNECT << 4
_SHARE: Final = "$share/"
_WRONG_WAY: Final = {  # properties that only a server may send in this packet
    PacketType.PUBLISH: frozenset({0x0B}),  # Subscription Identifier [MQTT-3.3.4-6]
    PacketType.DISCONNECT: frozenset({0x1C}),  # Server Reference
}


class _Context:
    """What the body decoders need to know beside the body."""

    __slots__ = ("header", "is_5_0", "limits", "packet_type")

    def __init__(self, packet_type: PacketType, header: int, version: int, limits: Limits) -> None:
        self.packet_type = packet_type
        self.header = header
        self.is_5_0 = version == MQTT_5_0
        self.limits = limits


_BodyDecoder: TypeAlias = Callable[[FieldReader, _Context], Packet]


def decode_packet(header: int, body: bytes, version: int, limits: Limits = STANDARD_LIMITS) -> Packet:
    """Decode one packet from its first byte and its body (what follows the Remaining Length).

    `version` is the connection's Protocol Level, or 0 before CONNECT. O(len(body)).

    Raises: MqttError with its Reason, and nothing else for any bytes; LocalProtocolError for a version that does not exist.
    """
    if version != UNKNOWN_VERSION and not MQTT_3_1 <= version <= MQTT_5_0:
        raise LocalProtocolError(f"there is no MQTT version {version}")
    if header == _CONNECT:
        return decode_connect(body, limits)  # the usual one; whether it may come now, the connection knows
    packet_type = check_first_byte(header, version)
    reader = FieldReader(body, packet_type.name)
    packet = _DECODERS[packet_type](reader, _Context(packet_type, header, version, limits))
    reader.finish()
    return packet


def _packet_id(reader: FieldReader) -> int:
    packet_id = reader.two_byte_integer("Packet Identifier")
    if not packet_id:  # [MQTT-2.2.1-3] [MQTT-2.2.1-4] [MQTT3-2.3.1-1]
        raise ProtocolError(f"{reader.packet}: the Packet Identifier is 0")
    return packet_id


def _reason_code(reader: FieldReader, context: _Context) -> int:
    """Read a Reason Code that the peer may use in this packet; else it is a Protocol Error."""
    code = reader.byte("Reason Code")
    if code not in allowed_codes(context.packet_type):
        raise ProtocolError(f"{reader.packet}: Reason Code 0x{code:02X} is not allowed here")
    return code


def _properties(reader: FieldReader, context: _Context) -> Properties:
    if not context.is_5_0:
        return NO_PROPERTIES
    refused = _WRONG_WAY.get(context.packet_type, frozenset())
    return decode_properties(reader, context.packet_type, context.limits.user_properties, refused)


def _publish(reader: FieldReader, context: _Context) -> Packet:
    qos = context.header >> 1 & 3
    topic = reader.string("Topic Name")  # [MQTT-3.3.2-1] [MQTT3-3.3.2-1]
    packet_id = _packet_id(reader) if qos else 0  # [MQTT-2.2.1-2] [MQTT3-2.3.1-5]
    properties = _properties(reader, context)
    if topic or not context.is_5_0:
        check_topic_name(topic, "PUBLISH: the Topic Name")  # [MQTT-3.3.2-2] [MQTT3-3.3.2-2]
    elif properties.topic_alias is None:  # §3.3.2.1
        raise ProtocolError("PUBLISH: neither a Topic Name nor a Topic Alias")
    is_retained, is_duplicate = bool(context.header & 1), bool(context.header & 8)
    return Publish(topic, reader.rest(), qos, is_retained, is_duplicate, packet_id, properties)


def _acknowledgement(kind: type[Puback | Pubrec | Pubrel | Pubcomp]) -> _BodyDecoder:
    """Make the decoder of PUBACK, PUBREC, PUBREL or PUBCOMP: one layout, [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1]."""

    def decode(reader: FieldReader, context: _Context) -> Packet:
        packet_id = _packet_id(reader)
        if reader.at_end() or not context.is_5_0:
            return kind(packet_id)
        code = _reason_code(reader, context)
        return kind(packet_id, code, NO_PROPERTIES if reader.at_end() else _properties(reader, context))

    return decode


def _subscribe(reader: FieldReader, context: _Context) -> Packet:
    packet_id = _packet_id(reader)
    properties = _properties(reader, context)
    read_options = _options if context.is_5_0 else _requested_qos
    subscriptions: list[Subscription] = []
    while not reader.at_end():
        _check_count(reader, len(subscriptions), context)
        topic_filter = reader.string("Topic Filter")  # [MQTT-3.8.3-1] [MQTT3-3.8.3-1]
        subscriptions.append(read_options(reader, topic_filter))
    if not subscriptions:  # [MQTT-3.8.3-2] [MQTT3-3.8.3-3]
        raise ProtocolError("SUBSCRIBE: there is no Topic Filter")
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _options(reader: FieldReader, topic_filter: str) -> Subscription:
    """Read the Subscription Options of 5.0 (§3.8.3.1)."""
    options = reader.byte("Subscription Options")
    qos, retain_handling, is_no_local = options & 3, options >> 4 & 3, bool(options & 4)
    if options & 0xC0:  # [MQTT-3.8.3-5]
        raise MalformedPacket("SUBSCRIBE: reserved bits of the Subscription Options are set")
    if qos == 3 or retain_handling == 3:
        raise ProtocolError("SUBSCRIBE: Maximum QoS or Retain Handling is 3")
    if is_no_local and topic_filter.startswith(_SHARE):  # [MQTT-3.8.3-4]
        raise ProtocolError("SUBSCRIBE: No Local on a Shared Subscription")
    return Subscription(topic_filter, qos, is_no_local, bool(options & 8), retain_handling)


def _requested_qos(reader: FieldReader, topic_filter: str) -> Subscription:
    qos = reader.byte("Requested QoS")
    if qos > 2:  # [MQTT3-3.8.3-4]
        raise MalformedPacket("SUBSCRIBE: the Requested QoS is not 0, 1 or 2")
    return Subscription(topic_filter, qos)


def _unsubscribe(reader: FieldReader, context: _Context) -> Packet:
    packet_id = _packet_id(reader)
    properties = _properties(reader, context)
    topic_filters: list[str] = []
    while not reader.at_end():
        _check_count(reader, len(topic_filters), context)
        topic_filters.append(reader.string("Topic Filter"))  # [MQTT-3.10.3-1] [MQTT3-3.10.3-1]
    if not topic_filters:  # [MQTT-3.10.3-2] [MQTT3-3.10.3-2]
        raise ProtocolError("UNSUBSCRIBE: there is no Topic Filter")
    return Unsubscribe(packet_id, tuple(topic_filters), properties)


def _check_count(reader: FieldReader, count: int, context: _Context) -> None:
    limit = context.limits.subscribe_filters
    if count >= limit:
        raise LimitExceeded(f"{reader.packet}: more than {limit} Topic Filters", limit="subscribe_filters")


def _pingreq(reader: FieldReader, context: _Context) -> Packet:
    return Pingreq()


def _disconnect(reader: FieldReader, context: _Context) -> Packet:
    """Decode DISCONNECT [MQTT-3.14.2-1]; 3.x has no Reason Code."""
    if not context.is_5_0 or reader.at_end():
        return Disconnect()
    code = _reason_code(reader, context)
    properties = NO_PROPERTIES if reader.at_end() else _properties(reader, context)
    return Disconnect(code, properties)


def _auth(reader: FieldReader, context: _Context) -> Packet:
    """Decode AUTH [MQTT-3.15.2-1]; the short form says success, which is the server's to say (§3.15.2.2.2)."""
    if reader.at_end():
        raise ProtocolError("AUTH: Reason Code 0x00 is not allowed here")
    code = _reason_code(reader, context)
    properties = NO_PROPERTIES if reader.at_end() else _properties(reader, context)
    if properties.authentication_method is None:
        raise ProtocolError("AUTH: there is no Authentication Method")
    return Auth(code, properties)


_DECODERS: Final[dict[PacketType, _BodyDecoder]] = {
    PacketType.PUBLISH: _publish,
    PacketType.PUBACK: _acknowledgement(Puback),
    PacketType.PUBREC: _acknowledgement(Pubrec),
    PacketType.PUBREL: _acknowledgement(Pubrel),
    PacketType.PUBCOMP: _acknowledgement(Pubcomp),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.PINGREQ: _pingreq,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
