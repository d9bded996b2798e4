"""Bodies of stored messages: golden bytes, round trips, and damage that is refused by name."""

from __future__ import annotations

from binascii import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import CorruptRecordError
from iothub.records.message import StoredMessage, decode_message, encode_message

FULL = StoredMessage(
    topic=b"a/b",
    payload=b"hello",
    qos=2,
    is_retain=True,
    properties=b"\x01\x01",
    expires_at_ms=1_700_000_000_000,
    message_id=bytes(range(16)),
    publisher_client_id="cl\u00e9",
)
PLAIN = StoredMessage(b"t", b"", 0, False, b"", 0, b"", "")

GOLDEN_V1 = (
    "010e00040003000000020000018bcfe56800000102030405060708090a0b0c0d0e0f"  # head
    "636cc3a9612f62010168656c6c6f4fab5f95"
)

messages = st.builds(
    StoredMessage,
    topic=st.binary(max_size=40),
    payload=st.binary(max_size=200),
    qos=st.integers(0, 2),
    is_retain=st.booleans(),
    properties=st.binary(max_size=40),
    expires_at_ms=st.integers(0, 2**63),
    message_id=st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)),
    publisher_client_id=st.text(max_size=20),
)


def resealed(body: bytes) -> bytes:
    return body[:-4] + crc32(body[:-4]).to_bytes(4)


def test_golden_bytes_of_version_1_are_written_and_read() -> None:
    """Every version ever written stays readable: these bytes never change."""
    assert encode_message(FULL).hex() == GOLDEN_V1
    assert decode_message(bytes.fromhex(GOLDEN_V1)) == FULL


def test_golden_bytes_of_the_smallest_message() -> None:
    """Without id, properties and payload."""
    body = encode_message(PLAIN)

    assert body[:-4].hex() == "010000000001000000000000000000000000" + "00" * 16 + "74"
    assert decode_message(body) == PLAIN


@settings(max_examples=100, deadline=None)
@given(messages)
def test_message_survives_the_round_trip(message: StoredMessage) -> None:
    """decode(encode(m)) == m."""
    assert decode_message(encode_message(message)) == message


@settings(max_examples=200, deadline=None)
@given(messages, st.data())
def test_message_with_a_flipped_bit_is_refused(message: StoredMessage, data: st.DataObject) -> None:
    """CRC-32 sees every single-bit error; nothing is misread."""
    body = bytearray(encode_message(message))
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8

    with pytest.raises(CorruptRecordError):
        decode_message(bytes(body))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=120))
def test_arbitrary_bytes_give_a_message_or_the_named_error(body: bytes) -> None:
    """Decoding is total, also behind a valid checksum."""
    for candidate in (body, resealed(b"\x01" + body), resealed(b"\x01" + body + bytes(34))):
        try:
            assert isinstance(decode_message(candidate), StoredMessage)
        except CorruptRecordError:
            continue


def test_message_of_a_future_version_is_refused_by_name() -> None:
    """A downgraded hub says which version it met."""
    body = resealed(b"\x02" + encode_message(FULL)[1:])

    with pytest.raises(CorruptRecordError, match="format version 2"):
        decode_message(body)


@pytest.mark.parametrize(
    ("offset", "value"), [(3, 0xFF), (5, 0xFF), (6, 0xFF), (1, 0x0F)], ids=["client id", "topic", "properties", "qos 3"]
)
def test_message_whose_fields_do_not_fit_is_refused(offset: int, value: int) -> None:
    """Lengths beyond the body, and QoS 3, even when the checksum agrees."""
    body = bytearray(encode_message(FULL))
    body[offset] = value

    with pytest.raises(CorruptRecordError, match="do not fit"):
        decode_message(resealed(bytes(body)))


def test_message_with_a_client_id_that_is_no_text_is_refused() -> None:
    """UTF-8 is checked, not assumed."""
    body = bytearray(encode_message(FULL))
    body[34] = 0xFF

    with pytest.raises(CorruptRecordError, match="UTF-8"):
        decode_message(resealed(bytes(body)))
