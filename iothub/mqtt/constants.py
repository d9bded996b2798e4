"""The numbers of the wire that every part of the codec shares: packet types, protocol versions and limits.

Knows no packet layout and no Reason Code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MQTT_3_1: Final = 3
MQTT_3_1_1: Final = 4
MQTT_5_0: Final = 5
UNKNOWN_VERSION: Final = 0  # nothing decoded yet: only CONNECT is allowed

PROTOCOL_NAMES: Final = {MQTT_3_1: b"MQIsdp", MQTT_3_1_1: b"MQTT", MQTT_5_0: b"MQTT"}

MAXIMUM_REMAINING_LENGTH: Final = 268_435_455  # what four bytes of a Variable Byte Integer can say, §1.5.5
MAXIMUM_STRING_BYTES: Final = 65_535


class PacketType(IntEnum):
    """MQTT Control Packet types, §2.1.2."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


FROM_SERVER_ONLY: Final = frozenset({PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP})


@dataclass(frozen=True, slots=True)
class Limits:
    """What one packet may contain at most, besides the packet limit itself. The defaults are the plan `standard`.

    `client_id_bytes`: longer Client Identifiers are refused with 0x85. `will_bytes`: longer Will Payloads with 0x95.
    `user_properties` (for each property block) and `subscribe_filters` (SUBSCRIBE and UNSUBSCRIBE): more are refused with 0x97.
    """

    client_id_bytes: int = 256
    will_bytes: int = 65_536
    user_properties: int = 128
    subscribe_filters: int = 100


STANDARD_LIMITS: Final = Limits()
