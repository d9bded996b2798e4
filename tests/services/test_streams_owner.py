"""Streams of two installations that were given the same Kafka and the same prefix: the second is refused, and takes and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.config.sections import Kafka
from ops.services.services import Services
from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.servers.kafka import own_topics
from tests.support.servers.streams import read_all, stream_hub, write
from tests.support.waiting import until

THEIRS = "b" * 32


@pytest.fixture
def kafka(broker_alone: Services) -> Iterator[Kafka]:
    with own_topics(broker_alone) as settings:
        yield settings


def hub_on(directory: Path, kafka: Kafka) -> Hub:
    directory.mkdir()
    return stream_hub(directory, kafka, queues__give_up="5s")


def stranger_on(directory: Path, kafka: Kafka) -> Hub:
    """Another installation: its accounts have another id."""
    hub = hub_on(directory, kafka)
    hub.run("db", "adopt", THEIRS)
    return hub


def alarms(hub: Hub) -> list[str]:
    status = json.loads(hub.run("-o", "json", "status", check=False).stdout)
    return [str(alarm["detail"]) for alarm in status["alarms"] if alarm["name"] == "streams_failed"]


def test_commands_for_streams_are_refused_on_the_kafka_of_another_installation(tmp_path: Path, kafka: Kafka) -> None:
    """Whoever makes a stream first has the prefix; others are told both ids, and what the first one has stays."""
    ours, stranger = hub_on(tmp_path / "ours", kafka), stranger_on(tmp_path / "stranger", kafka)
    ours.run("stream", "create", "acme", "telemetry", "sensors/#")

    refused = stranger.run("stream", "create", "acme", "telemetry", "sensors/#", check=False)
    own_id = json.loads(ours.run("-o", "json", "db", "status").stdout)["installation"]
    assert refused.returncode == 4
    assert own_id in refused.stderr
    assert THEIRS in refused.stderr
    assert stranger.rows("stream", "list", "acme") == []
    doctor = {row["name"]: row for row in json.loads(stranger.run("-o", "json", "doctor", check=False).stdout)}
    assert doctor["installation, Kafka"]["state"] == "warn"

    ours.run("db", "adopt", "c" * 32)  # the stream is there, and its Kafka is somebody else's by now
    show = ours.run("-o", "json", "stream", "show", "acme", "telemetry", check=False)
    assert (show.returncode, "belongs to installation" in show.stderr) == (4, True)
    delete = ours.run("stream", "delete", "acme", "telemetry", "--yes", check=False)
    assert (delete.returncode, "--keep-topic" in delete.stderr) == (4, True)
    doctor = {row["name"]: row for row in json.loads(ours.run("-o", "json", "doctor", check=False).stdout)}
    assert doctor["installation, Kafka"]["state"] == "FAIL"
    ours.run("db", "adopt", own_id)
    assert json.loads(ours.run("-o", "json", "stream", "show", "acme", "telemetry").stdout)["messages_in_topic"] == 0


def test_a_hub_serves_no_streams_on_the_kafka_of_another_installation(
    tmp_path: Path, broker_alone: Services, kafka: Kafka
) -> None:
    """Its streams were made before, on a Kafka of its own, say: nothing goes out, nothing comes in, and the alarm names both ids."""
    ours, stranger = hub_on(tmp_path / "ours", kafka), hub_on(tmp_path / "stranger", kafka)
    for hub in (ours, stranger):
        hub.run("stream", "create", "acme", "telemetry", "sensors/#")
        hub.run("stream", "create", "acme", "commands", "devices/#", "--direction", "in", "--partitions", "1")
    stranger.run("db", "adopt", THEIRS)
    topic = f"{kafka.topic_prefix}.acme"
    try:
        stranger.start()
        until(lambda: any(THEIRS in detail for detail in alarms(stranger)), "the alarm with both ids")
        with RawClient(stranger.ports["tcp"], 5) as client:
            client.connect("c1", "acme/dev1")
            client.subscribe(("devices/#", 1))
            client.send(client.publish_bytes("sensors/1", b"stray", 1, 1))
            write(broker_alone, f"{topic}.commands.in", ({"topic": "devices/1", "qos": "1"}, b"go"))
            assert client.expect(PUBACK, 20).code == 0x97
            assert [each.kind for each in client.received if each.kind == PUBLISH] == []
        ours.start()
        with RawClient(ours.ports["tcp"], 5) as client:
            client.connect("c1", "acme/dev1")
            client.subscribe(("devices/#", 1))
            write(broker_alone, f"{topic}.commands.in", ({"topic": "devices/1", "qos": "1"}, b"last"))
            assert client.expect(PUBLISH, 20).payload in (b"go", b"last")
        assert read_all(broker_alone, f"{topic}.telemetry") == []
    finally:
        ours.close()
        stranger.close()


def test_a_topic_that_is_there_already_is_told_of(tmp_path: Path, kafka: Kafka) -> None:
    """A new stream begins with what is in it."""
    hub = hub_on(tmp_path / "ours", kafka)
    hub.run("stream", "create", "acme", "telemetry", "sensors/#")
    hub.run("stream", "delete", "acme", "telemetry", "--keep-topic", "--yes")

    again = hub.run("stream", "create", "acme", "telemetry", "sensors/#")

    assert f"topic {kafka.topic_prefix}.acme.telemetry exists already" in again.stderr
