"""The fast decoder of CONNECT: whatever it takes, the complete decoder takes with the same result; what it leaves is left whole."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.mqtt.connect import complete_connect, decode_connect, plain_connect
from iothub.mqtt.constants import STANDARD_LIMITS, Limits
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Connect
from iothub.mqtt.properties import NO_PROPERTIES
from iothub.testing.strategies import connects, versions
from iothub.testing.wire_bytes import body_of

SHORT_IDS = Limits(client_id_bytes=5)
limits = st.sampled_from((STANDARD_LIMITS, SHORT_IDS))
any_connects = versions.flatmap(connects)
usual_connects = any_connects.map(
    lambda packet: replace(
        packet, will=None, properties=NO_PROPERTIES, username=packet.username or "", password=packet.password or b""
    )
)


def _body(packet: Connect) -> bytes:
    return body_of(encode(packet, packet.version))


def _outcome(body: bytes, given_limits: Limits) -> Connect | str:
    try:
        return complete_connect(body, given_limits)
    except MqttError as error:
        return str(error)


def _check(body: bytes, given_limits: Limits) -> Connect | None:
    taken = plain_connect(body, given_limits)
    if taken is not None:
        assert taken == complete_connect(body, given_limits)
    return taken


@settings(max_examples=150, deadline=None)
@given(usual_connects | any_connects, limits)
def test_plain_connect_takes_nothing_otherwise_than_the_complete_decoder(packet: Connect, given_limits: Limits) -> None:
    """Well-formed CONNECTs of all versions, the usual ones and all others."""
    _check(_body(packet), given_limits)


@settings(max_examples=300, deadline=None)
@given(usual_connects, limits, st.data())
def test_plain_connect_never_takes_what_the_complete_decoder_refuses(
    packet: Connect, given_limits: Limits, data: st.DataObject
) -> None:
    """Damage of one byte, a missing tail, a tail too many: the same packet or nothing."""
    body = bytearray(_body(packet))
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    damaged = bytes(body[: len(body) - cut]) + data.draw(st.binary(max_size=2))

    _check(damaged, given_limits)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda tail: b"\x00\x04MQTT\x04\xc2\x00\x3c" + tail), limits)
def test_decode_connect_is_the_complete_decoder_for_any_bytes(body: bytes, given_limits: Limits) -> None:
    """Arbitrary bytes, also behind a usual beginning: one answer, whichever way it is found."""
    expected = _outcome(body, given_limits)

    try:
        found: Connect | str = decode_connect(body, given_limits)
    except MqttError as error:
        found = str(error)

    assert found == expected


def test_plain_connect_takes_the_usual_ones() -> None:
    """3.1.1 and 5.0, with User Name and Password, are what it is for."""
    for version in (4, 5):
        packet = Connect("sensor-7", version, True, 60, None, "acme/sensor-7", b"secret")

        assert plain_connect(_body(packet), STANDARD_LIMITS) == packet
