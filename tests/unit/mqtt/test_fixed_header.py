"""The Fixed Header: what a first byte may be, how a length reads, when a size is refused."""

from __future__ import annotations

import pytest

from iothub.mqtt.constants import PacketType, Role
from iothub.mqtt.errors import MalformedPacket, MqttError, PacketTooLarge, ProtocolError
from iothub.mqtt.fixed_header import check_first_byte, check_size, read_remaining_length

FIXED = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
PUBLISH_FLAGS = {flags for flags in range(16) if flags >> 1 & 3 != 3 and not (flags & 8 and not flags & 6)}
SERVER_HEARS = {1, 3, 4, 5, 6, 7, 8, 10, 12, 14}
CLIENT_HEARS = {2, 3, 4, 5, 6, 7, 9, 11, 13, 14}


def _expected(header: int, version: int, role: Role) -> set[type[MqttError]]:
    """Spell Table 2-1 and Table 2-2 out once more, as sets."""
    kind, flags = header >> 4, header & 15
    if kind == 0 or (kind == 15 and version in (3, 4)):
        return {MalformedPacket}
    if version == 0 and kind != 1:
        return {ProtocolError}
    if kind != 15 and kind not in (SERVER_HEARS if role is Role.SERVER else CLIENT_HEARS):
        return {ProtocolError}
    allowed = PUBLISH_FLAGS if kind == 3 else {FIXED.get(PacketType(kind), 0)}
    if version == 3 and kind in (6, 8, 10):
        allowed = {2, 10}
    return set() if flags in allowed else {MalformedPacket}


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_every_first_byte_is_judged(version: int, role: Role) -> None:
    """[MQTT-2.1.3-1] [MQTT3-2.2.2-1] [MQTT3-2.2.2-2] [MQTT-3.1.0-1] [MQTT3-3.1.0-1] All 256, in every version and role."""
    for header in range(256):
        raised: set[type[MqttError]] = set()
        try:
            packet_type = check_first_byte(header, version, role)
        except MqttError as error:
            raised = {type(error)}
        else:
            assert packet_type == header >> 4

        assert raised == _expected(header, version, role), f"first byte {header:#04x}"


@pytest.mark.parametrize(
    ("data", "value", "body"),
    [(b"\x00", 0, 1), (b"\x7f", 127, 1), (b"\x80\x01", 128, 2), (b"\xff\xff\xff\x7f", 268_435_455, 4)],
)
def test_remaining_length_tells_value_and_body(data: bytes, value: int, body: int) -> None:
    """It may stand anywhere in a buffer."""
    assert read_remaining_length(b"\x30" + data + b"rest", 1, 5) == (value, 1 + body)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff", b"\xff\xff\xff"])
def test_remaining_length_that_is_cut_off_asks_for_more(data: bytes) -> None:
    """Not an error: the rest may come."""
    assert read_remaining_length(data, 0, 5) is None


def test_remaining_length_of_five_bytes_is_malformed_before_the_fifth() -> None:
    """The fourth byte may not ask for another one."""
    with pytest.raises(MalformedPacket):
        read_remaining_length(b"\xff\xff\xff\xff", 0, 4)


def test_remaining_length_in_a_longer_form_is_refused_in_5_0_only() -> None:
    """[MQTT-1.5.5-1] 3.1.1 does not demand the shortest form, and a CONNECT's version is not known yet."""
    with pytest.raises(MalformedPacket):
        read_remaining_length(b"\x82\x00", 0, 5)

    assert [read_remaining_length(b"\x82\x00", 0, version) for version in (0, 3, 4)] == [(2, 2)] * 3


def test_size_of_exactly_the_limit_passes() -> None:
    """[MQTT-3.2.2-15] Maximum Packet Size counts the whole packet and includes its border."""
    check_size(100, 100)

    with pytest.raises(PacketTooLarge, match="101 bytes, at most 100"):
        check_size(101, 100)
