# cython: annotation_typing=False
"""The bytes of one message on its way to another hub: encoded once, whatever the number of hubs, and decoded there.

Knows no links and no routes. Only what every receiver needs is in it: effective QoS, RETAIN, identifiers and No Local are decided at the hub that
has the receiver.

    tenant id 8, flags 1, expires at (ms of wall clock, 0 never) 8, length of Client Identifier 2, of Topic Name 2, of properties 4,
    Client Identifier of the publisher, Topic Name, properties (as `Message` has them), payload
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from iothub.engine.message import Message, received

_HEAD = Struct(">QBQHHI")
_HEAD_BYTES = 25
_MOST_MS = 1 << 52  # what a float of seconds keeps
_QOS = 3
_RETAIN = 4
_IS_CLIENTS = 8  # a client has published it: No Local applies
_FLAGS = _QOS | _RETAIN | _IS_CLIENTS


def encode_routed(tenant_id: int, message: Message) -> bytes:
    """Encode a message of a tenant."""
    flags = message.qos
    if message.retain:
        flags |= _RETAIN
    if message.publisher is not None:
        flags |= _IS_CLIENTS
    client_id = message.publisher_client_id.encode()
    topic = message.topic
    properties = message.properties
    expires_ms = int(message.expires_at * 1000.0)
    head = _HEAD.pack(tenant_id, flags, expires_ms, len(client_id), len(topic), len(properties))
    return b"".join((head, client_id, topic, properties, message.payload))


def tenant_of_routed(body: bytes) -> int:
    """Return the tenant id of an encoded message; -1: there is none."""
    if len(body) < _HEAD_BYTES or body[0] & 0x80:
        return -1
    return int.from_bytes(body[:8], "big")


def decode_routed(body: bytes, sessions: dict[str, Any]) -> Message | None:
    """Decode a message that has a tenant id; None: it is malformed. `sessions`: of its tenant, in which its publisher may be."""
    _, flags, expires_ms, id_length, topic_length, properties_length = _HEAD.unpack_from(body)
    topic_at = _HEAD_BYTES + id_length
    properties_at = topic_at + topic_length
    payload_at = properties_at + properties_length
    if payload_at > len(body) or flags & ~_FLAGS or flags & _QOS == 3 or topic_length == 0 or expires_ms >= _MOST_MS:
        return None
    try:
        client_id = body[_HEAD_BYTES:topic_at].decode()
    except UnicodeDecodeError:
        return None
    return received(
        body[topic_at:properties_at],
        body[payload_at:],
        flags & _QOS,
        flags & _RETAIN != 0,
        body[properties_at:payload_at],
        expires_ms / 1000.0,
        sessions.get(client_id) if flags & _IS_CLIENTS else None,
        client_id,
    )
