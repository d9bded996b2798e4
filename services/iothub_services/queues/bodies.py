"""The stored body of a message of the plane, made and read. The compiled counterpart is in `encoder`.

Knows no queue.
"""

from __future__ import annotations

from iothub.engine.message import Message
from iothub.records.message import decode_message, encode_fields


def body_of(message: Message) -> bytes:
    """Return the body. Raises ValueError or struct.error: a field does not fit."""
    expires_at = message.expires_at
    return encode_fields(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        int(expires_at * 1000) if expires_at else 0,
        message.message_id,
        message.publisher_client_id,
    )


def body_size(message: Message) -> int:
    """Return how long the body is. Raises ValueError or struct.error: a field does not fit."""
    return len(body_of(message))


def message_of(body: bytes) -> Message:
    """Decode a stored message. Raises CorruptRecordError."""
    stored = decode_message(body)
    return Message(
        stored.topic,
        stored.payload,
        stored.qos,
        stored.is_retain,
        stored.properties,
        stored.expires_at_ms / 1000,
        stored.message_id,
        None,
        stored.publisher_client_id,
    )
