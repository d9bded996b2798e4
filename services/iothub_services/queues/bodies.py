"""A stored body as the plane's Message. The compiled counterpart is in `encoder`.

Knows no queue.
"""

from __future__ import annotations

from iothub.engine.message import Message
from iothub.records.message import decode_message


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
