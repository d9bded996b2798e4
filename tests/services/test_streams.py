"""Streams on the real Kafka: what devices publish is there in order, what applications write reaches devices; servers and hub are killed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iothub.base.units import Endpoint
from iothub.config.sections import Kafka
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.streams.kafka.topics import StreamTopics
from ops.services.services import Services
from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.night import by_day
from tests.support.servers.kafka import own_topics
from tests.support.servers.streams import Publisher, first_places, read_all, records_of, stream_hub, write
from tests.support.waiting import PATIENCE_S, until

SILENCE_S = 2.0  # of a broker: shorter than by default, for it is away in most tests
BESIDE_S = by_day(4.0, 8.0)  # a stream that was made again beside another one


@pytest.fixture
def hub(tmp_path: Path, broker_alone: Services) -> Iterator[Hub]:
    with own_topics(broker_alone, timeout_s=SILENCE_S) as kafka:
        made = stream_hub(tmp_path, kafka, queues__give_up="2m")
        made.prefix = kafka.topic_prefix  # type: ignore[attr-defined]
        yield made
        made.close()


def prefix(hub: Hub) -> str:
    return str(hub.prefix)  # type: ignore[attr-defined]


def client(hub: Hub, name: str, version: int = 5) -> RawClient:
    made = RawClient(hub.ports["tcp"], version, timeout=30)
    made.connect(name, "acme/dev1")
    return made


def test_a_message_is_in_kafka_when_its_publisher_hears_so(broker_alone: Services, hub: Hub) -> None:
    """Every QoS, with what a consumer needs to know; a stream that is made while the hub runs is applied by itself."""
    hub.start()
    hub.run("stream", "create", "acme", "telemetry", "sensors/#", "--partitions", "2")
    until(lambda: state(hub, "telemetry") == "working", "the hub knows the stream")
    topic = f"{prefix(hub)}.acme.telemetry"

    with client(hub, "c1") as publisher:
        publisher.publish("sensors/1", b"zero")
        publisher.publish("sensors/2", b"one", 1, 1, props=[(0x03, "text/plain"), (0x26, ("a", "b"))], retain=True)
        publisher.publish("sensors/3", b"two", 2, 2)
        publisher.publish("elsewhere", b"x", 1, 3)
        found = read_all(broker_alone, topic)

    assert [(key, value) for _, key, value in found] == [(b"c1", b"zero"), (b"c1", b"one"), (b"c1", b"two")]
    headers = found[1][0]
    assert {name: headers[name] for name in ("topic", "device", "client_id", "qos", "retain")} == {
        "topic": b"sensors/2",
        "device": b"dev1",
        "client_id": b"c1",
        "qos": b"1",
        "retain": b"1",
    }
    assert (headers["content_type"], headers["user.a"], len(headers["message_id"])) == (b"text/plain", b"b", 32)
    [row] = hub.rows("stream", "list", "acme")
    assert (row["name"], row["topic"]) == ("telemetry", topic)
    hub.run("stream", "delete", "acme", "telemetry", "--yes")
    time.sleep(1.0)
    with client(hub, "c1") as publisher:
        publisher.publish("sensors/1", b"gone", 1, 1)


def test_kill_of_kafka_and_of_the_hub_loses_nothing_and_keeps_the_order(broker_alone: Services, hub: Hub) -> None:
    """What was acknowledged is there; each publisher's messages came first in their order; others are not held up meanwhile."""
    hub.run("stream", "create", "acme", "telemetry", "sensors/#")
    hub.start()
    crowd = [Publisher(hub.ports["tcp"], f"p{number}", f"sensors/{number}", 1_500) for number in range(4)]
    for each in crowd:
        each.start()
    until(lambda: sum(each.acknowledged for each in crowd) > 800, "messages before the kills")

    broker_alone.kill("kafka")
    with client(hub, "other") as other:
        other.publish("elsewhere", b"x", 1, 1)
    broker_alone.up("kafka")
    before, returned = sum(each.acknowledged for each in crowd), time.monotonic()
    until(
        lambda: sum(each.acknowledged for each in crowd) > before, "acknowledgements after Kafka's return", PATIENCE_S
    )
    print(f"acknowledged {before} before, again {time.monotonic() - returned:.1f} s after Kafka's return")
    hub.kill()
    hub.start()
    until(lambda: all(each.acknowledged == each.count for each in crowd), "everything acknowledged")

    found = first_places(value for _, _, value in records_of(broker_alone, f"{prefix(hub)}.acme.telemetry"))
    assert found == {each.client_id: list(range(each.count)) for each in crowd}


def test_records_of_an_application_reach_devices(broker_alone: Services, hub: Hub) -> None:
    """Under the tenant's rules; what may not be published is put aside with its reason; a restart repeats nothing that was committed."""
    hub.run("stream", "create", "acme", "commands", "devices/#", "--direction", "in", "--partitions", "1")
    hub.run("acl", "deny", "acme", "stream:commands", "publish", "devices/secret")
    hub.start()
    topic = f"{prefix(hub)}.acme.commands.in"

    with client(hub, "d1") as device:
        device.subscribe(("devices/#", 1))
        write(
            broker_alone,
            topic,
            ({"topic": "devices/1", "qos": "1", "user.k": "v"}, b"go"),
            ({"topic": "devices/secret"}, b"no"),
            ({"topic": "elsewhere"}, b"no"),
            ({}, b"no"),
            ({"topic": "devices/2", "qos": "1"}, b"stop"),
        )
        taken = [device.expect(PUBLISH, 20) for _ in range(2)]
        for each in taken:
            device.ack(PUBACK, each.packet_id)

    assert [(each.topic, each.payload) for each in taken] == [("devices/1", b"go"), ("devices/2", b"stop")]
    until(lambda: len(read_all(broker_alone, f"{topic}.refused")) == 3, "what was put aside")
    refused = read_all(broker_alone, f"{topic}.refused")
    assert [headers["refused.reason"] for headers, _, _ in refused] == [b"denied", b"not_in_filter", b"malformed"]
    assert {key for _, key, _ in refused} == {None}  # as it was written
    until(
        lambda: json.loads(hub.run("-o", "json", "stream", "show", "acme", "commands").stdout)["lag"] == 0,
        "everything committed",
    )


def test_streams_without_traffic_are_told_of_while_kafka_is_gone(broker_alone: Services, hub: Hub) -> None:
    """In either direction: an alarm, and the state of each; both end when Kafka is back."""
    hub.run("stream", "create", "acme", "telemetry", "sensors/#")
    hub.run("stream", "create", "acme", "commands", "devices/#", "--direction", "in", "--partitions", "1")
    hub.start()
    until(lambda: states(hub) == ["working"] * 2, "both streams at work")

    broker_alone.kill("kafka")
    until(lambda: "streams_failed" in alarms(hub), "the alarm")
    outward, inward = states(hub)
    broker_alone.up("kafka")

    assert (outward.partition(":")[0], inward.partition(":")[0]) == ("held back", "stopped")
    until(lambda: not alarms(hub) and states(hub) == ["working"] * 2, "the end of the alarm")


@contextmanager
def kafka_gone(hub: Hub) -> Iterator[None]:
    """Commands find nobody where they look for Kafka, as when it was killed, and nobody waits for its return."""
    beside = hub.environment
    hub.environment = {**beside, "IOTHUB_KAFKA__BROKERS": '["127.0.0.1:1"]'}
    yield
    hub.environment = beside


def test_a_deletion_without_kafka_says_what_it_did_and_what_is_left(broker_alone: Services, hub: Hub) -> None:
    """And who repeats it later, or makes the stream again, hears of the topic that stayed."""
    hub.run("stream", "create", "acme", "telemetry", "sensors/#")
    hub.run("stream", "create", "acme", "commands", "devices/#", "--direction", "in")
    topic = f"{prefix(hub)}.acme.telemetry"
    delete = ("stream", "delete", "acme", "telemetry", "--yes")

    with kafka_gone(hub):
        first, again = (hub.run(*delete, check=False) for _ in range(2))
        inward = hub.run("stream", "delete", "acme", "commands", "--yes", check=False)
    later = hub.run(*delete, check=False)

    assert (first.returncode, inward.returncode) == (7, 7)
    assert "stream telemetry of tenant acme is deleted, its topic is not: Kafka at" in first.stderr
    pattern = f"{prefix(hub)}[.]acme"
    assert f"--delete --topic '{pattern}[.]telemetry'" in first.stderr
    assert f"--delete --topic '{pattern}[.]commands[.]in,{pattern}[.]commands[.]in[.]refused'" in inward.stderr
    assert (again.returncode, "whether its topic remains is unknown" in again.stderr) == (3, True)
    assert (later.returncode, f"--delete --topic '{pattern}[.]telemetry'" in later.stderr) == (3, True)
    assert hub.rows("stream", "list", "acme") == []
    made = hub.run("stream", "create", "acme", "telemetry", "sensors/#")
    assert f"topic {topic} exists already" in made.stderr
    hub.run(*delete)
    assert "stayed" not in hub.run(*delete, check=False).stderr


def state(hub: Hub, name: str) -> str:
    """What the hub says of a stream, while Kafka may be away."""
    shown = hub.run("-o", "json", "stream", "show", "acme", name, check=False)
    return str(json.loads(shown.stdout)["state"])


def states(hub: Hub) -> list[str]:
    """The same of the stream out and of the one in."""
    return [state(hub, name) for name in ("telemetry", "commands")]


def alarms(hub: Hub) -> list[str]:
    return [str(alarm["name"]) for alarm in json.loads(hub.run("-o", "json", "status", check=False).stdout)["alarms"]]


def test_a_deleted_tenant_leaves_no_topic(broker_alone: Services, hub: Hub, tmp_path: Path) -> None:
    """Its streams' topics go with it."""
    hub.start()
    hub.run("stream", "create", "acme", "telemetry", "#")
    hub.run("tenant", "delete", "acme", "--confirm", "acme")

    until(lambda: not any(row["name"] == "acme" for row in hub.rows("tenant", "list")), "the tenant is gone")

    assert not [name for name in topics(broker_alone) if name.startswith(f"{prefix(hub)}.acme.")]


def topics(services: Services) -> list[str]:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{services.ports.kafka}")
    try:
        return list(admin.list_topics())
    finally:
        admin.close()


def test_a_tenant_deleted_while_no_hub_runs_takes_its_topics_along(broker_alone: Services, hub: Hub) -> None:
    """The next start of the hub deletes them; Kafka is not asked before."""
    hub.run("tenant", "create", "other")
    for tenant in ("acme", "other"):
        hub.run("stream", "create", tenant, "telemetry", "#")
        hub.run("stream", "create", tenant, "commands", "#", "--direction", "in")
    names = [f"{prefix(hub)}.{tenant}.{name}" for tenant in ("acme", "other") for name in ("telemetry", "commands.in")]
    brokers = (Endpoint("127.0.0.1", broker_alone.ports.kafka),)
    topics = StreamTopics(KafkaCluster(Kafka(brokers, topic_prefix=prefix(hub))))
    assert topics.there(names) == names

    with kafka_gone(hub):
        away = [hub.run("tenant", "delete", tenant, "--confirm", tenant) for tenant in ("acme", "other")]

    assert all("the Kafka topics of its streams as soon as Kafka answers" in each.stderr for each in away)
    assert topics.there(names) == names
    hub.start()
    until(
        lambda: not {"acme", "other"} & {str(row["name"]) for row in hub.rows("tenant", "list")},
        "the end of the tenants",
        PATIENCE_S,
    )
    assert topics.there(names) == []


def test_a_stream_deleted_and_made_again_under_load_loses_and_doubles_nothing(broker_alone: Services, hub: Hub) -> None:
    """Neither its own messages that were acknowledged after the new one was there, nor those of another stream."""
    hub.run("stream", "create", "acme", "telemetry", "sensors/#")
    hub.run("stream", "create", "acme", "steady", "steady/#")
    hub.start()
    fickle = Publisher(hub.ports["tcp"], "p1", "sensors/1", 1_000_000)
    steady = Publisher(hub.ports["tcp"], "p2", "steady/1", 1_000_000)
    for each in (fickle, steady):
        each.start()
    until(lambda: min(fickle.acknowledged, steady.acknowledged) > 300, "messages before the deletion")

    hub.run("stream", "delete", "acme", "telemetry", "--yes")
    hub.run("stream", "create", "acme", "telemetry", "sensors/#", "--partitions", "2")
    time.sleep(2.0)
    first, before = fickle.acknowledged + fickle.window, steady.acknowledged
    time.sleep(BESIDE_S)
    until(lambda: fickle.acknowledged > first + 300, "messages to the new stream")
    until(lambda: steady.acknowledged > before + 300, "messages to the other stream")
    for each in (fickle, steady):
        each.is_stopped = True
        each.join(60)

    found = first_places(value for _, _, value in records_of(broker_alone, f"{prefix(hub)}.acme.telemetry"))["p1"]
    assert set(range(first, fickle.acknowledged)) <= set(found)
    values = [value for _, _, value in read_all(broker_alone, f"{prefix(hub)}.acme.steady")]
    assert len(values) == len(set(values)) >= steady.acknowledged
    assert (fickle.connections, steady.connections) == (1, 1)
