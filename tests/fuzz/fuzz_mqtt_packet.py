"""Any first byte and body, in any version, are a packet or an MqttError."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.mqtt.decode import decode_packet
from iothub.mqtt.errors import MqttError
from iothub.testing.packet_cases import PACKET_CASES

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
        decode_packet(data[1], data[2:], version)
    except MqttError:
        return
