"""Clients of different hubs: everything between transient sessions is as on one hub. Whole planes in one process, routes between them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.base.reasons import Drop
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import PUBACK, PUBREC, SUBACK
from tests.support.in_process.clustered_harness import Cluster

NO_LOCAL, AS_PUBLISHED = 0x04, 0x08


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_at_one_hub_hears_a_client_at_the_other(cluster: Cluster, qos: int, version: int) -> None:
    """Its own QoS is the lower of the two, and the publisher's acknowledgement does not wait for the other hub."""
    here, there = cluster.join(0, "here", version), cluster.join(1, "there", version)
    cluster.subscribe(there, ("a/+", 2), ("b", 0))

    here.send(here.publish_bytes("a/1", b"one", qos, 1))
    here.send(here.publish_bytes("b", b"two", qos, 2))

    assert [(each.payload, each.qos) for each in cluster.take(there)] == [(b"one", qos), (b"two", 0)]
    kinds = [each.kind for each in here.fence()]
    assert kinds == {0: [], 1: [PUBACK] * 2, 2: [PUBREC] * 2}[qos]


def test_both_ways_at_once(cluster: Cluster) -> None:
    clients = [cluster.join(number, f"c{number}") for number in range(2)]
    for client in clients:
        cluster.subscribe(client, ("#", 1))

    for number, client in enumerate(clients):
        client.send(client.publish_bytes("t", b"%d" % number, 1, 1))

    assert [sorted(cluster.payloads(client)) for client in clients] == [[b"0", b"1"]] * 2


def test_subscribes_that_wait_for_another_hub_are_counted(cluster: Cluster) -> None:
    """Until it has applied the route, or is gone."""
    one, two = cluster.hubs
    cluster.join(1, "there")
    client = cluster.join(0, "here")
    cluster.net.cut.add((one.id, two.id))
    client.send_subscribe(("a", 1), packet_id=10)
    cluster.settle()
    waiting = one.harness.hub.awaiting_peers

    cluster.net.cut.clear()
    cluster.settle()

    assert (waiting, one.harness.hub.awaiting_peers) == (1, 0)
    client.expect(SUBACK)


def test_no_local_is_of_the_subscription_wherever_the_message_comes_from(cluster: Cluster) -> None:
    """[MQTT-3.8.3-3]: it leaves out the client's own messages, not its hub's."""
    here, there = cluster.join(0, "here"), cluster.join(1, "there")
    for client in (here, there):
        cluster.subscribe(client, ("t", NO_LOCAL))

    here.send(here.publish_bytes("t", b"x"))

    assert (cluster.payloads(here), cluster.payloads(there)) == ([], [b"x"])


def test_retain_as_published_crosses_hubs(cluster: Cluster) -> None:
    """[MQTT-3.3.1-12] [MQTT-3.3.1-13]."""
    here, plain, kept = cluster.join(0, "here"), cluster.join(1, "plain"), cluster.join(1, "kept")
    cluster.subscribe(plain, ("t", 0))
    cluster.subscribe(kept, ("t", AS_PUBLISHED))

    here.send(here.publish_bytes("t", b"x", retain=True))

    assert [[each.retain for each in cluster.take(client)] for client in (plain, kept)] == [[False], [True]]


def test_identifiers_and_properties_cross_hubs(cluster: Cluster) -> None:
    """The receiver's Subscription Identifier, the publisher's properties."""
    here, there = cluster.join(0, "here"), cluster.join(1, "there")
    cluster.subscribe(there, ("t", 0), props=[(names.SUBSCRIPTION_ID, 7)])

    here.send(here.publish_bytes("t", b"x", props=[(names.CONTENT_TYPE, "text")]))

    [packet] = cluster.take(there)
    assert packet.property(names.SUBSCRIPTION_ID) == 7
    assert packet.property(names.CONTENT_TYPE) == "text"


def test_a_will_is_heard_at_the_other_hub(cluster: Cluster) -> None:
    """Of a transient session whose connection breaks."""
    there = cluster.join(1, "there")
    cluster.subscribe(there, ("will", 1))
    here = cluster.join(0, "here", will=("will", b"gone", 1, False))

    here.close()

    assert cluster.payloads(there) == [b"gone"]


def test_after_an_unsubscribe_nothing_comes(cluster: Cluster) -> None:
    """A 5.0 publisher hears that there is no matching subscriber, as on one hub."""
    here, there = cluster.join(0, "here"), cluster.join(1, "there")
    cluster.subscribe(there, ("t", 1))
    there.send_unsubscribe("t", packet_id=1)
    cluster.settle()
    there.fence()

    here.send(here.publish_bytes("t", b"x", 1, 1))

    assert cluster.payloads(there) == []
    assert [each.code for each in here.fence()] == [0x10]


def test_a_client_that_leaves_takes_its_routes_with_it(cluster: Cluster) -> None:
    here, there = cluster.join(0, "here"), cluster.join(1, "there")
    cluster.subscribe(there, ("t", 1), ("u/#", 0))
    there.close()
    cluster.settle()

    here.send(here.publish_bytes("t", b"x", 1, 1))
    cluster.settle()

    assert [each.code for each in here.fence()] == [0x10]
    assert cluster.hubs[0].harness.acme.plane.router.subscription_count == 0


def test_a_persistent_session_gets_qos_0_from_the_other_hub_while_it_is_online(cluster: Cluster) -> None:
    here, there = cluster.join(0, "here"), cluster.join(1, "there", props=[(names.SESSION_EXPIRY, 100)])
    cluster.subscribe(there, ("t", 0))

    here.send(here.publish_bytes("t", b"0") + here.publish_bytes("t", b"1", 1, 1))
    assert cluster.payloads(there) == [b"0", b"1"]
    there.close()
    cluster.settle()
    here.send(here.publish_bytes("t", b"2"))
    cluster.settle()

    assert cluster.hubs[1].harness.recorder.drops == []
    assert cluster.hubs[0].harness.recorder.drops == [(Drop.NO_SUBSCRIBERS, 1)]


def test_tenants_are_apart(cluster: Cluster) -> None:
    """The same Topic Filter and the same Client Identifier in another tenant."""
    here = cluster.join(0, "c", username="acme/dev1")
    mine, others = cluster.join(1, "s", username="acme/dev1"), cluster.join(1, "s", username="beta/dev1")
    for client in (mine, others):
        cluster.subscribe(client, ("#", 0))

    here.send(here.publish_bytes("t", b"x"))

    assert (cluster.payloads(mine), cluster.payloads(others)) == ([b"x"], [])


def test_rights_are_checked_at_both_hubs(cluster: Cluster) -> None:
    """Who may not publish is refused at its hub, and nothing crosses; the receiver's right is asked at its own."""
    here, there = cluster.join(0, "here"), cluster.join(1, "there")
    cluster.subscribe(there, ("t", 0))
    cluster.hubs[0].links.sent.clear()

    here.send(here.publish_bytes("$t", b"x", 1, 1))
    cluster.settle()

    assert [each.code for each in here.fence()] == [0x87]
    assert cluster.hubs[0].links.sent == []


def test_hubs_come_and_go_and_clients_hear_each_other(tmp_path: Path) -> None:
    """A third hub joins a tenant that is open at two; then one is killed."""
    cluster = Cluster(tmp_path, 3)
    clients = [cluster.join(number, f"c{number}") for number in range(3)]
    for client in clients:
        cluster.subscribe(client, ("t", 1))
    clients[0].send(clients[0].publish_bytes("t", b"all", 1, 1))
    assert [cluster.payloads(client) for client in clients] == [[b"all"]] * 3

    cluster.net.kill(cluster.hubs[2])
    clients[0].send(clients[0].publish_bytes("t", b"two", 1, 2))

    assert [cluster.payloads(client) for client in clients[:2]] == [[b"two"]] * 2
    cluster.close()


def test_a_thousand_subscribe_then_publish_races_miss_nothing(cluster: Cluster) -> None:
    """A publisher at the other hub that begins when the SUBACK is there reaches the subscriber exactly once."""
    rng = random.Random(1)
    clients = [cluster.join(number, f"c{number}") for number in range(2)]
    missed = 0
    for number in range(1000):
        at = rng.randrange(2)
        subscriber, publisher = clients[at], clients[1 - at]
        topic = f"race/{number}"
        topic_filter = rng.choice((topic, f"race/{number}/#", f"+/{number}"))
        subscriber.send_subscribe((topic_filter, 1), packet_id=1)
        while not written(subscriber):
            cluster.net.turn()
            for way in ((0, 1), (1, 0)):
                source, target = (cluster.hubs[each].id for each in way)
                (cluster.net.deliver if rng.random() < 0.5 else cluster.net.acknowledge)(source, target)
        publisher.send(publisher.publish_bytes(topic, b"x", 1, 1))
        packets = cluster.take(subscriber)
        missed += [packet.payload for packet in packets] != [b"x"]
        for packet in packets:
            subscriber.complete(packet)
        subscriber.send_unsubscribe(topic_filter, packet_id=2)
        subscriber.fence()
        publisher.fence()

    assert missed == 0


def written(client: Client) -> bytes:
    """What its hub has written to it, and it has not read."""
    return bytes(client.stream.transport.written)  # type: ignore[attr-defined]
