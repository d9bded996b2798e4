"""The Fixed Header: what a first byte may be."""

from __future__ import annotations

import pytest

from iothub.mqtt.constants import PacketType
from iothub.mqtt.errors import MalformedPacket, MqttError, ProtocolError
from iothub.mqtt.fixed_header import check_first_byte

FIXED = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
PUBLISH_FLAGS = {flags for flags in range(16) if flags >> 1 & 3 != 3 and not (flags & 8 and not flags & 6)}
SERVER_HEARS = {1, 3, 4, 5, 6, 7, 8, 10, 12, 14}


def _expected(header: int, version: int) -> set[type[MqttError]]:
    """Spell Table 2-1 and Table 2-2 out once more, as sets."""
    kind, flags = header >> 4, header & 15
    if kind == 0 or (kind == 15 and version in (3, 4)):
        return {MalformedPacket}
    if version == 0 and kind != 1:
        return {ProtocolError}
    if kind != 15 and kind not in SERVER_HEARS:
        return {ProtocolError}
    allowed = PUBLISH_FLAGS if kind == 3 else {FIXED.get(PacketType(kind), 0)}
    if version == 3 and kind in (6, 8, 10):
        allowed = {2, 10}
    return set() if flags in allowed else {MalformedPacket}


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_every_first_byte_is_judged(version: int) -> None:
    """[MQTT-2.1.3-1] [MQTT3-2.2.2-1] [MQTT3-2.2.2-2] [MQTT-3.1.0-1] [MQTT3-3.1.0-1] All 256, in every version."""
    for header in range(256):
        raised: set[type[MqttError]] = set()
        try:
            packet_type = check_first_byte(header, version)
        except MqttError as error:
            raised = {type(error)}
        else:
            assert packet_type == header >> 4

        assert raised == _expected(header, version), f"first byte {header:#04x}"
