"""The row keys of the stores that sort by key (HBase): how each is built, and taken apart.

Knows no table and no driver. Integers are big-endian, so that the order of the bytes is the order of the numbers. Every key begins
with its tenant, but for those of queues and bodies, which must spread over regions: their first eight bytes are a counter with its
bits in reverse, so that neighbours in time are far apart, and the tenant comes next.
"""

from __future__ import annotations

from iothub.base.errors import CorruptRecordError

TENANT_BYTES = 4
QUEUE_KEY_BYTES = 12
MESSAGE_ID_BYTES = 16

META = b"\0"  # behind a queue's key: its meta row; before a checkpoint: its pointer row
RECORD = b"\1"  # behind a queue's key and before a position: one record
INTENT = b"\2"  # behind a queue's key and before a Packet Identifier: the message of an open inbound intent
POINTER_KEY = META + b"pointer"
MARKS = META + b"mark/"  # among checkpoints, before a name: how far a job is, and what a kept version is of
APPLIED_KEY = META  # among states: how far the log is in them; no tenant's key is as short
NO_TENANT = 0  # ids begin above: rows that are nobody's, such as an index over all tenants

_U64 = 8
_REVERSED = bytes(int(f"{octet:08b}"[::-1], 2) for octet in range(256))


def reverse_bits(number: int) -> bytes:
    """Return a 64-bit number as 8 bytes, its lowest bit first."""
    return number.to_bytes(_U64, "little").translate(_REVERSED)


def unreverse_bits(octets: bytes) -> int:
    """Return the number that `reverse_bits` was given."""
    return int.from_bytes(octets.translate(_REVERSED), "little")


def tenant_key(tenant_id: int) -> bytes:
    """Return what every key of a tenant begins with, unless it is one of queues or bodies."""
    return tenant_id.to_bytes(TENANT_BYTES, "big")


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key behind all that begin with `prefix`; b"" when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


# --- queues


def queue_key(queue_id: int, tenant_id: int) -> bytes:
    """Return K, with which every row of a queue begins."""
    return reverse_bits(queue_id) + tenant_key(tenant_id)


def split_queue_key(key: bytes) -> tuple[int, int]:
    """Return (queue id, tenant id) of a queue's key, or of any of its rows. Raises CorruptRecordError."""
    _require(len(key) >= QUEUE_KEY_BYTES, "a queue's row key", key)
    return unreverse_bits(key[:_U64]), int.from_bytes(key[_U64:QUEUE_KEY_BYTES], "big")


def meta_row(queue: bytes) -> bytes:
    """Return the key of a queue's meta row; it sorts before the records."""
    return queue + META


def record_row(queue: bytes, position: int) -> bytes:
    """Return the key of a queue's record at a position."""
    return queue + RECORD + position.to_bytes(_U64, "big")


def intent_row(queue: bytes, packet_id: int) -> bytes:
    """Return the key of what an open inbound intent keeps."""
    return queue + INTENT + packet_id.to_bytes(2, "big")


def position_of(row: bytes) -> int:
    """Return the position in a record's row key. Raises CorruptRecordError."""
    is_record = len(row) == QUEUE_KEY_BYTES + 1 + _U64 and row[QUEUE_KEY_BYTES:].startswith(RECORD)
    _require(is_record, "the row key of a queue's record", row)
    return int.from_bytes(row[-_U64:], "big")


def index_key(tenant_id: int, queue_id: int) -> bytes:
    """Return the key of a queue in the tenants' index."""
    return tenant_key(tenant_id) + queue_id.to_bytes(_U64, "big")


def queue_of_index(key: bytes) -> tuple[int, int]:
    """Return (tenant id, queue id) of a key of the index. Raises CorruptRecordError."""
    _require(len(key) == TENANT_BYTES + _U64, "a key of the queues' index", key)
    return int.from_bytes(key[:TENANT_BYTES], "big"), int.from_bytes(key[TENANT_BYTES:], "big")


def body_key(message_id: bytes, tenant_id: int) -> bytes:
    """Return the key of a body that many records refer to: spread by the clock in its message id."""
    return reverse_bits(int.from_bytes(message_id[:_U64], "big")) + tenant_key(tenant_id) + message_id[_U64:]


def message_of_body(key: bytes) -> tuple[bytes, int]:
    """Return (message id, tenant id) of a body's key. Raises CorruptRecordError."""
    _require(len(key) == MESSAGE_ID_BYTES + TENANT_BYTES, "a body's row key", key)
    clock = unreverse_bits(key[:_U64]).to_bytes(_U64, "big")
    return clock + key[QUEUE_KEY_BYTES:], int.from_bytes(key[_U64:QUEUE_KEY_BYTES], "big")


# --- session state, checkpoints, retained messages


def state_key(tenant_id: int, client_id: str) -> bytes:
    """Return the key of a persistent session's state."""
    return tenant_key(tenant_id) + client_id.encode()


def session_of_state(key: bytes) -> tuple[int, str]:
    """Return (tenant id, client id) of the key of a session's state. Raises CorruptRecordError."""
    tenant_id, name = after_tenant(key)
    try:
        return tenant_id, name.decode()
    except UnicodeDecodeError:
        raise _foreign("the row key of a session's state", key) from None


def checkpoint_prefix(version: int) -> bytes:
    """Return what every row of one checkpoint begins with."""
    return RECORD + version.to_bytes(_U64, "big")


def checkpoint_key(version: int, tenant_id: int, client_id: str) -> bytes:
    """Return the key of a session's state in a checkpoint."""
    return checkpoint_prefix(version) + state_key(tenant_id, client_id)


def session_of_checkpoint(key: bytes) -> tuple[int, int, str]:
    """Return (version, tenant id, client id) of the key of a session's state in a checkpoint. Raises CorruptRecordError."""
    _require(key.startswith(RECORD) and len(key) > _U64, "the row key of a checkpoint's session", key)
    return int.from_bytes(key[1 : 1 + _U64], "big"), *session_of_state(key[1 + _U64 :])


def retained_key(tenant_id: int, topic: bytes) -> bytes:
    """Return the key of a retained message. A topic is never empty, so the bare tenant is free for the tenant's own row."""
    return tenant_key(tenant_id) + topic


def expiry_key(expires_at_ms: int, tenant_id: int, topic: bytes) -> bytes:
    """Return the key under which the expiry of a retained message is found: all tenants in the order of their time."""
    return tenant_key(NO_TENANT) + expires_at_ms.to_bytes(_U64, "big") + retained_key(tenant_id, topic)


def expiry_of(key: bytes) -> tuple[int, int, bytes]:
    """Return (expires at, tenant id, topic) of a key that `expiry_key` made. Raises CorruptRecordError."""
    is_right = len(key) > 2 * TENANT_BYTES + _U64 and key.startswith(tenant_key(NO_TENANT))
    _require(is_right, "a key of the expiries of retained messages", key)
    at = TENANT_BYTES + _U64
    return int.from_bytes(key[TENANT_BYTES:at], "big"), *after_tenant(key[at:])


def after_tenant(key: bytes) -> tuple[int, bytes]:
    """Return (tenant id, the rest) of a key that begins with its tenant. Raises CorruptRecordError."""
    _require(len(key) >= TENANT_BYTES, "a key that begins with its tenant", key)
    return int.from_bytes(key[:TENANT_BYTES], "big"), key[TENANT_BYTES:]


def _require(is_right: bool, what: str, key: bytes) -> None:
    if not is_right:
        raise _foreign(what, key)


def _foreign(what: str, key: bytes) -> CorruptRecordError:
    return CorruptRecordError(f"expected {what}, got {key[:64].hex()} ({len(key)} bytes)")
