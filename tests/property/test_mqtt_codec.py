"""Properties of the codec that hold for all packets, all bytes and all splits."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from iothub.base.reasons import Reason
from iothub.mqtt.constants import UNKNOWN_VERSION, PacketType, Role
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.decoder import Decoder
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Connect, Packet
from iothub.testing.packet_cases import PACKET_CASES
from iothub.testing.strategies import client_packets, client_streams, connects, server_packets, versions

LIMIT = 1 << 16
Outcome = tuple[list[Packet], Reason | None, str]
case_bytes = st.sampled_from([case.data for case in PACKET_CASES])


def _outcome(decoder: Decoder, chunks: list[bytes]) -> Outcome:
    """Feed chunks; return all packets, and the Reason and text of the error if there was one."""
    packets: list[Packet] = []
    try:
        for chunk in chunks:
            packets += decoder.receive_data(chunk)
    except MqttError as error:
        packets += [packet for packet in error.packets if isinstance(packet, Packet)]
        return packets, error.reason, str(error)
    return packets, None, ""


def _split(data: bytes, cuts: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(borders)]


def _mutate(data: bytes, edits: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for position, value in edits:
        if changed:
            changed[position % len(changed)] = value
    return bytes(changed)


edits = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(client_streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_split_of_a_valid_stream_gives_its_packets(stream: tuple[int, list[Packet]], cuts: list[int]) -> None:
    """[MQTT-6.0.0-2] [MQTT3-6.0.0-2] Chunking invariance and round trip of whole connections, in every version."""
    version, packets = stream
    data = b"".join(encode(packet, version) for packet in packets)

    assert _outcome(Decoder(LIMIT), _split(data, cuts)) == (packets, None, "")


@settings(max_examples=100, deadline=None)
@given(client_streams(), edits, st.lists(st.integers(0, 10_000), max_size=8), st.integers(20, 400))
def test_any_split_of_a_damaged_stream_gives_the_same_result(
    stream: tuple[int, list[Packet]], changes: list[tuple[int, int]], cuts: list[int], limit: int
) -> None:
    """Packets, Reason and text are the same in one piece, in any pieces and byte by byte, also under a small packet limit."""
    version, packets = stream
    data = _mutate(b"".join(encode(packet, version) for packet in packets), changes)

    whole = _outcome(Decoder(limit), [data])

    assert _outcome(Decoder(limit), _split(data, cuts)) == whole
    assert _outcome(Decoder(limit), [data[at : at + 1] for at in range(len(data))]) == whole


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.sampled_from([None, 3, 4, 5]))
@example(b"\x10\xff\xff\xff\xff\xff", None)
def test_arbitrary_bytes_are_packets_or_the_one_known_error(data: bytes, version: int | None) -> None:
    """Nothing but packets and MqttError ever comes out, and no more is kept than came in or the limit allows."""
    decoder = Decoder(256, version)

    packets, reason, text = _outcome(decoder, [data])

    assert all(isinstance(packet, Packet) for packet in packets)
    assert bool(text) == (reason is not None)
    assert decoder.buffered_bytes <= min(len(data), 256)


@settings(max_examples=160, deadline=None)
@given(case_bytes, edits, versions, st.sampled_from(Role))
def test_damaged_cases_are_packets_or_the_one_known_error(
    data: bytes, changes: list[tuple[int, int]], version: int, role: Role
) -> None:
    """Near misses of real packets reach deeper than random bytes."""
    packets, reason, _ = _outcome(Decoder(LIMIT, version, role), [_mutate(data, changes)])

    assert packets == [] or all(isinstance(packet, Packet) for packet in packets)
    assert reason is None or reason.code >= 0x80


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 255), st.binary(max_size=80), st.sampled_from([UNKNOWN_VERSION, 3, 4, 5]), st.sampled_from(Role))
def test_one_shot_decoder_is_total(header: int, body: bytes, version: int, role: Role) -> None:
    """Every first byte with every body, in every version and role."""
    try:
        result: object = decode_packet(header, body, version, role)
    except MqttError as error:
        result = error.reason

    assert isinstance(result, Packet | Reason)


@settings(max_examples=160, deadline=None)
@given(st.data(), versions)
def test_packet_survives_encoding_and_decoding(data: st.DataObject, version: int) -> None:
    """Round trip of every packet type, in both directions and every version; its bytes are the same when encoded again."""
    role = data.draw(st.sampled_from(Role))
    packets = st.one_of(connects(version), client_packets(version)) if role is Role.SERVER else server_packets(version)
    packet = data.draw(packets)

    encoded = encode(packet, version)
    decoder = Decoder(LIMIT, None if isinstance(packet, Connect) else version, role)

    assert decoder.receive_data(encoded) == [packet]
    assert encode(packet, version) == encoded


@settings(max_examples=120, deadline=None)
@given(case_bytes, edits, versions)
def test_what_was_decoded_can_be_encoded_and_means_the_same(
    data: bytes, changes: list[tuple[int, int]], version: int
) -> None:
    """The encoder accepts whatever the decoder accepts: no packet can be received that could not be said."""
    packets, _, _ = _outcome(Decoder(LIMIT, version), [_mutate(data, changes)])

    for packet in packets:
        assert Decoder(LIMIT, version).receive_data(encode(packet, version)) == [packet]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 255), st.binary(max_size=30), st.sampled_from([None, 3, 4, 5]))
def test_state_of_a_connection_is_total(first: int, rest: bytes, version: int | None) -> None:
    """[MQTT-3.1.0-1] [MQTT-3.1.0-2] [MQTT3-3.1.0-1] [MQTT3-3.1.0-2] CONNECT first and only first, whatever the bytes."""
    packets, reason, _ = _outcome(Decoder(LIMIT, version), [bytes((first,)) + rest])
    is_connect = first >> 4 == PacketType.CONNECT

    if version is None and not is_connect:
        assert (packets, reason) == ([], Reason.PROTOCOL_ERROR if first >> 4 else Reason.MALFORMED)
    if version is not None and is_connect:
        assert (packets, reason) == ([], Reason.PROTOCOL_ERROR)
    assert sum(isinstance(packet, Connect) for packet in packets) <= 1
