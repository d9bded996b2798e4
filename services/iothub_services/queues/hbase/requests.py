# cython: annotation_typing=False
"""What the queue coprocessor is asked, and what it answers, as bytes: the client's side of docs/reference/coprocessor.md.

Knows no connection and no region. Numbers are big-endian; K is a queue's key, `iothub.records.keys.queue_key`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library's name is no name
from typing import NamedTuple

from iothub.base.errors import CorruptRecordError
from iothub_services.queues.port import Move, Overflow, QueueLimits, Refused

CHANGE = b"m:mul"
PAGE = b"m:deq"
STATS = b"m:sta"
DUE = b"m:due"
INTENT = b"m:p"
ASKED = b"request"  # the attribute of a get

MOST_STEPS = 16_384
MOST_RECORDS = 4_096
MOST_DUE = 65_536
LARGEST = (1 << 31) - 1
_TWO_31, _TWO_32 = 1 << 31, 1 << 32

VERSION = 1
_CREATE, _APPEND, _MOVES, _CLAIM, _SET_LIMITS, _PURGE, _EXPIRE, _DROP, _APPEND_SETTLING = range(1, 10)
_STORED, _KNOWN, _FULL = range(3)
_IS_FULL = 2  # `_FULL`, for compiled code
_INTENT_MOVE = 6
_HITS = ("", "session_queued_messages", "session_queued_bytes", "queued_messages", "queued_bytes")

_REQUEST = Struct(">Bi")
_REQUEST_BYTES = 5
_STEP = Struct(">B12si")
_APPEND_STEP = Struct(">B12siqqqqi")
_APPEND_SETTLING_STEP = Struct(">B12siqqqqqqi")
_APPEND_BYTES = 36
_SETTLED_BYTES = 16
_MOVES_HEAD = Struct(">qqi")
_MOVE = Struct(">Bq")
_INTENT_HEAD = Struct(">Bq16si")
_LIMITS = Struct(">qqB")
_CREATE_HEAD = Struct(">qq")
_CLAIM_HEAD = Struct(">qB")
_EXPIRE_HEAD = Struct(">qBi")
_PAGE_ASKED = Struct(">Bqqii")
_DUE_ASKED = Struct(">BqiqQq")
_I32 = Struct(">i")
_I64 = Struct(">q")
_RESULT_BYTES = 5  # before each result: its status, and its length
_OWNER_AT = 9  # in the answer to an append, behind `is repeat` and the epoch
_HOLDS = Struct(">16xqqi")  # head and tail, messages, bytes, number of runs
_ONE_RUN_BYTES = 53  # the same with one run, and nothing dropped
_RUN = Struct(">Bqi")
_DROPPED = Struct(">iBqi")
_STANDS = Struct(">qqqq")
_INTENT_RESULT = Struct(">B16s")
_CLAIMED = Struct(">qqqqqqi")
_INBOUND = Struct(">HB16s")
_PAGE_HEAD = Struct(">qqqBi")
_RECORD_HEAD = Struct(">qi")
_STATS = Struct(">BBqqqqqqqqB")
_DUE_ROW = Struct(">q12sqB")


class Status(IntEnum):
    """What became of one operation."""

    DONE = 0
    GONE = 1
    STALE_EPOCH = 2
    EXISTS = 3
    OLD_SEQUENCE = 4
    DAMAGED = 5


# Plain tuples: they are made for every queue of every batch.
Step = tuple[bytes, bytes]
"""One operation: the queue's key, and its bytes."""
Result = tuple[int, bytes]
"""One operation's result: a `Status` and its bytes."""


# --- what is asked


def request(steps: Sequence[Step]) -> list[bytes]:
    """Return the value of an append to `CHANGE`, in pieces; all queues are in one region."""
    return [_REQUEST.pack(VERSION, len(steps)), *[step[1] for step in steps]]


def create(key: bytes, token: int, first_epoch: int, limits: QueueLimits) -> Step:
    return _step(_CREATE, key, _CREATE_HEAD.pack(token, first_epoch) + _limits(limits))


def sized(head: bytes, body_bytes: int) -> bytes:
    """Return what goes before a record's body: the record's length, and the record up to there."""
    return _I32.pack(len(head) + body_bytes) + head


def append(
    key: bytes,
    writer: int,
    sequence: int,
    room: tuple[int, int],
    records: list[bytes],
    settled: tuple[int, int] | None = None,
) -> Step:
    """Return the append of records, at most `MOST_RECORDS`, each in two parts: what `sized` gives, and its body.

    `room`: messages and bytes that the tenant has left, -1 for no bound. `settled`: the writer's calls from the first sequence to before the
    second one are.
    """
    total = _APPEND_BYTES
    for part in records:
        total += len(part)
    messages, size_bytes = room
    count = len(records) // 2
    if settled is None:
        start = _APPEND_STEP.pack(_APPEND, key, total, writer, sequence, messages, size_bytes, count)
    else:
        start = _APPEND_SETTLING_STEP.pack(
            _APPEND_SETTLING, key, total + _SETTLED_BYTES, *settled, writer, sequence, messages, size_bytes, count
        )
    parts = [start]
    parts += records
    return key, b"".join(parts)


def moves(key: bytes, epoch: int, sequence: int, each: Sequence[bytes]) -> Step:
    """Return a reader's moves, each from `move` or `intent`."""
    return _step(_MOVES, key, _MOVES_HEAD.pack(epoch, sequence, len(each)) + b"".join(each))


def move(asked: Move) -> bytes:
    return _MOVE.pack(asked.kind, asked.value)


def intent(packet_id: int, message_id: bytes, kept: bytes) -> bytes:
    """Return the move that makes an inbound intent; `kept` is what is needed to finish it."""
    return _INTENT_HEAD.pack(_INTENT_MOVE, packet_id, message_id, len(kept)) + kept


def claim(key: bytes, token: int, owner: bytes) -> Step:
    return _step(_CLAIM, key, _CLAIM_HEAD.pack(token, len(owner)) + owner)


def set_limits(key: bytes, limits: QueueLimits) -> Step:
    return _step(_SET_LIMITS, key, _limits(limits))


def purge(key: bytes) -> Step:
    return _step(_PURGE, key, b"")


def expire(key: bytes, now_ms: int, positions: Sequence[int], *, is_unsent: bool) -> Step:
    """Return the removal of those of these positions that are due."""
    head = _EXPIRE_HEAD.pack(now_ms, is_unsent, len(positions))
    return _step(_EXPIRE, key, head + b"".join([_I64.pack(position) for position in positions]))


def drop(key: bytes) -> Step:
    return _step(_DROP, key, b"")


def page(epoch: int, after: int, count: int, size_bytes: int) -> bytes:
    """Return what a get of `PAGE` asks; counts beyond what fits are cut."""
    return _PAGE_ASKED.pack(
        VERSION, epoch, max(after, 0), min(max(count, 1), LARGEST), min(max(size_bytes, 1), LARGEST)
    )


def due(now_ms: int, count: int, expires_at_ms: int, queue_id: int, position: int) -> bytes:
    """Return what a get of `DUE` asks: at most `count` records behind a mark."""
    return _DUE_ASKED.pack(VERSION, now_ms, min(max(count, 1), MOST_DUE), expires_at_ms, queue_id, position)


def _step(code: int, key: bytes, taken: bytes) -> Step:
    return key, _STEP.pack(code, key, len(taken)) + taken


def _limits(limits: QueueLimits) -> bytes:
    return _LIMITS.pack(limits.messages, limits.bytes, limits.overflow)


# --- what is answered


class Dropped(NamedTuple):
    """What was dropped to make room for record number `record`: a run of positions."""

    record: int
    hit: str
    first: int
    length: int


class AppendResult(NamedTuple):
    """The answer to one append. `positions`: of each record, or `Refused.FULL`; `full`: the limit behind each of those, by record."""

    messages: int
    size_bytes: int
    positions: list[int]
    full: dict[int, str]
    dropped: list[Dropped]


class ClaimResult(NamedTuple):
    """The answer to a claim. `inbound`: packet identifier, is it routed, message id."""

    epoch: int
    head: int
    tail: int
    reserved: int
    messages: int
    size_bytes: int
    released: tuple[int, ...]
    inbound: list[tuple[int, bool, bytes]]


class StatsResult(NamedTuple):
    """Where a queue stands."""

    epoch: int
    head: int
    tail: int
    reserved: int
    messages: int
    size_bytes: int
    limits: QueueLimits


class PageResult(NamedTuple):
    """One page: (position, record) each."""

    tail: int
    upto: int
    is_short: bool
    records: list[tuple[int, bytes]]


class DueRow(NamedTuple):
    """A record whose time has come."""

    expires_at_ms: int
    key: bytes
    position: int


def answers(raw: bytes) -> list[Result]:
    """Take the answer to a request apart. Raises CorruptRecordError."""
    try:
        _version(raw, "the queue coprocessor's answer")
        at = _REQUEST_BYTES
        results = []
        for _ in range(_i32(raw, 1)):
            start = at + _RESULT_BYTES
            size = _i32(raw, at + 1)
            results.append((raw[at], raw[start : start + size]))
            at = start + size
    except IndexError:
        raise _unreadable("its answer") from None
    if at != len(raw):  # such as a cell of a table without the coprocessor: what was asked
        raise _unreadable("its answer")
    return results


def appended_run(raw: bytes, records: int) -> tuple[int, int, int]:
    """Read the usual answer to an append of this number of records: messages, bytes, and the first of positions without a gap.

    Position 0: the answer is not that; read it by `appended`.
    """
    if len(raw) <= _OWNER_AT:
        return 0, 0, 0
    at = _OWNER_AT + 1 + raw[_OWNER_AT]
    end = at + _ONE_RUN_BYTES
    if len(raw) != end:
        return 0, 0, 0
    runs, kind, count, drops = _i32(raw, end - 21), raw[end - 17], _i32(raw, end - 8), _i32(raw, end - 4)
    if runs != 1 or kind == _IS_FULL or count != records or drops:
        return 0, 0, 0
    return _i64(raw, at + 16), _i64(raw, at + 24), _i64(raw, end - 16)


def appended(raw: bytes) -> AppendResult:
    """Read the answer to an append. Raises CorruptRecordError."""
    try:
        at = _OWNER_AT + 1 + raw[_OWNER_AT]
        messages, size_bytes, runs = _HOLDS.unpack_from(raw, at)
        at += _HOLDS.size
        positions: list[int] = []
        full: dict[int, str] = {}
        for _ in range(runs):
            kind, first, count = _RUN.unpack_from(raw, at)
            at += _RUN.size
            if kind == _FULL:
                full.update(dict.fromkeys(range(len(positions), len(positions) + count), _HITS[first]))
                positions += [int(Refused.FULL)] * count
            elif count == 1:
                positions.append(first)
            else:
                positions += range(first, first + count)
        (drops,) = _I32.unpack_from(raw, at)
        dropped = [_dropped(raw, at + 4 + number * _DROPPED.size) for number in range(drops)] if drops else []
    except (StructError, IndexError):
        raise _unreadable("its answer to an append") from None
    return AppendResult(messages, size_bytes, positions, full, dropped)


def _dropped(raw: bytes, at: int) -> Dropped:
    record, hit, first, length = _DROPPED.unpack_from(raw, at)
    return Dropped(record, _HITS[hit], first, length)


def moved(raw: bytes) -> tuple[int, int]:
    """Return (messages, bytes) that the queue holds after moves."""
    _, _, messages, size_bytes = _STANDS.unpack_from(raw)
    return messages, size_bytes


def intended(raw: bytes) -> list[tuple[int, bytes]]:
    """Return (0 new | 1 open | 2 routed, message id that is kept) of each intent among moves."""
    return [(result, kept) for result, kept in _INTENT_RESULT.iter_unpack(raw[_STANDS.size :])]


def claimed(raw: bytes) -> ClaimResult:
    """Read the answer to a claim."""
    *stands, count = _CLAIMED.unpack_from(raw)
    epoch, head, tail, reserved, messages, size_bytes = stands
    at = _CLAIMED.size
    released = Struct(f">{count}q").unpack_from(raw, at)
    at += 8 * count + 4
    inbound = [(packet_id, bool(is_routed), kept) for packet_id, is_routed, kept in _INBOUND.iter_unpack(raw[at:])]
    return ClaimResult(epoch, head, tail, reserved, messages, size_bytes, released, inbound)


def number(raw: bytes) -> int:
    """Return how many records a purge or a drop removed."""
    (found,) = _I64.unpack_from(raw)
    return int(found)


def expired(raw: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the positions that were removed, and those that were spared."""
    (removed,) = _I32.unpack_from(raw)
    (spared,) = _I32.unpack_from(raw, 4 + 8 * removed)
    return Struct(f">{removed}q").unpack_from(raw, 4), Struct(f">{spared}q").unpack_from(raw, 8 + 8 * removed)


def damage(octets: bytes) -> str:
    """Return the text of `Status.DAMAGED`."""
    return octets.decode("utf-8", "replace")


def paged(raw: bytes) -> PageResult | Result:
    """Read a page; what is not `Status.DONE` as it is. Raises CorruptRecordError: a future version."""
    _version(raw, "a page of a queue")
    if raw[1] != Status.DONE:
        return raw[1], raw[2:]
    _, tail, upto, is_short, count = _PAGE_HEAD.unpack_from(raw, 2)
    return PageResult(tail, upto, bool(is_short), list(_records(raw, 2 + _PAGE_HEAD.size, count)))


def _records(raw: bytes, at: int, count: int) -> Iterator[tuple[int, bytes]]:
    for _ in range(count):
        position, size = _RECORD_HEAD.unpack_from(raw, at)
        at += _RECORD_HEAD.size + size
        yield position, raw[at - size : at]


def stats(raw: bytes) -> StatsResult | Result:
    """Read where a queue stands; what is not `Status.DONE` as it is. Raises CorruptRecordError: a future version."""
    _version(raw, "a queue's stats")
    if raw[1] != Status.DONE:
        return raw[1], raw[2:]
    _, _, *stands, most, most_bytes, overflow = _STATS.unpack_from(raw)
    epoch, head, tail, reserved, messages, size_bytes = stands
    limits = QueueLimits(most, most_bytes, Overflow(overflow))
    return StatsResult(epoch, head, tail, reserved, messages, size_bytes, limits)


def found_due(raw: bytes) -> list[DueRow]:
    """Read which records of one region are due. Raises CorruptRecordError: a future version."""
    _version(raw, "a look for due records")
    return [DueRow(at, key, position) for at, key, position, _ in _DUE_ROW.iter_unpack(raw[_REQUEST.size :])]


def _i32(raw: bytes, at: int) -> int:
    """Read a number, without a call where this is compiled. Raises IndexError."""
    number = raw[at]
    number = number << 8 | raw[at + 1]
    number = number << 8 | raw[at + 2]
    number = number << 8 | raw[at + 3]
    return number - _TWO_32 if number >= _TWO_31 else number


def _i64(raw: bytes, at: int) -> int:
    return _i32(raw, at) * _TWO_32 + (_i32(raw, at + 4) & (_TWO_32 - 1))


def _version(raw: bytes, what: str) -> None:
    if not raw or raw[0] != VERSION:
        found = raw[0] if raw else "nothing"
        raise CorruptRecordError(
            f"{what} has version {found}, this program knows {VERSION}: update the hub or the jar, whichever is older"
        )


def _unreadable(what: str) -> CorruptRecordError:
    return CorruptRecordError(f"the queue coprocessor: {what} cannot be read: use the jar of the version of the hub")
