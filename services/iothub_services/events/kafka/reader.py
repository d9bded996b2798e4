"""Reading from Kafka by place: where a topic begins and ends, and the records from given offsets on. In no group.

Knows records as bytes; offsets are Kafka's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from kafka import KafkaConsumer
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import OffsetOutOfRangeError
from kafka.structs import TopicPartition

from iothub.base.errors import BackendError
from iothub_services.events.kafka.cluster import FETCH_WAIT_MS, KafkaCluster


class Fetched(NamedTuple):
    """One record. `value` or `key` is None for one that was never ours: we write none without."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None


class KafkaReader:
    """For any thread, one at a time. All methods raise BackendError."""

    def __init__(self, cluster: KafkaCluster, wait_ms: int = FETCH_WAIT_MS) -> None:
        """`wait_ms`: so long a broker may keep a fetch that finds nothing, and with it whatever is asked behind."""
        self._cluster = cluster
        self._wait_ms = wait_ms
        self._consumer: KafkaConsumer | None = None
        self._next: dict[TopicPartition, int] = {}  # where the consumer stands, for what is assigned to it
        self._lock = threading.Lock()

    def begins(self, topic: str, partitions: int) -> list[int]:
        """The offset of the first record of each partition."""
        with self._lock, self._cluster.errors_translated():
            wanted = _all(topic, partitions)
            found = self._open().beginning_offsets(wanted, timeout_ms=self._timeout_ms())
            return [found[partition] for partition in wanted]

    def ends(self, topic: str, partitions: int) -> list[int]:
        """The offset that the next record of each partition will get."""
        with self._lock, self._cluster.errors_translated():
            return self._ends(_all(topic, partitions))

    def fetch(self, topic: str, starts: Mapping[int, int], count: int) -> list[Fetched]:
        """At most `count` records from these offsets on; an empty list: there are none now.

        0 is where the topic begins now. Any other offset that was trimmed away is an error: its reader would miss the trimmed records.
        """
        with self._lock, self._cluster.errors_translated():
            wanted = {TopicPartition(topic, partition): start for partition, start in starts.items()}
            ends = dict(zip(wanted, self._ends(list(wanted)), strict=True))
            unread = {partition: start for partition, start in wanted.items() if start < ends[partition]}
            found = self._from_the_beginning(unread)  # not asked for partitions that never had a record
            unread = {partition: start for partition, start in found.items() if start < ends[partition]}
            return self._poll(unread, count) if unread else []

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = self._cluster.consumer(self._wait_ms)
        return self._consumer

    def _from_the_beginning(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Put where a topic begins in the place of 0."""
        unknown = [partition for partition, start in starts.items() if start == 0]
        if not unknown:
            return starts
        return {**starts, **self._open().beginning_offsets(unknown, timeout_ms=self._timeout_ms())}

    def _ends(self, partitions: list[TopicPartition]) -> list[int]:
        found = self._open().end_offsets(partitions, timeout_ms=self._timeout_ms())
        return [found[partition] for partition in partitions]

    def _poll(self, unread: Mapping[TopicPartition, int], count: int) -> list[Fetched]:
        """Read until something comes: something is there."""
        consumer = self._open()
        if set(unread) != set(self._next):
            consumer.assign(list(unread))
            self._next = {}
        for partition, start in unread.items():
            if self._next.get(partition) != start:
                consumer.seek(partition, start)
                self._next[partition] = start
        deadline = time.monotonic() + self._timeout_ms() / 1000
        while not (found := self._polled(consumer, count)):
            if time.monotonic() > deadline:
                self._next = {}
                raise BackendError(
                    f"{self._cluster.name}: no records arrived, although the topic has some", retryable=True
                )
        for partition, records in found.items():
            self._next[partition] = records[-1].offset + 1
        return [
            Fetched(record.partition, record.offset, record.value, record.key)
            for records in found.values()
            for record in records
        ]

    def _polled(self, consumer: KafkaConsumer, count: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        try:
            found: dict[TopicPartition, list[ConsumerRecord]] = consumer.poll(timeout_ms=200, max_records=count)
        except OffsetOutOfRangeError as error:
            self._next = {}
            raise BackendError(
                f"{self._cluster.name}: records were deleted before they were read ({error}); restart the hub or the job",
                retryable=True,
            ) from error
        return found

    def _timeout_ms(self) -> int:
        return int(self._cluster.settings.timeout_s * 1000)


def _all(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(partitions)]
