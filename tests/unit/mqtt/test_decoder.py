"""The incremental decoder: splits, limits, what it keeps, and what it knows of a connection."""

from __future__ import annotations

import pytest

from iothub.base.errors import LocalProtocolError
from iothub.base.reasons import Reason
from iothub.mqtt.constants import Limits, Role
from iothub.mqtt.decoder import Decoder
from iothub.mqtt.errors import MalformedPacket, MqttError, PacketTooLarge, ProtocolError
from iothub.mqtt.packets import Connack, Connect, Pingreq, Publish
from iothub.testing.packet_cases import PACKET_CASES, PacketCase
from iothub.testing.wire_bytes import connect, frame, text

CONNECT = connect(4, 2, text("c"))
PINGREQ = b"\xc0\x00"


def _decoder(case: PacketCase) -> Decoder:
    return Decoder(1 << 20, case.version or None, case.role)


def _bytewise(case: PacketCase) -> object:
    decoder = _decoder(case)
    packets: list[object] = []
    try:
        for position in range(len(case.data)):
            packets += decoder.receive_data(case.data[position : position + 1])
    except MqttError as error:
        return error.reason
    return packets[0] if len(packets) == 1 else packets


@pytest.mark.parametrize("case", [case for case in PACKET_CASES if len(case.data) < 2_000], ids=lambda case: case.name)
def test_case_byte_by_byte_ends_as_in_one_piece(case: PacketCase) -> None:
    """[MQTT-6.0.0-2] [MQTT3-6.0.0-2] Packets are aligned on nothing."""
    assert _bytewise(case) == case.expected


@pytest.mark.parametrize("first", [0x20, 0x30, 0x40, 0x82, 0xC0, 0xE0, 0xF0, 0x47, 0x53])
def test_first_packet_that_is_not_connect_is_refused_at_its_first_byte(first: int) -> None:
    """[MQTT-3.1.0-1] [MQTT3-3.1.0-1] HTTP and SSH end here as well."""
    decoder = Decoder(1 << 20)

    with pytest.raises(ProtocolError):
        decoder.receive_data(bytes((first,)))

    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("first", [0x10, 0x1F])
def test_second_connect_is_refused_at_its_first_byte(first: int) -> None:
    """[MQTT-3.1.0-2] [MQTT3-3.1.0-2] Neither its flags nor its body are looked at."""
    decoder = Decoder(1 << 20)
    decoder.receive_data(CONNECT)

    with pytest.raises(ProtocolError, match="second time"):
        decoder.receive_data(bytes((first,)))


def test_connect_sets_the_version_for_what_follows_in_the_same_data() -> None:
    """[MQTT3-2.2.2-1] The very next packet is read in the version just learned."""
    decoder = Decoder(1 << 20)

    packets = decoder.receive_data(connect(5, 2, text("c")) + frame(0x30, text("a"), b"\x00", b"x"))

    assert packets == [Connect("c", 5, True, 60), Publish("a", b"x")]
    assert decoder.version == 5


@pytest.mark.parametrize("split", range(5))
def test_packet_over_the_limit_is_refused_by_its_fixed_header_alone(split: int) -> None:
    """[MQTT-3.2.2-15] 256 MB declared: refused before one byte of the body came, and nothing stays in memory."""
    decoder = Decoder(1_000, 4)
    header = b"\x30\xff\xff\xff\x7f"
    decoder.receive_data(header[:split])

    with pytest.raises(PacketTooLarge) as caught:
        decoder.receive_data(header[split:])

    assert caught.value.reason is Reason.PACKET_TOO_LARGE
    assert decoder.buffered_bytes == 0


def test_packet_of_exactly_the_limit_passes() -> None:
    """The limit counts first byte, Remaining Length and body."""
    packet = frame(0x30, text("a"), b"x" * 95)

    assert Decoder(len(packet), 4).receive_data(packet) == [Publish("a", b"x" * 95)]
    with pytest.raises(PacketTooLarge):
        Decoder(len(packet) - 1, 4).receive_data(packet)


def test_limit_can_be_raised_once_the_tenant_is_known() -> None:
    """Before authentication a small limit holds, afterwards the plan's."""
    decoder = Decoder(64)
    decoder.receive_data(CONNECT)

    decoder.max_packet_bytes = 1_000

    assert decoder.receive_data(frame(0x30, text("a"), b"x" * 500)) == [Publish("a", b"x" * 500)]


def test_packets_before_a_refused_one_are_not_lost() -> None:
    """[MQTT-4.13.1-1] What was complete before the error is in the error: the result does not depend on the split."""
    decoder = Decoder(1 << 20)

    with pytest.raises(MalformedPacket) as caught:
        decoder.receive_data(CONNECT + PINGREQ + b"\xc1")

    assert caught.value.packets == (Connect("c", 4, True, 60), Pingreq())


def test_decoder_stays_refusing_after_an_error() -> None:
    """Nothing that comes later is looked at; the packets before the error are given once."""
    decoder = Decoder(1 << 20)
    with pytest.raises(MqttError) as first:
        decoder.receive_data(CONNECT + b"\x00")

    with pytest.raises(MqttError) as second:
        decoder.receive_data(PINGREQ)

    assert (str(second.value), second.value.reason) == (str(first.value), first.value.reason)
    assert second.value.packets == ()


def test_decoder_keeps_only_the_incomplete_packet() -> None:
    """What was decoded is gone; an empty chunk changes nothing."""
    decoder = Decoder(1 << 20, 4)

    assert decoder.receive_data(PINGREQ * 100 + b"\x30\x05\x00\x01") == [Pingreq()] * 100
    assert decoder.buffered_bytes == 4
    assert decoder.receive_data(b"") == []
    assert decoder.receive_data(b"axy" + b"\xc0") == [Publish("a", b"xy")]
    assert decoder.buffered_bytes == 1


def test_big_packet_in_small_chunks_is_looked_at_once() -> None:
    """A million bytes, sixteen at a time, end in one packet; the header is not read again for every chunk."""
    payload = bytes(1_000_000)
    data = frame(0x30, text("a"), payload)
    decoder = Decoder(1 << 20, 4)

    packets = [packet for start in range(0, len(data), 16) for packet in decoder.receive_data(data[start : start + 16])]

    assert packets == [Publish("a", payload)]


def test_decoder_of_a_client_hears_the_server() -> None:
    """The same class serves tests and bridges as a client."""
    assert Decoder(100, 5, Role.CLIENT).receive_data(b"\x20\x03\x00\x00\x00") == [Connack()]
    with pytest.raises(LocalProtocolError):
        Decoder(100, None, Role.CLIENT)


def test_decoder_passes_its_limits_on() -> None:
    """Limits on the contents hold in the stream as in one packet."""
    with pytest.raises(MqttError) as caught:
        Decoder(1 << 20, limits=Limits(client_id_bytes=2)).receive_data(connect(5, 2, text("abc")))

    assert caught.value.reason is Reason.CLIENT_ID_INVALID
