"""Frames that are made once, and the parts that are patched."""

from __future__ import annotations

import pytest

from iothub.engine.encode import append_ack, identifier_at, own_properties, shared_frame, varint
from iothub.engine.message import Message
from iothub.testing.engine import ack, publish


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
