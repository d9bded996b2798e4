"""A Kafka cluster in memory, as far as our drivers use one: for the unit tests of what they make of its answers.

Knows nothing of the protocol; what the real one does is shown in `tests/services`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from kafka.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kafka.structs import TopicPartition

from iothub.base.units import Endpoint
from iothub.config.sections import Kafka
from iothub_services.events.kafka.cluster import FETCH_WAIT_MS, KafkaCluster

SETTINGS = Kafka((Endpoint("kafka-1", 9092),), partitions=3, replication=1, timeout_s=0.5)


@dataclass
class FakeTopic:
    """One topic. `begins`: the first offset of each partition that is not trimmed."""

    partitions: list[list[bytes]]
    settings: dict[str, str]
    copies: int = 1
    topic_id: str = ""
    begins: list[int] = field(default_factory=list)


class FakeFuture:
    """The answer to one record."""

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.exception: Exception | None = None

    def failed(self) -> bool:
        return self.exception is not None

    def answer(self, offset: int) -> None:
        self.is_done, self.value = True, SimpleNamespace(offset=offset)

    def fail(self, error: Exception) -> None:
        self.is_done, self.exception = True, error


class FakeProducer:
    """Keeps what is sent until it is flushed; while the cluster is away, longer."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._metadata = SimpleNamespace(
            topic_id=lambda name: cluster.topics[name].topic_id if cluster.names_ids else None
        )
        self.waiting: list[tuple[str, int, bytes, FakeFuture]] = []
        self._sender = SimpleNamespace(force_close=self.waiting.clear, join=lambda _timeout: None)
        self.is_closed = False

    def send(self, topic: str, *, value: bytes, key: bytes, partition: int) -> FakeFuture:
        self._cluster.keys[value] = key
        if self._cluster.send_error is not None:
            raise self._cluster.send_error
        future = FakeFuture()
        self.waiting.append((topic, partition, value, future))
        return future

    def flush(self, timeout: float) -> None:
        if self._cluster.is_away and self.waiting:
            raise KafkaTimeoutError(f"Timeout waiting for {timeout} s")
        sent = list(self.waiting)
        self.waiting.clear()
        for topic, partition, value, future in sent:
            if topic not in self._cluster.topics:
                self.waiting.append((topic, partition, value, future))
                continue
            error = self._cluster.refusals.pop(value, None)
            if error is not None:
                future.fail(error)
                continue
            records = self._cluster.topics[topic].partitions[partition]
            records.append(value)
            future.answer(-1 if self._cluster.is_forgetful else len(records) - 1)
        if self.waiting:
            raise KafkaTimeoutError(f"Timeout waiting for {timeout} s")

    def close(self, timeout: float) -> None:
        self.flush(timeout)
        self.is_closed = True


class FakeConsumer:
    """Reads what is assigned, at most `count` at a time."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._at: dict[TopicPartition, int] = {}

    def beginning_offsets(self, partitions: list[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        self._cluster.ask(timeout_ms, partitions)
        return {each: self._cluster.topics[each.topic].begins[each.partition] for each in partitions}

    def end_offsets(self, partitions: list[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        self._cluster.ask(timeout_ms, partitions)
        return {each: len(self._cluster.topics[each.topic].partitions[each.partition]) for each in partitions}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._at = dict.fromkeys(partitions, 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._at[partition] = offset

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        self._cluster.ask(timeout_ms)
        found: dict[TopicPartition, list[Any]] = {}
        for each, offset in self._at.items():
            topic = self._cluster.topics[each.topic]
            if offset < topic.begins[each.partition]:
                raise OffsetOutOfRangeError({each: offset})
            values = topic.partitions[each.partition][offset : offset + max_records]
            records = [
                SimpleNamespace(
                    partition=each.partition, offset=offset + index, value=value, key=self._cluster.keys.get(value)
                )
                for index, value in enumerate(values)
            ]
            if records:
                self._at[each] = records[-1].offset + 1
                found[each] = records
                max_records -= len(records)
            if max_records <= 0:
                break
        return found

    def close(self) -> None:
        self._cluster.closed_consumers += 1


class FakeAdmin:
    """Makes, describes, trims and deletes topics."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._topics = cluster.topics
        self._cluster = cluster

    def list_topics(self) -> list[str]:
        self._cluster.ask(0)
        return list(self._topics)

    def create_topics(self, wanted: Mapping[str, Mapping[str, Any]], raise_errors: bool) -> dict[str, Any]:
        assert not raise_errors
        for name, topic in wanted.items():
            if self._cluster.create_error:
                return {"topics": [{"error_code": self._cluster.create_error, "error_message": "because"}]}
            self._cluster.make(name, topic["num_partitions"], topic["configs"], topic["replication_factor"])
        return {"topics": [{"error_code": 0, "error_message": None}]}

    def delete_topics(self, names: list[str], raise_errors: bool) -> dict[str, Any]:
        assert not raise_errors
        code = self._cluster.delete_error
        for name in names if not code else ():
            del self._topics[name]
        return {"topics": [{"name": name, "error_code": code, "error_message": None} for name in names]}

    def wait_for_topics(self, names: list[str], timeout_ms: int) -> None:
        self._cluster.ask(timeout_ms)

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "topic_id": self._topics[name].topic_id,
                "partitions": [{"replica_nodes": list(range(self._topics[name].copies))}]
                * len(self._topics[name].begins),
            }
            for name in names
        ]

    def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
        assert config_filter == "all"
        found = {each.name: self._topics[each.name].settings for each in resources}
        return {"topic": {name: {key: {"value": value} for key, value in own.items()} for name, own in found.items()}}

    def delete_records(self, keep: Mapping[TopicPartition, int]) -> None:
        for each, offset in keep.items():
            self._topics[each.topic].begins[each.partition] = offset


class FakeCluster(KafkaCluster):
    """A `KafkaCluster` whose clients are those above."""

    def __init__(self, settings: Kafka = SETTINGS) -> None:
        super().__init__(settings)
        self.topics: dict[str, FakeTopic] = {}
        self.producers: list[FakeProducer] = []
        self.refusals: dict[bytes, Exception] = {}  # value -> what its future fails of, once
        self.keys: dict[bytes, bytes] = {}  # value -> under which key it was sent
        self.send_error: Exception | None = None
        self.create_error = 0
        self.delete_error = 0
        self.closed_consumers = 0
        self.is_away = False  # nothing answers
        self.names_ids = True  # brokers before 2.8 do not
        self.is_forgetful = False  # answers without an offset

    def make(self, name: str, partitions: int, settings: Mapping[str, str], copies: int = 1) -> FakeTopic:
        topic = FakeTopic([[] for _ in range(partitions)], dict(settings), copies, uuid.uuid4().hex, [0] * partitions)
        self.topics[name] = topic
        return topic

    def ask(self, timeout_ms: int, of: Collection[TopicPartition] = ()) -> None:
        if self.is_away or any(each.topic not in self.topics for each in of):
            raise KafkaTimeoutError(f"no answer within {timeout_ms} ms")

    def producer(self, linger_ms: int = 0) -> FakeProducer:
        del linger_ms
        self.ask(0)
        self.producers.append(FakeProducer(self))
        return self.producers[-1]

    def consumer(self, wait_ms: int = FETCH_WAIT_MS, group: str | None = None) -> FakeConsumer:
        del wait_ms, group
        return FakeConsumer(self)

    @contextmanager
    def admin(self) -> Iterator[FakeAdmin]:
        with self.errors_translated():
            yield FakeAdmin(self)
