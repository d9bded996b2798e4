"""Properties of the codec that hold for all packets and all bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.reasons import Reason
from iothub.mqtt.constants import UNKNOWN_VERSION
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Connect, Packet
from iothub.testing.packet_cases import PACKET_CASES
from iothub.testing.strategies import client_packets, connects, versions
from iothub.testing.wire_bytes import body_of

cases = st.sampled_from([(case.data[0], case.body) for case in PACKET_CASES])
edits = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), min_size=1, max_size=3)


def _outcome(header: int, body: bytes, version: int) -> Packet | Reason:
    try:
        return decode_packet(header, body, version)
    except MqttError as error:
        return error.reason


def _mutate(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for position, value in changes:
        if changed:
            changed[position % len(changed)] = value
    return bytes(changed)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 255), st.binary(max_size=80), st.sampled_from([UNKNOWN_VERSION, 3, 4, 5]))
def test_decoder_is_total(header: int, body: bytes, version: int) -> None:
    """Every first byte with every body, in every version."""
    assert isinstance(_outcome(header, body, version), Packet | Reason)


@settings(max_examples=160, deadline=None)
@given(st.data(), versions)
def test_packet_survives_encoding_and_decoding(data: st.DataObject, version: int) -> None:
    """Round trip of every packet of a client's, in every version; its bytes are the same when encoded again."""
    packet = data.draw(st.one_of(connects(version), client_packets(version)))

    encoded = encode(packet, version)

    assert decode_packet(encoded[0], body_of(encoded), version) == packet
    assert encode(packet, version) == encoded


@settings(max_examples=160, deadline=None)
@given(cases, edits, versions)
def test_what_was_decoded_can_be_encoded_and_means_the_same(
    case: tuple[int, bytes], changes: list[tuple[int, int]], version: int
) -> None:
    """Near misses of real packets reach deeper than random bytes: a Reason, or a packet that could be said."""
    header, body = case
    found = _outcome(header, _mutate(body, changes), version)

    if isinstance(found, Reason):
        assert found.code >= 0x80
        return
    version = found.version if isinstance(found, Connect) else version
    encoded = encode(found, version)
    assert decode_packet(encoded[0], body_of(encoded), version) == found
