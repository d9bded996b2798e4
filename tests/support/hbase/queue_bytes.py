"""The byte contract of the queue coprocessor from a client's side (docs/reference/coprocessor.md), written from that page alone.

Knows no driver: requests are built and answers taken apart here, so that tests see the bytes that are on the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
TENANT = 7
RECORD_HEAD_BYTES = 18  # without subscription identifiers and message id


class Status(IntEnum):
    DONE = 0
    GONE = 1
    STALE_EPOCH = 2
    EXISTS = 3
    OLD_SEQUENCE = 4
    DAMAGED = 5


class Code(IntEnum):
    """Operations."""

    CREATE = 1
    APPEND = 2
    MOVES = 3
    CLAIM = 4
    SET_LIMITS = 5
    PURGE = 6
    EXPIRE = 7
    DROP = 8
    APPEND_SETTLING = 9


class Kind(IntEnum):
    """Moves."""

    ACK = 1
    RELEASE = 2
    RESERVE = 3
    FINISH_INBOUND = 4
    RECORD_INBOUND = 5
    INTENT = 6


REJECT, DROP_OLDEST, DROP_QOS0_FIRST = 0, 1, 2
STORED, KNOWN, FULL = 0, 1, 2
HITS = ("", "session_queued_messages", "session_queued_bytes", "queued_messages", "queued_bytes")


# --- keys


def queue_key(queue_id: int, tenant_id: int = TENANT) -> bytes:
    reversed_id = int(f"{queue_id:064b}"[::-1], 2)
    return struct.pack(">QI", reversed_id, tenant_id)


def meta_row(queue_id: int) -> bytes:
    return queue_key(queue_id) + b"\0"


# --- what is asked


def record(
    body: bytes,
    qos: int = 1,
    *,
    message_id: bytes = b"",
    is_settled_later: bool = False,
    expires_at_ms: int = 0,
    subscription_ids: Sequence[int] = (),
) -> bytes:
    form = (2 if message_id else 0) | (4 if is_settled_later else 0)
    head = struct.pack(">BBBBqiH", VERSION, qos, 0, form, expires_at_ms, len(body), len(subscription_ids))
    return head + b"".join(struct.pack(">I", each) for each in subscription_ids) + message_id + body


def step(code: int, queue_id: int, taken: bytes = b"") -> bytes:
    return struct.pack(">B12si", code, queue_key(queue_id), len(taken)) + taken


def request(*steps: bytes) -> bytes:
    return struct.pack(">Bi", VERSION, len(steps)) + b"".join(steps)


def limits(messages: int = 0, size_bytes: int = 0, policy: int = REJECT) -> bytes:
    return struct.pack(">qqB", messages, size_bytes, policy)


def create(queue_id: int, bounds: bytes = limits(), *, token: int = 1, first_epoch: int = 1) -> bytes:
    return step(Code.CREATE, queue_id, struct.pack(">qq", token, first_epoch) + bounds)


def append(
    queue_id: int,
    writer: int,
    sequence: int,
    records: Sequence[bytes],
    room: tuple[int, int] = (-1, -1),
    settled: tuple[int, int] | None = None,
) -> bytes:
    head = struct.pack(">qqqqi", writer, sequence, *room, len(records))
    taken = head + b"".join(struct.pack(">i", len(each)) + each for each in records)
    if settled is None:
        return step(Code.APPEND, queue_id, taken)
    return step(Code.APPEND_SETTLING, queue_id, struct.pack(">qq", *settled) + taken)


def claim(queue_id: int, owner: bytes = b"worker", token: int = 0) -> bytes:
    return step(Code.CLAIM, queue_id, struct.pack(">qB", token, len(owner)) + owner)


def moves(queue_id: int, epoch: int, sequence: int, *each: tuple[int, int]) -> bytes:
    head = struct.pack(">qqi", epoch, sequence, len(each))
    return step(Code.MOVES, queue_id, head + b"".join(struct.pack(">Bq", kind, value) for kind, value in each))


def intent(queue_id: int, epoch: int, sequence: int, packet_id: int, message_id: bytes, payload: bytes) -> bytes:
    head = struct.pack(">qqi", epoch, sequence, 1)
    move = struct.pack(">Bq16si", Kind.INTENT, packet_id, message_id, len(payload)) + payload
    return step(Code.MOVES, queue_id, head + move)


def expire(queue_id: int, now_ms: int, positions: Sequence[int], *, is_unsent: bool = False) -> bytes:
    head = struct.pack(">qBi", now_ms, is_unsent, len(positions))
    return step(Code.EXPIRE, queue_id, head + b"".join(struct.pack(">q", each) for each in positions))


def page(epoch: int, after: int, count: int, size_bytes: int) -> bytes:
    return struct.pack(">Bqqii", VERSION, epoch, after, count, size_bytes)


def due(now_ms: int, count: int, behind: tuple[int, int, int] = (0, 0, 0)) -> bytes:
    return struct.pack(">BqiqQq", VERSION, now_ms, count, *behind)


# --- what is answered


class Bytes:
    """Reads an answer from its beginning to its end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(">" + form, self._raw, self._at)
        self._at += struct.calcsize(">" + form)
        return found

    def one(self, form: str) -> int:
        return self.take(form)[0]

    def bytes(self, size: int) -> bytes:
        found = self._raw[self._at : self._at + size]
        assert len(found) == size
        self._at += size
        return found

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._raw)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one operation."""

    status: Status
    raw: bytes


def answers(raw: bytes) -> list[Result]:
    reader = Bytes(raw)
    version, count = reader.take("Bi")
    assert version == VERSION
    found = []
    for _ in range(count):
        status, size = reader.take("Bi")
        found.append(Result(Status(status), reader.bytes(size)))
    assert reader.is_at_end
    return found


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to one append. `positions`: as the port says, with -1 for each that was refused."""

    is_repeat: bool
    epoch: int
    owner: bytes
    head: int
    tail: int
    messages: int
    size_bytes: int
    positions: tuple[int, ...]
    hits: tuple[str, ...]
    dropped: tuple[tuple[int, int], ...]  # (index of the message, position)


def appended(result: Result) -> Appended:
    assert result.status == Status.DONE, result
    reader = Bytes(result.raw)
    is_repeat, epoch, size = reader.take("BqB")
    owner = reader.bytes(size)
    head, tail, messages, size_bytes = reader.take("qqqq")
    positions: list[int] = []
    hits: list[str] = []
    for _ in range(reader.one("i")):
        kind, first, count = reader.take("Bqi")
        positions += [-1] * count if kind == FULL else range(first, first + count)
        hits += [HITS[first]] * count if kind == FULL else []
    dropped: list[tuple[int, int]] = []
    for _ in range(reader.one("i")):
        index, hit, first, count = reader.take("iBqi")
        dropped += [(index, position) for position in range(first, first + count)]
        hits += [HITS[hit]] * count
    assert reader.is_at_end
    return Appended(
        bool(is_repeat), epoch, owner, head, tail, messages, size_bytes, tuple(positions), tuple(hits), tuple(dropped)
    )


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim. `inbound`: packet identifier -> (is routed, message id)."""

    epoch: int
    head: int
    tail: int
    reserved: int
    messages: int
    size_bytes: int
    released: tuple[int, ...]
    inbound: dict[int, tuple[bool, bytes]]


def claimed(result: Result) -> Claimed:
    assert result.status == Status.DONE, result
    reader = Bytes(result.raw)
    epoch, head, tail, reserved, messages, size_bytes = reader.take("qqqqqq")
    released = tuple(reader.one("q") for _ in range(reader.one("i")))
    inbound = {}
    for _ in range(reader.one("i")):
        packet_id, is_routed = reader.take("HB")
        inbound[packet_id] = (bool(is_routed), reader.bytes(16))
    assert reader.is_at_end
    return Claimed(epoch, head, tail, reserved, messages, size_bytes, released, inbound)


@dataclass(frozen=True, slots=True)
class Page:
    head: int
    tail: int
    upto: int
    is_short: bool
    records: dict[int, bytes]


def paged(raw: bytes) -> Page:
    reader = Bytes(raw)
    version, status = reader.take("BB")
    assert (version, status) == (VERSION, Status.DONE), raw
    head, tail, upto, is_short = reader.take("qqqB")
    records = {}
    for _ in range(reader.one("i")):
        position, size = reader.take("qi")
        records[position] = reader.bytes(size)
    assert reader.is_at_end
    return Page(head, tail, upto, bool(is_short), records)
