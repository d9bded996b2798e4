"""All Reason Codes of MQTT 5.0 (§2.4), and which of them each packet may carry from which side.

Knows no wire layout; why the hub closes a connection is `iothub.base.reasons`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from iothub.mqtt.constants import PacketType, Role


class ReasonCode(IntEnum):
    """§2.4. 0x00 is also called Normal disconnection and Granted QoS 0. 0x80 and above are failures."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


FAILURE: Final = 0x80  # the first code that says no

_CONNACK: Final = frozenset({0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, *range(0x9A, 0x9E), 0x9F})
_PUBACK: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_PUBREL: Final = frozenset({0x00, 0x92})
_SUBACK: Final = frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2})
_UNSUBACK: Final = frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91})
_DISCONNECT_BOTH: Final = frozenset({0x00, *range(0x80, 0x84), 0x90, *range(0x93, 0x9A)})
_DISCONNECT_CLIENT: Final = _DISCONNECT_BOTH | {0x04}
# 0x8C is in the list of §2.4 for DISCONNECT, though not in Table 3-10: a failed re-authentication needs it.
_DISCONNECT_SERVER: Final = _DISCONNECT_BOTH | {0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, *range(0x9A, 0xA3)}

_EITHER: Final = {
    PacketType.PUBACK: _PUBACK,
    PacketType.PUBREC: _PUBACK,
    PacketType.PUBREL: _PUBREL,
    PacketType.PUBCOMP: _PUBREL,
}
_FROM_CLIENT: Final = {
    **_EITHER,
    PacketType.DISCONNECT: _DISCONNECT_CLIENT,
    PacketType.AUTH: frozenset({0x18, 0x19}),
}
_FROM_SERVER: Final = {
    **_EITHER,
    PacketType.CONNACK: _CONNACK,
    PacketType.SUBACK: _SUBACK,
    PacketType.UNSUBACK: _UNSUBACK,
    PacketType.DISCONNECT: _DISCONNECT_SERVER,
    PacketType.AUTH: frozenset({0x00, 0x18}),
}
_NONE: Final[frozenset[int]] = frozenset()

# MQTT 3.1.1: return codes of CONNACK (§3.2.2.3) and SUBACK (§3.9.3).
CONNACK_RETURN_CODES: Final = frozenset(range(6))
SUBACK_RETURN_CODES: Final = frozenset({0x00, 0x01, 0x02, 0x80})


def allowed_codes(packet_type: PacketType, receiver: Role) -> frozenset[int]:
    """Return the Reason Codes that the peer of `receiver` may send in `packet_type`; empty for packets without one."""
    table = _FROM_CLIENT if receiver is Role.SERVER else _FROM_SERVER
    return table.get(packet_type, _NONE)


def sendable_codes(packet_type: PacketType) -> frozenset[int]:
    """Return every Reason Code that `packet_type` may carry in either direction (what the encoder accepts)."""
    return allowed_codes(packet_type, Role.SERVER) | allowed_codes(packet_type, Role.CLIENT)
