# cython: annotation_typing=False
"""How a group of records is written into one buffer.

Knows how records look (`records`); decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

from iothub.engine.message import Message
from iothub.engine.outbox import QueueTarget
from iothub_services.queues.bodies import body_of
from iothub_services.queues.fastest import fastest
from iothub_services.queues.journal.records import (
    APPEND,
    CLAIM,
    CREATE,
    FRAME,
    HEAD,
    HEAD_BYTES,
    KEPT,
    LIMITS,
    MOVE,
    NO_ID,
    ONE,
    REBUILD,
    SMALLEST,
    THREE,
    TWO,
    AppendRecord,
    ClaimRecord,
    ClosedRecord,
    CreateRecord,
    KeptRecord,
    LimitsRecord,
    MadeRecord,
    MoveRecord,
    RebuildRecord,
    Record,
    Type,
    packed,
    placed,
)

_APPEND, _REMOVED = int(Type.APPEND), int(Type.REMOVED)
_pack_append, _pack_move = APPEND.pack, MOVE.pack

Delivered = tuple[Any, ...]  # the fields of `Placed`, and what follows is not written


def write_append(
    data: bytearray,
    mark: bytes,
    message_id: bytes,
    body: bytes,
    expires_at_ms: int,
    deliveries: list[Delivered],
    inbound: tuple[int, int, int] | None,
) -> None:
    """Add a record APPEND."""
    at = len(data)
    inbound_queue, inbound_epoch, packet_id = inbound or (0, 0, 0)
    flags = bool(message_id) | (inbound is not None) << 1
    data += _pack_append(
        0,
        0,
        mark,
        _APPEND,
        expires_at_ms,
        len(body),
        len(deliveries),
        inbound_queue,
        inbound_epoch,
        packet_id,
        message_id or NO_ID,
        flags,
    )
    data += packed(deliveries)
    data += body
    _end(data, at)


def write_single(
    data: bytearray,
    mark: bytes,
    message_id: bytes,
    body: bytes,
    expires_at_ms: int,
    target: QueueTarget,
    position: int,
) -> None:
    """Add a record APPEND of one delivery and without a publisher's side."""
    delivery = (target.queue_id, position, target.qos, target.flags(), target.identifiers)
    write_append(data, mark, message_id, body, expires_at_ms, [delivery], None)


def write_message(
    data: bytearray,
    mark: bytes,
    message_id: bytes,
    message: Message,
    expires_at_ms: int,
    target: QueueTarget,
    position: int,
) -> None:
    """Do the same with the body of a message."""
    write_single(data, mark, message_id, body_of(message), expires_at_ms, target, position)


def write_move(data: bytearray, mark: bytes, kind: int, queue_id: int, value: int) -> None:
    """Add a `MoveRecord`."""
    at = len(data)
    data += _pack_move(0, 0, mark, kind, queue_id, value)
    _end(data, at)


def _end(data: bytearray, at: int) -> None:
    """The record that begins at `at` is written but for its length and its checksum."""
    with memoryview(data) as view:
        checksum = crc32(view[at + 8 :])
    FRAME.pack_into(data, at, len(data) - at - HEAD_BYTES + SMALLEST, checksum)


_write_append, _write_move = fastest("write_append", write_append), fastest("write_move", write_move)


class GroupBuffer:
    """The records of one group, to be written at `start` of a segment with this mark. Positions and epochs were decided before; this decides nothing.

    Invariant: `data` is whole records only.
    """

    __slots__ = ("data", "deliveries", "mark", "records", "start")

    def __init__(self, mark: bytes, start: int) -> None:
        self.mark = mark
        self.start = start
        self.data = bytearray()
        self.records = 0
        self.deliveries = 0  # of messages that are not for one queue that has room: those are a record each

    def __len__(self) -> int:
        return len(self.data)

    def append(
        self,
        message_id: bytes,
        body: bytes,
        expires_at_ms: int,
        deliveries: list[Delivered],
        inbound: tuple[int, int, int] | None = None,
    ) -> None:
        """Write a message and its deliveries, as the fields of `Placed`."""
        self.records += 1
        self.deliveries += len(deliveries)
        _write_append(self.data, self.mark, message_id, body, expires_at_ms, deliveries, inbound)

    def removed(self, queue_id: int, position: int) -> None:
        """Write that one position is gone."""
        self.move(_REMOVED, queue_id, position)

    def move(self, kind: int, queue_id: int, value: int) -> None:
        """Write a `MoveRecord`."""
        self.records += 1
        _write_move(self.data, self.mark, kind, queue_id, value)

    def write(self, record: Record) -> None:
        """Write any other record."""
        if isinstance(record, AppendRecord):
            deliveries: list[Delivered] = [tuple(each) for each in placed(record.deliveries)]
            self.append(record.message_id, record.body, record.expires_at_ms, deliveries, record.inbound)
        elif isinstance(record, MoveRecord):
            self.move(record.type, record.queue_id, record.value)
        elif isinstance(record, ClaimRecord):
            fields = CLAIM.pack(record.queue_id, record.epoch, len(record.owner)) + record.owner
            self._write(Type.CLAIM, fields)
        elif isinstance(record, CreateRecord):
            self._write(Type.CREATE, CREATE.pack(*record))
        elif isinstance(record, LimitsRecord):
            self._write(Type.LIMITS, LIMITS.pack(*record))
        elif isinstance(record, KeptRecord):
            client, number, answer, at_s = record
            self._write(Type.KEPT, KEPT.pack(number, at_s, len(client), len(answer)) + client + answer)
        elif isinstance(record, RebuildRecord):
            places = b"".join(THREE.pack(*each) for each in record.places)
            self._write(Type.REBUILD, REBUILD.pack(record.now_us, len(record.places)) + places)
        elif isinstance(record, ClosedRecord):
            self._write(Type.CLOSED, TWO.pack(*record))
        elif isinstance(record, MadeRecord):
            self._write(Type.MADE, ONE.pack(*record))
        else:
            self._write(Type.DROP, ONE.pack(record.queue_id))

    def finish(self) -> bytearray:
        """End the group and return its bytes."""
        self._write(Type.COMMIT, ONE.pack(self.start))
        return self.data

    def _write(self, kind: Type, fields: bytes) -> None:
        at = len(self.data)
        self.data += HEAD.pack(0, 0, self.mark, kind) + fields
        _end(self.data, at)
        self.records += 1


def encode_group(mark: bytes, start: int, records: Iterable[Record]) -> bytes:
    """Return the bytes of a group."""
    buffer = GroupBuffer(mark, start)
    for record in records:
        buffer.write(record)
    return bytes(buffer.finish())
