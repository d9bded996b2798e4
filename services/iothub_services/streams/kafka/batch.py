"""Records of a stream in Kafka's own form, a batch at a time, and how kafka-python's producer takes a whole batch.

Knows one partition of one topic, and no thread.

Theory: `KafkaProducer.send` makes a future, checks and dozens of small writes for every record; that was most of what a message cost on its way.
Here the records of a batch are joined at once, and the batch has one answer. The producer still numbers, sends, repeats and splits it: in its
accumulator it finds what its own `send` would have put there (`give` is all that knows its inside).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from kafka import KafkaProducer
from kafka.errors import IllegalStateError
from kafka.partitioner import murmur2
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import encode_varint
from kafka.structs import TopicPartition

from iothub_services.streams.port import Outgoing

_MAGIC = 2  # the form of records since Kafka 0.11
_SHORT = 8_192  # numbers below are encoded once
_KEYS, _KEY_BYTES = 16_384, 128  # of so many keys, none longer, it is remembered what the partitioner makes of them
_NULL = b"\1"  # -1 in the place of a length
_NAMES = 64  # of headers, each up to 64 KiB

Errors = Sequence[BaseException | None]
"""What went wrong with each record of a batch; None: it is written."""
OnEnd = Callable[["Batch", "Errors | None"], None]
"""In the producer's thread. None: all are written."""


class Batch:
    """Records of one partition that are given to a producer together. `generation`: which one."""

    def __init__(self, place: TopicPartition, records: Sequence[Outgoing], generation: int, on_end: OnEnd) -> None:
        self.place = place
        self.records = records
        self.generation = generation
        self._on_end = on_end
        self._errors: list[BaseException | None] = []
        self._left = len(records)

    def ended(self, result: tuple[int, int, Callable[[int], BaseException] | None]) -> None:
        """Take the producer's answer to the whole: offset, time, and which error each record had, if any."""
        error_of = result[2]
        self._on_end(self, None if error_of is None else [error_of(index) for index in range(len(self.records))])

    def record_ended(self, number: int, error: BaseException | None) -> None:
        """Take the answer to one record of a batch that was split."""
        self._errors = self._errors or [None] * len(self.records)
        self._errors[number] = error
        self._left -= 1
        if not self._left:
            self._on_end(self, self._errors if self._errors.count(None) < len(self._errors) else None)


class _Places:
    """Stands for the futures of a batch's records: they are made when the producer asks for them, to split the batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch.records)

    def __getitem__(self, number: int) -> _Place:
        return _Place(self._batch, number)


class _Place:
    """One record of a batch that is split, maybe again and again."""

    def __init__(self, batch: Batch, number: int) -> None:
        self._batch = batch
        self._number = number
        self._whole: object = None

    def rebind(self, whole: Any, index: int) -> None:
        """Belong to another batch from now on, of which `whole` is the future; the one before has no answer."""
        self._whole = whole
        whole.add_callback(self._ended, whole, index)

    def _ended(self, whole: object, index: int, result: tuple[int, int, Callable[[int], BaseException] | None]) -> None:
        if whole is self._whole:
            self._batch.record_ended(self._number, None if result[2] is None else result[2](index))


class _Records(MemoryRecordsBuilder):  # type: ignore[misc]  # the library has no types
    """A batch that is full from the start; the producer puts its numbers into it."""

    def __init__(self, records: Sequence[Outgoing], timestamp_ms: int) -> None:
        super().__init__(_MAGIC, 0, 0)
        builder = self._builder
        builder._buffer += b"".join([encoded(record, index) for index, record in enumerate(records)])
        builder._first_timestamp = builder._max_timestamp = timestamp_ms
        builder._num_records = self._next_offset = len(records)
        builder._last_offset = len(records) - 1


def give(producer: KafkaProducer, batch: Batch, timestamp_ms: int) -> None:
    """Have a batch sent after those of its partition that were given before. Raises IllegalStateError: the producer is closed."""
    made = ProducerBatch(batch.place, _Records(batch.records, timestamp_ms))
    made._record_futures = _Places(batch)
    made.produce_future.add_callback(batch.ended)
    accumulator = producer._accumulator
    accumulator._appends_in_progress.increment()
    try:
        with accumulator._tp_lock(batch.place):
            if accumulator._closed:
                raise IllegalStateError("the producer is closed")
            accumulator._batches[batch.place].append(made)
            accumulator._incomplete.add(made)
    finally:
        accumulator._appends_in_progress.decrement()
    producer._sender.wakeup()


def key_hash(key: bytes) -> int:
    """Return what Kafka's usual partitioner makes of a key, before it is divided by the number of partitions."""
    return _remembered_hash(key) if len(key) <= _KEY_BYTES else _hash(key)


def _hash(key: bytes) -> int:
    return int(murmur2(key)) & 0x7FFF_FFFF


_remembered_hash = lru_cache(_KEYS)(_hash)


def encoded(record: Outgoing, index: int) -> bytes:
    """Return one record as it stands in its batch, all of whose records have the same time."""
    key, value, headers = record.key, record.value, record.headers
    parts = [b"\0\0", _varint[index]]
    parts += (_NULL,) if key is None else (_varint[len(key)], key)
    parts += (_NULL,) if value is None else (_varint[len(value)], value)
    parts.append(_varint[len(headers)])
    for name, text in headers:
        parts += (_name(name), _varint[len(text)], text)
    body = b"".join(parts)
    return _varint[len(body)] + body


class _Varints(dict[int, bytes]):
    """A number as Kafka writes it; small ones are made once."""

    def __missing__(self, number: int) -> bytes:
        written = bytearray()
        encode_varint(number, written.append)
        return bytes(written)


_varint = _Varints()
_varint |= {number: _varint[number] for number in range(_SHORT)}


@lru_cache(_NAMES)
def _name(name: str) -> bytes:
    given = name.encode()
    return _varint[len(given)] + given
