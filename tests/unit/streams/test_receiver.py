"""The receiver of streams: what is read again and what is not when Kafka fails, a topic is not there, or another hub reads it for a moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaConnectionError, OffsetOutOfRangeError, TopicAuthorizationFailedError
from kafka.structs import TopicPartition

from iothub.base.errors import BackendError
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.streams.kafka import receiver
from iothub_services.streams.kafka.receiver import KafkaReceiver, incoming
from iothub_services.streams.port import Direction, Incoming, Stream
from tests.support.servers.fake_kafka import SETTINGS

FIRST = Stream(1, 1, "acme", "first", Direction.IN, "#", 1, 1000)
SECOND = Stream(2, 2, "other", "second", Direction.IN, "#", 1, 1000)


class Brokers:
    """What outlives a consumer. `denied`: topics that may not be read; `is_away`: nothing can be committed."""

    def __init__(self) -> None:
        self.topics: dict[str, list[bytes]] = {}
        self.begins: dict[str, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.denied: set[str] = set()
        self.is_away = False


class HandConsumer:
    """As much of a consumer as ours needs, with one partition for each topic."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._at: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0} if topic in self._brokers.topics else None

    def assignment(self) -> set[TopicPartition]:
        return set(self._at)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._at = {each: self._at.get(each, 0) for each in partitions}
        self._paused &= set(self._at)

    def committed(self, partition: TopicPartition) -> int | None:
        if partition.topic in self._brokers.denied:
            raise TopicAuthorizationFailedError({partition.topic})
        return self._brokers.committed.get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._at[partition] = offset

    def seek_to_beginning(self, partition: TopicPartition) -> None:
        self._at[partition] = self._brokers.begins.get(partition.topic, 0)

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused |= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused -= set(partitions)

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        del timeout_ms, max_records
        found = {}
        for partition, at in self._at.items():
            if partition in self._paused:
                continue
            if partition.topic in self._brokers.denied:
                raise TopicAuthorizationFailedError({partition.topic})
            values = self._brokers.topics[partition.topic]
            if at > len(values) or at < self._brokers.begins.get(partition.topic, 0):
                raise OffsetOutOfRangeError({partition: at})
            found[partition] = [
                SimpleNamespace(partition=0, offset=at + more, timestamp=0, key=b"", value=value, headers=())
                for more, value in enumerate(values[at:])
            ]
            self._at[partition] = len(values)
        return {partition: records for partition, records in found.items() if records}

    def commit(self, offsets: dict[TopicPartition, Any], timeout_ms: int) -> None:
        assert timeout_ms == SETTINGS.timeout_s * 1000
        if self._brokers.is_away:
            raise KafkaConnectionError("away")
        self._brokers.committed |= {partition: each.offset for partition, each in offsets.items()}

    def close(self, *, autocommit: bool) -> None:
        assert not autocommit


class Scenario:
    """A receiver whose thread is the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.brokers = Brokers()
        self.pages: list[tuple[int, list[bytes]]] = []
        self.now = 100.0
        cluster = KafkaCluster(SETTINGS)
        monkeypatch.setattr(cluster, "consumer", self._consumer)
        monkeypatch.setattr(receiver, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(receiver, "_RETRY_S", 0.0)
        self.receiver = KafkaReceiver(cluster, lambda call: call(), self._make)
        self.receiver._on_page = self._take

    def _consumer(self, _wait_ms: int, group: str | None) -> KafkaConsumer:
        assert group == "iothub.streams"
        return cast("KafkaConsumer", HandConsumer(self.brokers))

    def _make(self, stream: Stream) -> None:
        raise BackendError(f"no room for {stream.name}", retryable=True)

    def _take(self, stream_id: int, page: Sequence[Incoming]) -> None:
        self.pages.append((stream_id, [each.value for each in page]))

    def put(self, stream: Stream, *values: bytes) -> None:
        self.brokers.topics.setdefault(stream.topic("iothub"), []).extend(values)

    def committed(self, stream: Stream) -> int | None:
        return self.brokers.committed.get(TopicPartition(stream.topic("iothub"), 0))

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        try:
            self.receiver._turn(self.receiver._wanted)
        except (KafkaConnectionError, BackendError) as error:
            self.receiver._begin_again(error)

    def taken(self) -> list[tuple[int, list[bytes]]]:
        pages, self.pages = self.pages, []
        return pages


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    return Scenario(monkeypatch)


def test_a_page_that_is_dealt_with_does_not_come_again_because_kafka_was_away(scenario: Scenario) -> None:
    """Devices would get each command of it twice. It is committed when Kafka is back."""
    scenario.put(FIRST, b"1", b"2")
    scenario.receiver.follow([FIRST])
    scenario.turn()
    assert scenario.taken() == [(1, [b"1", b"2"])]

    scenario.brokers.is_away = True
    scenario.receiver.done(1, {0: 2})
    scenario.turn()
    scenario.turn()
    scenario.brokers.is_away = False
    scenario.put(FIRST, b"3")
    scenario.turn()

    assert (scenario.taken(), scenario.committed(FIRST)) == ([(1, [b"3"])], 2)


def test_a_page_that_is_out_stays_out_when_the_consumer_begins_again(scenario: Scenario) -> None:
    """Its stream stands still until it is done."""
    scenario.put(FIRST, b"1")
    scenario.receiver.follow([FIRST])
    scenario.turn()
    scenario.taken()

    scenario.receiver._begin_again(KafkaConnectionError("away"))
    scenario.put(FIRST, b"2")
    scenario.turn()
    assert scenario.taken() == []
    scenario.receiver.done(1, {0: 1})
    scenario.turn()

    assert scenario.taken() == [(1, [b"2"])]


def test_a_stream_that_was_not_followed_for_a_moment_is_read_from_where_it_was_committed(scenario: Scenario) -> None:
    """Nobody reports its page any more: it would stand still for ever."""
    scenario.put(FIRST, b"1")
    scenario.receiver.follow([FIRST])
    scenario.turn()
    scenario.taken()

    scenario.receiver.follow([])
    scenario.receiver.follow([FIRST])
    scenario.turn()

    assert scenario.taken() == [(1, [b"1"])]


def test_a_stream_that_is_made_again_under_its_name_is_another_one(scenario: Scenario) -> None:
    """The page of the old one holds nobody up, and its place is not the new one's."""
    scenario.put(FIRST, b"1", b"2")
    scenario.receiver.follow([FIRST])
    scenario.turn()
    scenario.taken()

    scenario.brokers.topics.clear()
    again = replace(FIRST, id=7)
    scenario.put(again, b"a", b"b", b"c")
    scenario.receiver.follow([again])
    scenario.turn()

    assert scenario.taken() == [(7, [b"a", b"b", b"c"])]


def test_a_topic_that_cannot_be_made_keeps_up_nobody_else(scenario: Scenario) -> None:
    """It is looked for again; meanwhile the trouble says why."""
    scenario.put(SECOND, b"1")
    scenario.receiver.follow([FIRST, SECOND])
    scenario.turn()
    assert (scenario.taken(), scenario.receiver.trouble) == ([(2, [b"1"])], "no room for first")

    scenario.put(FIRST, b"a")
    scenario.turn(6)
    assert (scenario.taken(), scenario.receiver.trouble) == ([(1, [b"a"])], "")


@pytest.mark.parametrize("is_denied_from_the_start", [True, False])
def test_a_topic_that_may_not_be_read_keeps_up_nobody_else(scenario: Scenario, is_denied_from_the_start: bool) -> None:
    """And is read on when it may be."""
    scenario.put(FIRST, b"a")
    scenario.put(SECOND, b"1")
    denied = {FIRST.topic("iothub")}
    scenario.receiver.follow([FIRST, SECOND])
    if not is_denied_from_the_start:
        scenario.turn()
        scenario.receiver.done(1, {0: 1})
        scenario.receiver.done(2, {0: 1})
        scenario.turn()
        assert scenario.taken() == [(1, [b"a"]), (2, [b"1"])]
        scenario.put(SECOND, b"2")
        scenario.put(FIRST, b"b")
    scenario.brokers.denied = denied
    scenario.turn()
    scenario.turn()
    assert [stream_id for stream_id, _ in scenario.taken()] == [2]
    assert "TopicAuthorizationFailed" in scenario.receiver.trouble

    scenario.brokers.denied = set()
    scenario.turn(6)
    assert [stream_id for stream_id, _ in scenario.taken()] == [1]


def test_records_that_retention_took_are_told_of(scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    """They are lost; reading goes on with what is there."""
    scenario.put(FIRST, b"1", b"2", b"3")
    scenario.brokers.committed[TopicPartition(FIRST.topic("iothub"), 0)] = 1
    scenario.brokers.begins[FIRST.topic("iothub")] = 2
    scenario.receiver.follow([FIRST])
    scenario.turn()
    scenario.turn()

    assert scenario.taken() == [(1, [b"3"])]
    assert "Kafka deleted records before the stream read them" in capsys.readouterr().err


def test_nulls_of_kafka_stay_but_in_headers() -> None:
    """A header without a value, which any application may write, would end the thread that reads it, or the one that puts it aside."""
    record = SimpleNamespace(
        partition=1, offset=2, timestamp=3, key=None, value=None, headers=[("topic", b"t"), ("user.k", None)]
    )

    assert incoming(record) == Incoming(1, 2, 3, None, None, (("topic", b"t"), ("user.k", b"")))
