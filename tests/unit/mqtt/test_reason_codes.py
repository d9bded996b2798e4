"""Which Reason Codes each packet may carry, from which side."""

from __future__ import annotations

from iothub.base.reasons import Reason
from iothub.mqtt.constants import PacketType
from iothub.mqtt.reason_codes import allowed_codes, sendable_codes


def test_disconnect_separates_the_two_sides() -> None:
    """[MQTT-3.14.2-1] A client cannot shut down the server."""
    from_client = allowed_codes(PacketType.DISCONNECT)

    assert 0x04 in from_client
    assert from_client.isdisjoint({0x8B, 0x8D, 0x8E, 0x9C, 0x9D})
    assert sendable_codes(PacketType.DISCONNECT) >= {0x8B, 0x8D, 0x8E, 0x9C, 0x9D}


def test_auth_separates_the_two_sides() -> None:
    """[MQTT-3.15.2-1] Success is the server's to say, re-authentication the client's to ask."""
    assert allowed_codes(PacketType.AUTH) == {0x18, 0x19}
    assert sendable_codes(PacketType.AUTH) == {0x00, 0x18}


def test_every_refusal_of_the_house_can_be_said() -> None:
    """Each Reason has a code for CONNACK or DISCONNECT, else a close could not be explained to a 5.0 client."""
    sayable = sendable_codes(PacketType.CONNACK) | sendable_codes(PacketType.DISCONNECT) | {0x04}

    assert {reason.code for reason in Reason} <= sayable
