"""Records of the journal: what they look like in a segment.

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

The first group also says how long the segment was made (MADE), before anything else is written to it: a shorter file was cut by somebody else, and
its last groups may be gone without a trace.

Invariant: a record is whole or not there. Nothing in it is believed before its checksum holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct, unpack_from
from typing import Any, NamedTuple

MARK_BYTES = 8
HEAD = Struct("<II8sB")  # length, checksum, mark, type
HEAD_BYTES = HEAD.size
FRAME = Struct("<II")
SMALLEST = HEAD_BYTES - FRAME.size
DELIVERIES_A_STEP = 16  # of messages for several queues: a start takes as long for them as for another record, or less
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
    PURGE = 11  # of everything up to a position
    REMOVED = 12  # one position: expired, or dropped to make room
    CLOSED = 13  # an earlier segment counts up to here
    COMMIT = 14  # of everything from here on
    KEPT = 15  # the answer to a request of another process
    REBUILD = 16  # of queues whose rows were lost
    MADE = 17  # so many bytes long this segment was made


class Placed(NamedTuple):
    """One queue's share of an append: where it is, as decided before it was written."""

    queue_id: int
    position: int
    qos: int
    flags: int
    subscription_ids: tuple[int, ...] = ()


def packed(deliveries: Iterable[tuple[Any, ...]]) -> bytes:
    """Return deliveries, each as the fields of `Placed`, as they are in a segment; further fields are left out."""
    data = bytearray()
    for queue_id, position, qos, flags, identifiers, *_ in deliveries:
        data += DELIVERY.pack(queue_id, position, qos, flags, len(identifiers))
        for identifier in identifiers:
            data += IDENTIFIER.pack(identifier)
    return bytes(data)


def placed(deliveries: bytes) -> list[Placed]:
    """Return what `packed` was given. Raises ValueError or struct.error: it was not."""
    found, at = [], 0
    while at < len(deliveries):
        found.append(placed_at(deliveries, at))
        at += DELIVERY.size + IDENTIFIER.size * len(found[-1].subscription_ids)
    return found


def placed_at(deliveries: bytes, at: int) -> Placed:
    """Return the one that begins there. Raises struct.error."""
    queue_id, position, qos, flags, count = DELIVERY.unpack_from(deliveries, at)
    return Placed(queue_id, position, qos, flags, unpack_from(f"<{count}I", deliveries, at + DELIVERY.size))


class AppendRecord(NamedTuple):
    """A message and the queues it went to. `inbound`: queue, epoch and Packet Identifier of a publisher of QoS 2.

    `deliveries` are as they are in the segment (see `placed`): a message may be for thousands of queues, most of which have read it.
    """

    message_id: bytes
    body: bytes
    expires_at_ms: int
    deliveries: bytes
    inbound: tuple[int, int, int] | None = None


class MoveRecord(NamedTuple):
    """One number of one queue. `type`: HEAD, RELEASE, RESERVE, INBOUND, INBOUND_DONE, PURGE or REMOVED."""

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
    """A queue ends."""

    queue_id: int


class ClosedRecord(NamedTuple):
    """An earlier segment, and where it ends, whatever is behind."""

    segment: int
    end: int


class MadeRecord(NamedTuple):
    """How long this segment was made: a file that is shorter was cut."""

    size_bytes: int


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
    | MadeRecord
    | KeptRecord
    | RebuildRecord
)


class Found(NamedTuple):
    """A whole record. `at`: where it begins in its segment."""

    at: int
    record: Record | CommitRecord


def steps_of(records: int, deliveries: int) -> int:
    """Return what a start pays for so many, in records."""
    return records + deliveries // DELIVERIES_A_STEP
