"""PUBLISH at every Quality of Service, both ways, while everybody stays connected."""

from __future__ import annotations

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import Clients
from tests.support.clients.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL

QOS = pytest.mark.parametrize("qos", [0, 1, 2])


@QOS
def test_publish_is_delivered_at_the_lower_qos(join: Clients, version: int, qos: int) -> None:
    """Three subscribers, one for each granted QoS; each publication is answered according to its own.

    [MQTT-3.3.4-1] [MQTT-3.8.4-7] [MQTT-3.8.4-8] [MQTT-4.5.0-1] [MQTT-3.3.2-3] [MQTT3-3.3.4-1] [MQTT3-3.8.4-6] [MQTT3-4.5.0-1] [MQTT3-3.3.2-3]
    [MQTT3-4.3.2-2] [MQTT3-4.3.3-1] [MQTT3-4.3.2-1]
    """
    topic, publisher = unique("t"), join(version)
    subscribers = [join(version) for _ in range(3)]
    for granted, subscriber in enumerate(subscribers):
        assert subscriber.subscribe((topic, granted)).codes == [granted]

    publisher.publish(topic, b"hello", qos, packet_id=77)

    for granted, subscriber in enumerate(subscribers):
        (got,) = subscriber.take()
        assert (got.topic, got.payload, got.qos) == (topic, b"hello", min(qos, granted))
        assert (got.retain, got.dup) == (False, False)
        assert bool(got.packet_id) == bool(got.qos)
        subscriber.nothing()


@pytest.mark.parametrize("publishing", [3, 4, 5])
@pytest.mark.parametrize("receiving", [3, 4, 5])
def test_versions_understand_each_other(join: Clients, publishing: int, receiving: int) -> None:
    """A message of any version reaches a subscriber of any other; what only 5.0 knows stays in 5.0. [MQTT-3.3.2-3] [MQTT3-3.3.2-3]."""
    topic, publisher, subscriber = unique("t"), join(publishing), join(receiving)
    subscriber.subscribe((topic, 2))
    props = [(names.CONTENT_TYPE, "text/plain")] if publishing == 5 else None

    for qos in range(3):
        publisher.publish(topic, b"%d" % qos, qos, props=props)

    got = subscriber.take(3)
    assert [(packet.payload, packet.qos) for packet in got] == [(b"0", 0), (b"1", 1), (b"2", 2)]
    assert {packet.property(names.CONTENT_TYPE) for packet in got} == {
        "text/plain" if publishing == receiving == 5 else None
    }


def test_empty_and_big_payloads_pass(join: Clients, version: int) -> None:
    """Zero bytes, every byte value, and more than one buffer's worth. [MQTT-4.2.0-1] [MQTT3-7.1.1-1]."""
    topic, publisher, subscriber = unique("t"), join(version), join(version)
    subscriber.subscribe((topic, 1))
    payloads = [b"", bytes(range(256)), b"x" * 127, b"y" * 128, b"z" * 16384, bytes(range(256)) * 1200]

    for payload in payloads:
        publisher.publish(topic, payload, 1)

    assert subscriber.payloads(len(payloads)) == payloads


@QOS
def test_pipelined_publications_keep_their_order(join: Clients, version: int, qos: int) -> None:
    """Fifty in one write, received in order at the subscriber's QoS; the acknowledgements leave in the order of the PUBLISH packets.

    [MQTT-4.6.0-5] [MQTT-4.6.0-6] [MQTT3-4.6.0-5] [MQTT3-4.6.0-6] [MQTT-4.5.0-1]
    """
    topic, publisher, subscriber = unique("t"), join(version), join(version)
    subscriber.subscribe((topic, 2))
    count = 50

    publisher.send(b"".join(publisher.publish_bytes(topic, b"%d" % n, qos, n + 1) for n in range(count)))

    if qos:
        answers = [publisher.expect(PUBACK if qos == 1 else PUBREC).packet_id for _ in range(count)]
        assert answers == list(range(1, count + 1))
    if qos == 2:
        for number in range(count):
            publisher.ack(PUBREL, number + 1)
        assert [publisher.expect(PUBCOMP).packet_id for _ in range(count)] == answers
    got = subscriber.take(count)
    assert [packet.payload for packet in got] == [b"%d" % n for n in range(count)]
    assert {packet.qos for packet in got} == {qos}


def test_order_holds_for_each_of_many_publishers(tcp: Clients, version: int) -> None:
    """Three publishers at once to one wildcard subscriber. [MQTT-4.6.0-5] [MQTT3-4.6.0-6]."""
    root, subscriber = unique("t"), tcp(version)
    subscriber.subscribe((f"{root}/+", 1))
    publishers = [tcp(version) for _ in range(3)]

    for start in range(0, 30, 10):
        for name, publisher in enumerate(publishers):
            numbers = range(start, start + 10)
            publisher.send(b"".join(publisher.publish_bytes(f"{root}/{name}", b"%d" % n, 1, n + 1) for n in numbers))

    got = subscriber.take(90)
    for name in range(3):
        mine = [packet.payload for packet in got if packet.topic == f"{root}/{name}"]
        assert mine == [b"%d" % n for n in range(30)]


def test_incoming_dup_is_not_passed_on(join: Clients, version: int) -> None:
    """The outgoing flag has its own meaning: first delivery. [MQTT-3.3.1-3] [MQTT3-3.3.1-3] [MQTT-4.3.2-2] [MQTT-4.3.3-2]."""
    topic, publisher, subscriber = unique("t"), join(version), join(version)
    subscriber.subscribe((topic, 2))

    publisher.publish(topic, b"1", 1, dup=True)
    publisher.publish(topic, b"2", 2, dup=True)

    assert [packet.dup for packet in subscriber.take(2)] == [False, False]


def test_packet_identifiers_of_deliveries_are_unused_and_not_zero(join: Clients, version: int) -> None:
    """[MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT3-2.3.1-4]."""
    topic, publisher, subscriber = unique("t"), join(version), join(version)
    subscriber.subscribe((topic, 2))

    for number in range(12):
        publisher.publish(topic, b"", 1 + number % 2)

    identifiers = [packet.packet_id for packet in subscriber.get(12)]
    assert len(set(identifiers)) == 12
    assert 0 not in identifiers


def test_identifiers_of_both_directions_are_independent(join: Clients, version: int) -> None:
    """A client may use for its own PUBLISH the Packet Identifier that the hub is using. [MQTT-2.2.1-5] [MQTT3-2.3.1-6]."""
    topic, client = unique("t"), join(version)
    client.subscribe((topic, 1))
    client.publish(topic, b"1", 1, packet_id=1)
    (first,) = client.get()

    client.publish(topic, b"2", 1, packet_id=first.packet_id)

    client.complete(first)
    assert client.payloads() == [b"2"]


def test_acknowledgements_of_nothing_are_ignored(join: Clients, version: int) -> None:
    """PUBACK and PUBCOMP of an identifier that is not in use change nothing; in 5.0 PUBREC and PUBREL are answered with 0x92. §4.3.3."""
    client = join(version)

    client.ack(PUBACK, 999)
    client.ack(PUBCOMP, 999)
    client.nothing()
    client.ack(PUBREL, 998)
    completed = client.expect(PUBCOMP)
    assert (completed.packet_id, completed.code) == (998, 0x92 if version == 5 else 0)


def test_pubrec_of_nothing_in_5_0(tcp: Clients) -> None:
    """§3.6.2.1: the receiver of an unknown PUBREC says so in PUBREL."""
    client = tcp(5)

    client.ack(PUBREC, 997)

    released = client.expect(PUBREL)
    assert (released.packet_id, released.code) == (997, 0x92)


def test_qos_2_from_a_client_is_routed_once(join: Clients, version: int) -> None:
    """A repeated PUBLISH gets PUBREC again and is no second message; after PUBCOMP the identifier means a new one.

    [MQTT-4.3.3-8] [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12] [MQTT3-4.3.3-2] [MQTT-2.2.1-5]
    """
    topic, publisher, subscriber = unique("t"), join(version), join(version)
    subscriber.subscribe((topic, 2))

    for dup in (False, True, True):
        publisher.send(publisher.publish_bytes(topic, b"once", 2, 7, dup=dup))
        answer = publisher.expect(PUBREC)
        assert (answer.packet_id, answer.code) == (7, 0)
    for _ in range(2):
        publisher.ack(PUBREL, 7)
        assert publisher.expect(PUBCOMP).packet_id == 7
    publisher.publish(topic, b"next", 2, packet_id=7)

    assert subscriber.payloads(2) == [b"once", b"next"]
    subscriber.nothing()


def test_qos_2_to_a_client_takes_four_steps(join: Clients, version: int) -> None:
    """PUBREC is answered with PUBREL, PUBCOMP ends it, and on a live connection nothing is ever sent twice.

    [MQTT-4.3.3-3] [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-4.3.3-6] [MQTT-4.4.0-1] [MQTT3-4.3.3-1] [MQTT-2.2.1-5]
    """
    topic, publisher, subscriber = unique("t"), join(version), join(version)
    subscriber.subscribe((topic, 2))
    publisher.publish(topic, b"x", 2)
    (got,) = subscriber.get()
    subscriber.nothing()

    subscriber.ack(PUBREC, got.packet_id)
    released = subscriber.expect(PUBREL)

    assert (released.packet_id, released.flags) == (got.packet_id, 2)
    subscriber.nothing()
    subscriber.ack(PUBCOMP, got.packet_id)
    subscriber.nothing()


def test_failed_pubrec_ends_the_delivery(join: Clients) -> None:
    """A 5.0 subscriber that says 0x80 gets no PUBREL, and the identifier is free. [MQTT-4.3.3-4] [MQTT-4.3.3-9] [MQTT-4.4.0-2]."""
    topic, publisher, subscriber = unique("t"), join(5), join(5, props=[(names.RECEIVE_MAXIMUM, 1)])
    subscriber.subscribe((topic, 2))
    publisher.publish(topic, b"1", 2)
    publisher.publish(topic, b"2", 2, packet_id=2)
    (first,) = subscriber.get()
    subscriber.nothing()

    subscriber.ack(PUBREC, first.packet_id, 0x80)

    assert subscriber.payloads() == [b"2"]
    subscriber.nothing()


def test_failed_puback_acknowledges(join: Clients) -> None:
    """[MQTT-4.4.0-2]."""
    topic, publisher, subscriber = unique("t"), join(5), join(5, props=[(names.RECEIVE_MAXIMUM, 1)])
    subscriber.subscribe((topic, 1))
    for number in (b"1", b"2"):
        publisher.publish(topic, number, 1)
    (first,) = subscriber.get()

    subscriber.ack(PUBACK, first.packet_id, 0x83)

    assert subscriber.payloads() == [b"2"]


def test_publish_without_subscribers_is_acknowledged(join: Clients) -> None:
    """0x10, No matching subscribers. [MQTT-3.3.4-1] [MQTT-4.3.2-4]."""
    publisher = join(5)

    for qos in (1, 2):
        answer = publisher.publish(unique("t"), b"", qos)
        assert answer is not None
        assert answer.code == 0x10


def test_publisher_that_subscribes_gets_its_own_messages(join: Clients, version: int) -> None:
    """[MQTT-4.5.0-1] [MQTT3-4.5.0-1]."""
    topic, client = unique("t"), join(version)
    client.subscribe((topic, 2))

    for qos in range(3):
        client.publish(topic, b"%d" % qos, qos)

    assert client.payloads(3) == [b"0", b"1", b"2"]


def test_fan_out_reaches_everybody_once(tcp: Clients) -> None:
    """[MQTT-4.5.0-1] [MQTT3-4.5.0-1]."""
    topic, publisher = unique("t"), tcp(4)
    crowd = [tcp(4 + number % 2) for number in range(40)]
    for subscriber in crowd:
        subscriber.subscribe((topic, 1))

    for number in range(5):
        publisher.publish(topic, b"%d" % number, 1)

    for subscriber in crowd:
        assert subscriber.payloads(5) == [b"%d" % number for number in range(5)]
        subscriber.nothing()


def test_qos_1_is_sent_once_on_a_connection(join: Clients, version: int) -> None:
    """Without PUBACK nothing is repeated while the connection lives. [MQTT-4.4.0-1] [MQTT-4.3.2-3] [MQTT-4.3.2-5]."""
    topic, publisher, subscriber = unique("t"), join(version), join(version)
    subscriber.subscribe((topic, 1))
    publisher.publish(topic, b"1", 1)
    (got,) = subscriber.get()

    publisher.publish(topic, b"2", 1)

    assert subscriber.get()[0].payload == b"2"
    subscriber.nothing()
    subscriber.ack(PUBACK, got.packet_id)
    subscriber.nothing()


def test_deliveries_begin_only_after_connack(tcp: Clients) -> None:
    """A resumed Session's messages come behind CONNACK. [MQTT-3.2.0-1] [MQTT3-3.2.0-1]."""
    topic, client, publisher = unique("t"), tcp(4, keep=True), tcp(4)
    client.subscribe((topic, 1))
    client.disconnect()
    publisher.publish(topic, b"waiting", 1)

    again = tcp.open_connection(4)
    again.send(again.connect_bytes(client.client_id, "acme/dev1", clean=False))

    assert [again.next().kind, again.next().kind] == [2, PUBLISH]
