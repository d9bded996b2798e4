# cython: annotation_typing=False
"""Messages on their way to another hub: what a turn has for it goes as one frame.

Knows no links and no routes. Only what every receiver needs is in it: effective QoS, RETAIN, identifiers and No Local are decided at the hub that
has the receiver. A frame is records, one after the other:

    length of what follows 4, tenant id 8, flags 1, expires at (ms of wall clock, 0 never) 8, length of Client Identifier 2, of Topic Name 2,
    of properties 4, Client Identifier of the publisher, Topic Name, properties (as `Message` has them), payload

A publisher's messages come together, and mostly differ in their payloads alone. Such a record follows the one that it is like:

    length of the payload 4, its highest bit set, payload
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from iothub.base.reasons import Drop
from iothub.engine.filters import check_topic_name
from iothub.engine.message import Message, received
from iothub.engine.state import TenantPlane
from iothub.engine.turn import Turn

_HEAD = Struct(">IqBqHHI")
_HEAD_BYTES = 29
_LENGTH_BYTES, _ID_BYTES = 4, 8
_TENANT_AT, _FLAGS_AT, _EXPIRES_AT, _LENGTHS_AT = 4, 12, 13, 21
_MOST_MS = 1 << 52  # what a float of seconds keeps
_MOST_BYTES = (1 << 31) - 1
_LEVELS = _TOPIC_BYTES = 65_535  # what MQTT itself allows: the limits of the tenant were applied where it was published
_QOS = 3
_RETAIN = 4
_IS_CLIENTS = 8  # a client has published it: No Local applies
_FLAGS = _QOS | _RETAIN | _IS_CLIENTS
_LIKE = 0x80  # of a record's first byte


class RoutedBatch:
    """The records of the running turn for one other hub; base of the engine's `Peer`.

    `is_full`: publishers wait for it; `is_half_full`: it gets no QoS 0. `batch_bytes`: a larger message has a frame of its own.
    """

    def __init__(self, turn: Turn, batch_bytes: int) -> None:
        self.turn = turn
        self.batch_bytes = batch_bytes
        self.is_full = False
        self.is_half_full = False
        self.is_flush_due = False
        self.records = bytearray()
        self.like: Message | None = None  # what the next record may be like
        self.tenant_id = 0  # of it

    def send(self, tenant: TenantPlane, message: Message) -> None:
        """Fulfils `Peer`. QoS 0 may fill half of the link; QoS 1 and 2 that is not held back in time may fill it twice."""
        if self.is_half_full and message.qos == 0:
            self.turn.drop(tenant, message.publisher, Drop.LINK_FULL, 1)
            return
        records = self.records
        like = self.like
        payload = message.payload
        if (
            like is not None
            and tenant.tenant_id == self.tenant_id
            and len(records) + _LENGTH_BYTES + len(payload) <= self.batch_bytes
            and _is_alike(message, like)
        ):
            length = len(payload)
            records.append(length >> 24 | _LIKE)
            records.append(length >> 16 & 0xFF)
            records.append(length >> 8 & 0xFF)
            records.append(length & 0xFF)
            records += payload
            return
        record = encode_routed(tenant.tenant_id, message)
        if len(records) + len(record) > self.batch_bytes and records:
            self.flush_messages()
        if not self.is_flush_due:
            self.flush_later()
        self.records += record
        self.like = message
        self.tenant_id = tenant.tenant_id

    def take_records(self) -> bytes:
        """Return what was sent since the last call: one body."""
        self.like = None
        body = bytes(self.records)
        self.records.clear()
        return body

    def flush_later(self) -> None:
        """The turn ends with `flush`."""
        if not self.is_flush_due:
            self.is_flush_due = True
            self.turn.routed.append(self)

    def flush_messages(self) -> None:
        """Give the records to the link."""
        raise NotImplementedError


def _is_alike(message: Message, other: Message) -> bool:
    """Whether they differ in nothing but the payload, as far as a record goes."""
    return (
        message.publisher is other.publisher
        and message.qos == other.qos
        and message.retain == other.retain
        and message.expires_at == other.expires_at
        and message.topic == other.topic
        and message.properties == other.properties
        and message.publisher_client_id == other.publisher_client_id
    )


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
    if len(body) - at < _HEAD_BYTES or (body[at] | body[at + _TENANT_AT]) & 0x80:
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
    raw_id = topic = properties = b""
    client_id = ""
    session = publisher = None
    qos = 0
    retain = False
    expires_at = 0.0
    view = body  # slices of a C pointer make no slice objects
    while at < size:
        is_like = body[at] & _LIKE
        if size - at < (_LENGTH_BYTES if is_like else _HEAD_BYTES):
            return -1
        if is_like:
            payload_at = at + _LENGTH_BYTES
            end = payload_at + (_number(body, at, _LENGTH_BYTES) & _MOST_BYTES)
            if end > size or not topic:
                return -1
        else:
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
            properties = view[properties_at:payload_at]
            qos = flags & _QOS
            retain = flags & _RETAIN != 0
            expires_at = expires_ms / 1000.0 if expires_ms else 0.0
            publisher = session if flags & _IS_CLIENTS else None
        payload = view[payload_at:end]
        into.append(received(topic, payload, qos, retain, properties, expires_at, publisher, client_id))
        at = end
    return at


def _number(body: bytes, at: int, count: int) -> int:
    """Return the unsigned number in these bytes, which are there."""
    value = 0
    for index in range(at, at + count):
        value = value << 8 | body[index]
    return value
