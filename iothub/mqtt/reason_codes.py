"""Which Reason Codes of MQTT 5.0 (§2.4) each packet may carry from which side.

Knows no wire layout and no names; why the hub closes a connection is `iothub.base.reasons`.
"""

from __future__ import annotations

from typing import Final

from iothub.mqtt.constants import PacketType

_CONNACK: Final = frozenset({0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, *range(0x9A, 0x9E), 0x9F})
_PUBACK: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_PUBREL: Final = frozenset({0x00, 0x92})
_SUBACK: Final = frozenset({0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2})
_UNSUBACK: Final = frozenset({0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91})
_DISCONNECT_BOTH: Final = frozenset({0x00, *range(0x80, 0x84), 0x90, *range(0x93, 0x9A)})
_DISCONNECT_CLIENT: Final = _DISCONNECT_BOTH | {0x04}
# 0x8C is in the list of §2.4 for DISCONNECT, though not in Table 3-10: a failed re-authentication needs it.
_DISCONNECT_SERVER: Final = _DISCONNECT_BOTH | {0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, *range(0x9A, 0xA3)}

_FROM_CLIENT: Final = {
    PacketType.PUBACK: _PUBACK,
    PacketType.PUBREC: _PUBACK,
    PacketType.PUBREL: _PUBREL,
    PacketType.PUBCOMP: _PUBREL,
    PacketType.DISCONNECT: _DISCONNECT_CLIENT,
    PacketType.AUTH: frozenset({0x18, 0x19}),
}
_FROM_SERVER: Final = {
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


def allowed_codes(packet_type: PacketType) -> frozenset[int]:
    """Return the Reason Codes that a client may send in `packet_type`; empty for packets without one."""
    return _FROM_CLIENT.get(packet_type, _NONE)


def sendable_codes(packet_type: PacketType) -> frozenset[int]:
    """Return the Reason Codes that the hub may send in `packet_type`."""
    return _FROM_SERVER.get(packet_type, _NONE)
