"""Our topics: their names and settings, which of those an existing one must have, and what is made of a refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iothub.base.errors import BackendError, ConflictError
from iothub.records.events import Topic
from iothub_services.events.kafka.topics import (
    KafkaTopic,
    faults,
    find_topics,
    open_topics,
    topic_name,
    wanted_settings,
)
from tests.support.servers.fake_kafka import SETTINGS, FakeAdmin, FakeCluster

LOG = "iothub.session-events"


def test_topics_are_named_after_the_prefix() -> None:
    """Two hubs that have nothing to do with each other share a cluster."""
    settings = replace(SETTINGS, topic_prefix="north")

    assert topic_name(settings, Topic.SESSIONS) == "north.session-events"
    assert topic_name(settings, Topic.SESSIONS, 3) == "north.session-events.3"
    assert topic_name(settings, Topic.ANALYTICS) == "north.analytics-events"


def test_session_log_keeps_everything() -> None:
    """Only we trim it; analytics go by time."""
    log, analytics = (wanted_settings(SETTINGS, topic) for topic in (Topic.SESSIONS, Topic.ANALYTICS))

    assert (log["cleanup.policy"], log["retention.ms"], log["retention.bytes"]) == ("delete", "-1", "-1")
    assert analytics["retention.ms"] == str(7 * 86400 * 1000)


@pytest.mark.parametrize(("replication", "least"), [(1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_two_copies_are_written_before_it_is_acknowledged_where_there_are_three(replication: int, least: str) -> None:
    """One may then be lost, and one may be away."""
    wanted = wanted_settings(replace(SETTINGS, replication=replication), Topic.SESSIONS)

    assert wanted["min.insync.replicas"] == least


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
        ("max.message.bytes", "1048588"),
    ],
)
def test_setting_that_loses_events_is_a_fault(name: str, value: str) -> None:
    settings = replace(SETTINGS, replication=3)
    wanted = wanted_settings(settings, Topic.SESSIONS)
    assert faults(settings, wanted) == []

    assert faults(settings, wanted | {name: value}) == [f"{name}={value}, needed is {wanted[name]}"]


def test_stricter_setting_is_no_fault() -> None:
    wanted = wanted_settings(SETTINGS, Topic.SESSIONS)

    assert (
        faults(SETTINGS, wanted | {"min.insync.replicas": "2", "max.message.bytes": "9999999", "segment.bytes": "1"})
        == []
    )


def test_missing_topics_are_made_and_the_newest_generation_is_taken() -> None:
    cluster = FakeCluster()
    assert open_topics(cluster)[Topic.SESSIONS] == KafkaTopic(LOG, 3, 0, cluster.topics[LOG].topic_id)
    open_topics(cluster, 2)
    cluster.make(f"{LOG}.old", 3, {})

    found = open_topics(cluster)

    assert found[Topic.SESSIONS] == KafkaTopic(f"{LOG}.2", 3, 2, cluster.topics[f"{LOG}.2"].topic_id)
    assert found[Topic.SESSIONS].base == (2 << 40) + 1
    assert find_topics(cluster) == found


def test_other_number_of_partitions_is_refused() -> None:
    """A key would be looked for elsewhere."""
    cluster = FakeCluster(replace(SETTINGS, partitions=8))
    cluster.make(LOG, 3, wanted_settings(SETTINGS, Topic.SESSIONS))

    with pytest.raises(ConflictError, match=f"topic {LOG} has 3 partitions, kafka.partitions says 8: set it to 3"):
        open_topics(cluster)


def test_fewer_copies_than_configured_are_refused() -> None:
    cluster = FakeCluster(replace(SETTINGS, replication=3))
    cluster.make(LOG, 3, wanted_settings(cluster.settings, Topic.SESSIONS), copies=1)

    with pytest.raises(ConflictError, match=r"has 1 replica, kafka\.replication is 3"):
        open_topics(cluster)


def test_another_hub_may_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both make the topic, one is told that it is there."""
    cluster = FakeCluster()
    for topic in Topic:
        cluster.make(topic_name(SETTINGS, topic), 3, wanted_settings(SETTINGS, topic))
    cluster.create_error = 36  # TOPIC_ALREADY_EXISTS
    monkeypatch.setattr(FakeAdmin, "list_topics", lambda _: [])

    assert open_topics(cluster)[Topic.SESSIONS].partitions == 3


@pytest.mark.parametrize(("code", "error"), [(38, ConflictError), (29, ConflictError), (7, BackendError)])
def test_refused_topic_is_explained(code: int, error: type[Exception]) -> None:
    """Settings that cannot be met and missing rights end the start; a time-out is tried again."""
    cluster = FakeCluster()
    cluster.create_error = code

    with pytest.raises(error, match="because"):
        open_topics(cluster)
