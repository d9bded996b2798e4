"""A tenant with streams is deleted while no hub runs: its topics go with it, or it waits for them, or they are told of."""

from __future__ import annotations

import pytest

from iothub.cli import stores, stream_topics
from iothub.config.datadir import DataDir
from iothub.records.message import StoredMessage, encode_message
from iothub.records.owner import Owner
from iothub_services.events.kafka import cluster as kafka_cluster
from iothub_services.events.kafka.owner import PrefixOwner
from iothub_services.retained.port import RetainedWrite
from tests.support.answering import AnsweringHub
from tests.support.command import Cli
from tests.support.fake_kafka import FakeCluster

DELETE = ("tenant", "delete", "acme", "--confirm", "acme")
TOPICS = ["iothub.acme.commands.in", "iothub.acme.commands.in.refused", "iothub.acme.telemetry"]
NOT_AUTHORIZED = 29


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


def test_topics_go_with_their_tenant(acme: Cli, cluster: FakeCluster) -> None:
    """Another tenant's stay."""
    assert topics(cluster) == TOPICS

    assert "deleted tenant acme" in acme(*DELETE).err

    assert topics(cluster) == []
    assert "iothub.other.telemetry" in cluster.topics
    acme("tenant", "show", "acme", code=3)


@pytest.mark.parametrize("why", ["no answer", "TopicAuthorizationFailedError"])
def test_tenant_waits_for_its_topics_with_empty_stores(acme: Cli, cluster: FakeCluster, why: str) -> None:
    """The command says what to do, and does it when it is repeated."""
    keep(acme)
    cluster.is_away, cluster.delete_error = why == "no answer", NOT_AUTHORIZED

    told = [acme(*DELETE, code=7).err for _ in range(2)]

    assert told[0] == told[1]
    assert "tenant acme is being deleted, its name is not free yet: its devices and stored messages are gone" in told[0]
    assert "the topics of its streams are not, for Kafka at kafka-1:9092" in told[0]
    assert why in told[0]
    assert f"repeat `iothub --data-dir {acme.data_dir} tenant delete acme --confirm acme`" in told[0]
    assert kept(acme) == 0
    assert acme("tenant", "show", "acme", "-o", "json").json["state"] == "deleting"
    assert topics(cluster) == TOPICS

    cluster.is_away, cluster.delete_error = False, 0
    acme(*DELETE)

    assert topics(cluster) == []
    acme("tenant", "create", "acme")


def test_topics_of_another_installation_stay_and_are_named(acme: Cli, cluster: FakeCluster) -> None:
    """The name is free, as when a hub deletes the tenant."""
    del cluster.topics["iothub.installation"]
    PrefixOwner(cluster).claim(Owner("b" * 32, "far", 0))

    told = acme(*DELETE).err

    assert "the topics of tenant acme stay" in told
    assert "belongs to installation bbbb" in told
    pattern = ",".join(topics(cluster)).replace(".", "[.]")
    assert f"kafka-topics.sh --bootstrap-server kafka-1:9092 --delete --topic '{pattern}'" in told
    assert topics(cluster) == TOPICS
    acme("tenant", "show", "acme", code=3)


def test_without_its_packages_nothing_is_deleted(
    acme: Cli, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a tenant without streams, and any that a running hub deletes."""
    monkeypatch.setattr("iothub.hub.stream_drivers.find_spec", lambda _package: None)
    monkeypatch.setattr(stream_topics, "reached", lambda _app: pytest.fail("Kafka is not asked"))
    monkeypatch.setattr("iothub.cli.leftovers.COMMAND_TIMEOUT_S", 0.0)
    acme("tenant", "create", "plain")

    refused = acme(*DELETE, code=2).err
    acme("tenant", "delete", "plain", "--confirm", "plain")

    assert "tenant acme has streams" in refused
    assert "pip install 'iothub[kafka]'" in refused
    assert acme("tenant", "show", "acme", "-o", "json").json["state"] == "active"
    assert topics(cluster) == TOPICS
    with AnsweringHub(acme.data_dir, None):
        assert "is being deleted" in acme(*DELETE).err


def test_hub_that_waits_for_kafka_has_topics_to_delete(
    acme: Cli, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are named: the name is free when they are gone."""
    monkeypatch.setattr("iothub.cli.leftovers.COMMAND_TIMEOUT_S", 0.0)

    with AnsweringHub(acme.data_dir, None):
        told = acme(*DELETE).err

    assert "its stored messages follow, and the topics of its streams in Kafka as soon as the hub reaches it" in told
    assert all(topic in told for topic in topics(cluster))
    assert "the name is free after that" in told


def test_without_brokers_the_topics_are_told_of(
    acme: Cli, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever imported a tenant with streams, or gave Kafka up, can delete it."""
    monkeypatch.delenv("IOTHUB_KAFKA__BROKERS")

    told = acme(*DELETE).err

    assert "kafka.brokers is not set" in told
    assert all(topic in told for topic in topics(cluster))
    acme("tenant", "show", "acme", code=3)


def keep(acme: Cli) -> None:
    """Store a retained message of the tenant."""
    (tenant_id,) = (row["id"] for row in acme.rows("tenant", "list") if row["name"] == "acme")
    record = encode_message(StoredMessage(b"a/b", b"kept", 1, True, b"", 0, b"", "c1"))
    with stores.working_alone(DataDir(acme.data_dir), "iothub test") as opened:
        assert opened is not None
        opened.retained.put([RetainedWrite(tenant_id, b"a/b", record)])
    assert kept(acme) == 1


def kept(acme: Cli) -> int:
    return len(acme.rows("retain", "list", "acme"))
