"""Which Reason Codes each packet may carry, from which side."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub.mqtt.constants import PacketType, Role
from iothub.mqtt.reason_codes import ReasonCode, allowed_codes, sendable_codes


def test_reason_codes_are_those_of_section_2_4() -> None:
    """43 codes; the failures are 0x80 to 0xA2 without a gap."""
    codes = [int(code) for code in ReasonCode]

    assert codes[:8] == [0x00, 0x01, 0x02, 0x04, 0x10, 0x11, 0x18, 0x19]
    assert codes[8:] == list(range(0x80, 0xA3))


@pytest.mark.parametrize("packet_type", list(PacketType))
def test_allowed_codes_exist(packet_type: PacketType) -> None:
    """No table names a code that §2.4 does not know."""
    assert sendable_codes(packet_type) <= {int(code) for code in ReasonCode}


def test_disconnect_separates_the_two_sides() -> None:
    """[MQTT-3.14.2-1] A client cannot shut down the server, a server cannot ask for a will."""
    from_client = allowed_codes(PacketType.DISCONNECT, Role.SERVER)
    from_server = allowed_codes(PacketType.DISCONNECT, Role.CLIENT)

    assert from_client - from_server == {0x04}
    assert {0x8B, 0x8D, 0x8E, 0x9C, 0x9D} <= from_server - from_client


def test_auth_separates_the_two_sides() -> None:
    """[MQTT-3.15.2-1] Success is the server's to say, re-authentication the client's to ask."""
    assert allowed_codes(PacketType.AUTH, Role.SERVER) == {0x18, 0x19}
    assert allowed_codes(PacketType.AUTH, Role.CLIENT) == {0x00, 0x18}


def test_every_refusal_of_the_house_can_be_said() -> None:
    """Each Reason has a code for CONNACK or DISCONNECT, else a close could not be explained to a 5.0 client."""
    sayable = (
        allowed_codes(PacketType.CONNACK, Role.CLIENT) | allowed_codes(PacketType.DISCONNECT, Role.CLIENT) | {0x04}
    )

    assert {reason.code for reason in Reason} <= sayable
