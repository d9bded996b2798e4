"""The body of CONNECT (§3.1) in all three versions.

Knows no account, no tenant and no session: it says what the client asks for, or in which form to refuse it (`MqttError.version`).
The order of checks: protocol name, level, then the format of everything, then limits on what was understood.
"""

from __future__ import annotations

import struct
from typing import Final

from iothub.mqtt.constants import MQTT_3_1, MQTT_3_1_1, MQTT_5_0, PROTOCOL_NAMES, Limits, PacketType
from iothub.mqtt.errors import (
    ClientIdInvalid,
    MalformedPacket,
    MqttError,
    PacketTooLarge,
    ProtocolError,
    TopicNameInvalid,
    UnsupportedVersion,
)
from iothub.mqtt.fields import FieldReader
from iothub.mqtt.packets import Connect, Will
from iothub.mqtt.properties import NO_PROPERTIES, WILL_PROPERTIES, Properties, decode_properties

RESERVED: Final = 0x01
CLEAN_START: Final = 0x02
WILL: Final = 0x04
WILL_QOS_SHIFT: Final = 3
WILL_RETAIN: Final = 0x20
PASSWORD: Final = 0x40
USERNAME: Final = 0x80
_HEAD_3_1_1: Final = b"\x00\x04MQTT\x04"
_HEAD_5_0: Final = b"\x00\x04MQTT\x05"
_FLAGS: Final = struct.Struct(">BH").unpack_from  # with Keep Alive
_LENGTH: Final = struct.Struct(">H").unpack_from
_WILL_DETAILS: Final = WILL_RETAIN | 3 << WILL_QOS_SHIFT


def decode_connect(body: bytes, limits: Limits) -> Connect:
    """Decode the body of a CONNECT [MQTT-3.1.4-1] [MQTT3-3.1.4-1].

    Raises: MqttError; its `version` is set as soon as the Protocol Level is known. Reasons: UNSUPPORTED_VERSION, MALFORMED,
    PROTOCOL_ERROR, CLIENT_ID_INVALID, TOPIC_NAME_INVALID (Will Topic), PACKET_TOO_LARGE (Will Payload), QUOTA (User Properties).
    """
    return plain_connect(body, limits) or complete_connect(body, limits)


def plain_connect(body: bytes, limits: Limits) -> Connect | None:
    """Decode what nearly every client sends, fast: 3.1.1, or 5.0 without properties; no Will; User Name and Password.

    None: it is another CONNECT, or something is wrong with it; the complete decoder takes it, or says what. Whatever is returned here, that one
    returns as well (`tests/property/test_connect_plain.py`).
    """
    head = body[:7]
    if head == _HEAD_3_1_1:
        at = 10
    elif head == _HEAD_5_0 and body[10:11] == b"\x00":
        at = 11
    else:
        return None
    try:
        flags, keep_alive_s = _FLAGS(body, 7)
        client_id_ends = at + 2 + _LENGTH(body, at)[0]
        username_ends = client_id_ends + 2 + _LENGTH(body, client_id_ends)[0]
        password_at = username_ends + 2
        password_bytes = _LENGTH(body, username_ends)[0]
        client_id = body[at + 2 : client_id_ends].decode()
        username = body[client_id_ends + 2 : username_ends].decode()
    except (struct.error, UnicodeDecodeError):
        return None
    is_whole = password_at + password_bytes == len(body) and "\0" not in client_id and "\0" not in username
    is_short = 0 < client_id_ends - at - 2 <= limits.client_id_bytes
    if flags & ~CLEAN_START != USERNAME | PASSWORD or not is_whole or not is_short:
        return None
    return Connect(client_id, body[6], flags != USERNAME | PASSWORD, keep_alive_s, None, username, body[password_at:])


def complete_connect(body: bytes, limits: Limits) -> Connect:
    """Decode any CONNECT, or say what is wrong with it."""
    reader = FieldReader(body, "CONNECT")
    version = _protocol(reader)
    try:
        packet = _accepted(reader, version, limits)
        _check_contents(packet, limits)
    except MqttError as error:
        error.version = version
        raise
    return packet


def check_authentication(properties: Properties, packet: str) -> None:
    """Authentication Data without a method is a Protocol Error (§3.1.2.11.10)."""
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolError(f"{packet}: Authentication Data without an Authentication Method")


def _protocol(reader: FieldReader) -> int:
    """Read Protocol Name and Protocol Level; both together name the version."""
    name = reader.binary("Protocol Name")
    if name not in PROTOCOL_NAMES.values():  # [MQTT-3.1.2-1] [MQTT3-3.1.2-1]: not MQTT at all, closed without an answer
        raise ProtocolError("CONNECT: the Protocol Name is not MQTT")
    level = reader.byte("Protocol Level")
    if PROTOCOL_NAMES.get(level) == name:
        return level
    # [MQTT-3.1.2-2] [MQTT3-3.1.2-2]. Levels with the high bit are bridges of 3.x asking for a private dialect.
    answer = MQTT_3_1 if name == PROTOCOL_NAMES[MQTT_3_1] else MQTT_5_0 if MQTT_5_0 < level < 0x80 else MQTT_3_1_1
    raise UnsupportedVersion(f"CONNECT: Protocol Level {level} is not served", version=answer)


def _accepted(reader: FieldReader, version: int, limits: Limits) -> Connect:
    flags = reader.byte("Connect Flags")
    _check_flags(flags, version)
    keep_alive_s = reader.two_byte_integer("Keep Alive")
    properties = NO_PROPERTIES
    if version == MQTT_5_0:
        properties = decode_properties(reader, PacketType.CONNECT, limits.user_properties)
        check_authentication(properties, reader.packet)
    # The payload in this order: [MQTT-3.1.3-1] [MQTT3-3.1.3-1]; the Client Identifier is always there [MQTT-3.1.3-3] [MQTT3-3.1.3-3]
    client_id = reader.string("Client Identifier")  # [MQTT-3.1.3-4] [MQTT3-3.1.3-4]
    will = _will(reader, flags, version, limits) if flags & WILL else None
    username = _username(reader, version) if flags & USERNAME else None
    password = _password(reader, version) if flags & PASSWORD else None
    reader.finish()  # absent flag, absent field: [MQTT-3.1.2-16] [MQTT-3.1.2-18] [MQTT3-3.1.2-18] [MQTT3-3.1.2-20]
    return Connect(client_id, version, bool(flags & CLEAN_START), keep_alive_s, will, username, password, properties)


def _check_flags(flags: int, version: int) -> None:
    if version == MQTT_3_1:
        flags &= ~RESERVED  # 3.1 does not use the bit, and disregards Will QoS and Will Retain without a Will
    if flags & RESERVED:  # [MQTT-3.1.2-3] [MQTT3-3.1.2-3]
        raise MalformedPacket("CONNECT: the reserved flag is set")
    if flags & WILL:
        if flags >> WILL_QOS_SHIFT & 3 == 3:  # [MQTT-3.1.2-12] [MQTT3-3.1.2-14]
            raise MalformedPacket("CONNECT: Will QoS is 3")
    elif flags & _WILL_DETAILS and version != MQTT_3_1:
        # [MQTT-3.1.2-11] [MQTT-3.1.2-13] and [MQTT3-3.1.2-11] [MQTT3-3.1.2-13] [MQTT3-3.1.2-15]
        raise MalformedPacket("CONNECT: Will QoS or Will Retain without a Will")
    if version != MQTT_5_0 and flags & (USERNAME | PASSWORD) == PASSWORD:  # [MQTT3-3.1.2-22]
        raise MalformedPacket("CONNECT: a Password without a User Name")


def _will(reader: FieldReader, flags: int, version: int, limits: Limits) -> Will:
    """Read the Will fields, which must all be there [MQTT-3.1.2-9] [MQTT3-3.1.2-9]."""
    properties = NO_PROPERTIES
    if version == MQTT_5_0:
        properties = decode_properties(reader, WILL_PROPERTIES, limits.user_properties)
    topic = reader.string("Will Topic")  # [MQTT-3.1.3-11] [MQTT3-3.1.3-10]
    payload = reader.binary("Will Payload")
    return Will(topic, payload, flags >> WILL_QOS_SHIFT & 3, bool(flags & WILL_RETAIN), properties)


def _username(reader: FieldReader, version: int) -> str | None:
    """Read the User Name [MQTT-3.1.2-17] [MQTT-3.1.3-12] [MQTT3-3.1.2-19] [MQTT3-3.1.3-11]; 3.1 lets it be missing despite its flag."""
    if version == MQTT_3_1 and reader.at_end():
        return None
    return reader.string("User Name")


def _password(reader: FieldReader, version: int) -> bytes | None:
    """Read the Password [MQTT-3.1.2-19] [MQTT3-3.1.2-21]; 3.1 lets it be missing despite its flag."""
    if version == MQTT_3_1 and reader.at_end():
        return None
    return reader.binary("Password")


def _check_contents(packet: Connect, limits: Limits) -> None:
    """Refuse what is well-formed and still cannot be served."""
    size_bytes = len(packet.client_id.encode())
    if (
        size_bytes > limits.client_id_bytes
    ):  # [MQTT-3.1.3-8] [MQTT3-3.1.3-9]; 1 to 23 bytes always pass [MQTT-3.1.3-5] [MQTT3-3.1.3-5]
        raise ClientIdInvalid(
            f"CONNECT: the Client Identifier has {size_bytes} bytes, at most {limits.client_id_bytes} are allowed"
        )
    if not size_bytes and packet.version == MQTT_3_1:
        raise ClientIdInvalid("CONNECT: MQTT 3.1 demands a Client Identifier")
    if not size_bytes and packet.version == MQTT_3_1_1 and not packet.is_clean_start:  # [MQTT3-3.1.3-7] [MQTT3-3.1.3-8]
        raise ClientIdInvalid("CONNECT: an empty Client Identifier needs CleanSession 1")
    if packet.will is None:
        return
    check_topic_name(packet.will.topic, "CONNECT: the Will Topic")
    if len(packet.will.payload) > limits.will_bytes:
        raise PacketTooLarge(
            f"CONNECT: the Will Payload has {len(packet.will.payload)} bytes, at most {limits.will_bytes} are allowed"
        )


def check_topic_name(topic: str, name: str) -> None:
    """Demand a Topic Name that is not empty and has no wildcard [MQTT-4.7.0-1] [MQTT-4.7.3-1] [MQTT3-4.7.1-1] [MQTT3-4.7.3-1]."""
    if not topic:
        raise TopicNameInvalid(f"{name} is empty")
    if "+" in topic or "#" in topic:
        raise TopicNameInvalid(f"{name} contains a wildcard")
