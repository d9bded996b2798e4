"""Packet boundaries, and the fields of PUBLISH and acknowledgements; the rest is in tests/property/test_wire_against_mqtt.py."""

from __future__ import annotations

import pytest

from iothub.engine.wire import Wire, is_utf8


@pytest.mark.parametrize(
    ("data", "is_v5", "length"),
    [
        (b"\x30", False, 0),
        (b"\x30\x80", False, 0),
        (b"\x30\x00", False, 2),
        (b"\x30\x7f", False, 129),
        (b"\x30\x80\x01", False, 131),
        (b"\x30\xff\xff\xff\x7f", False, 268435460),
        (b"\x30\xff\xff\xff\x80", False, -1),  # [MQTT-1.5.5-1]
        (b"\x30\x80\x00", False, 3),
        (b"\x30\x80\x00", True, -1),
    ],
)
def test_wire_measures_before_the_body_is_there(data: bytes, is_v5: bool, length: int) -> None:
    """Up to four bytes of Remaining Length (§2.1.4)."""
    assert Wire().measure(data, 0, len(data), is_v5) == length


@pytest.mark.parametrize(
    ("data", "is_valid"), [(b"", True), (b"a", True), (b"\xc3\xbc", True), (b"a\0", False), (b"\xc3", False)]
)
def test_wire_knows_text(data: bytes, is_valid: bool) -> None:
    """[MQTT-1.5.4-1] [MQTT-1.5.4-2]."""
    assert is_utf8(data) is is_valid


def test_wire_separates_what_is_forwarded() -> None:
    """Expiry and alias are taken out, the rest stays in order; such a frame is not forwarded as it came."""
    wire = Wire()
    body = b"\0\x01a" + b"\x0e" + b"\x01\x01" + b"\x02\0\0\0\x07" + b"\x03\0\x01t" + b"\x23\0\x05" + b"payload"

    assert wire.read_publish(body, 0, len(body), 0x30, True, 0) == 0

    assert (wire.topic, wire.payload, wire.properties) == (b"a", b"payload", b"\x01\x01\x03\0\x01t")
    assert (wire.alias, wire.expiry, wire.is_plain) == (5, 7, False)
