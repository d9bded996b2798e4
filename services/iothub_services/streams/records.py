"""A message as a record of a stream, and a record as a message: which header says what.

Knows MQTT's properties and no Kafka client. Header names are part of what applications rely on (docs/guide/streams.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from iothub.base.errors import LocalProtocolError
from iothub.engine.filters import check_topic_name
from iothub.engine.message import Message
from iothub.mqtt.constants import PacketType
from iothub.mqtt.errors import MqttError
from iothub.mqtt.fields import FieldReader, write_variable_byte_integer
from iothub.mqtt.properties import NO_PROPERTIES, Properties, decode_properties, encode_message_properties
from iothub_services.streams.port import Headers, Incoming

TOPIC_INVALID = "topic_invalid"
USER_PREFIX = "user."
_MANY = 65_535
_RECORD_BYTES = 256  # what a record takes beside headers and value
_HEADER_BYTES = 8
_TOPIC_LEVELS = 1_024
_EXPIRY_MOST_S = 0xFFFF_FFFF

_QOS = (b"0", b"1", b"2")
_FLAG = (b"0", b"1")


class RefusedRecordError(Exception):
    """A record cannot be published, now or ever. The text names the fault and shows nothing of the record but a header's name.

    `reason`: the word for it in `refused.reason`.
    """

    def __init__(self, text: str, reason: str = "malformed") -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """What a record asks to be published."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    expiry_s: int | None


def headers_of(message: Message, device: str) -> Headers:
    """Return what a consumer gets beside the payload; `message` has its id."""
    headers = [
        ("topic", message.topic),
        ("device", device.encode()),
        ("client_id", message.publisher_client_id.encode("utf-8", "replace")),
        ("message_id", message.message_id.hex().encode()),
        ("qos", _QOS[message.qos]),
        ("retain", _FLAG[message.retain]),
    ]
    if message.expires_at:
        headers.append(("expires_at_ms", str(int(message.expires_at * 1000)).encode()))
    if message.properties:
        headers += _property_headers(message.properties)
    return headers


def size_of(message: Message, headers: Headers) -> int:
    """Return what a record takes, about."""
    size = len(message.payload) + len(message.publisher_client_id) + _RECORD_BYTES + _HEADER_BYTES * len(headers)
    for name, value in headers:
        size += len(name) + len(value)
    return size


def wish_of(record: Incoming) -> PublishRequest:
    """Read what an application has written. Raises RefusedRecordError."""
    given: dict[str, bytes] = {}
    users: list[tuple[str, str]] = []
    for name, value in record.headers:
        if name.startswith(USER_PREFIX):
            users.append((name.removeprefix(USER_PREFIX), _text(name, value)))
        else:
            given[name] = value
    topic = given.get("topic", b"")
    if not topic:
        raise RefusedRecordError("it has no header topic")
    if check_topic_name(topic, _TOPIC_LEVELS, _MANY) or topic.startswith(b"$"):
        raise RefusedRecordError("header topic is no Topic Name", TOPIC_INVALID)
    return PublishRequest(
        topic,
        record.value or b"",
        _number(given, "qos", 2) or 0,
        bool(_number(given, "retain", 1)),
        _properties(given, tuple(users)),
        _number(given, "message_expiry", _EXPIRY_MOST_S),
    )


def _property_headers(properties: bytes) -> Headers:
    reader = FieldReader(write_variable_byte_integer(len(properties), "Property Length") + properties, "PUBLISH")
    found = decode_properties(reader, PacketType.PUBLISH, _MANY)
    headers: Headers = []
    if found.content_type is not None:
        headers.append(("content_type", found.content_type.encode()))
    if found.response_topic is not None:
        headers.append(("response_topic", found.response_topic.encode()))
    if found.correlation_data is not None:
        headers.append(("correlation_data", found.correlation_data))
    if found.payload_format_indicator is not None:
        headers.append(("payload_format", _FLAG[found.payload_format_indicator]))
    headers += [(USER_PREFIX + name, value.encode()) for name, value in found.user_properties]
    return headers


def _properties(given: dict[str, bytes], users: tuple[tuple[str, str], ...]) -> bytes:
    response_topic = given.get("response_topic")
    found = Properties(
        payload_format_indicator=_number(given, "payload_format", 1),
        content_type=None if "content_type" not in given else _text("content_type", given["content_type"]),
        response_topic=None if response_topic is None else _text("response_topic", response_topic),
        correlation_data=given.get("correlation_data"),
        user_properties=users,
    )
    if response_topic is not None and check_topic_name(response_topic, _TOPIC_LEVELS, _MANY):
        raise RefusedRecordError("header response_topic is no Topic Name")
    if found == NO_PROPERTIES:
        return b""
    try:
        encoded = encode_message_properties(found)
        head = write_variable_byte_integer(len(encoded), "Property Length")
        decode_properties(FieldReader(head + encoded, "PUBLISH"), PacketType.PUBLISH, _MANY)
    except (MqttError, LocalProtocolError):
        raise RefusedRecordError("its headers are no properties of MQTT 5.0") from None
    return encoded


def _number(given: dict[str, bytes], name: str, most: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > len(str(most)) or int(value) > most:
        raise RefusedRecordError(f"header {name} is no number from 0 to {most}")
    return int(value)


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedRecordError(f"header {name[:64]!a} is not UTF-8 text") from None


def headers_refused(record: Incoming, topic: str, reason: str) -> Headers:
    """Return the headers of a record that is put aside: its own, where it was, and why."""
    return [
        *((name, value) for name, value in record.headers),
        ("refused.reason", reason.encode()),
        ("refused.topic", topic.encode()),
        ("refused.partition", str(record.partition).encode()),
        ("refused.offset", str(record.offset).encode()),
    ]
