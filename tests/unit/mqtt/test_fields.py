"""Data representation of §1.5, field by field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.base.errors import LocalProtocolError
from iothub.mqtt import fields
from iothub.mqtt.errors import MalformedPacket
from iothub.mqtt.fields import FieldReader


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (b"\x00", 0),
        (b"\x7f", 127),
        (b"\x80\x01", 128),
        (b"\xff\x7f", 16_383),
        (b"\x80\x80\x01", 16_384),
        (b"\xff\xff\x7f", 2_097_151),
        (b"\x80\x80\x80\x01", 2_097_152),
        (b"\xff\xff\xff\x7f", 268_435_455),
    ],
)
def test_variable_byte_integer_has_the_form_of_table_1_1(encoded: bytes, value: int) -> None:
    """[MQTT-1.5.5-1] Both borders of every length, read and written in the shortest form."""
    reader = FieldReader(encoded, "X")

    assert reader.variable_byte_integer("n") == value
    assert fields.write_variable_byte_integer(value, "n") == encoded


@pytest.mark.parametrize(
    "encoded", [b"\x80\x00", b"\xff\x80\x00", b"\x80\x80\x80\x80", b"\xff\xff\xff\xff\x01", b"\x80", b""]
)
def test_variable_byte_integer_that_is_broken_is_malformed(encoded: bytes) -> None:
    """[MQTT-1.5.5-1] Longer than needed, longer than four bytes, or cut off."""
    with pytest.raises(MalformedPacket):
        FieldReader(encoded, "X").variable_byte_integer("n")


@pytest.mark.parametrize(
    "encoded", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x00"]
)
def test_string_that_is_not_well_formed_is_malformed(encoded: bytes) -> None:
    """[MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT3-1.5.3-1] [MQTT3-1.5.3-2] Surrogates, overlong forms and U+0000 included."""
    with pytest.raises(MalformedPacket):
        FieldReader(len(encoded).to_bytes(2, "big") + encoded, "X").string("s")


def test_string_keeps_a_byte_order_mark() -> None:
    """[MQTT-1.5.4-3] [MQTT3-1.5.3-3] EF BB BF is a character like any other."""
    assert FieldReader(b"\x00\x04\xef\xbb\xbfa", "X").string("s") == "\ufeffa"


def test_string_of_65535_bytes_passes_and_one_more_cannot_be_sent() -> None:
    """[MQTT-4.7.3-3] [MQTT3-4.7.3-3] Two bytes of length bound every string."""
    longest = "x" * 65_535

    assert FieldReader(fields.write_string(longest, "s"), "X").string("s") == longest
    with pytest.raises(LocalProtocolError):
        fields.write_string(longest + "x", "s")


@pytest.mark.parametrize(
    "read",
    [
        lambda reader: reader.byte("f"),
        lambda reader: reader.two_byte_integer("f"),
        lambda reader: reader.four_byte_integer("f"),
        lambda reader: reader.binary("f"),
        lambda reader: reader.string("f"),
        lambda reader: reader.block(1, "f"),
    ],
)
def test_field_beyond_the_end_is_malformed(read: Callable[[FieldReader], object]) -> None:
    """No read ever passes the end of its block, although the body goes on."""
    reader = FieldReader(b"\x00\x01\x02\x03\x04\x05", "X", 3, 3)

    with pytest.raises(MalformedPacket, match="X: f goes beyond the end"):
        read(reader)


def test_finish_refuses_what_is_left() -> None:
    """Bytes behind the last field are an error that says how many."""
    reader = FieldReader(b"\x01\x02\x03", "X")
    reader.byte("f")

    with pytest.raises(MalformedPacket, match="2 bytes are left over"):
        reader.finish()


@pytest.mark.parametrize(
    "write",
    [
        lambda: fields.write_two_byte_integer(65_536, "f"),
        lambda: fields.write_two_byte_integer(-1, "f"),
        lambda: fields.write_four_byte_integer(1 << 32, "f"),
        lambda: fields.write_variable_byte_integer(268_435_456, "f"),
        lambda: fields.write_binary(b"x" * 65_536, "f"),
        lambda: fields.write_string("a\0", "f"),
        lambda: fields.write_string("\ud800", "f"),
    ],
)
def test_value_that_cannot_be_written_is_our_defect(write: Callable[[], bytes]) -> None:
    """Nothing wrong is ever sent; the caller hears of it."""
    with pytest.raises(LocalProtocolError):
        write()
