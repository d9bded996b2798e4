"""What the decoder makes of any bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.reasons import Reason
from iothub.mqtt.constants import UNKNOWN_VERSION
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Packet
from iothub.testing.packet_cases import PACKET_CASES
from tests.support.night import by_day

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


@settings(max_examples=by_day(60, 120), deadline=None)
@given(st.integers(0, 255), st.binary(max_size=80), st.sampled_from([UNKNOWN_VERSION, 3, 4, 5]))
def test_decoder_is_total(header: int, body: bytes, version: int) -> None:
    """Every first byte with every body, in every version."""
    assert isinstance(_outcome(header, body, version), Packet | Reason)


@settings(max_examples=by_day(80, 160), deadline=None)
@given(cases, edits, st.sampled_from([3, 4, 5]))
def test_damaged_case_is_a_packet_or_the_one_known_error(
    case: tuple[int, bytes], changes: list[tuple[int, int]], version: int
) -> None:
    """Near misses of real packets reach deeper than random bytes."""
    header, body = case
    found = _outcome(header, _mutate(body, changes), version)

    assert isinstance(found, Packet) or found.code >= 0x80
