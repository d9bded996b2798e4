"""Messages as records and records as messages: headers there and back, and what is refused by name."""

from __future__ import annotations

import pytest

from iothub.engine.message import Message
from iothub.mqtt.properties import Properties, encode_message_properties
from iothub_services.streams.port import Incoming
from iothub_services.streams.records import RefusedRecordError, headers_of, headers_refused, size_of, wish_of

PROPERTIES = Properties(
    payload_format_indicator=1,
    content_type="text/plain",
    response_topic="answers/1",
    correlation_data=b"\x00\xff",
    user_properties=(("k", "1"), ("k", "2")),
)


def incoming(value: bytes = b"v", **headers: bytes) -> Incoming:
    return Incoming(0, 7, 1000, b"", value, tuple((name.replace("__", "."), text) for name, text in headers.items()))


def test_headers_say_what_was_published() -> None:
    """All properties but those of one hop."""
    message = Message(
        b"t/1", b"p", 1, True, encode_message_properties(PROPERTIES), 12.5, bytes(range(16)), None, "client"
    )

    headers = headers_of(message, "dev1")

    assert headers == [
        ("topic", b"t/1"),
        ("device", b"dev1"),
        ("client_id", b"client"),
        ("message_id", bytes(range(16)).hex().encode()),
        ("qos", b"1"),
        ("retain", b"1"),
        ("expires_at_ms", b"12500"),
        ("content_type", b"text/plain"),
        ("response_topic", b"answers/1"),
        ("correlation_data", b"\x00\xff"),
        ("payload_format", b"1"),
        ("user.k", b"1"),
        ("user.k", b"2"),
    ]
    assert size_of(message, headers) > sum(len(value) for _, value in headers)


def test_a_record_asks_for_what_its_headers_say() -> None:
    """Nothing but the topic is needed."""
    wish = wish_of(
        incoming(
            topic=b"a/b",
            qos=b"2",
            retain=b"1",
            message_expiry=b"60",
            content_type=b"text/plain",
            response_topic=b"answers/1",
            correlation_data=b"\x00\xff",
            payload_format=b"1",
            user__k=b"1",
        )
    )
    plain = wish_of(incoming(topic=b"a/b"))

    assert (wish.topic, wish.payload, wish.qos, wish.retain, wish.expiry_s) == (b"a/b", b"v", 2, True, 60)
    one = Properties(1, None, "text/plain", "answers/1", b"\x00\xff", user_properties=(("k", "1"),))
    assert wish.properties == encode_message_properties(one)
    assert (plain.qos, plain.retain, plain.expiry_s, plain.properties) == (0, False, None, b"")


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({}, "it has no header topic"),
        ({"topic": b"a/#"}, "header topic is no Topic Name"),
        ({"topic": b"$SYS/x"}, "header topic is no Topic Name"),
        ({"topic": b"\xff"}, "header topic is no Topic Name"),
        ({"topic": b"a", "qos": b"3"}, "header qos is no number from 0 to 2"),
        ({"topic": b"a", "retain": b"yes"}, "header retain is no number from 0 to 1"),
        ({"topic": b"a", "message_expiry": b"9" * 5000}, "header message_expiry is no number from 0 to 4294967295"),
        ({"topic": b"a", "response_topic": b"b/+"}, "header response_topic is no Topic Name"),
        ({"topic": b"a", "content_type": b"\xff"}, "header 'content_type' is not UTF-8 text"),
        ({"topic": b"a", "content_type": b"\0"}, "its headers are no properties of MQTT 5.0"),
        ({"topic": b"a", "correlation_data": b"x" * 70_000}, "its headers are no properties of MQTT 5.0"),
    ],
)
def test_a_record_that_cannot_be_published_is_refused_by_name(headers: dict[str, bytes], text: str) -> None:
    """The text shows nothing of its content."""
    with pytest.raises(RefusedRecordError, match=text):
        wish_of(incoming(**headers))


def test_a_refused_record_keeps_its_headers() -> None:
    """Its application finds out which it was, and why."""
    headers = headers_refused(incoming(topic=b"a"), "iothub.acme.s.in", "denied")

    assert headers == [
        ("topic", b"a"),
        ("refused.reason", b"denied"),
        ("refused.topic", b"iothub.acme.s.in"),
        ("refused.partition", b"0"),
        ("refused.offset", b"7"),
    ]
