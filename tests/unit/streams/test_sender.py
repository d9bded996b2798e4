"""The sender of streams: its batches and queues, topics that go, records that are given up, refusals, and a producer that clings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import KafkaProducer
from kafka.cluster import ClusterMetadata
from kafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.producer.sender import Sender

from iothub.base.errors import BackendError
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.streams.kafka import sender
from iothub_services.streams.kafka.batch import Batch
from iothub_services.streams.kafka.sender import KafkaSender
from iothub_services.streams.port import Outgoing
from tests.support.servers.fake_kafka import SETTINGS


class HandProducer:
    """Knows the topics of the test; answers when the test says so, and fails what is open when it is abandoned."""

    def __init__(self, topics: dict[str, set[int]], ids: dict[str, int]) -> None:
        self.open: list[Batch] = []
        self.is_clinging = False
        self._metadata = SimpleNamespace(partitions_for_topic=topics.get, request_update=lambda: None, topic_id=ids.get)
        self._sender = SimpleNamespace(
            add_topic=lambda _name: None, wakeup=lambda: None, join=lambda _s: None, force_close=self._force_close
        )

    @property
    def values(self) -> list[bytes]:
        return [record.value for batch in self.open for record in batch.records]

    def answer(self, topic: str, error: BaseException | None = None, partition: int | None = None) -> list[bytes]:
        """Answer all that it has of a topic; return what that was."""
        ended = [each for each in self.open if each.place.topic == topic and partition in (None, each.place.partition)]
        self.open = [each for each in self.open if each not in ended]
        for batch in ended:
            _end(batch, error)
        return [record.value for batch in ended for record in batch.records]

    def _force_close(self) -> None:
        for batch in self.open:
            _end(batch, KafkaConnectionError("aborted"))

    def close(self, timeout: float) -> None:
        assert timeout == 0
        if self.is_clinging:
            raise KafkaTimeoutError("Timeout waiting for future")


def _end(batch: Batch, error: BaseException | None) -> None:
    batch.ended((0, 0, None if error is None else lambda _index: error))


class Scenario:
    """A sender whose thread is the test, and whose time passes when the test says so. `wanted`: topics that somebody wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.topics: dict[str, set[int]] = {"a": {0}, "b": {0}}
        self.wanted = {"a", "b"}
        self.ids: dict[str, int] = {}
        self.made: list[str] = []
        self.is_away = False
        self.producers: list[HandProducer] = []
        self.answers: list[tuple[bytes, BackendError | None]] = []
        cluster = KafkaCluster(SETTINGS)
        monkeypatch.setattr(cluster, "producer", self._producer)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(sender, "time", clock)
        monkeypatch.setattr(sender, "give", lambda producer, batch, _time_ms: producer.open.append(batch))
        self.sender = KafkaSender(cluster, lambda call: call(), self._make)
        monkeypatch.setattr(
            self.sender, "_condition", SimpleNamespace(notify=lambda: None, wait=lambda _timeout_s: None)
        )
        self.sender._on_answers = lambda answers: self.answers.extend((each.value, error) for each, error in answers)

    def _producer(self, _linger_ms: int) -> KafkaProducer:
        if self.is_away:
            raise KafkaConnectionError("away")
        self.producers.append(HandProducer(self.topics, self.ids))
        return cast("KafkaProducer", self.producers[-1])

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _make(self, name: str) -> bool:
        if name in self.wanted:
            self.made.append(name)
            self.topics[name] = {0}
        return name in self.wanted

    def send(self, topic: str, value: bytes, key: bytes = b"k") -> Outgoing:
        record = Outgoing(None, topic, key, value, [], 10)
        self.sender.send(record)
        return record

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        assert self.sender._turn()

    @property
    def producer(self) -> HandProducer:
        return self.producers[-1]

    @property
    def written(self) -> list[bytes]:
        """What was answered as written."""
        return [value for value, error in self.answers if error is None]


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    return Scenario(monkeypatch)


def test_what_comes_while_a_batch_is_under_way_is_the_next_one(scenario: Scenario) -> None:
    """One batch of a partition at a time keeps the order, and makes batches as large as the load."""
    scenario.send("a", b"0")
    scenario.turn()
    for value in (b"1", b"2", b"3"):
        scenario.send("a", value)
    scenario.turn()
    assert scenario.producer.answer("a") == [b"0"]
    scenario.turn()

    assert [len(batch.records) for batch in scenario.producer.open] == [3]
    assert scenario.producer.answer("a") == [b"1", b"2", b"3"]
    scenario.turn()
    assert scenario.written == [b"0", b"1", b"2", b"3"]


def test_batches_are_bounded(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """In records and in bytes; one record is always taken."""
    monkeypatch.setattr(sender, "_BATCH_RECORDS", 3)
    for number in range(4):
        scenario.send("a", b"%d" % number)
    scenario.turn()
    assert scenario.producer.answer("a") == [b"0", b"1", b"2"]
    monkeypatch.setattr(sender, "_BATCH_BYTES", 9)
    scenario.send("a", b"4")
    scenario.turn()

    assert scenario.producer.answer("a") == [b"3"]


def test_partitions_do_not_wait_for_one_another(scenario: Scenario) -> None:
    """A key stays in its partition."""
    scenario.topics["a"] = {0, 1}
    scenario.send("a", b"1", key=b"k")
    scenario.turn()
    scenario.send("a", b"2", key=b"k")
    scenario.send("a", b"3", key=b"1")
    scenario.turn()

    assert [(batch.place.partition, len(batch.records)) for batch in scenario.producer.open] == [(0, 1), (1, 1)]
    assert scenario.producer.answer("a", partition=1) == [b"3"]
    scenario.turn()
    assert scenario.written == [b"3"]


def test_what_a_producer_lost_count_of_goes_to_another_one_in_its_order(scenario: Scenario) -> None:
    """Before what came later."""
    scenario.send("a", b"0")
    scenario.send("a", b"1")
    scenario.turn()
    scenario.send("a", b"2")
    scenario.producer.answer("a", KafkaConnectionError("lost count"))
    scenario.turn()
    scenario.turn(1.5)

    assert len(scenario.producers) == 2
    assert scenario.producer.answer("a") == [b"0", b"1", b"2"]


def test_a_record_that_can_never_be_written_is_answered_so(scenario: Scenario) -> None:
    """And not sent again."""
    scenario.send("a", b"0")
    scenario.turn()
    scenario.producer.answer("a", MessageSizeTooLargeError("too large"))
    scenario.turn()

    [(value, error)] = scenario.answers
    assert (value, error is not None and error.retryable) == (b"0", False)
    assert (scenario.producer.open, len(scenario.producers)) == ([], 1)


def test_what_is_in_a_batch_cannot_be_taken_back(scenario: Scenario) -> None:
    """It may be in Kafka by now; what waits can."""
    sent = scenario.send("a", b"0")
    scenario.turn()
    waiting = [scenario.send("a", b"1"), scenario.send("a", b"2")]
    scenario.turn()

    assert [scenario.sender.give_up(each) for each in (sent, waiting[1])] == [False, True]
    scenario.producer.answer("a")
    scenario.turn()
    assert scenario.producer.answer("a") == [b"1"]


def test_other_partitions_than_before_are_used_when_nothing_is_under_way(scenario: Scenario) -> None:
    """Else a key would overtake itself."""
    scenario.send("a", b"0", key=b"1")
    scenario.turn()
    scenario.topics["a"] = {0, 1}
    scenario.send("a", b"1", key=b"1")
    scenario.turn()
    assert scenario.producer.answer("a") == [b"0"]
    scenario.turn()

    assert scenario.producer.answer("a", partition=1) == [b"1"]


def test_records_of_a_topic_that_is_gone_count_as_written_and_no_others_go_twice(scenario: Scenario) -> None:
    """The producer that clings to them is replaced when it has nothing else; a topic that nobody wants is not made."""
    scenario.send("a", b"a1")
    scenario.send("b", b"b1")
    scenario.turn()
    del scenario.topics["a"]
    scenario.wanted.remove("a")

    scenario.turn(2.0)
    assert (scenario.written, scenario.made) == ([b"a1"], [])
    scenario.send("b", b"b2")
    scenario.turn()
    assert scenario.producer.values == [b"a1", b"b1"]
    scenario.producer.answer("b")
    scenario.turn()

    assert len(scenario.producers) == 2
    assert scenario.producer.answer("b") == [b"b2"]
    scenario.turn(10.0)
    assert (scenario.written, len(scenario.producers)) == ([b"a1", b"b1", b"b2"], 2)


def test_a_producer_that_is_never_empty_gives_way_only_for_moments(scenario: Scenario) -> None:
    """Another topic whose partitions have no leader must not hold everybody up."""
    scenario.send("a", b"a1")
    scenario.send("b", b"b1")
    scenario.turn()
    del scenario.topics["a"]
    scenario.wanted.remove("a")
    scenario.turn(2.0)

    scenario.topics["c"] = {0}
    scenario.send("c", b"c1")
    scenario.turn(0.5)
    assert scenario.producer.answer("c") == []
    scenario.turn(1.0)

    assert scenario.producer.answer("c") == [b"c1"]
    assert len(scenario.producers) == 1


def test_a_topic_that_is_deleted_and_made_again_takes_what_comes(scenario: Scenario) -> None:
    """Nothing of it is taken for written before it is: neither what was under way nor what comes later."""
    scenario.send("a", b"old")
    scenario.turn()
    del scenario.topics["a"]
    scenario.turn(2.0)
    scenario.send("a", b"new")
    scenario.turn(2.0)

    assert (scenario.made, scenario.written) == (["a"], [])
    scenario.ids["a"] = 2
    scenario.turn(1.0)
    scenario.turn()
    assert (scenario.written, len(scenario.producers)) == ([], 2)
    scenario.turn(1.5)
    assert scenario.producer.answer("a") == [b"old", b"new"]
    scenario.turn()

    assert scenario.written == [b"old", b"new"]


def test_a_new_topic_of_an_old_name_waits_for_a_producer_that_never_heard_of_the_old_one(scenario: Scenario) -> None:
    """The old one would keep its records back for ever. No longer than five seconds, even if another topic has no leader."""
    scenario.send("a", b"old")
    scenario.send("b", b"b1")
    scenario.turn()
    del scenario.topics["a"]
    scenario.wanted.remove("a")
    scenario.turn(2.0)
    scenario.topics["a"] = {0}
    scenario.send("a", b"new")
    scenario.turn(1.5)
    assert scenario.producer.values == [b"old", b"b1"]

    scenario.turn(5.0)
    scenario.turn()
    scenario.turn(1.5)

    assert len(scenario.producers) == 2
    assert sorted(scenario.producer.values) == [b"b1", b"new"]
    assert scenario.written == [b"old"]


def test_a_topic_that_is_made_again_with_other_partitions_takes_what_was_under_way(scenario: Scenario) -> None:
    """In its order, wherever its keys belong now."""
    scenario.topics["a"], scenario.ids["a"] = {0, 1}, 1
    scenario.send("a", b"0", key=b"1")
    scenario.turn()
    scenario.topics["a"], scenario.ids["a"] = {0}, 2
    scenario.send("a", b"1", key=b"1")
    scenario.turn()
    scenario.turn()
    scenario.turn(1.5)

    assert len(scenario.producers) == 2
    assert scenario.producer.answer("a", partition=0) == [b"0", b"1"]


def test_what_was_given_up_is_kept_by_nobody(scenario: Scenario) -> None:
    """However long Kafka is away: its publishers go on, and give more."""
    scenario.is_away = True
    records = [scenario.send("a", b"x") for _ in range(100)]
    scenario.turn()

    assert all(scenario.sender.give_up(record) for record in records)
    scenario.turn(1.5)

    assert not scenario.sender._topics


def test_what_kafka_refuses_for_now_is_tried_again_after_a_while(scenario: Scenario) -> None:
    """Not at once and again and again: rights do not come back in a millisecond. The producer stays."""
    scenario.send("a", b"a1")
    scenario.turn()
    scenario.producer.answer("a", TopicAuthorizationFailedError("a"))
    for _ in range(10):
        scenario.turn(0.05)
    assert scenario.producer.open == []
    scenario.turn(1.0)

    assert scenario.producer.answer("a") == [b"a1"]
    scenario.turn()
    assert (scenario.written, len(scenario.producers)) == ([b"a1"], 1)


def test_a_producer_that_does_not_end_ends_nobody_else(scenario: Scenario) -> None:
    """Its close raises when it still has something; the thread goes on with another one."""
    scenario.send("a", b"a1")
    scenario.turn()
    scenario.producer.is_clinging = True

    scenario.producer.answer("a", KafkaConnectionError("lost count"))
    scenario.turn()
    scenario.turn(1.5)

    assert scenario.producer.answer("a") == [b"a1"]
    scenario.turn()
    assert scenario.written == [b"a1"]


def test_a_defect_is_not_the_end_of_all_streams(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the library raises: it is said, and begun again."""

    def broken(*_: object, **__: object) -> Any:
        raise TypeError("defect")

    scenario.send("a", b"a1")
    with monkeypatch.context() as patched:
        patched.setattr(sender, "give", broken)
        scenario.turn()
    assert "defect" in scenario.sender.trouble
    scenario.turn(1.5)

    assert scenario.producer.answer("a") == [b"a1"]


def test_the_parts_of_the_library_that_are_not_public_are_there() -> None:
    """No public way looks at a topic without waiting, leaves a producer at once, or gives it a batch: a version without these is not ours."""
    names = {
        Sender: ("add_topic", "force_close", "join", "wakeup"),
        ClusterMetadata: ("partitions_for_topic", "request_update", "topic_id"),
        RecordAccumulator(): ("_appends_in_progress", "_batches", "_closed", "_incomplete", "_tp_lock"),
    }

    assert [name for owner, found in names.items() for name in found if not hasattr(owner, name)] == []
    assert {"_accumulator", "_metadata", "_sender"} <= set(KafkaProducer.__init__.__code__.co_names)
