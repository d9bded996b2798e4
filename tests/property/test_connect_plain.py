"""The fast decoder of CONNECT: whatever it takes, the complete decoder takes with the same result; what it leaves is left whole."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.mqtt.connect import complete_connect, decode_connect, plain_connect
from iothub.mqtt.constants import STANDARD_LIMITS, Limits
from iothub.mqtt.errors import MqttError
from iothub.mqtt.packets import Connect
from iothub.testing.wire_bytes import body_of, connect, props, text
from tests.support.night import by_day

SHORT_IDS = Limits(client_id_bytes=5)
limits = st.sampled_from((STANDARD_LIMITS, SHORT_IDS))
keep_alives = st.integers(0, 0xFFFF)
texts = st.text(max_size=12).map(text)
binaries = st.binary(max_size=12).map(text)


@st.composite
def usual_bodies(draw: st.DrawFn) -> bytes:
    """A CONNECT with User Name and Password, as most have it."""
    level, is_clean = draw(st.sampled_from((3, 4, 5))), draw(st.booleans())
    return body_of(
        connect(level, 0xC0 | is_clean << 1, draw(texts), draw(texts), draw(binaries), keep_alive=draw(keep_alives))
    )


@st.composite
def all_bodies(draw: st.DrawFn) -> bytes:
    """With a Will, properties and without a password as well; 5.0 may have a property behind each length."""
    level, flags = draw(st.sampled_from((3, 4, 5))), draw(st.integers(0, 127)) << 1
    properties = props(
        *draw(st.lists(st.sampled_from((b"\x11\0\0\0\x3c", b"\x21\0\x40", b"\x26\0\x01k\0\x01v")), max_size=3))
    )
    parts = [draw(texts)]
    if flags & 4:
        parts += [props() if level == 5 else b"", draw(texts), draw(binaries)]
    parts += [draw(texts)] * (flags >> 7 & 1) + [draw(binaries)] * (flags >> 6 & 1)
    return body_of(connect(level, flags, *parts, keep_alive=draw(keep_alives), properties=properties))


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


@settings(max_examples=by_day(75, 150), deadline=None)
@given(usual_bodies() | all_bodies(), limits)
def test_plain_connect_takes_nothing_otherwise_than_the_complete_decoder(body: bytes, given_limits: Limits) -> None:
    """CONNECTs of all versions, the usual ones and all others."""
    _check(body, given_limits)


@settings(max_examples=by_day(150, 300), deadline=None)
@given(usual_bodies(), limits, st.data())
def test_plain_connect_never_takes_what_the_complete_decoder_refuses(
    usual: bytes, given_limits: Limits, data: st.DataObject
) -> None:
    """Damage of one byte, a missing tail, a tail too many: the same packet or nothing."""
    body = bytearray(usual)
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    damaged = bytes(body[: len(body) - cut]) + data.draw(st.binary(max_size=2))

    _check(damaged, given_limits)


@settings(max_examples=by_day(50, 100), deadline=None)
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
        body = body_of(connect(version, 0xC2, text("sensor-7"), text("acme/sensor-7"), text("secret")))
        packet = Connect("sensor-7", version, True, 60, None, "acme/sensor-7", b"secret")

        assert plain_connect(body, STANDARD_LIMITS) == packet
