"""Whose the topics of a prefix are: the first record of a topic of its own says it, and nobody takes its place."""

from __future__ import annotations

import pytest
from kafka.errors import TopicAuthorizationFailedError

from iothub.base.errors import BackendError, ConflictError, CorruptRecordError
from iothub.records.owner import Owner, encode_owner
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.kafka.owner import PrefixOwner
from tests.support.servers.fake_kafka import SETTINGS, FakeCluster

OURS, THEIRS = Owner("a" * 32, "one", 1), Owner("b" * 32, "two", 2)
TOPIC = "iothub.installation"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def log_of(cluster: FakeCluster, *, is_read_only: bool = False) -> KafkaEvents:
    return KafkaEvents(SETTINGS, cluster=cluster, is_read_only=is_read_only)


def test_topics_of_nobody_are_taken_once(cluster: FakeCluster) -> None:
    """Whoever comes second hears who was first, and writes nothing; who only looks makes nothing."""
    assert log_of(cluster, is_read_only=True).owner() is None
    assert cluster.topics == {}

    assert log_of(cluster).claim(OURS) == OURS
    assert log_of(cluster).claim(THEIRS) == OURS
    assert log_of(cluster, is_read_only=True).owner() == OURS
    assert cluster.topics[TOPIC].partitions == [[encode_owner(OURS)]]


def test_nothing_is_ever_removed_from_the_topic(cluster: FakeCluster) -> None:
    log_of(cluster).claim(OURS)

    settings = cluster.topics[TOPIC].settings
    assert (settings["cleanup.policy"], settings["retention.ms"], settings["retention.bytes"]) == ("delete", "-1", "-1")


def test_of_two_who_find_it_empty_the_first_record_counts(cluster: FakeCluster) -> None:
    """Both write; both read the same."""
    topic = cluster.make(TOPIC, 1, {})
    topic.partitions[0].append(encode_owner(THEIRS))
    topic.partitions[0].append(encode_owner(OURS))

    assert log_of(cluster).claim(OURS) == THEIRS


def test_claim_without_an_answer_is_made_again(cluster: FakeCluster) -> None:
    """The same record waits for its answer: it is in the topic once."""
    log = log_of(cluster)
    cluster.refusals[encode_owner(OURS)] = TopicAuthorizationFailedError(TOPIC)
    with pytest.raises(BackendError) as caught:
        log.claim(OURS)

    assert caught.value.retryable
    assert log.claim(OURS) == OURS
    assert cluster.topics[TOPIC].partitions == [[encode_owner(OURS)]]


def test_cluster_that_makes_no_topic_is_told(cluster: FakeCluster) -> None:
    cluster.create_error = 38  # InvalidReplicationFactorError

    with pytest.raises(ConflictError, match=r"Kafka refuses to make topic iothub\.installation with 1 partition and"):
        log_of(cluster).claim(OURS)


def test_damaged_word_is_refused_by_name(cluster: FakeCluster) -> None:
    cluster.make(TOPIC, 1, {}).partitions[0].append(b"what?")

    with pytest.raises(CorruptRecordError, match=r"^topic iothub\.installation: the owner record is damaged"):
        log_of(cluster).owner()


def test_who_has_no_log_asks_and_takes_as_well(cluster: FakeCluster) -> None:
    """And leaves no client behind."""
    streams = PrefixOwner(cluster)
    assert (streams.owner(), cluster.topics) == (None, {})

    assert streams.claim(OURS) == OURS
    assert (log_of(cluster).claim(THEIRS), streams.claim(THEIRS), streams.owner()) == (OURS, OURS, OURS)


def test_log_is_opened_and_read_beside_it(cluster: FakeCluster) -> None:
    """One reader serves both."""
    log = log_of(cluster)
    assert log.owner() is None
    log.open()
    assert log.claim(OURS) == OURS

    assert log.read((), 10) == []
    assert sorted(cluster.topics) == [TOPIC, "iothub.session-events"]
