"""Records of the journal: how a group is written into one buffer, and how a segment is read back.

Knows no file, no queue and no message: bodies are bytes.

A segment is a header and records, one after the other, little-endian; what is behind the last one is zeros, or what was there before::

    header   magic 8 | segment number 8 | CRC-32 of both 4
    record   length of what follows the checksum 4 | CRC-32 4 | segment number 8 | type 1 | fields

The checksum covers everything behind it. The number of the segment is in every record, so that what an earlier segment left in the same blocks is
none of this one's.

Theory: a group ends with a record COMMIT that says where it began; records without one were never done, so a group is done as a whole or not
at all. A group is written only after the one before it is synced. What a crash leaves of the last one may be any of its sectors, in any
order: even its COMMIT behind a hole. So a COMMIT of a group that begins behind the first broken record, and only that, proves damage; everything
else behind the last whole group is a write that was cut.

A segment that ended by a cut or a failed sync is followed by one whose first record, CLOSED, says how far it counts: what lies behind was
answered as not done, and may have been done anew.

Invariant: a record is whole or not there. Nothing in it is believed before its checksum holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

MAGIC = b"iothubJ\x01"
_HEADER = Struct("<8sQ")
_CHECKSUM = Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size

_HEAD = Struct("<IIQB")  # length, checksum, segment, type
HEAD_BYTES = _HEAD.size
_COVERED = Struct("<QB")
_SMALLEST = _COVERED.size
LARGEST = 320 << 20  # the largest message, beside its deliveries

_APPEND = Struct(
    "<QIIQIH16sB"
)  # expiry, body, deliveries, inbound queue, inbound epoch, packet identifier, message id, has one
_DELIVERY = Struct("<QQBBH")  # queue, position, qos, flags, number of subscription identifiers
_IDENTIFIER = Struct("<I")
_MOVE = Struct("<QQ")
_CLAIM = Struct("<QQH")
_CREATE = Struct("<QQQQQB")
_LIMITS = Struct("<QQQB")
_ONE = Struct("<Q")
_NO_ID = bytes(16)


class Type(IntEnum):
    """What a record says."""

    APPEND = 1
    HEAD = 2
    RELEASE = 3
    RESERVE = 4
    CLAIM = 5
    CREATE = 6
    LIMITS = 7
    INBOUND = 8
    INBOUND_DONE = 9
    DROP = 10
    PURGE = 11
    REMOVED = 12  # one position: expired, or dropped to make room
    CLOSED = 13  # an earlier segment counts up to here
    COMMIT = 14  # of everything from here on


class Placed(NamedTuple):
    """One queue's share of an append: where it is, as decided before it was written."""

    queue_id: int
    position: int
    qos: int
    flags: int
    subscription_ids: tuple[int, ...] = ()


class AppendRecord(NamedTuple):
    """A message and the queues it went to. `inbound`: queue, epoch and Packet Identifier of a publisher of QoS 2."""

    message_id: bytes
    body: bytes
    expires_at_ms: int
    deliveries: tuple[Placed, ...]
    inbound: tuple[int, int, int] | None = None


class MoveRecord(NamedTuple):
    """One number of one queue. `type`: HEAD, RELEASE, RESERVE, INBOUND, INBOUND_DONE or REMOVED."""

    type: Type
    queue_id: int
    value: int


class ClaimRecord(NamedTuple):
    """A reader's claim: the epoch that the store made."""

    queue_id: int
    epoch: int
    owner: bytes


class CreateRecord(NamedTuple):
    """A queue begins; `epoch` is the one before its first claim."""

    tenant_id: int
    queue_id: int
    epoch: int
    messages: int
    bytes: int
    overflow: int


class LimitsRecord(NamedTuple):
    """Bounds of a queue."""

    queue_id: int
    messages: int
    bytes: int
    overflow: int


class EndRecord(NamedTuple):
    """A queue is emptied (PURGE) or ends (DROP)."""

    type: Type
    queue_id: int


class ClosedRecord(NamedTuple):
    """An earlier segment, and where it ends, whatever is behind."""

    segment: int
    end: int


class _Commit(NamedTuple):
    start: int


Record = AppendRecord | MoveRecord | ClaimRecord | CreateRecord | LimitsRecord | EndRecord | ClosedRecord
_MOVES = frozenset((Type.HEAD, Type.RELEASE, Type.RESERVE, Type.INBOUND, Type.INBOUND_DONE, Type.REMOVED))
_ENDS = frozenset((Type.DROP, Type.PURGE))


class Found(NamedTuple):
    """A whole record. `at`: where it begins in its segment; `body_at`: where an append's body does, else 0."""

    at: int
    record: Record | _Commit
    body_at: int = 0


class Verdict(IntEnum):
    """How a segment ends."""

    WHOLE = 0  # behind its last group come zeros, or its end
    CUT = 1  # behind its last whole group is what a crash left of the next one
    DAMAGED = 2  # a group begins behind what is broken


class Scan(NamedTuple):
    """What a segment has. `end`: behind its last whole group that has nothing broken before it."""

    records: list[Found]
    end: int
    verdict: Verdict


def encode_header(segment: int) -> bytes:
    """Return the first bytes of a segment."""
    head = _HEADER.pack(MAGIC, segment)
    return head + _CHECKSUM.pack(crc32(head))


def is_header(data: bytes, segment: int) -> bool:
    """Say whether these are the first bytes of this segment."""
    return data[:HEADER_BYTES] == encode_header(segment)


class GroupBuffer:
    """The records of one group, to be written at `start` of a segment. Positions and epochs were decided before; this decides nothing.

    Invariant: `data` is whole records only.
    """

    __slots__ = ("data", "segment", "start")

    def __init__(self, segment: int, start: int) -> None:
        self.segment = segment
        self.start = start
        self.data = bytearray()

    def __len__(self) -> int:
        return len(self.data)

    def append(self, record: AppendRecord) -> int:
        """Write a message and its deliveries; return where its body is in this buffer."""
        at = self._begin()
        data = self.data
        inbound_queue, inbound_epoch, packet_id = record.inbound or (0, 0, 0)
        flags = bool(record.message_id) | (record.inbound is not None) << 1
        data += _APPEND.pack(
            record.expires_at_ms,
            len(record.body),
            len(record.deliveries),
            inbound_queue,
            inbound_epoch,
            packet_id,
            record.message_id or _NO_ID,
            flags,
        )
        for queue_id, position, qos, delivery_flags, identifiers in record.deliveries:
            data += _DELIVERY.pack(queue_id, position, qos, delivery_flags, len(identifiers))
            for identifier in identifiers:
                data += _IDENTIFIER.pack(identifier)
        body_at = len(data)
        data += record.body
        self._end(at, Type.APPEND)
        return body_at

    def write(self, record: Record) -> None:
        """Write any other record."""
        if isinstance(record, AppendRecord):
            self.append(record)
            return
        at = self._begin()
        data = self.data
        if isinstance(record, MoveRecord):
            kind = record.type
            data += _MOVE.pack(record.queue_id, record.value)
        elif isinstance(record, ClaimRecord):
            kind = Type.CLAIM
            data += _CLAIM.pack(record.queue_id, record.epoch, len(record.owner)) + record.owner
        elif isinstance(record, CreateRecord):
            kind = Type.CREATE
            data += _CREATE.pack(*record)
        elif isinstance(record, LimitsRecord):
            kind = Type.LIMITS
            data += _LIMITS.pack(*record)
        elif isinstance(record, ClosedRecord):
            kind = Type.CLOSED
            data += _MOVE.pack(*record)
        else:
            kind = record.type
            data += _ONE.pack(record.queue_id)
        self._end(at, kind)

    def finish(self) -> bytearray:
        """End the group and return its bytes."""
        at = self._begin()
        self.data += _ONE.pack(self.start)
        self._end(at, Type.COMMIT)
        return self.data

    def _begin(self) -> int:
        at = len(self.data)
        self.data += bytes(HEAD_BYTES)
        return at

    def _end(self, at: int, kind: Type) -> None:
        data = self.data
        length = len(data) - at - HEAD_BYTES + _SMALLEST
        _COVERED.pack_into(data, at + 8, self.segment, kind)
        with memoryview(data) as view:
            checksum = crc32(view[at + 8 :])
        _HEAD.pack_into(data, at, length, checksum, self.segment, kind)


def scan(data: bytes, segment: int) -> Scan:
    """Read a segment: every input gives an answer. Without its header it has no record; that is damage unless it was never written."""
    view = memoryview(data)
    if not is_header(bytes(view[:HEADER_BYTES]), segment):
        return Scan([], 0, Verdict.DAMAGED if _is_group_behind(view, 0, segment) else Verdict.CUT)
    records: list[Found] = []
    group: list[Found] = []
    at = end = HEADER_BYTES
    while (found := _read(view, at, segment)) is not None:
        at = _end_of(view, at)
        if not isinstance(found.record, _Commit):
            group.append(found)
        elif found.record.start == end:
            records += group
            group = []
            end = at
        else:
            break
    if not any(view[end:]):
        return Scan(records, end, Verdict.WHOLE)
    return Scan(records, end, Verdict.DAMAGED if _is_group_behind(view, end, segment) else Verdict.CUT)


def salvage(data: bytes, segment: int) -> list[Found]:
    """Return every whole record of a damaged segment, those behind the broken ones too, in their order."""
    view = memoryview(data)
    records: list[Found] = []
    at = HEADER_BYTES
    while at < len(view):
        found = _read(view, at, segment)
        if found is None:
            at = _next_mark(view, at + 1, segment)
            continue
        if not isinstance(found.record, _Commit):
            records.append(found)
        at = _end_of(view, at)
    return records


def _is_group_behind(view: memoryview, end: int, segment: int) -> bool:
    """Say whether a group was finished that begins behind `end`: then what is broken there had been synced."""
    at = _next_mark(view, end, segment)
    while at < len(view):
        found = _read(view, at, segment)
        if found is not None and isinstance(found.record, _Commit) and found.record.start > end:
            return True
        at = _next_mark(view, at + 1, segment)
    return False


def _next_mark(view: memoryview, at: int, segment: int) -> int:
    """Return where the next record may begin: each has the number of its segment. The end, if there is none."""
    found = view.obj.find(segment.to_bytes(8, "little"), at + 8)  # type: ignore[attr-defined]  # of bytes
    return len(view) if found < 0 else int(found) - 8


def _end_of(view: memoryview, at: int) -> int:
    return int(at + HEAD_BYTES - _SMALLEST + _HEAD.unpack_from(view, at)[0])


def _read(view: memoryview, at: int, segment: int) -> Found | None:
    if at + HEAD_BYTES > len(view):
        return None
    length, checksum, of, kind = _HEAD.unpack_from(view, at)
    end = at + HEAD_BYTES - _SMALLEST + length
    if of != segment or not _SMALLEST <= length <= LARGEST or end > len(view):
        return None
    if crc32(view[at + 8 : end]) != checksum:
        return None
    try:
        return _decode(view[:end], at, kind)
    except (struct.error, ValueError):
        return None


def _decode(view: memoryview, at: int, kind: int) -> Found:
    """Raises ValueError or struct.error: the fields do not fit."""
    fields_at = at + HEAD_BYTES
    kind = Type(kind)
    if kind is Type.APPEND:
        return _decode_append(view, at)
    record: Record | _Commit
    if kind in _MOVES:
        record, size = MoveRecord(kind, *_MOVE.unpack_from(view, fields_at)), _MOVE.size
    elif kind is Type.CLAIM:
        queue_id, epoch, length = _CLAIM.unpack_from(view, fields_at)
        owner_at = fields_at + _CLAIM.size
        record, size = ClaimRecord(queue_id, epoch, bytes(view[owner_at : owner_at + length])), _CLAIM.size + length
    elif kind is Type.CREATE:
        record, size = CreateRecord(*_CREATE.unpack_from(view, fields_at)), _CREATE.size
    elif kind is Type.LIMITS:
        record, size = LimitsRecord(*_LIMITS.unpack_from(view, fields_at)), _LIMITS.size
    elif kind is Type.CLOSED:
        record, size = ClosedRecord(*_MOVE.unpack_from(view, fields_at)), _MOVE.size
    elif kind is Type.COMMIT:
        record, size = _Commit(*_ONE.unpack_from(view, fields_at)), _ONE.size
    else:
        record, size = EndRecord(kind, *_ONE.unpack_from(view, fields_at)), _ONE.size
    if fields_at + size != len(view):
        raise ValueError("fields and length differ")
    return Found(at, record)


def _decode_append(view: memoryview, at: int) -> Found:
    fields_at = at + HEAD_BYTES
    expires_at_ms, size, count, queue_id, epoch, packet_id, message_id, flags = _APPEND.unpack_from(view, fields_at)
    next_at = fields_at + _APPEND.size
    deliveries = []
    for _ in range(count):
        queue, position, qos, delivery_flags, identifiers = _DELIVERY.unpack_from(view, next_at)
        next_at += _DELIVERY.size
        ids = [_IDENTIFIER.unpack_from(view, next_at + 4 * index)[0] for index in range(identifiers)]
        next_at += 4 * identifiers
        deliveries.append(Placed(queue, position, qos, delivery_flags, tuple(ids)))
    if next_at + size != len(view):
        raise ValueError("fields and length differ")
    inbound = (queue_id, epoch, packet_id) if flags & 2 else None
    record = AppendRecord(
        message_id if flags & 1 else b"", bytes(view[next_at:]), expires_at_ms, tuple(deliveries), inbound
    )
    return Found(at, record, next_at)


def encode_group(segment: int, start: int, records: Iterable[Record]) -> bytes:
    """Return the bytes of a group."""
    buffer = GroupBuffer(segment, start)
    for record in records:
        buffer.write(record)
    return bytes(buffer.finish())
