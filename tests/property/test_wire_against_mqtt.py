"""The engine's own decoder against the reference codec: the same bytes give the same packet, or the same Reason."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.engine.filters import check_topic_name
from iothub.engine.wire import PROTOCOL_ERROR, Wire
from iothub.mqtt.constants import Limits
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from iothub.mqtt.properties import encode_message_properties
from tests.support.night import by_day

_USERS = 3
_TEXT = st.one_of(
    st.sampled_from([b"", b"a", b"a/b", "\u00fc/\U0001f600".encode(), b"+", b"a\0", b"\xff", b"\xed\xa0\x80"]),
    st.binary(max_size=5),
).map(lambda text: len(text).to_bytes(2, "big") + text)
_PROPERTY = st.one_of(
    st.sampled_from(
        [
            b"\x01\0",
            b"\x01\x01",
            b"\x01\x02",
            b"\x02\0\0\0\x05",
            b"\x23\0\x01",
            b"\x23\0\0",
            b"\x0b\x01",
            b"\x11\0\0\0\x01",
        ]
    ),
    st.tuples(st.sampled_from([b"\x03", b"\x08", b"\x09", b"\x1f"]), _TEXT).map(b"".join),
    st.tuples(st.just(b"\x26"), _TEXT, _TEXT).map(b"".join),
    st.binary(min_size=1, max_size=4),
)
_PROPERTIES = st.lists(_PROPERTY, max_size=5).map(b"".join)


def _block(properties: bytes, shift: int) -> bytes:
    """Property Length, wrong by `shift`, and the properties."""
    length = max(0, len(properties) + shift)
    return (bytes((length,)) if length < 0x80 else bytes((length & 0x7F | 0x80, length >> 7))) + properties


_BLOCK = st.builds(_block, _PROPERTIES, st.sampled_from([0, 0, 0, 0, 0, -1, 1]))
_IDENTIFIER = st.sampled_from([b"\0\x01", b"\xff\xff", b"\0\0"])
_PUBLISHES = st.tuples(
    st.sampled_from([0x30, 0x31, 0x32, 0x34, 0x3A, 0x3D, 0x36, 0x38]),
    st.one_of(
        st.tuples(_TEXT, _IDENTIFIER, _BLOCK, st.binary(max_size=6)).map(b"".join),
        st.tuples(_TEXT, _BLOCK, st.binary(max_size=6)).map(b"".join),
        st.binary(max_size=20),
    ),
)
_ACKS = st.tuples(
    st.sampled_from([0x40, 0x50, 0x60, 0x62, 0x6A, 0x70, 0x42]),
    st.one_of(
        _IDENTIFIER,
        st.tuples(_IDENTIFIER, st.sampled_from([b"\0", b"\x10", b"\x87", b"\x92", b"\x55"])).map(b"".join),
        st.tuples(_IDENTIFIER, st.sampled_from([b"\0", b"\x92", b"\x55"]), _BLOCK).map(b"".join),
        st.binary(max_size=10),
    ),
)


def _reference(header: int, body: bytes, version: int) -> object:
    """The packet, or the Reason Code."""
    try:
        return decode_packet(header, body, version, limits=Limits(user_properties=_USERS))
    except MqttError as error:
        return error.reason_code


def _engine_publish(header: int, body: bytes, version: int) -> object:
    wire = Wire()
    code = wire.read_publish(body, 0, len(body), header, version == 5, _USERS)
    if code == 0 and (wire.topic or not wire.alias):
        if not wire.topic and version == 5:
            return PROTOCOL_ERROR
        code = check_topic_name(wire.topic, 1000, 65535)
    return code or wire


@settings(max_examples=by_day(200, 400), deadline=None)
@given(packet=_PUBLISHES, version=st.sampled_from([3, 4, 5, 5]))
def test_publish_is_the_same_for_both_decoders(packet: tuple[int, bytes], version: int) -> None:
    """Topic, payload, identifier, what is forwarded, what is set anew; or the same refusal."""
    header, body = packet
    expected = _reference(header, body, version)
    found = _engine_publish(header, body, version)

    if isinstance(found, Wire):
        assert isinstance(expected, Publish)
        assert (found.topic, found.payload, found.packet_id) == (
            expected.topic.encode(),
            expected.payload,
            expected.packet_id,
        )
        properties = expected.properties
        assert found.alias == (properties.topic_alias or 0)
        assert found.expiry == (
            -1 if properties.message_expiry_interval_s is None else properties.message_expiry_interval_s
        )
        assert sorted(found.properties) == sorted(encode_message_properties(properties))
    else:
        assert found == expected


@settings(max_examples=by_day(200, 400), deadline=None)
@given(packet=_ACKS, version=st.sampled_from([4, 5, 5]))
def test_acknowledgements_are_the_same_for_both_decoders(packet: tuple[int, bytes], version: int) -> None:
    """Identifier and Reason Code; or the same refusal."""
    header, body = packet
    wire = Wire()
    expected = _reference(header, body, version)

    code = wire.read_ack(body, 0, len(body), header, version == 5, _USERS)

    if code == 0:
        assert isinstance(expected, Puback | Pubrec | Pubrel | Pubcomp)
        assert (wire.packet_id, wire.code) == (expected.packet_id, expected.reason_code)
    else:
        assert code == expected
