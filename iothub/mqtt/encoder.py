"""The answers of the control plane to their bytes, in 3.1, 3.1.1 and 5.0: CONNACK, SUBACK, UNSUBACK and AUTH.

Knows no connection, and no packet that the engine writes by itself. A packet that the version cannot express is a
defect of ours and raises LocalProtocolError; only properties, which 3.x has no place for, are left out silently there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from iothub.base.errors import LocalProtocolError
from iothub.mqtt import fields
from iothub.mqtt.constants import MAXIMUM_REMAINING_LENGTH, MQTT_3_1, MQTT_5_0, PROTOCOL_NAMES, PacketType
from iothub.mqtt.packets import Auth, Connack, Suback, Unsuback
from iothub.mqtt.properties import Properties, encode_properties
from iothub.mqtt.reason_codes import CONNACK_RETURN_CODES, SUBACK_RETURN_CODES, sendable_codes

_Encoded: TypeAlias = tuple[int, bytes]  # first byte, body
_BodyEncoder: TypeAlias = Callable[[Any, int], _Encoded]  # Any: each takes the one packet class it stands beside below


def encode(packet: Connack | Suback | Unsuback | Auth, version: int) -> bytes:
    """Encode one packet for a connection of `version` (3, 4 or 5).

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


def _properties(properties: Properties, place: int, version: int) -> bytes:
    return encode_properties(properties, place) if version == MQTT_5_0 else b""


def _code(code: int, allowed: frozenset[int], name: str) -> bytes:
    if code not in allowed:
        raise LocalProtocolError(f"{name}: code 0x{code:02X} cannot be sent in this version")
    return bytes((code,))


def _connack(packet: Connack, version: int) -> _Encoded:
    """Encode CONNACK [MQTT-3.2.2-1] [MQTT-3.2.2-8]; 3.1 has no Session Present."""
    if packet.reason_code and packet.is_session_present:  # [MQTT-3.2.2-6] [MQTT3-3.2.2-4]
        raise LocalProtocolError("CONNACK: Session Present in a refusal")
    allowed = sendable_codes(PacketType.CONNACK) if version == MQTT_5_0 else CONNACK_RETURN_CODES
    flags = bytes((packet.is_session_present and version != MQTT_3_1,))
    code = _code(packet.reason_code, allowed, "CONNACK")
    return PacketType.CONNACK << 4, flags + code + _properties(packet.properties, PacketType.CONNACK, version)


def _suback(packet: Suback, version: int) -> _Encoded:
    """Encode SUBACK [MQTT-3.9.3-2] [MQTT3-3.9.3-2]; its codes stand in the order of the Topic Filters [MQTT-3.9.3-1] [MQTT3-3.9.3-1]."""
    allowed = sendable_codes(PacketType.SUBACK) if version == MQTT_5_0 else SUBACK_RETURN_CODES
    head = _packet_id(packet.packet_id) + _properties(packet.properties, PacketType.SUBACK, version)
    return PacketType.SUBACK << 4, head + _codes(packet.reason_codes, allowed, "SUBACK")


def _unsuback(packet: Unsuback, version: int) -> _Encoded:
    """Encode UNSUBACK [MQTT-3.11.3-2], in the order of the Topic Filters [MQTT-3.11.3-1]; in 3.x it is only the Packet Identifier."""
    head = _packet_id(packet.packet_id)
    if version != MQTT_5_0:
        return PacketType.UNSUBACK << 4, head
    head += encode_properties(packet.properties, PacketType.UNSUBACK)
    return PacketType.UNSUBACK << 4, head + _codes(packet.reason_codes, sendable_codes(PacketType.UNSUBACK), "UNSUBACK")


def _codes(codes: tuple[int, ...], allowed: frozenset[int], name: str) -> bytes:
    if not codes:
        raise LocalProtocolError(f"{name}: there is no code")
    return b"".join(_code(code, allowed, name) for code in codes)


def _auth(packet: Auth, version: int) -> _Encoded:
    """Encode AUTH [MQTT-3.15.2-1]."""
    if version != MQTT_5_0:
        raise LocalProtocolError("AUTH needs MQTT 5.0")
    code = _code(packet.reason_code, sendable_codes(PacketType.AUTH), "AUTH")
    if packet == Auth():
        return PacketType.AUTH << 4, b""
    return PacketType.AUTH << 4, code + encode_properties(packet.properties, PacketType.AUTH)


_ENCODERS: Final[dict[type, _BodyEncoder]] = {
    Connack: _connack,
    Suback: _suback,
    Unsuback: _unsuback,
    Auth: _auth,
}
