"""iothub.dashboard.mqtt_client: packets as they come, whole or not; the connection itself is tested in the browser."""

from __future__ import annotations

import asyncio

import pytest

from iothub.dashboard.mqtt_client import MqttClient, MqttError, read_packet
from iothub.dashboard.pages.mqtt import SHOWN_CHARACTERS, as_text


def read(content: bytes) -> tuple[int, bytes]:
    async def run() -> tuple[int, bytes]:
        reader = asyncio.StreamReader()
        reader.feed_data(content)
        reader.feed_eof()
        return await read_packet(reader)

    return asyncio.run(run())


def test_packet_is_read_to_its_end() -> None:
    assert read(b"\xd0\x00") == (0xD0, b"")
    assert read(b"\x30\xc8\x01" + bytes(200)) == (0x30, bytes(200))


@pytest.mark.parametrize("content", [b"\x30\xff\xff\xff\xff\x01", b"\x30\x81\x80\x40"])
def test_length_that_is_malformed_or_too_large_is_not_read(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"packet|message"):
        read(content)


def test_half_a_packet_is_none() -> None:
    with pytest.raises(EOFError):
        read(b"\x30\x05ab")


@pytest.mark.parametrize("topic", ["", "a/#", "+", "a\0b", "$SYS/x"])
def test_topic_that_the_hub_does_not_take_is_not_sent(topic: str) -> None:
    """It is refused with what was expected, and the client stays connected."""
    client = MqttClient(lambda _received: None, lambda _why: None, lambda _is_granted: None)

    with pytest.raises(MqttError, match="expected a Topic Name"):
        asyncio.run(client.publish(topic, b"x", is_retained=False))


@pytest.mark.parametrize(
    ("topic", "cause"), [("a\ud800", "half of a character"), ("a" * 65536, "more than 65535 bytes")]
)
def test_topic_that_mqtt_cannot_carry_is_not_sent(topic: str, cause: str) -> None:
    client = MqttClient(lambda _received: None, lambda _why: None, lambda _is_granted: None)

    with pytest.raises(MqttError, match=cause):
        asyncio.run(client.publish(topic, b"x", is_retained=False))
    with pytest.raises(MqttError, match=cause):
        asyncio.run(client.subscribe(topic))


@pytest.mark.parametrize(
    "topic_filter",
    ["", "a\0b", "a/#/b", "a#", "#/a", "a+/b", "+a", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g/a#"],
)
def test_filter_that_ends_the_connection_is_not_sent(topic_filter: str) -> None:
    client = MqttClient(lambda _received: None, lambda _why: None, lambda _is_granted: None)

    with pytest.raises(MqttError, match="expected a Topic Filter"):
        asyncio.run(client.subscribe(topic_filter))


@pytest.mark.parametrize("topic_filter", ["#", "+", "/", "a//b", "+/a/#", "$SYS/#", "$share/g/#", "$share/g/+/a"])
def test_filter_of_the_protocol_is_sent(topic_filter: str) -> None:
    client = MqttClient(lambda _received: None, lambda _why: None, lambda _is_granted: None)

    with pytest.raises(MqttError, match="it is not connected"):  # what stops it is no longer the filter
        asyncio.run(client.subscribe(topic_filter))


def test_payload_is_shown_as_text_of_a_few_characters() -> None:
    assert as_text("<b>21 °C</b>".encode()) == "<b>21 °C</b>"
    assert as_text(b"\xff\x00") == "0x ff 00"
    assert as_text(b"a" * 5000) == "a" * SHOWN_CHARACTERS + " ..."
    assert len(as_text(b"\xff" * 5000)) < SHOWN_CHARACTERS + 10
