"""The meta row of a queue without the coprocessor, and what else lies beside its batches, byte by byte.

Knows no connection and no queue in memory. Batches are `iothub.records.queue_batch`, intents `iothub.records.queued`.

Version 1 of each, big-endian; `(...)*n` is n times::

    m:s   version 1 | flags 1 (bit 0: ids are remembered) | revision 8 | born 8 | token 8 | epoch 8 | head 8 | reserved 8
          | top 8, bytes 8, QoS 0 8 | gone: messages 8, bytes 8, QoS 0 8 | limits: messages 8, bytes 8, policy 1
          | owner length 1 | owner | h 4 | (first 8 | last 8)*h | v 4 | (first 8 | last 8)*v | r 4 | (released 8)*r
          | i 4 | (packet identifier 2 | is routed 1 | message id 16)*i | w 4 | (writer 8 | sequence 8 | time 8)*w
    m:p and a packet identifier 2: the intent; 00 when it is over
    m:i   of row K | 3 | message id 16: version 1 | position 8 | time 8
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library's name is no name
from typing import Any, NamedTuple

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub_services.queues.port import Overflow, QueueLimits

VERSION = 1

BATCH = b"d:b"
STATE = b"m:s"
REMEMBERED = b"m:i"
FINISHED = (
    b"\0"  # put in place of an intent that is over: a cell deleted and put again within a millisecond would stay hidden
)

_ID_ROW = b"\3"
_STATE = Struct(">BBQQQQQQQQQQQQQQBB")
_LENGTH = Struct(">I")
_RUN = Struct(">QQ")
_POSITION = Struct(">Q")
_OPEN = Struct(">HB16s")
_CONSUMED = Struct(">QQQ")
_SEEN = Struct(">BQQ")
_REMEMBERS = 0x01

Run = tuple[int, int]
"""Positions from the first to the last, which is in it."""


class Open(NamedTuple):
    """An inbound QoS 2 Packet Identifier. `message_id`: of the message that came first with it."""

    is_routed: bool
    message_id: bytes


class Consumed(NamedTuple):
    """The newest batch of a writer whose row is gone, and when that was noted (Unix time)."""

    sequence: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Meta:
    """Where a queue stands.

    `revision` counts its changes, so no two values are equal. `token`: of the last claim. `holes`: positions that are gone from rows
    that are there; `vacated`: rows that are gone, the first one mostly all from the beginning. `top`, with the sums up to it: the
    highest position in `vacated`, so none is issued again. `gone_*`: sums over all that is gone. `consumed`: by writer.
    """

    born: int
    epoch: int
    limits: QueueLimits
    revision: int = 1
    token: int = 0
    head: int = 0
    reserved: int = 0
    top: int = 0
    top_bytes: int = 0
    top_qos0: int = 0
    gone_messages: int = 0
    gone_bytes: int = 0
    gone_qos0: int = 0
    owner: bytes = b""
    remembers: bool = False
    holes: tuple[Run, ...] = ()
    vacated: tuple[Run, ...] = ()
    released: tuple[int, ...] = ()
    inbound: dict[int, Open] = field(default_factory=dict)
    consumed: dict[int, Consumed] = field(default_factory=dict)


def encode_meta(meta: Meta) -> bytes:
    limits, owner = meta.limits, meta.owner
    head = _STATE.pack(
        VERSION,
        _REMEMBERS if meta.remembers else 0,
        *(meta.revision, meta.born, meta.token, meta.epoch, meta.head, meta.reserved),
        *(meta.top, meta.top_bytes, meta.top_qos0, meta.gone_messages, meta.gone_bytes, meta.gone_qos0),
        *(limits.messages, limits.bytes, limits.overflow, len(owner)),
    )
    lists = (
        [_RUN.pack(*run) for run in meta.holes],
        [_RUN.pack(*run) for run in meta.vacated],
        [_POSITION.pack(position) for position in meta.released],
        [_OPEN.pack(packet_id, *each) for packet_id, each in sorted(meta.inbound.items())],
        [_CONSUMED.pack(writer, *each) for writer, each in sorted(meta.consumed.items())],
    )
    return head + owner + b"".join([_LENGTH.pack(len(each)) + b"".join(each) for each in lists])


def decode_meta(raw: bytes) -> Meta:
    """Read a meta row. Raises CorruptRecordError: it is damaged; FutureRecordError: a newer program wrote it."""
    _check(raw, "meta row of a queue")
    try:
        _, flags, *numbers, owner_size = _STATE.unpack_from(raw)
        at = _STATE.size + owner_size
        owner = raw[_STATE.size : at]
        lists = []
        for form in (_RUN, _RUN, _POSITION, _OPEN, _CONSUMED):
            (count,) = _LENGTH.unpack_from(raw, at)
            end = at + _LENGTH.size + count * form.size
            lists.append([form.unpack_from(raw, start) for start in range(at + _LENGTH.size, end, form.size)])
            at = end
        return _meta(numbers, flags, owner, lists)
    except (StructError, ValueError):
        raise CorruptRecordError(f"damaged meta row of a queue: the fields do not fit in {len(raw)} bytes") from None


def _meta(numbers: list[int], flags: int, owner: bytes, lists: list[list[tuple[Any, ...]]]) -> Meta:
    revision, born, token, epoch, head, reserved, *sums = numbers
    top, top_bytes, top_qos0, gone_messages, gone_bytes, gone_qos0, messages, size_bytes, policy = sums
    holes, vacated, released, inbound, consumed = lists
    return Meta(
        born=born,
        epoch=epoch,
        limits=QueueLimits(messages, size_bytes, Overflow(policy)),
        revision=revision,
        token=token,
        head=head,
        reserved=reserved,
        top=top,
        top_bytes=top_bytes,
        top_qos0=top_qos0,
        gone_messages=gone_messages,
        gone_bytes=gone_bytes,
        gone_qos0=gone_qos0,
        owner=owner,
        remembers=bool(flags & _REMEMBERS),
        holes=tuple([(first, last) for first, last in holes]),
        vacated=tuple([(first, last) for first, last in vacated]),
        released=tuple([position for (position,) in released]),
        inbound={packet_id: Open(bool(is_routed), message_id) for packet_id, is_routed, message_id in inbound},
        consumed={writer: Consumed(sequence, at_ms) for writer, sequence, at_ms in consumed},
    )


def intent_column(packet_id: int) -> bytes:
    return b"m:p" + packet_id.to_bytes(2, "big")


def remembered_row(queue: bytes, message_id: bytes) -> bytes:
    return queue + _ID_ROW + message_id


def remembered_rows(queue: bytes) -> bytes:
    """Return what all of them begin with."""
    return queue + _ID_ROW


def encode_remembered(position: int, at_ms: int) -> bytes:
    return _SEEN.pack(VERSION, position, at_ms)


def decode_remembered(raw: bytes) -> tuple[int, int]:
    """Return (position, when it was noted). Raises CorruptRecordError, FutureRecordError."""
    _check(raw, "remembered message id")
    if len(raw) != _SEEN.size:
        raise CorruptRecordError(f"damaged remembered message id: {len(raw)} bytes, {_SEEN.size} expected")
    _, position, at_ms = _SEEN.unpack(raw)
    return position, at_ms


def _check(raw: bytes, what: str) -> None:
    if not raw or not raw[0]:
        raise CorruptRecordError(f"damaged {what}: it has no version")
    if raw[0] > VERSION:
        raise FutureRecordError(
            f"{what} of format version {raw[0]}, this program knows {VERSION}: upgrade it, or it is damaged"
        )
