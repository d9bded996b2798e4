"""The encoder refuses what its version cannot say, and says the rest in the right form."""

from __future__ import annotations

import pytest

from iothub.base.errors import LocalProtocolError
from iothub.mqtt.encoder import encode
from iothub.mqtt.packets import Auth, Connack, Suback, Unsuback
from iothub.mqtt.properties import Properties


@pytest.mark.parametrize(
    ("packet", "version"),
    [
        (Connack(0x87), 4),
        (Connack(6), 4),
        (Connack(5, True), 4),
        (Connack(0x8B), 5),
        (Connack(0, properties=Properties(topic_alias=1)), 5),
        (Suback(1, ()), 4),
        (Suback(1, (0x87,)), 4),
        (Suback(1, (0x11,)), 5),
        (Unsuback(1, ()), 5),
        (Unsuback(1, (0x80, 0x02)), 5),
        (Auth(0x18), 4),
        (Auth(0x87), 5),
        (Suback(0, (0,)), 4),
        (Suback(65_536, (0,)), 4),
        (Connack(), 0),
    ],
    ids=repr,
)
def test_packet_that_cannot_be_sent_is_our_defect(packet: Connack | Suback | Unsuback | Auth, version: int) -> None:
    """[MQTT-3.2.2-6] [MQTT-3.2.2-8] [MQTT-3.9.3-2] [MQTT-3.11.3-2] [MQTT-3.15.2-1] [MQTT3-3.2.2-4] [MQTT3-3.9.3-2]: never on the wire."""
    with pytest.raises(LocalProtocolError):
        encode(packet, version)


def test_connack_of_3_1_has_no_session_present() -> None:
    """The byte is reserved there."""
    assert encode(Connack(0, True), 3) == b"\x20\x02\x00\x00"
    assert encode(Connack(0, True), 4) == b"\x20\x02\x01\x00"


@pytest.mark.parametrize("version", [3, 4])
def test_properties_have_no_place_in_3_x(version: int) -> None:
    """One packet value serves all versions."""
    properties = Properties(user_properties=(("k", "v"),))

    assert encode(Connack(properties=properties), version) == b"\x20\x02\x00\x00"
    assert encode(Unsuback(7, (0x11,), properties), version) == b"\xb0\x02\x00\x07"


def test_suback_and_unsuback_keep_the_order_of_their_codes() -> None:
    """[MQTT-3.9.3-1] [MQTT3-3.9.3-1] [MQTT-3.11.3-1] First Topic Filter, first code."""
    assert encode(Suback(1, (2, 0x80, 0)), 4)[-3:] == b"\x02\x80\x00"
    assert encode(Suback(1, (2, 0x97, 0)), 5)[-3:] == b"\x02\x97\x00"
    assert encode(Unsuback(1, (0, 0x11, 0x87)), 5)[-3:] == b"\x00\x11\x87"


def test_successful_authentication_has_the_short_form() -> None:
    assert encode(Auth(), 5) == b"\xf0\x00"


def test_packet_beyond_the_largest_remaining_length_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The border passes; the real one, 268,435,455, is set lower to spare memory."""
    monkeypatch.setattr("iothub.mqtt.encoder.MAXIMUM_REMAINING_LENGTH", 100)

    assert len(encode(Suback(1, (0,) * 98), 4)) == 102
    with pytest.raises(LocalProtocolError, match="101 bytes, at most 100"):
        encode(Suback(1, (0,) * 99), 4)
