"""CONNECT: in which form a refusal can be answered, and the limits on what was understood."""

from __future__ import annotations

import pytest

from iothub.mqtt.connect import decode_connect
from iothub.mqtt.constants import Limits
from iothub.mqtt.errors import ClientIdInvalid, LimitExceeded, MqttError, PacketTooLarge, UnsupportedVersion
from iothub.mqtt.packets import Connect
from iothub.testing.wire_bytes import connect, props, text

USER = b"\x26" + text("k") + text("v")


def _body(data: bytes) -> bytes:
    return data[3:] if data[1] & 0x80 else data[2:]


def _decode(data: bytes, limits: Limits | None = None) -> Connect:
    return decode_connect(_body(data), limits or Limits())


@pytest.mark.parametrize(
    ("level", "name", "answer"),
    [
        (6, "MQTT", 5),
        (0x7F, "MQTT", 5),
        (0x84, "MQTT", 4),
        (0x85, "MQTT", 4),
        (2, "MQTT", 4),
        (3, "MQTT", 4),
        (4, "MQIsdp", 3),
    ],
)
def test_connect_of_another_level_says_in_which_form_to_answer(level: int, name: str, answer: int) -> None:
    """[MQTT-3.1.2-2] [MQTT3-3.1.2-2] Newer clients get 0x84, older ones and bridges 0x01."""
    with pytest.raises(UnsupportedVersion) as caught:
        _decode(connect(level, 2, text("c"), name=name))

    assert caught.value.version == answer


@pytest.mark.parametrize("level", [3, 4, 5])
def test_connect_refused_after_its_level_carries_its_version(level: int) -> None:
    """[MQTT-3.1.4-1] [MQTT3-3.1.4-1] The edge can answer 0x81 in 5.0 and just close in 3.x."""
    with pytest.raises(MqttError) as caught:
        _decode(connect(level, 2))

    assert caught.value.version == level


@pytest.mark.parametrize("name", ["MQTTX", "", "HTTP"])
def test_connect_of_another_protocol_is_not_answered(name: str) -> None:
    """[MQTT-3.1.2-1] [MQTT3-3.1.2-1] Whoever speaks another protocol does not learn what this is."""
    body = text(name) + b"\x05\x02\x00\x00\x00" + text("c")

    with pytest.raises(MqttError) as caught:
        decode_connect(body, Limits())

    assert (caught.value.version, caught.value.reason_code) == (0, 0x82)


@pytest.mark.parametrize("level", [3, 4, 5])
def test_connect_allows_every_client_id_that_the_specification_demands(level: int) -> None:
    """[MQTT-3.1.3-5] [MQTT3-3.1.3-5] 1 to 23 bytes of digits and letters, even with the smallest limit that makes sense."""
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    client_ids = ["a", letters[:23], letters[23:46], letters[-23:]]

    decoded = [_decode(connect(level, 2, text(each)), Limits(client_id_bytes=23)).client_id for each in client_ids]

    assert decoded == client_ids


def test_connect_client_id_limit_counts_bytes() -> None:
    """[MQTT-3.1.3-8] [MQTT3-3.1.3-9] Two letters of two bytes each are four bytes."""
    assert _decode(connect(5, 2, text("éé")), Limits(client_id_bytes=4)).client_id == "éé"

    with pytest.raises(ClientIdInvalid):
        _decode(connect(5, 2, text("éé")), Limits(client_id_bytes=3))


def test_connect_will_payload_over_the_limit_is_too_large() -> None:
    """The limit's border passes."""
    will = (b"\x00", text("w"), text(b"12345"))

    accepted = _decode(connect(5, 6, text("c"), *will), Limits(will_bytes=5))
    assert accepted.will is not None
    assert accepted.will.payload == b"12345"

    with pytest.raises(PacketTooLarge):
        _decode(connect(5, 6, text("c"), *will), Limits(will_bytes=4))


def test_connect_user_properties_are_limited_in_connect_and_will() -> None:
    """Each of the two blocks counts for itself."""
    two = props(USER, USER)
    both = connect(5, 6, text("c"), two, text("w"), text(""), properties=two)

    assert len(_decode(both, Limits(user_properties=2)).properties.user_properties) == 2
    for data in (both, connect(5, 6, text("c"), two, text("w"), text(""))):
        with pytest.raises(LimitExceeded) as caught:
            _decode(data, Limits(user_properties=1))
        assert (caught.value.limit, caught.value.version) == ("user_properties", 5)


def test_connect_format_is_checked_before_its_limits() -> None:
    """A CONNECT that is both malformed and over a limit is malformed: the answer does not depend on the limits."""
    data = connect(5, 2, text("x" * 300), b"left over")

    with pytest.raises(MqttError) as caught:
        _decode(data)

    assert caught.value.reason_code == 0x81


def test_connect_error_never_shows_what_was_sent() -> None:
    """Client data does not reach logs through an error's text."""
    data = connect(4, 0xC2, text("client-secret"), text("user-secret"), b"\x00\x40pass-secret")

    with pytest.raises(MqttError) as caught:
        _decode(data)

    assert "secret" not in str(caught.value)


def test_connect_never_shows_its_password() -> None:
    """Secrets stay out of logs, also by accident."""
    assert "secret" not in repr(Connect("c", username="u", password=b"secret"))
