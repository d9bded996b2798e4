"""Every shared packet case, through the codec: as one packet, as a stream, and back to bytes."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.decoder import Decoder
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Connect
from iothub.testing.packet_cases import ACCEPTED, PACKET_CASES, REFUSED, REMAINING_LENGTHS, PacketCase


def _split(data: bytes) -> tuple[int, bytes]:
    start = 1
    while data[start] & 0x80:
        start += 1
    return data[0], data[start + 1 :]


def _cases(cases: tuple[PacketCase, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@_cases(ACCEPTED)
def test_stream_decoder_gives_the_packet_of_an_accepted_case(case: PacketCase) -> None:
    """What stands on the wire is what comes out."""
    decoder = Decoder(1 << 20, case.version or None, case.role)

    packets = decoder.receive_data(case.data)

    assert packets == [case.expected]
    assert decoder.buffered_bytes == 0


@_cases(REFUSED)
def test_stream_decoder_names_the_reason_of_a_refused_case(case: PacketCase) -> None:
    """A refusal has exactly the Reason of the case."""
    decoder = Decoder(1 << 20, case.version or None, case.role)

    with pytest.raises(MqttError) as caught:
        decoder.receive_data(case.data)

    assert caught.value.reason is case.expected


@_cases(tuple(case for case in PACKET_CASES if case not in REMAINING_LENGTHS))
def test_one_shot_decoder_agrees_with_the_case(case: PacketCase) -> None:
    """First byte and body alone lead to the same packet or Reason: the control plane and the stream agree."""
    header, body = _split(case.data)

    result: object
    try:
        result = decode_packet(header, body, case.version, case.role)
    except MqttError as error:
        result = error.reason

    assert result == case.expected


@_cases(tuple(case for case in ACCEPTED if case.is_canonical))
def test_encoder_writes_the_bytes_of_a_canonical_case(case: PacketCase) -> None:
    """Our own packets have the shortest form, in the order of the specification's table."""
    packet = case.expected
    assert not isinstance(packet, Reason)
    version = packet.version if isinstance(packet, Connect) else case.version

    assert encode(packet, version) == case.data


def test_case_names_are_unique() -> None:
    """A failing case can be found by its name."""
    names = [case.name for case in PACKET_CASES]

    assert len(names) == len(set(names))
