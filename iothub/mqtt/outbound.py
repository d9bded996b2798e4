"""What a peer may not be sent: packets above its Maximum Packet Size, and problem information it did not ask for.

Knows no queue: the caller decides what a packet that does not fit means (a PUBLISH counts as delivered [MQTT-3.1.2-25]).
"""

from __future__ import annotations

from dataclasses import replace

from iothub.mqtt.constants import MQTT_5_0
from iothub.mqtt.encoder import encode
from iothub.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Disconnect,
    Packet,
    Suback,
    Unsuback,
)

_QUIET_WITHOUT_REQUEST = Acknowledgement | Suback | Unsuback | Auth
_ANSWER = _QUIET_WITHOUT_REQUEST | Connack | Disconnect


def encode_within(packet: Packet, version: int, max_packet_bytes: int) -> bytes | None:
    """Encode `packet` within the receiver's Maximum Packet Size [MQTT-3.1.2-24], or return None: it cannot be sent at all.

    An answer that is too long first loses its Reason String, then its User Properties: [MQTT-3.2.2-19] [MQTT-3.2.2-20] [MQTT-3.4.2-2]
    [MQTT-3.4.2-3] [MQTT-3.5.2-2] [MQTT-3.5.2-3] [MQTT-3.6.2-2] [MQTT-3.6.2-3] [MQTT-3.7.2-2] [MQTT-3.7.2-3] [MQTT-3.9.2-1]
    [MQTT-3.9.2-2] [MQTT-3.11.2-1] [MQTT-3.11.2-2] [MQTT-3.14.2-3] [MQTT-3.14.2-4] [MQTT-3.15.2-2] [MQTT-3.15.2-3].
    """
    encoded = encode(packet, version)
    if len(encoded) <= max_packet_bytes:
        return encoded
    if version == MQTT_5_0 and isinstance(packet, _ANSWER):
        for properties in (
            replace(packet.properties, reason_string=None),
            replace(packet.properties, reason_string=None, user_properties=()),
        ):
            encoded = encode(replace(packet, properties=properties), version)
            if len(encoded) <= max_packet_bytes:
                return encoded
    return None


def without_problem_information(packet: Packet) -> Packet:
    """Leave out Reason String and User Properties where a client that sent Request Problem Information 0 must not get them [MQTT-3.1.2-29]."""
    if not isinstance(packet, _QUIET_WITHOUT_REQUEST):
        return packet
    return replace(packet, properties=replace(packet.properties, reason_string=None, user_properties=()))
