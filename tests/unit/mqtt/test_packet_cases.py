"""Every shared packet case, through the codec: to its packet, and back to bytes."""

from __future__ import annotations

import pytest

from iothub.mqtt.decode import decode_packet
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Auth, Connack, Suback, Unsuback
from iothub.testing.packet_cases import ACCEPTED, PACKET_CASES, PacketCase


def _cases(cases: tuple[PacketCase, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@_cases(tuple(case for case in PACKET_CASES if not case.is_answer))
def test_decoder_agrees_with_the_case(case: PacketCase) -> None:
    """First byte and body lead to the packet or the Reason of the case."""
    result: object
    try:
        result = decode_packet(case.data[0], case.body, case.version)
    except MqttError as error:
        result = error.reason

    assert result == case.expected


@_cases(tuple(case for case in ACCEPTED if case.is_answer))
def test_encoder_writes_the_bytes_of_an_answer(case: PacketCase) -> None:
    """Our own packets have the shortest form, in the order of the specification's table."""
    assert isinstance(case.expected, Connack | Suback | Unsuback | Auth)

    assert encode(case.expected, case.version) == case.data


def test_case_names_are_unique() -> None:
    """A failing case can be found by its name."""
    names = [case.name for case in PACKET_CASES]

    assert len(names) == len(set(names))
