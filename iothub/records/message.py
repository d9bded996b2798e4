"""The stored form of one Application Message: bodies of virtual queues and of retained messages.

Knows no queue and no MQTT packet: QoS of a delivery, subscription identifiers and positions are the queue's.

Version 1, big-endian::

    version 1 | flags 1 | client id length 2 | Topic Name length 2 | properties length 4 | expires at (ms) 8
    | message id 16 | client id | Topic Name | properties | payload | CRC-32 of all before 4

    flags: bits 0-1 QoS of the PUBLISH, bit 2 RETAIN, bit 3 a message id is there
"""

from __future__ import annotations

import struct
from binascii import crc32
from typing import NamedTuple

from iothub.base.errors import CorruptRecordError

MESSAGE_VERSION = 1

_HEAD = struct.Struct(">BBHHIQ16s")
_CRC = struct.Struct(">I")
_RETAIN = 0x04
_HAS_ID = 0x08
_NO_ID = bytes(16)
_SMALLEST = _HEAD.size + _CRC.size


class StoredMessage(NamedTuple):
    """What a body holds.

    `properties`: encoded 5.0 properties without their length. `expires_at_ms`: Unix time, 0 never.
    `message_id`: 16 bytes, or empty when none was allocated.
    """

    topic: bytes
    payload: bytes
    qos: int
    is_retain: bool
    properties: bytes
    expires_at_ms: int
    message_id: bytes
    publisher_client_id: str


def encode_message(message: StoredMessage) -> bytes:
    """Return the body. Lengths are those that MQTT allows: strings below 64 KiB, a packet below 256 MiB."""
    return encode_fields(*message)


def encode_fields(
    topic: bytes,
    payload: bytes,
    qos: int,
    is_retain: bool,
    properties: bytes,
    expires_at_ms: int,
    message_id: bytes,
    client_id: str,
) -> bytes:
    """Return the body of a message that is only written."""
    name = client_id.encode()
    flags = qos | (_RETAIN if is_retain else 0) | (_HAS_ID if message_id else 0)
    head = _HEAD.pack(
        MESSAGE_VERSION, flags, len(name), len(topic), len(properties), expires_at_ms, message_id or _NO_ID
    )
    record = b"".join((head, name, topic, properties, payload))
    return record + _CRC.pack(crc32(record))


def decode_message(body: bytes) -> StoredMessage:
    """Read a body; every input gives a message or CorruptRecordError."""
    if len(body) < _SMALLEST:
        raise CorruptRecordError(f"damaged message: {len(body)} bytes, at least {_SMALLEST} expected")
    if body[0] != MESSAGE_VERSION:
        raise CorruptRecordError(f"damaged message: format version {body[0]}, expected {MESSAGE_VERSION}")
    end = len(body) - _CRC.size
    if crc32(memoryview(body)[:end]) != _CRC.unpack_from(body, end)[0]:
        raise CorruptRecordError("damaged message: the checksum differs")
    return _fields(body, end)


def _fields(body: bytes, end: int) -> StoredMessage:
    _, flags, name_length, topic_length, properties_length, expires_at_ms, message_id = _HEAD.unpack_from(body)
    topic_at = _HEAD.size + name_length
    properties_at = topic_at + topic_length
    payload_at = properties_at + properties_length
    if payload_at > end or flags & 0x03 == 0x03:
        raise CorruptRecordError("damaged message: the fields do not fit")
    try:
        name = body[_HEAD.size : topic_at].decode()
    except UnicodeDecodeError as error:
        raise CorruptRecordError("damaged message: the Client Identifier is not UTF-8") from error
    return StoredMessage(
        body[topic_at:properties_at],
        body[payload_at:end],
        flags & 0x03,
        bool(flags & _RETAIN),
        body[properties_at:payload_at],
        expires_at_ms,
        message_id if flags & _HAS_ID else b"",
        name,
    )
