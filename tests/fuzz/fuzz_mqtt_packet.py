"""Any first byte and body, in any version and role, are a packet or an MqttError; a packet can be encoded and means the same again."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.mqtt.constants import Role
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.decoder import Decoder
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Connect
from iothub.testing.packet_cases import PACKET_CASES

VERSIONS = (0, 3, 4, 5)
ROLES = (Role.SERVER, Role.CLIENT)


def _seed(version: int, role: Role, data: bytes) -> bytes:
    start = 1
    while start < len(data) and data[start] & 0x80:
        start += 1
    return bytes((VERSIONS.index(version) << 1 | ROLES.index(role), data[0])) + data[start + 1 :]


SEEDS: Sequence[bytes] = tuple(_seed(case.version, case.role, case.data) for case in PACKET_CASES)


def target(data: bytes) -> None:
    """Take version and role from the first byte, the packet's first byte from the second, its body from the rest."""
    if len(data) < 2:
        return
    version, role = VERSIONS[data[0] >> 1 & 3], ROLES[data[0] & 1]
    try:
        packet = decode_packet(data[1], data[2:], version, role)
    except MqttError:
        return
    is_connect = isinstance(packet, Connect)
    version = packet.version if isinstance(packet, Connect) else version
    again = Decoder(1 << 28, None if is_connect else version, role).receive_data(encode(packet, version))
    assert again == [packet], f"{packet} became {again}"
