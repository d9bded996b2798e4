"""What the queues on HBase store: one delivery of a message, a body that many of them refer to, a publisher's open intent.

Knows no table, no call and no driver. The first form is the coprocessor's as well (docs/reference/coprocessor.md); jobs read all of them.

Version 1 of each, big-endian::

    record     version 1 | QoS 1 | flags 1 | form 1 | expires at (ms) 8 | size 4 | n 2 | (subscription identifier 4)*n
               | message id 16 (if form has bit 1; with bit 2 its writer says when it is settled) | body, or a reference (if form has bit 0)
    reference  version 1 | body id 16
    intent     version 1 | form 1 | expires at (ms) 8 | size 4 | n 4 | (queue id 8 | QoS 1 | flags 1 | m 2 | (subscription identifier 4)*m)*n
               | body, or a reference (if form has bit 0)
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library's name is no name
from typing import NamedTuple

from iothub.base.errors import CorruptRecordError

VERSION = 1
BODY_ID_BYTES = 16

_IS_REFERENCE = 1
_HAS_ID = 2
_IS_SETTLED_LATER = 4
_ID_BYTES = 16
_RECORD = Struct(">BBBBqiH")
_INTENT = Struct(">BBqiI")
_TARGET = Struct(">QBBH")
_REFERENCE_BYTES = 1 + BODY_ID_BYTES
_IDENTIFIERS = tuple(Struct(f">{count}I") for count in range(9))
_VERSION = bytes((VERSION,))


class Body(NamedTuple):
    """Bytes of a message, or the id of a row that has them; `size` counts in limits, wherever they lie."""

    octets: bytes  # b"" if there is an id
    size: int
    id: bytes = b""

    @property
    def stored(self) -> bytes:
        """As a record or an intent has it at its end."""
        return reference(self.id) if self.id else self.octets


class Record(NamedTuple):
    """One delivery as it is stored. `message_id`: 16 bytes for QoS 2, else empty."""

    qos: int
    flags: int
    subscription_ids: tuple[int, ...]
    expires_at_ms: int
    message_id: bytes
    body: Body


class Target(NamedTuple):
    """One queue that a message goes to, and how."""

    queue_id: int
    qos: int
    flags: int
    subscription_ids: tuple[int, ...]


class Intent(NamedTuple):
    """What is needed to finish an inbound QoS 2 message."""

    expires_at_ms: int
    targets: tuple[Target, ...]
    body: Body


def reference(body_id: bytes) -> bytes:
    """Return what stands in a record for a body that is stored apart."""
    return _VERSION + body_id


def record_head(
    qos: int,
    flags: int,
    subscription_ids: Sequence[int],
    expires_at_ms: int,
    message_id: bytes,
    size: int,
    *,
    is_apart: bool,
    is_settled_later: bool = False,
) -> bytes:
    """Return what stands in a record before the body, or before the reference to it (`is_apart`).

    `is_settled_later`: whoever writes the message id will say when it cannot come again.
    """
    form = (_IS_REFERENCE if is_apart else 0) | (_HAS_ID if message_id else 0)
    if is_settled_later and message_id:
        form |= _IS_SETTLED_LATER
    head = _RECORD.pack(VERSION, qos, flags, form, expires_at_ms, size, len(subscription_ids))
    return head + _packed(subscription_ids) + message_id if subscription_ids or message_id else head


def decode_record(raw: bytes) -> Record:
    """Read a record. Raises CorruptRecordError: it is damaged."""
    _check(raw, _RECORD.size, "queued record")
    _, qos, flags, form, expires_at_ms, size, count = _RECORD.unpack_from(raw)
    at = _RECORD.size
    identifiers: tuple[int, ...] = ()
    if count:
        identifiers = _unpacked(raw, at, count, "queued record")
        at += 4 * count
    message_id = b""
    if form & _HAS_ID:
        message_id = raw[at : at + _ID_BYTES]
        at += _ID_BYTES
    return Record(qos, flags, identifiers, expires_at_ms, message_id, _body(raw, at, form, size, "queued record"))


def encode_intent(intent: Intent) -> bytes:
    """Return what an intent keeps until its message is routed."""
    expires_at_ms, targets, body = intent
    parts = [_INTENT.pack(VERSION, _IS_REFERENCE if body.id else 0, expires_at_ms, body.size, len(targets))]
    for queue_id, qos, flags, identifiers in targets:
        parts.append(_TARGET.pack(queue_id, qos, flags, len(identifiers)))
        parts.append(_packed(identifiers))
    parts.append(body.stored)
    return b"".join(parts)


def decode_intent(raw: bytes) -> Intent:
    """Read an intent. Raises CorruptRecordError: it is damaged."""
    what = "inbound intent"
    _check(raw, _INTENT.size, what)
    _, form, expires_at_ms, size, count = _INTENT.unpack_from(raw)
    at = _INTENT.size
    if count * _TARGET.size > len(raw):
        raise _damaged(what)
    targets = []
    for _ in range(count):
        if at + _TARGET.size > len(raw):
            raise _damaged(what)
        queue_id, qos, flags, identifiers = _TARGET.unpack_from(raw, at)
        at += _TARGET.size
        targets.append(Target(queue_id, qos, flags, _unpacked(raw, at, identifiers, what)))
        at += 4 * identifiers
    return Intent(expires_at_ms, tuple(targets), _body(raw, at, form, size, what))


def _check(raw: bytes, least: int, what: str) -> None:
    if raw[:1] != _VERSION or len(raw) < least:
        raise _damaged(what)


def _body(raw: bytes, at: int, form: int, size: int, what: str) -> Body:
    rest = raw[at:]
    if not form & _IS_REFERENCE:
        if at > len(raw) or len(rest) != size:
            raise _damaged(what)
        return Body(rest, size)
    _check(rest, _REFERENCE_BYTES, "reference to a body")
    if len(rest) != _REFERENCE_BYTES or size < 0:
        raise _damaged(what)
    return Body(b"", size, rest[1:])


def _packed(identifiers: Sequence[int]) -> bytes:
    count = len(identifiers)
    form = _IDENTIFIERS[count] if count < len(_IDENTIFIERS) else Struct(f">{count}I")
    return form.pack(*identifiers)


def _unpacked(raw: bytes, at: int, count: int, what: str) -> tuple[int, ...]:
    form = _IDENTIFIERS[count] if count < len(_IDENTIFIERS) else Struct(f">{count}I")
    try:
        return form.unpack_from(raw, at)
    except StructError:
        raise _damaged(what) from None


def _damaged(what: str) -> CorruptRecordError:
    return CorruptRecordError(f"damaged {what}: the fields do not fit")
