"""Frames: round trips, pieces, bounds, and what is refused."""

from __future__ import annotations

import msgpack
import pytest

from iothub.peers import frames
from iothub.peers.frames import BadFrameError, FrameType, Hello
from iothub.peers.framing import FrameDecoder
from tests.support.in_process.cut_frames import cut_frames

HELLO = Hello(1, "an installation", 3, 9, "hub-3", "0.1.0", (64, 65), (4, 17))
FIELDS = {name: getattr(HELLO, name) for name in Hello.__slots__}


def test_frames_come_out_as_they_went_in_byte_by_byte() -> None:
    """Where a chunk ends makes no difference."""
    data = frames.encode(FrameType.REQUEST, b"body", 7) + frames.ack_frame(6, 9)
    decoder = FrameDecoder(100)

    found = [frame for byte in data for frame in cut_frames(decoder, bytes((byte,)))]

    assert found == [
        (FrameType.REQUEST, 7, b"body"),
        (FrameType.ACK, 0, (6).to_bytes(8, "big") + (9).to_bytes(8, "big")),
    ]


def test_reading_that_stops_half_way_goes_on_with_the_next_frame() -> None:
    decoder = FrameDecoder(100)
    data = frames.encode(FrameType.ROWS, b"a", 1) + frames.encode(FrameType.ROWS, b"b", 2)

    decoder.add(data)
    assert decoder.cut()
    first = decoder.frame_type, decoder.number, decoder.body

    assert [first, *cut_frames(decoder, data[:3])] == [(FrameType.ROWS, 1, b"a"), (FrameType.ROWS, 2, b"b")]
    assert cut_frames(decoder, data[3 : len(data) // 2]) == [(FrameType.ROWS, 1, b"a")]


def test_a_number_that_no_frame_can_have_is_refused() -> None:
    """As a C number it would be another one."""
    data = frames.encode(FrameType.ROWS, b"a", frames.MAX_NUMBER)
    assert cut_frames(FrameDecoder(100), data) == [(FrameType.ROWS, frames.MAX_NUMBER, b"a")]

    with pytest.raises(BadFrameError, match="expected a number of at most"):
        cut_frames(FrameDecoder(100), frames.encode(FrameType.ROWS, b"a", frames.MAX_NUMBER + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00\x00",
        b"\x07\x00\x00\x00\x01x",
        frames.encode(FrameType.REQUEST, bytes(93), 1),
        b"\x40\x00\x00\x00\x07" + bytes(7),
    ],
    ids=["type 0", "unknown type", "101 bytes", "no number"],
)
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrameError, match="a frame of"):
        cut_frames(FrameDecoder(100), data)


def test_frame_that_is_too_large_is_refused_by_its_header() -> None:
    """Nothing of it is waited for."""
    with pytest.raises(BadFrameError, match="101 bytes, expected at most 100"):
        cut_frames(FrameDecoder(100), b"\x01\x00\x00\x00\x65")


@pytest.mark.parametrize("knows", [None, (4, 17)])
def test_hello_comes_out_as_it_went_in(knows: tuple[int, int] | None) -> None:
    hello = Hello(1, "an installation", 3, 9, "hub-3", "0.1.0", (64, 65), knows)

    ((frame_type, number, body),) = cut_frames(FrameDecoder(frames.HELLO_BYTES), hello.encode())

    assert (frame_type, number, Hello.decode(body)) == (FrameType.HELLO, 0, hello)


def test_fields_of_a_later_version_are_passed_over() -> None:
    assert Hello.decode(frames.pack({**FIELDS, "colour": "green"})) == HELLO


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("protocol", -1),
        ("protocol", True),
        ("installation", 5),
        ("installation", "x" * 256),
        ("node", 65536),
        ("incarnation", "9"),
        ("name", None),
        ("features", [256]),
        ("features", [1] * 257),
        ("knows", [1]),
        ("knows", [1, -1]),
    ],
)
def test_hello_with_a_field_out_of_its_bounds_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(BadFrameError, match=f"field {field} is"):
        Hello.decode(frames.pack({**FIELDS, field: value}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        frames.pack({"a": 1}) + b"\x00",
        msgpack.packb([1]),
        msgpack.packb({1: 2}),
        msgpack.packb({"a": msgpack.ExtType(1, b"x")}),
        b"\x81" + b"\xa1\xff" + b"\x00",
        b"\x91" * 2000,
    ],
    ids=["empty", "reserved byte", "more behind it", "list", "number for a name", "extension", "no UTF-8", "too deep"],
)
def test_body_that_is_no_map_of_named_fields_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrameError, match="a body"):
        frames.unpack(body)


def test_texts_and_lists_of_a_body_are_bounded() -> None:
    assert frames.unpack(frames.pack({"a": "12", "b": [1, 2]}), text_bytes=2, items=2) == {"a": "12", "b": [1, 2]}
    for too_much in ({"a": "123"}, {"a": b"123"}, {"b": [1, 2, 3]}, {"a": 1, "b": 2, "c": 3}):
        with pytest.raises(BadFrameError):
            frames.unpack(frames.pack(too_much), text_bytes=2, items=2)


def test_refusal_says_its_reason_and_no_more_text_than_fits() -> None:
    ((_, _, body),) = cut_frames(FrameDecoder(frames.HELLO_BYTES), frames.refused_frame("gone", "x" * 600))

    assert frames.refusal_of(body) == ("gone", "x" * 500)


def test_number_of_a_wrong_length_is_refused() -> None:
    with pytest.raises(BadFrameError, match="PING with 7 bytes, expected 8"):
        frames.number_of(FrameType.PING, bytes(7))
    with pytest.raises(BadFrameError, match="ACK with 8 bytes, expected 16"):
        frames.ack_of(bytes(8))
