"""`decode_packet`: total over versions and lengths, with limits on what one packet holds."""

from __future__ import annotations

import pytest

from iothub.base.errors import LocalProtocolError
from iothub.base.reasons import Reason
from iothub.mqtt.constants import Limits
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.errors import LimitExceeded, MqttError, ProtocolError
from iothub.mqtt.packets import Connect, Packet, Subscribe
from iothub.testing.packet_cases import ACCEPTED, PacketCase
from iothub.testing.wire_bytes import connect, props, text, u16

CASES = [case for case in ACCEPTED if not case.is_answer]


def _result(header: int, body: bytes, version: int) -> Packet | Reason:
    try:
        return decode_packet(header, body, version)
    except MqttError as error:
        return error.reason


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_packet_cut_off_anywhere_is_a_packet_or_the_known_error(case: PacketCase) -> None:
    """[MQTT-3.1.4-1] No prefix of a body makes anything but a packet or an MqttError."""
    body = case.body[:400]

    results = [_result(case.data[0], body[:end], case.version) for end in range(len(body) + 1)]

    assert all(isinstance(result, Reason | Packet) for result in results)


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_every_first_byte_with_every_case_body_ends_well(version: int) -> None:
    """Bodies under the wrong header are refused or understood, never a crash."""
    bodies = {case.body[:64] for case in ACCEPTED}

    results = [_result(header, body, version) for header in range(256) for body in bodies]

    assert all(isinstance(result, Reason | Packet) for result in results)


@pytest.mark.parametrize("version", [-1, 1, 2, 6])
def test_version_that_does_not_exist_is_our_defect(version: int) -> None:
    """Only 0 (nothing known), 3, 4 and 5."""
    with pytest.raises(LocalProtocolError):
        decode_packet(0xC0, b"", version)


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_connect_is_decoded_whatever_the_connections_version(version: int) -> None:
    """That it came a second time is for the connection to say, not for the packet."""
    data = connect(4, 2, text("c"))

    assert decode_packet(data[0], data[2:], version) == Connect("c", 4, True, 60)


def test_subscribe_filters_up_to_the_limit_pass() -> None:
    """The border belongs to the allowed side."""
    body = u16(1) + (text("a") + b"\x00") * 3

    packet = decode_packet(0x82, body, 4, limits=Limits(subscribe_filters=3))
    assert isinstance(packet, Subscribe)
    assert len(packet.subscriptions) == 3

    with pytest.raises(LimitExceeded) as caught:
        decode_packet(0x82, body, 4, limits=Limits(subscribe_filters=2))
    assert caught.value.limit == "subscribe_filters"


def test_subscription_identifier_from_a_client_is_refused() -> None:
    """[MQTT-3.3.4-6]."""
    with pytest.raises(ProtocolError):
        decode_packet(0x30, text("a") + props(b"\x0b\x05"), 5)
