"""Reading from Kafka by place, over a cluster in memory: ends, pages, a seek only where it is needed, a broker that stays silent."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka.structs import TopicPartition

from iothub.base.errors import BackendError
from iothub_services.events.kafka import reader
from iothub_services.events.kafka.reader import Fetched, KafkaReader
from tests.support.servers.fake_kafka import FakeCluster, FakeConsumer

TOPIC = "t"


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    topic = cluster.make(TOPIC, 2, {})
    topic.partitions[0] += [b"a", b"b", b"c"]
    topic.partitions[1] += [b"x"]
    return cluster


def test_reader_tells_where_each_partition_begins_and_ends(cluster: FakeCluster) -> None:
    cluster.topics[TOPIC].begins[0] = 2
    reader = KafkaReader(cluster)

    assert reader.begins(TOPIC, 2) == [2, 0]
    assert reader.ends(TOPIC, 2) == [3, 1]


def test_reader_fetches_from_given_offsets_on(cluster: FakeCluster) -> None:
    """A partition that is read to its end is not asked again."""
    reader = KafkaReader(cluster)

    assert reader.fetch(TOPIC, {0: 1, 1: 0}, 9) == [Fetched(0, 1, b"b"), Fetched(0, 2, b"c"), Fetched(1, 0, b"x")]
    assert reader.fetch(TOPIC, {0: 3, 1: 1}, 9) == []
    assert reader.fetch(TOPIC, {0: 0, 1: 1}, 2) == [Fetched(0, 0, b"a"), Fetched(0, 1, b"b")]


def test_reader_asks_where_a_partition_begins_only_when_it_has_news(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most partitions of a hub that just began have no record, and each fetch would cost them a round trip more."""
    asked: list[list[int]] = []
    beginning_offsets = FakeConsumer.beginning_offsets

    def note(consumer: FakeConsumer, partitions: list[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        asked.append([each.partition for each in partitions])
        return beginning_offsets(consumer, partitions, timeout_ms)

    monkeypatch.setattr(FakeConsumer, "beginning_offsets", note)
    cluster.make("fresh", 3, {}).partitions[1].append(b"a")
    reader = KafkaReader(cluster)

    assert reader.fetch("fresh", {0: 0, 1: 0, 2: 0}, 9) == [Fetched(1, 0, b"a")]
    assert reader.fetch("fresh", {0: 0, 1: 1, 2: 0}, 9) == []
    assert asked == [[1]]


def test_reader_that_begins_where_everything_was_trimmed_finds_nothing(cluster: FakeCluster) -> None:
    """There is an end, and nothing before it: it does not wait for records."""
    cluster.topics[TOPIC].begins[:] = [3, 1]

    assert KafkaReader(cluster).fetch(TOPIC, {0: 0, 1: 0}, 9) == []


def test_reader_seeks_only_where_the_consumer_does_not_stand(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has fetched ahead is not thrown away."""
    sought: list[tuple[int, int]] = []
    seek = FakeConsumer.seek

    def note(consumer: FakeConsumer, partition: TopicPartition, offset: int) -> None:
        sought.append((partition.partition, offset))
        seek(consumer, partition, offset)

    monkeypatch.setattr(FakeConsumer, "seek", note)
    reader = KafkaReader(cluster)
    for start in (0, 1, 0):
        reader.fetch(TOPIC, {0: start}, 1)

    assert sought == [(0, 0), (0, 0)]


def test_reader_does_not_wait_for_ever(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are records, and none come."""
    times = iter(range(100))
    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=lambda: float(next(times))))
    monkeypatch.setattr(FakeConsumer, "poll", lambda *_, **__: {})

    with pytest.raises(BackendError, match="no records arrived, although the topic has some") as caught:
        KafkaReader(cluster).fetch(TOPIC, {0: 0}, 9)
    assert caught.value.retryable


def test_reader_that_gets_no_answer_says_so(cluster: FakeCluster) -> None:
    reader = KafkaReader(cluster)
    cluster.is_away = True

    with pytest.raises(BackendError, match="no answer"):
        reader.ends(TOPIC, 2)


def test_reader_closes_what_it_opened(cluster: FakeCluster) -> None:
    reader = KafkaReader(cluster)
    reader.close()
    reader.ends(TOPIC, 2)
    reader.close()

    assert cluster.closed_consumers == 1
