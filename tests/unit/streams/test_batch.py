"""Batches of a stream as kafka-python's own reader, accumulator and partitioner understand them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka.errors import IllegalStateError, MessageSizeTooLargeError
from kafka.partitioner import DefaultPartitioner
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.record.memory_records import MemoryRecords
from kafka.structs import TopicPartition

from iothub_services.streams.kafka.batch import Batch, give, key_hash
from iothub_services.streams.port import Headers, Outgoing

PLACE = TopicPartition("iothub.acme.out", 0)
TIME_MS = 1_700_000_000_000
TOO_LARGE = MessageSizeTooLargeError("too large")


class Scenario:
    """An accumulator as a producer has it, and what became of one batch."""

    def __init__(self, *records: Outgoing) -> None:
        self.accumulator = RecordAccumulator(batch_size=1 << 20)
        self.producer = SimpleNamespace(_accumulator=self.accumulator, _sender=SimpleNamespace(wakeup=self._woken))
        self.wakes = 0
        self.ends: list[list[BaseException | None] | None] = []
        self.batch = Batch(PLACE, records, 1, lambda _batch, errors: self.ends.append(errors))

    def _woken(self) -> None:
        self.wakes += 1

    def give(self) -> None:
        give(self.producer, self.batch, TIME_MS)

    def next(self) -> ProducerBatch:
        """Take the next batch as the producer's thread does."""
        made = self.accumulator._batches[PLACE].popleft()
        made.records.set_producer_state(7, 0, 100, False)
        made.records.close()
        return made

    def split(self, made: ProducerBatch) -> None:
        self.accumulator.split_and_reenqueue(made)
        self.accumulator.deallocate(made)


def record(value: bytes, key: bytes = b"k", headers: Headers | None = None) -> Outgoing:
    return Outgoing(None, PLACE.topic, key, value, headers or [], len(value))


def test_a_batch_is_what_the_library_reads() -> None:
    """Keys, values and headers of every length, in their order; the producer's numbers are in it."""
    long = [("topic", b"t/1"), ("user.äöü", "ä".encode()), ("correlation_data", bytes(70_000)), ("empty", b"")]
    given = [record(b"one"), record(b"", b""), record(bytes(9_000), b"c" * 300, long)]
    given += [record(str(number).encode()) for number in range(20_000)]
    scenario = Scenario(*given)

    scenario.give()
    made = scenario.next()
    [read] = list(MemoryRecords(made.records.buffer()))

    assert read.validate_crc()
    assert (read.producer_id, read.base_sequence, read.records_count) == (7, 100, len(given))
    assert made.record_count == len(given)
    found = [(each.key, each.value, each.headers, each.timestamp) for each in read]
    assert found == [(each.key, each.value, each.headers, TIME_MS) for each in given]


def test_a_batch_is_sent_at_once_and_has_one_answer() -> None:
    """It is full for the producer, which would wait for more otherwise."""
    scenario = Scenario(record(b"1"), record(b"2"))

    scenario.give()
    is_full = scenario.accumulator._batches[PLACE][0].records.is_full()
    scenario.next().complete(5, -1)

    assert (is_full, scenario.wakes, scenario.ends) == (True, 1, [None])


def test_every_record_of_a_failed_batch_has_its_error() -> None:
    """The broker may have named the one that is at fault."""
    first, second = ValueError("1"), ValueError("2")
    scenario = Scenario(record(b"1"), record(b"2"))

    scenario.give()
    scenario.next().complete_exceptionally(first, [first, second].__getitem__)

    assert scenario.ends == [[first, second]]


def test_a_batch_that_is_split_ends_with_its_last_part() -> None:
    """Split again and again, until the one record that is too large is alone."""
    scenario = Scenario(*(record(str(number).encode()) for number in range(4)))

    scenario.give()
    scenario.split(scenario.next())
    scenario.next().complete(0, -1)
    scenario.split(scenario.next())
    scenario.next().complete(2, -1)
    assert scenario.ends == []
    scenario.next().complete_exceptionally(TOO_LARGE, lambda _index: TOO_LARGE)

    assert scenario.ends == [[None, None, None, TOO_LARGE]]


def test_a_split_batch_whose_parts_are_written_is_written() -> None:
    """Nobody hears of the split."""
    scenario = Scenario(record(b"1"), record(b"2"))

    scenario.give()
    scenario.split(scenario.next())
    scenario.next().complete(0, -1)
    scenario.next().complete(1, -1)

    assert scenario.ends == [None]


def test_a_closed_producer_takes_nothing() -> None:
    """What is given up by force is answered with the error, and later batches are not lost in it."""
    scenario, late = Scenario(record(b"1")), Scenario(record(b"2"))
    late.producer = scenario.producer

    scenario.give()
    scenario.accumulator.close()
    scenario.accumulator.abort_incomplete_batches()

    assert isinstance((scenario.ends[0] or [None])[0], IllegalStateError)
    with pytest.raises(IllegalStateError):
        late.give()
    assert late.ends == []


def test_nulls_stay_nulls() -> None:
    """A record that is put aside is what its application wrote: null is no empty key."""
    scenario = Scenario(Outgoing(None, PLACE.topic, None, None, [], 0), record(b"", b""))

    scenario.give()
    [read] = list(MemoryRecords(scenario.next().records.buffer()))

    assert [(each.key, each.value) for each in read] == [(None, None), (b"", b"")]


@pytest.mark.parametrize("key", [b"", b"p1", b"client-17", bytes(range(256))])
def test_keys_go_where_the_usual_partitioner_sends_them(key: bytes) -> None:
    """Applications rely on it, and other producers may write to the topic."""
    partitions = set(range(7))
    cluster = SimpleNamespace(
        topics=lambda: {"t"},
        partitions_for_topic=lambda _name: partitions,
        available_partitions_for_topic=lambda _name: partitions,
    )

    assert key_hash(key) % 7 == DefaultPartitioner().partition("t", key, key, b"", b"", cluster)
