"""The sender of streams: what it does with topics that go, with records that are given up, with refusals, and with a producer that clings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import KafkaProducer
from kafka.cluster import ClusterMetadata
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, TopicAuthorizationFailedError
from kafka.producer.sender import Sender

from iothub.errors import BackendError
from iothub_services.events.kafka_cluster import KafkaCluster
from iothub_services.streams import kafka_sender
from iothub_services.streams.kafka_sender import KafkaSender
from iothub_services.streams.port import Outgoing
from tests.support.fake_kafka import SETTINGS


class Future:
    """Of one record of the hand-fed producer."""

    def __init__(self) -> None:
        self.exception: BaseException | None = None
        self._calls: list[Callable[[], None]] = []

    def add_both(self, call: Callable[..., None], *args: object) -> None:
        self._calls.append(lambda: call(*args, None))

    def end(self, error: BaseException | None = None) -> None:
        self.exception = error
        for call in self._calls:
            call()


class HandProducer:
    """Knows the topics of the test; answers when the test says so, and fails what is open when it is abandoned."""

    def __init__(self, topics: set[str], ids: dict[str, int]) -> None:
        self.topics, self.ids = topics, ids
        self.open: list[tuple[str, bytes, Future]] = []
        self.is_clinging = False
        self._metadata = SimpleNamespace(
            partitions_for_topic=self._partitions, request_update=lambda: None, topic_id=lambda name: self.ids.get(name)
        )
        self._sender = SimpleNamespace(
            add_topic=lambda _name: None, wakeup=lambda: None, join=lambda _s: None, force_close=self._force_close
        )

    def _partitions(self, name: str) -> set[int] | None:
        return {0} if name in self.topics else None

    def send(self, topic: str, *, value: bytes, key: bytes, headers: object) -> Future:
        del key, headers
        self.open.append((topic, value, future := Future()))
        return future

    def answer(self, topic: str, error: BaseException | None = None) -> list[bytes]:
        """Answer all that it has of a topic; return what that was."""
        ended = [each for each in self.open if each[0] == topic]
        self.open = [each for each in self.open if each[0] != topic]
        for _, _, future in ended:
            future.end(error)
        return [value for _, value, _ in ended]

    def _force_close(self) -> None:
        for _, _, future in self.open:
            future.end(KafkaConnectionError("aborted"))

    def close(self, timeout: float) -> None:
        assert timeout == 0
        if self.is_clinging:
            raise KafkaTimeoutError("Timeout waiting for future")


class Stage:
    """A sender whose thread is the test, and whose time passes when the test says so. `wanted`: topics that somebody wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.topics = {"a", "b"}
        self.wanted = {"a", "b"}
        self.ids: dict[str, int] = {}
        self.made: list[str] = []
        self.is_away = False
        self.producers: list[HandProducer] = []
        self.answers: list[tuple[bytes, BackendError | None]] = []
        cluster = KafkaCluster(SETTINGS)
        monkeypatch.setattr(cluster, "producer", self._producer)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(kafka_sender, "time", clock)
        self.sender = KafkaSender(cluster, lambda call: call(), self._make)
        monkeypatch.setattr(self.sender, "_condition", _Condition())
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
            self.topics.add(name)
        return name in self.wanted

    def send(self, topic: str, value: bytes) -> Outgoing:
        record = Outgoing(None, topic, b"k", value, [], 10)
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


class _Condition:
    """Nobody waits: the thread is the test."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def notify(self) -> None: ...

    def wait(self, _timeout_s: float) -> None: ...


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_records_of_a_topic_that_is_gone_count_as_written_and_no_others_go_twice(stage: Stage) -> None:
    """The producer that clings to them is replaced when it has nothing else; a topic that nobody wants is not made."""
    stage.send("a", b"a1")
    stage.send("b", b"b1")
    stage.turn()
    stage.topics.remove("a")
    stage.wanted.remove("a")

    stage.turn(2.0)
    assert (stage.written, stage.made) == ([b"a1"], [])
    stage.send("b", b"b2")
    stage.turn()
    assert [value for _, value, _ in stage.producer.open] == [b"a1", b"b1"]
    stage.producer.answer("b")
    stage.turn()

    assert len(stage.producers) == 2
    assert stage.producer.answer("b") == [b"b2"]
    stage.turn(10.0)
    assert (stage.written, len(stage.producers)) == ([b"a1", b"b1", b"b2"], 2)


def test_a_producer_that_is_never_empty_gives_way_only_for_moments(stage: Stage) -> None:
    """Another topic whose partitions have no leader must not hold everybody up."""
    stage.send("a", b"a1")
    stage.send("b", b"b1")
    stage.turn()
    stage.topics.remove("a")
    stage.wanted.remove("a")
    stage.turn(2.0)

    stage.topics.add("c")
    stage.send("c", b"c1")
    stage.turn(0.5)
    assert stage.producer.answer("c") == []
    stage.turn(1.0)

    assert stage.producer.answer("c") == [b"c1"]
    assert len(stage.producers) == 1


def test_a_topic_that_is_deleted_and_made_again_takes_what_comes(stage: Stage) -> None:
    """Nothing of it is taken for written before it is: neither what was under way nor what comes later."""
    stage.send("a", b"old")
    stage.turn()
    stage.topics.remove("a")
    stage.turn(2.0)
    stage.send("a", b"new")
    stage.turn(2.0)

    assert (stage.made, stage.written) == (["a"], [])
    stage.ids["a"] = 2
    stage.turn(1.0)
    stage.turn()
    assert (stage.written, len(stage.producers)) == ([], 2)
    stage.turn(1.5)
    assert stage.producer.answer("a") == [b"old", b"new"]
    stage.turn()

    assert stage.written == [b"old", b"new"]


def test_a_new_topic_of_an_old_name_waits_for_a_producer_that_never_heard_of_the_old_one(stage: Stage) -> None:
    """The old one would keep its records back for ever. No longer than five seconds, even if another topic has no leader."""
    stage.send("a", b"old")
    stage.send("b", b"b1")
    stage.turn()
    stage.topics.remove("a")
    stage.wanted.remove("a")
    stage.turn(2.0)
    stage.topics.add("a")
    stage.send("a", b"new")
    stage.turn(1.5)
    assert [value for _, value, _ in stage.producer.open] == [b"old", b"b1"]

    stage.turn(5.0)
    stage.turn()
    stage.turn(1.5)

    assert len(stage.producers) == 2
    assert [value for _, value, _ in stage.producer.open] == [b"new", b"b1"]
    assert stage.written == [b"old"]


def test_what_was_given_up_is_kept_by_nobody(stage: Stage) -> None:
    """However long Kafka is away: its publishers go on, and give more."""
    stage.is_away = True
    records = [stage.send("a", b"x") for _ in range(100)]
    stage.turn()

    assert all(stage.sender.give_up(record) for record in records)
    stage.turn(1.5)

    assert not stage.sender._topics


def test_what_kafka_refuses_for_now_is_tried_again_after_a_while(stage: Stage) -> None:
    """Not at once and again and again: rights do not come back in a millisecond. The producer stays."""
    stage.send("a", b"a1")
    stage.turn()
    stage.producer.answer("a", TopicAuthorizationFailedError("a"))
    for _ in range(10):
        stage.turn(0.05)
    assert stage.producer.open == []
    stage.turn(1.0)

    assert stage.producer.answer("a") == [b"a1"]
    stage.turn()
    assert (stage.written, len(stage.producers)) == ([b"a1"], 1)


def test_a_producer_that_does_not_end_ends_nobody_else(stage: Stage) -> None:
    """Its close raises when it still has something; the thread goes on with another one."""
    stage.send("a", b"a1")
    stage.turn()
    stage.producer.is_clinging = True

    stage.producer.answer("a", KafkaConnectionError("lost count"))
    stage.turn()
    stage.turn(1.5)

    assert stage.producer.answer("a") == [b"a1"]
    stage.turn()
    assert stage.written == [b"a1"]


def test_a_defect_is_not_the_end_of_all_streams(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the library raises: it is said, and begun again."""

    def broken(*_: object, **__: object) -> Any:
        raise TypeError("defect")

    stage.send("a", b"a1")
    with monkeypatch.context() as patched:
        patched.setattr(HandProducer, "send", broken)
        stage.turn()
    assert "defect" in stage.sender.trouble
    stage.turn(1.5)

    assert stage.producer.answer("a") == [b"a1"]


def test_the_parts_of_the_library_that_are_not_public_are_there() -> None:
    """It has no public way to look at a topic without waiting, or to leave a producer at once; a version without these is not ours."""
    names = {
        Sender: ("add_topic", "force_close", "join", "wakeup"),
        ClusterMetadata: ("partitions_for_topic", "request_update", "topic_id"),
    }

    assert [name for owner, found in names.items() for name in found if not hasattr(owner, name)] == []
    assert {"_metadata", "_sender"} <= set(KafkaProducer.__init__.__code__.co_names)
