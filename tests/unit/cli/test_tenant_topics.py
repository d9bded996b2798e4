"""A tenant with streams is deleted: the hub deletes their topics, and the command names them."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from iothub.cli import stream_topics
from iothub_services.events.kafka import cluster as kafka_cluster
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli
from tests.support.servers.fake_kafka import FakeCluster

DELETE = ("tenant", "delete", "acme", "--confirm", "acme")
TOPICS = ["iothub.acme.commands.in", "iothub.acme.commands.in.refused", "iothub.acme.telemetry"]


@pytest.fixture
def cluster(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """A Kafka in which `acme` has a stream of each direction, and `other` one."""
    made = FakeCluster()
    monkeypatch.setattr(kafka_cluster, "KafkaCluster", lambda _settings: made)
    monkeypatch.setenv("IOTHUB_KAFKA__BROKERS", '["kafka-1:9092"]')
    acme("tenant", "create", "other")
    acme("stream", "create", "acme", "telemetry", "sensors/#")
    acme("stream", "create", "acme", "commands", "devices/#", "--direction", "in")
    acme("stream", "create", "other", "telemetry", "#")
    return made


def topics(cluster: FakeCluster) -> list[str]:
    return sorted(name for name in cluster.topics if name.startswith("iothub.acme."))


@pytest.mark.parametrize("is_hub_running", [True, False])
def test_topics_are_named_and_left_to_the_hub(
    acme: Cli, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, is_hub_running: bool
) -> None:
    """It may wait for Kafka: the name is free when they are gone."""
    monkeypatch.setattr("iothub.cli.deletion.COMMAND_TIMEOUT_S", 0.0)
    monkeypatch.setattr(stream_topics, "reached", lambda _app: pytest.fail("Kafka is not asked"))

    with AnsweringHub(acme.data_dir) if is_hub_running else nullcontext():
        output = acme(*DELETE).err

    assert "and the Kafka topics of its streams as soon as Kafka answers: " in output
    assert all(topic in output for topic in TOPICS)
    assert ("no hub runs" in output) is not is_hub_running
    assert "then the name is free" in output
    assert topics(cluster) == TOPICS


def test_without_brokers_no_topic_is_named(acme: Cli, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub has no Kafka either, and says so."""
    monkeypatch.delenv("IOTHUB_KAFKA__BROKERS")

    output = acme(*DELETE).err

    assert topics(cluster) == TOPICS
    assert "Kafka" not in output
