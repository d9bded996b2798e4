"""Records of the journal: what they look like in a segment, and how one is read back.

Knows no file, no queue and no message: bodies are bytes.

A segment is records, one after the other, little-endian; what is behind the last one is zeros, or what was there before::

    record   length of what follows the checksum 4 | CRC-32 4 | mark 8 | type 1 | fields

The checksum covers everything behind it. The mark is of the segment: random, made anew whenever its blocks are used, and in the file's name. So
what an earlier segment left in the same blocks is none of this one's; and nobody who writes a message knows it, so no body can hold a record.

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
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

MARK_BYTES = 8
HEAD = Struct("<II8sB")  # length, checksum, mark, type
HEAD_BYTES = HEAD.size
FRAME = Struct("<II")
SMALLEST = HEAD_BYTES - FRAME.size
LARGEST = 320 << 20  # the largest message, beside its deliveries

# The head; expiry, body, deliveries, inbound queue, inbound epoch, packet identifier, message id, flags.
APPEND = Struct("<II8sBQIIQQH16sB")
DELIVERY = Struct("<QQBBH")  # queue, position, qos, flags, number of subscription identifiers
IDENTIFIER = Struct("<I")
MOVE = Struct("<II8sBQQ")
TWO = Struct("<QQ")
THREE = Struct("<QQQ")
CLAIM = Struct("<QQH")
CREATE = Struct("<QQQQQB")
LIMITS = Struct("<QQQB")
ONE = Struct("<Q")
KEPT = Struct("<QQHI")
REBUILD = Struct("<QI")  # time, number of places
NO_ID = bytes(16)


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
    KEPT = 15  # the answer to a request of another process
    REBUILD = 16  # of queues whose rows were lost


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


class KeptRecord(NamedTuple):
    """What a client has asked last, and the answer: a row of the table `request`."""

    client: bytes
    number: int
    answer: bytes
    at_s: int


class RebuildRecord(NamedTuple):
    """Queues whose rows were lost are made anew. `places`: tenant, queue and epoch of each living session's queue."""

    now_us: int
    places: tuple[tuple[int, int, int], ...]


class CommitRecord(NamedTuple):
    """Everything from `start` on is done."""

    start: int


Record = (
    AppendRecord
    | MoveRecord
    | ClaimRecord
    | CreateRecord
    | LimitsRecord
    | EndRecord
    | ClosedRecord
    | KeptRecord
    | RebuildRecord
)
_MOVES = frozenset((Type.HEAD, Type.RELEASE, Type.RESERVE, Type.INBOUND, Type.INBOUND_DONE, Type.REMOVED))
_NUMBERS: dict[Type, tuple[Callable[..., Record | CommitRecord], Struct]] = {
    Type.CREATE: (CreateRecord, CREATE),
    Type.LIMITS: (LimitsRecord, LIMITS),
    Type.CLOSED: (ClosedRecord, TWO),
    Type.COMMIT: (CommitRecord, ONE),
}


class Found(NamedTuple):
    """A whole record. `at`: where it begins in its segment."""

    at: int
    record: Record | CommitRecord


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


def scan(data: bytes, mark: bytes) -> Scan:
    """Read a segment: every input gives an answer."""
    view = memoryview(data)
    records: list[Found] = []
    group: list[Found] = []
    at = end = 0
    while (found := _read(view, at, mark)) is not None:
        at = _end_of(view, at)
        if not isinstance(found.record, CommitRecord):
            group.append(found)
        elif found.record.start == end:
            records += group
            group = []
            end = at
        else:
            break
    if not any(view[end:]):
        return Scan(records, end, Verdict.WHOLE)
    return Scan(records, end, Verdict.DAMAGED if _is_group_behind(view, end, mark) else Verdict.CUT)


def walk(data: bytes, mark: bytes) -> Iterator[tuple[Found, int]]:
    """Give the records that are whole before the first one that is not, and where each ends."""
    view = memoryview(data)
    at = 0
    while (found := _read(view, at, mark)) is not None:
        at = _end_of(view, at)
        yield found, at


def size_of(head: bytes) -> int:
    """Return how long a record is by its first bytes, which may be broken; at least those."""
    (length,) = struct.unpack_from("<I", head)
    return int(max(length, SMALLEST)) + HEAD_BYTES - SMALLEST


def salvage(data: bytes, mark: bytes) -> list[Found]:
    """Return every whole record of a damaged segment, those behind the broken ones too, in their order."""
    view = memoryview(data)
    records: list[Found] = []
    at = 0
    while at < len(view):
        found = _read(view, at, mark)
        if found is None:
            at = _next_mark(view, at + 1, mark)
            continue
        if not isinstance(found.record, CommitRecord):
            records.append(found)
        at = _end_of(view, at)
    return records


def _is_group_behind(view: memoryview, end: int, mark: bytes) -> bool:
    """Say whether a group was finished that begins behind `end`: then what is broken there had been synced."""
    at = _next_mark(view, end, mark)
    while at < len(view):
        found = _read(view, at, mark)
        if found is not None and isinstance(found.record, CommitRecord) and found.record.start > end:
            return True
        at = _next_mark(view, at + 1, mark)
    return False


def _next_mark(view: memoryview, at: int, mark: bytes) -> int:
    """Return where the next record may begin: each has the mark of its segment. The end, if there is none."""
    found = view.obj.find(mark, at + 8)  # type: ignore[attr-defined]  # of bytes
    return len(view) if found < 0 else int(found) - 8


def _end_of(view: memoryview, at: int) -> int:
    return int(at + HEAD_BYTES - SMALLEST + HEAD.unpack_from(view, at)[0])


def _read(view: memoryview, at: int, mark: bytes) -> Found | None:
    if at + HEAD_BYTES > len(view):
        return None
    length, checksum, found, kind = HEAD.unpack_from(view, at)
    end = at + HEAD_BYTES - SMALLEST + length
    if found != mark or not SMALLEST <= length <= LARGEST or end > len(view):
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
    record: Record | CommitRecord
    if kind in _NUMBERS:
        make, fields = _NUMBERS[kind]
        record, size = make(*fields.unpack_from(view, fields_at)), fields.size
    elif kind in _MOVES:
        record, size = MoveRecord(kind, *TWO.unpack_from(view, fields_at)), TWO.size
    elif kind is Type.CLAIM:
        queue_id, epoch, length = CLAIM.unpack_from(view, fields_at)
        owner_at = fields_at + CLAIM.size
        record, size = ClaimRecord(queue_id, epoch, bytes(view[owner_at : owner_at + length])), CLAIM.size + length
    elif kind is Type.KEPT:
        number, at_s, client_bytes, answer_bytes = KEPT.unpack_from(view, fields_at)
        client_at = fields_at + KEPT.size
        answer_at = client_at + client_bytes
        answer = bytes(view[answer_at : answer_at + answer_bytes])
        record = KeptRecord(bytes(view[client_at:answer_at]), number, answer, at_s)
        size = KEPT.size + client_bytes + answer_bytes
    elif kind is Type.REBUILD:
        now_us, count = REBUILD.unpack_from(view, fields_at)
        places_at = fields_at + REBUILD.size
        size = REBUILD.size + count * THREE.size
        record = RebuildRecord(now_us, tuple(THREE.iter_unpack(view[places_at : fields_at + size])))
    else:
        record, size = EndRecord(kind, *ONE.unpack_from(view, fields_at)), ONE.size
    if fields_at + size != len(view):
        raise ValueError("fields and length differ")
    return Found(at, record)


def _decode_append(view: memoryview, at: int) -> Found:
    *_, expires_at_ms, size, count, queue_id, epoch, packet_id, message_id, flags = APPEND.unpack_from(view, at)
    next_at = at + APPEND.size
    deliveries = []
    for _ in range(count):
        queue, position, qos, delivery_flags, identifiers = DELIVERY.unpack_from(view, next_at)
        next_at += DELIVERY.size
        ids = [IDENTIFIER.unpack_from(view, next_at + 4 * index)[0] for index in range(identifiers)]
        next_at += 4 * identifiers
        deliveries.append(Placed(queue, position, qos, delivery_flags, tuple(ids)))
    if next_at + size != len(view):
        raise ValueError("fields and length differ")
    inbound = (queue_id, epoch, packet_id) if flags & 2 else None
    record = AppendRecord(
        message_id if flags & 1 else b"", bytes(view[next_at:]), expires_at_ms, tuple(deliveries), inbound
    )
    return Found(at, record)
