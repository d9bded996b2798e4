"""How records are read back from a segment: every input gives an answer.

Knows how records look (`records`); knows no file and no queue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from iothub_services.queues.fastest import fastest
from iothub_services.queues.journal.records import (
    APPEND,
    CLAIM,
    CREATE,
    DELIVERY,
    HEAD,
    HEAD_BYTES,
    IDENTIFIER,
    KEPT,
    LARGEST,
    LIMITS,
    MOVE,
    ONE,
    REBUILD,
    SMALLEST,
    THREE,
    TWO,
    AppendRecord,
    ClaimRecord,
    ClosedRecord,
    CommitRecord,
    CreateRecord,
    EndRecord,
    Found,
    KeptRecord,
    LimitsRecord,
    MadeRecord,
    MoveRecord,
    RebuildRecord,
    Record,
    Type,
)

_MOVES = frozenset((Type.HEAD, Type.RELEASE, Type.RESERVE, Type.INBOUND, Type.INBOUND_DONE, Type.PURGE, Type.REMOVED))
_NUMBERS: dict[Type, tuple[Callable[..., Record | CommitRecord], Struct]] = {
    Type.CREATE: (CreateRecord, CREATE),
    Type.LIMITS: (LimitsRecord, LIMITS),
    Type.CLOSED: (ClosedRecord, TWO),
    Type.MADE: (MadeRecord, ONE),
    Type.COMMIT: (CommitRecord, ONE),
}
_ZEROS = bytes(1 << 20)


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
    """Read a segment."""
    records: list[Found] = []
    group: list[Found] = []
    at = end = 0
    while True:
        at = _read_common(data, at, mark, group)
        read = _read(data, at, mark)
        if read is None:
            break
        found, at = read
        record = found.record
        if not isinstance(record, CommitRecord):
            group.append(found)
        elif record.start == end:
            records += group
            group = []
            end = at
        else:
            break
    if _is_zero_from(data, end):
        return Scan(records, end, Verdict.WHOLE)
    return Scan(records, end, Verdict.DAMAGED if _is_group_behind(data, end, mark) else Verdict.CUT)


def walk(data: bytes, mark: bytes) -> Iterator[tuple[Found, int]]:
    """Give the records that are whole before the first one that is not, and where each ends."""
    at = 0
    while (read := _read(data, at, mark)) is not None:
        yield read
        at = read[1]


def size_of(head: bytes) -> int:
    """Return how long a record is by its first bytes, which may be broken; at least those."""
    (length,) = struct.unpack_from("<I", head)
    return int(max(length, SMALLEST)) + HEAD_BYTES - SMALLEST


def salvage(data: bytes, mark: bytes) -> list[Found]:
    """Return every whole record of a damaged segment, those behind the broken ones too, in their order."""
    records: list[Found] = []
    at = 0
    while at < len(data):
        read = _read(data, at, mark)
        if read is None:
            at = _next_mark(data, at + 1, mark)
            continue
        found, at = read
        if not isinstance(found.record, CommitRecord):
            records.append(found)
    return records


def _is_zero_from(data: bytes, at: int) -> bool:
    pieces = range(at, len(data), len(_ZEROS))
    return all(data[begin : begin + len(_ZEROS)] == _ZEROS[: len(data) - begin] for begin in pieces)


def _is_group_behind(data: bytes, end: int, mark: bytes) -> bool:
    """Say whether a group was finished that begins behind `end`: then what is broken there had been synced."""
    at = _next_mark(data, end, mark)
    while at < len(data):
        read = _read(data, at, mark)
        if read is not None and isinstance(read[0].record, CommitRecord) and read[0].record.start > end:
            return True
        at = _next_mark(data, at + 1, mark)
    return False


def _next_mark(data: bytes, at: int, mark: bytes) -> int:
    """Return where the next record may begin: each has the mark of its segment. The end, if there is none."""
    found = data.find(mark, at + 8)
    return len(data) if found < 0 else found - 8


def _read(data: bytes, at: int, mark: bytes) -> tuple[Found, int] | None:
    """Return the whole record that begins here, and where it ends."""
    end = _end_of_whole(data, at, mark)
    if not end:
        return None
    try:
        record = _decode_common(data, at, end) or _decode(data, at, end)
    except (struct.error, ValueError):
        return None
    return Found(at, record), end


def read_common(data: bytes, at: int, mark: bytes, found: list[Found]) -> int:
    """Add the whole records from here on that are of the kinds that most records are; return where the first other one begins."""
    while end := end_of_whole(data, at, mark):
        try:
            record = decode_common(data, at, end)
        except (struct.error, ValueError):
            break
        if record is None:
            break
        found.append(Found(at, record))
        at = end
    return at


def end_of_whole(data: bytes, at: int, mark: bytes) -> int:
    """Return where the record ends that begins here, 0: it is not whole."""
    if at + HEAD_BYTES > len(data):
        return 0
    length, checksum, found, _ = HEAD.unpack_from(data, at)
    end: int = at + HEAD_BYTES - SMALLEST + length
    if found != mark or not SMALLEST <= length <= LARGEST or end > len(data):
        return 0
    return end if crc32(memoryview(data)[at + 8 : end]) == checksum else 0


def decode_common(data: bytes, at: int, end: int) -> Record | None:
    """Return a whole record if it is of the kinds that most records are. Raises ValueError or struct.error: the fields do not fit."""
    kind = data[at + HEAD_BYTES - 1]
    if kind == Type.APPEND:
        return _decode_append(data, at, end)
    if kind not in _MOVES:
        return None
    if end - at != MOVE.size:
        raise ValueError("fields and length differ")
    return MoveRecord(Type(kind), *TWO.unpack_from(data, at + HEAD_BYTES))


def _decode_append(data: bytes, at: int, end: int) -> AppendRecord:
    *_, expires_at_ms, size, count, queue_id, epoch, packet_id, message_id, flags = APPEND.unpack_from(data, at)
    first_at = next_at = at + APPEND.size
    for _ in range(count):
        *_, identifiers = DELIVERY.unpack_from(data, next_at)
        next_at += DELIVERY.size + IDENTIFIER.size * identifiers
        if next_at > end:
            raise ValueError("fields and length differ")
    if next_at + size != end:
        raise ValueError("fields and length differ")
    inbound = (queue_id, epoch, packet_id) if flags & 2 else None
    deliveries, body = data[first_at:next_at], data[next_at:end]
    return AppendRecord(message_id if flags & 1 else b"", body, expires_at_ms, deliveries, inbound)


def _decode(data: bytes, at: int, end: int) -> Record | CommitRecord:
    """Return a whole record of another kind. Raises ValueError or struct.error: the fields do not fit."""
    view, fields_at = memoryview(data)[:end], at + HEAD_BYTES
    kind = Type(data[fields_at - 1])
    record: Record | CommitRecord
    if kind in _NUMBERS:
        make, fields = _NUMBERS[kind]
        record, size = make(*fields.unpack_from(view, fields_at)), fields.size
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
        record, size = EndRecord(*ONE.unpack_from(view, fields_at)), ONE.size
    if fields_at + size != end:
        raise ValueError("fields and length differ")
    return record


_end_of_whole = fastest("end_of_whole", end_of_whole, "journal.decoder")
_read_common = fastest("read_common", read_common, "journal.decoder")
_decode_common = fastest("decode_common", decode_common, "journal.decoder")
