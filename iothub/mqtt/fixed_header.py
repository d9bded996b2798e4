"""The first byte of the Fixed Header (§2.1): may it stand here.

Knows no Remaining Length, which the engine reads, and no body.
"""

from __future__ import annotations

from typing import Final

from iothub.mqtt.constants import (
    FROM_SERVER_ONLY,
    MQTT_3_1,
    MQTT_5_0,
    UNKNOWN_VERSION,
    PacketType,
)
from iothub.mqtt.errors import MalformedPacket, ProtocolError

_DUP: Final = 0x08
# Table 2-2: these three have the bits 0010, all others but PUBLISH 0000.
_FLAGS_0010: Final = frozenset({PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE})


def check_first_byte(header: int, version: int) -> PacketType:
    """Return the packet type of `header` if a client may send it now.

    `version` 0 means that nothing was decoded yet: only CONNECT may stand here.
    Raises: MalformedPacket for a reserved type; ProtocolError for a first packet that is not CONNECT and for the wrong direction;
    MalformedPacket for wrong flags. In this order: a packet is judged by its type before its flags.
    """
    kind = header >> 4
    if not kind or (kind == PacketType.AUTH and version not in (MQTT_5_0, UNKNOWN_VERSION)):
        raise MalformedPacket(f"packet type {kind} is reserved")
    if version == UNKNOWN_VERSION and kind != PacketType.CONNECT:  # [MQTT-3.1.0-1] [MQTT3-3.1.0-1]
        raise ProtocolError("the first packet is not CONNECT")
    packet_type = PacketType(kind)
    if packet_type in FROM_SERVER_ONLY:
        raise ProtocolError(f"{packet_type.name} was sent in the wrong direction")
    _check_flags(packet_type, header & 0x0F, version)
    return packet_type


def _check_flags(packet_type: PacketType, flags: int, version: int) -> None:
    """Demand the flag bits of Table 2-2 [MQTT-2.1.3-1] [MQTT3-2.2.2-1] [MQTT3-2.2.2-2]."""
    if packet_type is PacketType.PUBLISH:
        qos = flags >> 1 & 3
        if qos == 3:  # [MQTT-3.3.1-4] [MQTT3-3.3.1-4]
            raise MalformedPacket("PUBLISH: both QoS bits are set")
        if not qos and flags & _DUP:  # [MQTT-3.3.1-2] [MQTT3-3.3.1-2]
            raise MalformedPacket("PUBLISH: DUP is set with QoS 0")
        return
    expected = 0
    if (
        packet_type in _FLAGS_0010
    ):  # [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] and [MQTT3-3.6.1-1] [MQTT3-3.8.1-1] [MQTT3-3.10.1-1]
        expected = 2
        if version == MQTT_3_1:
            flags &= ~_DUP  # 3.1 calls the bits QoS 1 and DUP, and sets DUP when it sends the packet again
    if flags != expected:  # DISCONNECT and AUTH: [MQTT-3.14.1-1] [MQTT3-3.14.1-1] [MQTT-3.15.1-1]
        raise MalformedPacket(f"{packet_type.name}: the flags are {flags:04b}, must be {expected:04b}")
