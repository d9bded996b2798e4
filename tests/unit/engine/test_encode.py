"""Frames that are made once, and the parts that are patched."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress

import pytest

from iothub.engine.encode import (
    append_ack,
    append_frame,
    frame_size,
    has_frame,
    identifier_at,
    own_properties,
    shared_frame,
    varint,
)
from iothub.engine.message import Message
from iothub.testing.engine import ack, publish

Append = Callable[[bytearray, Message, bool, bool, int], int]


def _twins() -> list[Append]:
    """The plain one, and the compiled one where it is there."""
    twins: list[Append] = [append_frame]
    with suppress(ImportError):
        twins.append(importlib.import_module("iothub.engine.frames").append_frame)
    return twins


@pytest.mark.parametrize("number", [0, 127, 128, 16383, 16384, 2097151, 2097152, 268435455])
def test_varint_takes_as_few_bytes_as_possible(number: int) -> None:
    """§1.5.5: seven bits a byte, the lowest first."""
    encoded = varint(number)

    assert sum((byte & 0x7F) << 7 * place for place, byte in enumerate(encoded)) == number
    assert len(encoded) == max(1, (number.bit_length() + 6) // 7)


@pytest.mark.parametrize("payload", [b"", bytes(100), bytes(20000)])
def test_shared_frames_are_made_once_per_family(payload: bytes) -> None:
    """All receivers of a family share the bytes."""
    message = Message(b"a/b", payload, properties=b"\x01\x01")

    assert shared_frame(message, False, False) == publish(b"a/b", payload)
    assert shared_frame(message, True, False) == publish(b"a/b", payload, properties=b"\x01\x01")
    assert shared_frame(message, True, True) is shared_frame(message, True, True)
    frame = shared_frame(message, False, True)
    at = identifier_at(frame)

    assert frame[:at] + b"\x12\x34" + frame[at + 2 :] == b"\x30" + publish(b"a/b", payload, 1, 0x1234)[1:]


@pytest.mark.parametrize("append", _twins())
@pytest.mark.parametrize("is_v5", [False, True])
@pytest.mark.parametrize("is_identified", [False, True])
@pytest.mark.parametrize("properties", [b"", b"\x01\x01", b"\x26\0\x01a\0\xff" + bytes(255)])
@pytest.mark.parametrize("payload", [b"", *(bytes(size) for size in range(105, 119)), bytes(16_370), bytes(2_097_152)])
def test_what_one_receiver_gets_is_the_shared_frame(
    payload: bytes, properties: bytes, is_identified: bool, is_v5: bool, append: Append
) -> None:
    """The same bytes at the end of its out-buffer, with the identifier at the same place; no frame is kept."""
    message = Message(b"a/b" * 3, payload, properties=properties)
    out = bytearray(b"before")

    size = frame_size(message, is_v5, is_identified)
    at = append(out, message, is_v5, is_identified, size)

    assert not has_frame(message)
    frame = shared_frame(message, is_v5, is_identified)
    assert has_frame(message)
    assert out == b"before" + frame
    assert size == len(frame)
    assert at - len(b"before") == identifier_at(frame)


@pytest.mark.parametrize("append", _twins())
def test_a_frame_of_another_size_is_not_appended(append: Append) -> None:
    """Nothing is written behind the room that there is."""
    out = bytearray(b"before")

    with pytest.raises(ValueError, match="another size"):
        append(out, Message(b"a", b"b"), False, True, 7)

    assert out == b"before"


def test_own_properties_stand_before_what_is_forwarded() -> None:
    """Remaining expiry [MQTT-3.3.2-6], alias, identifiers [MQTT-3.3.4-3]."""
    message = Message(b"a", b"", properties=b"\x01\x01")

    assert own_properties(message, 5, (1, 200), 3) == b"\x02\0\0\0\x05\x23\0\x03\x0b\x01\x0b\xc8\x01\x01\x01"
    assert own_properties(message, -1, (), 0) == b"\x01\x01"


def test_acknowledgement_leaves_out_success() -> None:
    """Reason Code 0x00 may be omitted (§3.4.2.1)."""
    out = bytearray()

    assert append_ack(out, 0x40, 258, 0) + append_ack(out, 0x50, 7, 0x97) == len(out)
    assert bytes(out) == ack(0x40, 258) + ack(0x50, 7, 0x97)
