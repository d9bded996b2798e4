"""Any first byte and body, in any version, are a packet or an MqttError; a packet can be encoded and means the same again."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.mqtt.decode import decode_packet
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Connect
from iothub.testing.packet_cases import PACKET_CASES
from iothub.testing.wire_bytes import body_of

VERSIONS = (0, 3, 4, 5)
SEEDS: Sequence[bytes] = tuple(
    bytes((VERSIONS.index(case.version) << 1, case.data[0])) + case.body for case in PACKET_CASES
)


def target(data: bytes) -> None:
    """Take the version from the first byte, the packet's first byte from the second, its body from the rest."""
    if len(data) < 2:
        return
    version = VERSIONS[data[0] >> 1 & 3]
    try:
        packet = decode_packet(data[1], data[2:], version)
    except MqttError:
        return
    version = packet.version if isinstance(packet, Connect) else version
    encoded = encode(packet, version)
    again = decode_packet(encoded[0], body_of(encoded), version)
    assert again == packet, f"{packet} became {again}"
