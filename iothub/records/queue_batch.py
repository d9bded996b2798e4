"""One row of a queue that is a log of batches (HBase without our coprocessor): a header, and the records of one writer's call.

Knows no table, no call and no driver; the records are those of `iothub.records.queued`. Jobs read this form, too.

Version 1, big-endian::

    version 1 | born 8 | writer 8 | sequence 8 | first 8 | bytes before 8 | QoS 0 before 8 | n 4 | (length 4 | record)*n

"Before" are sums over all records that the queue ever had, so two rows tell how much lies between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from struct import error as StructError  # noqa: N812 - the standard library's name is no name
from typing import NamedTuple

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records.queued import Record, decode_record

VERSION = 1

_HEAD = Struct(">BQQQQQQI")
_LENGTH = Struct(">I")


class Known(NamedTuple):
    """A record without its body. `size`: the body's length, wherever it lies."""

    size: int
    qos: int
    expires_at_ms: int
    message_id: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """A row without its bodies: positions `first` ... `last`, one after another.

    `born`: of which incarnation of the queue. `writer`: an incarnation of a worker; `sequence` rises with each of its rows.
    """

    born: int
    writer: int
    sequence: int
    first: int
    bytes_before: int
    qos0_before: int
    records: tuple[Known, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    @property
    def bytes_upto(self) -> int:
        """Return the sum up to its last record."""
        return self.bytes_before + sum([record.size for record in self.records])

    @property
    def qos0_upto(self) -> int:
        return self.qos0_before + sum([not record.qos for record in self.records])

    def at(self, position: int) -> Known:
        return self.records[position - self.first]

    def moved(self, first: int, bytes_before: int, qos0_before: int) -> Batch:
        """Return the same records at another place."""
        return replace(self, first=first, bytes_before=bytes_before, qos0_before=qos0_before)

    def is_same_as(self, other: Batch) -> bool:
        """Is it what this writer wrote with this sequence number?"""
        return (self.born, self.writer, self.sequence) == (other.born, other.writer, other.sequence)


def encode_batch(batch: Batch, records: Sequence[bytes]) -> bytes:
    """Return the row of a batch whose encoded records are given."""
    sums = (batch.first, batch.bytes_before, batch.qos0_before)
    head = _HEAD.pack(VERSION, batch.born, batch.writer, batch.sequence, *sums, len(records))
    return head + b"".join([_LENGTH.pack(len(record)) + record for record in records])


def decode_batch(raw: bytes) -> Batch:
    """Read a row. Raises CorruptRecordError: it is damaged; FutureRecordError: a newer program wrote it."""
    _check(raw)
    known = tuple([Known(each.body.size, each.qos, each.expires_at_ms, each.message_id) for each in records_of(raw)])
    if not known:
        raise CorruptRecordError("damaged batch of queued records: it has none")
    _, born, writer, sequence, first, bytes_before, qos0_before, _ = _HEAD.unpack_from(raw)
    return Batch(born, writer, sequence, first, bytes_before, qos0_before, known)


def records_of(raw: bytes) -> Iterator[Record]:
    """Yield the records of a row, in order. Raises CorruptRecordError, FutureRecordError."""
    _check(raw)
    at = _HEAD.size
    for _ in range(_HEAD.unpack_from(raw)[-1]):
        try:
            (size,) = _LENGTH.unpack_from(raw, at)
        except StructError:
            raise _damaged() from None
        at += _LENGTH.size + size
        if at > len(raw):
            raise _damaged()
        yield decode_record(raw[at - size : at])
    if at != len(raw):
        raise _damaged()


def _check(raw: bytes) -> None:
    if raw and raw[0] > VERSION:
        raise FutureRecordError(
            f"batch of queued records of format version {raw[0]}, this program knows {VERSION}: upgrade it, or it is damaged"
        )
    if len(raw) < _HEAD.size or raw[0] != VERSION:
        raise _damaged()


def _damaged() -> CorruptRecordError:
    return CorruptRecordError("damaged batch of queued records: the fields do not fit")
