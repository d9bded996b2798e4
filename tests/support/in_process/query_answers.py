"""What a running hub answers about a client, its session and its queue, as `iothub.records.admin_commands.Verb` describes it."""

from __future__ import annotations

from iothub.records.admin_commands import Json
from iothub.records.message import StoredMessage, encode_message

NOON_MS = 1_800_000_000_000
QUEUE: Json = {
    "queue_id": 1,
    "driver": "sqlite",
    "messages": 3,
    "bytes": 120,
    "head": 4,
    "tail": 7,
    "epoch": 1 << 24,
    "limits": {"messages": 0, "bytes": 5, "overflow": "drop-qos0-first"},
}
SESSION: Json = {
    "client_id": "c1",
    "device": "dev1",
    "is_connected": False,
    "protocol_version": 5,
    "subscriptions": 1,
    "queue_id": 1,
    "queue": QUEUE,
    "created_at_ms": NOON_MS,
    "connected_at_ms": NOON_MS + 1000,
    "disconnected_at_ms": NOON_MS,
    "disconnect_reason": "client",
    "session_expiry_s": 3600,
    "node": None,
    "will": None,
}
CLIENT: Json = {
    "client_id": "c1",
    "device": "dev1",
    "address": "192.0.2.1:99",
    "listener": "tcp",
    "protocol_version": 5,
    "connected_at_ms": NOON_MS,
    "keep_alive_s": 60,
    "is_persistent": True,
    "session_expiry_s": 3600,
    "subscriptions": 1,
    "queued": 3,
    "in_flight": 2,
    "unsent_bytes": 0,
    "node": 1,
}
LAST: Json = {"next": None}


def body(payload: bytes) -> bytes:
    """A stored message."""
    return encode_message(StoredMessage(b"a/b", payload, 1, False, b"", 0, b"", "c9"))
