"""A stored message, described for a person or a script.

Knows the stored form of a message; knows no store.
"""

from __future__ import annotations

import base64

from iothub.records.message import decode_message
from iothub_tenants.accounts.plain import iso


def describe(body: bytes) -> dict[str, object]:
    """Return what a stored message says: as text where the payload is text, else in Base64. Raises CorruptRecordError."""
    message = decode_message(body)
    described: dict[str, object] = {
        "topic": message.topic.decode(),
        "qos": message.qos,
        "is_retain": message.is_retain,
        "publisher_client_id": message.publisher_client_id,
        "message_id": message.message_id.hex(),
        "expires": time_of(message.expires_at_ms),
        "properties_bytes": len(message.properties),
        "payload_bytes": len(message.payload),
    }
    try:
        described["payload"] = message.payload.decode("utf-8")
    except UnicodeDecodeError:
        described["payload_base64"] = base64.b64encode(message.payload).decode()
    return described


def time_of(milliseconds: int) -> str | None:
    """Write Unix milliseconds as an ISO time; None for "never"."""
    return iso(milliseconds) if milliseconds else None
