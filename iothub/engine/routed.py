# cython: annotation_typing=False
"""Messages on their way to another hub: each encoded once, whatever the number of hubs, and many in one frame.

Knows no links and no routes. Only what every receiver needs is in it: effective QoS, RETAIN, identifiers and No Local are decided at the hub that
has the receiver. A frame is records, one after the other:

    length of what follows 4, tenant id 8, flags 1, expires at (ms of wall clock, 0 never) 8, length of Client Identifier 2, of Topic Name 2,
    of properties 4, Client Identifier of the publisher, Topic Name, properties (as `Message` has them), payload
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from iothub.engine.filters import check_topic_name
from iothub.engine.message import Message, received

_HEAD = Struct(">IqBqHHI")
_HEAD_BYTES = 29
_LENGTH_BYTES, _ID_BYTES = 4, 8
_TENANT_AT, _FLAGS_AT, _EXPIRES_AT, _LENGTHS_AT = 4, 12, 13, 21
_MOST_MS = 1 << 52  # what a float of seconds keeps
_LEVELS = _TOPIC_BYTES = 65_535  # what MQTT itself allows: the limits of the tenant were applied where it was published
_QOS = 3
_RETAIN = 4
_IS_CLIENTS = 8  # a client has published it: No Local applies
_FLAGS = _QOS | _RETAIN | _IS_CLIENTS


class RoutedMessages:
    """Encodes a message once, whatever the number of hubs that get it: they are asked one after the other."""

    def __init__(self) -> None:
        self._message = Message(b"", b"")
        self._body = b""

    def encode(self, tenant_id: int, message: Message) -> bytes:
        """Return the record of a message of a tenant."""
        if message is not self._message:
            self._message = message
            self._body = encode_routed(tenant_id, message)
        return self._body


def encode_routed(tenant_id: int, message: Message) -> bytes:
    """Encode a message of a tenant: one record."""
    flags = message.qos
    if message.retain:
        flags |= _RETAIN
    if message.publisher is not None:
        flags |= _IS_CLIENTS
    client_id = message.publisher_client_id.encode()
    topic = message.topic
    properties = message.properties
    payload = message.payload
    expires_ms = int(message.expires_at * 1000.0) if message.expires_at else 0
    length = _HEAD_BYTES - _LENGTH_BYTES + len(client_id) + len(topic) + len(properties) + len(payload)
    head = _HEAD.pack(length, tenant_id, flags, expires_ms, len(client_id), len(topic), len(properties))
    return b"".join((head, client_id, topic, properties, payload))


def tenant_of_routed(body: bytes, at: int) -> int:
    """Return the tenant id of the record that begins there; -1: none does."""
    if len(body) - at < _HEAD_BYTES or body[at + _TENANT_AT] & 0x80:
        return -1
    return _number(body, at + _TENANT_AT, _ID_BYTES)


def decode_routed(
    body: bytes, at: int, tenant_id: int, sessions: dict[str, Any], known: dict[bytes, Any], into: list[Message]
) -> int:
    """Decode the records of one tenant that follow one another from `at` on, the first of which is its own.

    `sessions`: of the tenant, in which publishers may be. `known`: Topic Names that need no check. Returns where the next tenant's records begin,
    or the end; -1: a record is malformed.
    """
    size = len(body)
    raw_id = b""
    client_id = ""
    session = None
    view = body  # slices of a C pointer make no slice objects
    while at < size:
        if size - at < _HEAD_BYTES:
            return -1
        if _number(body, at + _TENANT_AT, _ID_BYTES) != tenant_id:
            return at
        end = at + _LENGTH_BYTES + _number(body, at, _LENGTH_BYTES)
        flags = body[at + _FLAGS_AT]
        expires_ms = _number(body, at + _EXPIRES_AT, 8)
        id_at = at + _HEAD_BYTES
        topic_at = id_at + _number(body, at + _LENGTHS_AT, 2)
        properties_at = topic_at + _number(body, at + _LENGTHS_AT + 2, 2)
        payload_at = properties_at + _number(body, at + _LENGTHS_AT + 4, 4)
        if payload_at > end or end > size or flags & ~_FLAGS or flags & _QOS == 3 or not 0 <= expires_ms < _MOST_MS:
            return -1
        topic = view[topic_at:properties_at]
        if topic not in known and check_topic_name(topic, _LEVELS, _TOPIC_BYTES):
            return -1
        found_id = view[id_at:topic_at]
        if found_id != raw_id:  # a publisher's messages come together
            raw_id = found_id
            try:
                client_id = raw_id.decode()
            except UnicodeDecodeError:
                return -1
            session = sessions.get(client_id)
        into.append(
            received(
                topic,
                view[payload_at:end],
                flags & _QOS,
                flags & _RETAIN != 0,
                view[properties_at:payload_at],
                expires_ms / 1000.0 if expires_ms else 0.0,
                session if flags & _IS_CLIENTS else None,
                client_id,
            )
        )
        at = end
    return at


def _number(body: bytes, at: int, count: int) -> int:
    """Return the unsigned number in these bytes, which are there."""
    value = 0
    for index in range(at, at + count):
        value = value << 8 | body[index]
    return value
