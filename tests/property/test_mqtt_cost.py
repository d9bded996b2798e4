"""What a packet costs grows with its bytes and not faster, measured in CPU time."""

from __future__ import annotations

import time

from iothub.mqtt.constants import Limits
from iothub.mqtt.decode import decode_packet
from iothub.testing.wire_bytes import text, varint


def _seconds(count: int, one: bytes) -> float:
    block = one * count
    body = text("a") + varint(len(block)) + block
    limits = Limits(user_properties=count)
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        decode_packet(0x30, body, 5, limits)
        best = min(best, time.process_time() - started)
    return best


def test_ten_thousand_properties_decode_in_linear_time() -> None:
    """Ten times the properties cost about ten times the time; a quadratic decoder needs a hundred times."""
    one = b"\x26" + text("key") + text("value")

    assert _seconds(10_000, one) < 40 * _seconds(1_000, one)
