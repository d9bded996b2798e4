"""What streams ask of the real Kafka: topics made, looked at and deleted; records sent once and in order; pages committed and read on."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence

import pytest

from iothub.config.sections import Kafka
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.streams.kafka.receiver import KafkaReceiver, group_of
from iothub_services.streams.kafka.sender import KafkaSender
from iothub_services.streams.kafka.topics import StreamTopics
from iothub_services.streams.port import Direction, Incoming, Outgoing, Stream
from ops.services.services import Services
from tests.support.servers.kafka import own_topics
from tests.support.servers.streams import read_all, write
from tests.support.waiting import PATIENCE_S

OUT = Stream(1, 1, "acme", "out", Direction.OUT, "#", 2, 3_600_000)
INWARD = Stream(2, 1, "acme", "inward", Direction.IN, "#", 1, 3_600_000)


@pytest.fixture
def kafka(broker_alone: Services) -> Iterator[Kafka]:
    with own_topics(broker_alone) as settings:
        yield settings


def test_topics_are_made_once_told_of_and_deleted(kafka: Kafka) -> None:
    """All of it may be repeated."""
    topics = StreamTopics(KafkaCluster(kafka))

    topics.make(OUT)
    topics.make(OUT)
    topics.make(INWARD)
    state = topics.state(OUT.topic(kafka.topic_prefix), "nobody")
    topics.delete([OUT, INWARD])
    topics.delete([OUT, INWARD])

    assert state is not None
    assert (state.partitions, state.messages, state.lag) == (2, 0, None)
    assert topics.there([*topics.names(OUT), *topics.names(INWARD)]) == []


def test_records_go_once_and_in_order_to_a_topic_that_is_made_for_them(broker_alone: Services, kafka: Kafka) -> None:
    """What is given up before it was sent is not there."""
    topics = StreamTopics(KafkaCluster(kafka))

    def make(_name: str) -> bool:
        topics.make(OUT)
        return True

    sender = KafkaSender(KafkaCluster(kafka), lambda call: call(), make)
    answered: queue.Queue[int] = queue.Queue()
    name = OUT.topic(kafka.topic_prefix)
    taken_back = Outgoing(None, name, b"k", b"never", [], 10)
    assert sender.give_up(taken_back)

    sender.start(lambda answers: [answered.put(len(answers))][0])
    sender.send(taken_back)
    for number in range(500):
        sender.send(Outgoing(None, name, b"k", str(number).encode(), [("a", b"b")], 10))
    count = 0
    while count < 500:
        count += answered.get(timeout=PATIENCE_S)

    assert [value for _, _, value in read_all(broker_alone, name)] == [str(number).encode() for number in range(500)]
    assert sender.close(PATIENCE_S)


def test_pages_come_again_until_they_are_done(broker_alone: Services, kafka: Kafka) -> None:
    """The next one comes after `done`; another receiver begins behind what was committed."""
    topics = StreamTopics(KafkaCluster(kafka))
    topics.make(INWARD)
    name = INWARD.topic(kafka.topic_prefix)
    write(broker_alone, name, ({"topic": "a"}, b"1"), ({"topic": "a"}, b"2"))

    first = _receive(kafka, topics)
    assert [record.value for record in first[1]] == [b"1", b"2"]
    again = _receive(kafka, topics, upto={0: 2})
    assert [record.value for record in again[1]] == [b"1", b"2"]
    write(broker_alone, name, ({"topic": "a"}, b"3"))

    assert [record.value for record in _receive(kafka, topics)[1]] == [b"3"]
    state = topics.state(name, group_of(kafka.topic_prefix))
    assert state is not None
    assert state.lag == 1


def _receive(kafka: Kafka, topics: StreamTopics, upto: dict[int, int] | None = None) -> tuple[int, Sequence[Incoming]]:
    """Take the first page, report it done if asked, and end."""
    pages: queue.Queue[tuple[int, Sequence[Incoming]]] = queue.Queue()
    receiver = KafkaReceiver(KafkaCluster(kafka), lambda call: call(), topics.make)
    receiver.start(lambda stream_id, page: pages.put((stream_id, page)))
    receiver.follow([INWARD])
    try:
        page = pages.get(timeout=PATIENCE_S)
        if upto is not None:
            receiver.done(INWARD.id, upto)
            deadline = time.monotonic() + PATIENCE_S
            state = topics.state(INWARD.topic(kafka.topic_prefix), group_of(kafka.topic_prefix))
            while state is None or state.lag != 0:
                assert time.monotonic() < deadline, receiver.trouble
                state = topics.state(INWARD.topic(kafka.topic_prefix), group_of(kafka.topic_prefix))
        return page
    finally:
        assert receiver.close(PATIENCE_S)
