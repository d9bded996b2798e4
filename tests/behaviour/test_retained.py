"""Retained messages: what is kept, who gets it when, and the three subscription options that change it."""

from __future__ import annotations

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import Client, Clients
from tests.support.clients.packets import PUBACK, packet, string

RETAIN_AS_PUBLISHED, NO_LOCAL = 0x08, 0x04


def late(join: Clients, topic: str, version: int = 4, qos: int = 2) -> list[tuple[bytes, int, bool]]:
    """What a new subscriber gets at once: (payload, QoS, RETAIN)."""
    client = join(version)
    client.subscribe((topic, qos))
    return replayed(join, client)


def replayed(join: Clients, client: Client) -> list[tuple[bytes, int, bool]]:
    """What came before the retained message of a later SUBSCRIBE: replay takes its time, a PINGRESP does not wait for it."""
    fence = unique("fence")
    join(4).publish(fence, b"fence", 1, retain=True)
    client.subscribe((fence, 0))
    found = []
    while (got := client.take()[0]).topic != fence:
        found.append((got.payload, got.qos, got.retain))
    client.nothing()
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_message_waits_for_new_subscribers(join: Clients, version: int, qos: int) -> None:
    """With RETAIN 1, at the lower QoS, also after its publisher has gone.

    [MQTT-3.3.1-5] [MQTT-3.3.1-9] [MQTT3-3.3.1-5] [MQTT3-3.3.1-6] [MQTT3-3.3.1-8] [MQTT3-3.1.2-7]
    """
    topic, publisher = unique("t"), join(version)
    publisher.publish(topic, b"kept", qos, retain=True)
    publisher.disconnect()

    assert late(join, topic, version) == [(b"kept", qos, True)]
    assert late(join, topic, version, qos=0) == [(b"kept", 0, True)]


def test_established_subscriptions_get_retain_0(join: Clients, version: int) -> None:
    """[MQTT3-3.3.1-9] [MQTT-3.3.1-12]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    client.subscribe((topic, 1))

    publisher.publish(topic, b"live", 1, retain=True)

    assert [(got.payload, got.retain) for got in client.take()] == [(b"live", False)]
    client.nothing()


def test_a_new_retained_message_replaces_the_old(join: Clients, version: int) -> None:
    """Also when the new one is of QoS 0. [MQTT-3.3.1-5] [MQTT3-3.3.1-5] [MQTT3-3.3.1-7]."""
    topic, publisher = unique("t"), join(version)

    publisher.publish(topic, b"1", 1, retain=True)
    publisher.publish(topic, b"2", 2, retain=True)
    assert late(join, topic, version) == [(b"2", 2, True)]
    publisher.publish(topic, b"3", 0, retain=True)
    publisher.ping()

    assert late(join, topic, version) == [(b"3", 0, True)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_subscription_misses_no_retained_message_on_its_way_to_disk(join: Clients, version: int, qos: int) -> None:
    """Who subscribes behind the PUBLISH gets its message, as live or as retained, however slow the disk.

    [MQTT-3.3.1-5] [MQTT-3.3.1-9] [MQTT3-3.3.1-6]
    """
    client = join(version)
    for number in range(10):
        topic = unique("t")
        body = b"\x00\x09" + (b"\x00" if version == 5 else b"") + string(topic) + b"\x00"

        client.send(client.publish_bytes(topic, b"%d" % number, qos, number + 1, retain=True) + packet(0x82, body))

        assert client.payloads() == [b"%d" % number]


@pytest.mark.parametrize("qos", [0, 1])
def test_an_empty_payload_removes_and_is_not_kept(join: Clients, version: int, qos: int) -> None:
    """It is delivered to those who are there as any message. [MQTT-3.3.1-6] [MQTT-3.3.1-7] [MQTT3-3.3.1-10] [MQTT3-3.3.1-11]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    publisher.publish(topic, b"x", 1, retain=True)
    client.subscribe((topic, 1))
    client.take()

    publisher.publish(topic, b"", qos, retain=True)
    publisher.ping()

    assert [(got.payload, got.retain) for got in client.take()] == [(b"", False)]
    assert late(join, topic, version) == []


def test_retain_0_neither_stores_nor_removes(join: Clients, version: int) -> None:
    """[MQTT-3.3.1-8] [MQTT3-3.3.1-12]."""
    one, two, publisher = unique("t"), unique("t"), join(version)
    publisher.publish(one, b"kept", 1, retain=True)

    publisher.publish(one, b"", 1)
    publisher.publish(one, b"live", 1)
    publisher.publish(two, b"live", 1)

    assert late(join, one, version) == [(b"kept", 1, True)]
    assert late(join, two, version) == []


def test_wildcards_find_retained_messages(join: Clients, version: int) -> None:
    """Every match once, nothing else. [MQTT-3.3.1-9] [MQTT3-3.3.1-6] [MQTT-3.3.2-3]."""
    root, publisher = unique("t"), join(version)
    for name in ("a", "b", "c/d", "c/e/f"):
        publisher.publish(f"{root}/{name}", name.encode(), 1, retain=True)

    def names_of(topic: str) -> list[bytes]:
        return sorted(payload for payload, _, _ in late(join, topic, version))

    assert names_of(f"{root}/+") == [b"a", b"b"]
    assert names_of(f"{root}/#") == [b"a", b"b", b"c/d", b"c/e/f"]
    assert names_of(f"{root}/c/+") == [b"c/d"]
    assert names_of(f"{root}/+/+/f") == [b"c/e/f"]
    assert names_of(root) == []


@pytest.mark.parametrize("is_one_segment", [False, True], ids=["each by itself", "one segment"])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("way", ["again", "unsubscribed", "overlapping"])
def test_message_that_has_just_come_live_is_retained_for_the_next_subscription(
    tcp: Clients, version: int, way: str, qos: int, is_one_segment: bool
) -> None:
    """While the replay to the subscription before is not finished, 25 times.

    [MQTT-3.3.1-9] [MQTT-3.8.4-4] [MQTT3-3.3.1-6] [MQTT3-3.8.4-3]
    """
    client = tcp(version)
    head = b"\x00\x09" + (b"\x00" if version == 5 else b"")
    for number in range(25):
        topic = unique("t") + "/x"
        second = topic[:-1] + "+" if way == "overlapping" else topic
        packets = [
            packet(0x82, head + string(topic) + bytes((qos,))),
            client.publish_bytes(topic, b"live", qos, number + 1, retain=True),
            packet(0xA2, head + string(topic)) if way == "unsubscribed" else b"",
            packet(0x82, head + string(second) + bytes((qos,))),
        ]

        for data in [b"".join(packets)] if is_one_segment else packets:
            client.send(data)

        assert [(got.topic, got.retain) for got in client.take(2)] == [(topic, False), (topic, True)]
        client.unsubscribe(topic, second)
        client.received.clear()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("keep", [False, True], ids=["transient", "persistent"])
def test_each_subscribe_of_one_segment_sends_the_retained_message(
    tcp: Clients, version: int, keep: bool, qos: int
) -> None:
    """SUBSCRIBE, PUBLISH, and three SUBSCRIBEs more: as many as if each had come by itself. [MQTT-3.8.4-4] [MQTT3-3.8.4-3]."""
    client = tcp(version, keep=keep)
    for number in range(10):
        topic = unique("t")
        head = b"\x00\x09" + (b"\x00" if version == 5 else b"")
        subscribe = packet(0x82, head + string(topic) + bytes((qos,)))

        client.send(subscribe + client.publish_bytes(topic, b"x", qos, number + 1, retain=True) + 3 * subscribe)

        assert [(got.topic, got.qos, got.retain) for got in client.take(4)] == [
            (topic, qos, False),
            *3 * [(topic, qos, True)],
        ]
        client.unsubscribe(topic)
        client.received.clear()


def test_unsubscribe_ends_what_remains_of_a_replay(tcp: Clients, version: int) -> None:
    """In one segment with its SUBSCRIBE; the next SUBSCRIBE gets everything. [MQTT-3.10.4-2] [MQTT3-3.10.4-2]."""
    topic, client = unique("t"), tcp(version)
    head = b"\x00\x09" + (b"\x00" if version == 5 else b"")
    subscribe = packet(0x82, head + string(topic) + b"\x00")

    client.send(
        subscribe
        + client.publish_bytes(topic, b"x", 1, 1, retain=True)
        + subscribe
        + packet(0xA2, head + string(topic))
    )
    assert [(got.payload, got.retain) for got in client.take()] == [(b"x", False)]
    client.expect(PUBACK)
    client.fence()

    assert replayed(tcp, client) == []
    client.subscribe((topic, 0))
    assert [(got.payload, got.retain) for got in client.take()] == [(b"x", True)]


def test_resubscribing_sends_retained_messages_again(join: Clients, version: int) -> None:
    """[MQTT-3.8.4-4] [MQTT3-3.8.4-3] [MQTT-3.3.1-9]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    publisher.publish(topic, b"kept", 1, retain=True)

    for _ in range(3):
        client.subscribe((topic, 1))
        assert [(got.payload, got.retain) for got in client.take()] == [(b"kept", True)]
    client.nothing()


def test_many_retained_messages_all_arrive(tcp: Clients, version: int) -> None:
    """Three hundred, more than any window. [MQTT-3.3.1-9] [MQTT3-3.3.1-6]."""
    root, publisher, client = unique("t"), tcp(version), tcp(version)
    for start in range(0, 300, 20):
        numbers = range(start, start + 20)
        publisher.send(
            b"".join(publisher.publish_bytes(f"{root}/{n}", b"%d" % n, 1, n + 1, retain=True) for n in numbers)
        )
        assert [publisher.expect(PUBACK).packet_id for n in numbers] == [n + 1 for n in numbers]

    client.subscribe((f"{root}/#", 1))

    assert {got.payload for got in client.take(300)} == {b"%d" % n for n in range(300)}
    client.nothing()


def test_persistent_session_gets_retained_messages_with_qos(join: Clients, version: int) -> None:
    """Replay goes the way of everything else: window, acknowledgement, resend. [MQTT-3.3.1-9] [MQTT-4.4.0-1] [MQTT3-4.4.0-1]."""
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    publisher.publish(topic, b"kept", 1, retain=True)
    client.subscribe((topic, 1))
    (first,) = client.get()
    client.drop()

    again = join(version, client.client_id, keep=True)

    (second,) = again.take()
    assert (second.payload, second.retain, second.packet_id) == (b"kept", True, first.packet_id)
    assert second.dup
    again.nothing()


# --- the options of 5.0


def subscribed(join: Clients, topic: str, options: int) -> Client:
    client = join(5)
    client.subscribe((topic, options))
    return client


def test_retain_handling_0_always_sends(join: Clients) -> None:
    """[MQTT-3.3.1-9]."""
    topic = unique("t")
    join(5).publish(topic, b"kept", 1, retain=True)
    client = subscribed(join, topic, 0x01)
    assert client.payloads() == [b"kept"]

    client.subscribe((topic, 0x01))

    assert client.payloads() == [b"kept"]


def test_retain_handling_1_sends_to_a_new_subscription_only(join: Clients) -> None:
    """[MQTT-3.3.1-10]."""
    topic = unique("t")
    join(5).publish(topic, b"kept", 1, retain=True)
    client = subscribed(join, topic, 0x11)
    assert client.payloads() == [b"kept"]

    client.subscribe((topic, 0x12))
    assert replayed(join, client) == []
    client.unsubscribe(topic)
    client.subscribe((topic, 0x11))

    assert client.payloads() == [b"kept"]
    client.nothing()


def test_retain_handling_1_knows_a_resumed_subscription(join: Clients) -> None:
    """A subscription that survived in the Session is not new. [MQTT-3.3.1-10]."""
    topic = unique("t")
    join(5).publish(topic, b"kept", 1, retain=True)
    client = join(5, keep=True)
    client.subscribe((topic, 0x11))
    client.take()
    client.disconnect()

    again = join(5, client.client_id, keep=True)
    again.subscribe((topic, 0x11))

    assert replayed(join, again) == []


def test_retain_handling_2_sends_none(join: Clients) -> None:
    """[MQTT-3.3.1-11]."""
    topic, publisher = unique("t"), join(5)
    publisher.publish(topic, b"kept", 1, retain=True)
    client = subscribed(join, topic, 0x21)
    assert replayed(join, client) == []

    publisher.publish(topic, b"live", 1)

    assert client.payloads() == [b"live"]


def test_retain_as_published_keeps_the_flag(join: Clients) -> None:
    """1 keeps what the publisher set, 0 clears it. [MQTT-3.3.1-12] [MQTT-3.3.1-13]."""
    topic, publisher = unique("t"), join(5)
    keeping, clearing = subscribed(join, topic, 0x01 | RETAIN_AS_PUBLISHED), subscribed(join, topic, 0x01)

    publisher.publish(topic, b"1", 1, retain=True)
    publisher.publish(topic, b"2", 1)

    assert [got.retain for got in keeping.take(2)] == [True, False]
    assert [got.retain for got in clearing.take(2)] == [False, False]


def test_no_local_keeps_own_messages_away(join: Clients) -> None:
    """Also those of the same Session on a wildcard; others get them. [MQTT-3.8.3-3]."""
    topic, other = unique("t"), join(5)
    client = subscribed(join, f"{topic}/#", 0x02 | NO_LOCAL)
    other.subscribe((f"{topic}/a", 0x02))

    for qos in range(3):
        client.publish(f"{topic}/a", b"mine", qos)
    other.publish(f"{topic}/a", b"yours", 1)

    assert client.payloads() == [b"yours"]
    client.nothing()
    assert other.payloads(4) == [b"mine"] * 3 + [b"yours"]


def test_no_local_belongs_to_one_subscription(join: Clients) -> None:
    """Another subscription of the same Session without it delivers. [MQTT-3.8.3-3]."""
    topic, client = unique("t"), join(5)
    client.subscribe((f"{topic}/a", 0x01 | NO_LOCAL), (f"{topic}/+", 0x01))

    client.publish(f"{topic}/a", b"mine", 1)

    assert client.payloads() == [b"mine"]
    client.nothing()


def test_no_local_holds_for_the_queue_of_a_persistent_session(join: Clients) -> None:
    """[MQTT-3.8.3-3]."""
    topic, client = unique("t"), join(5, keep=True)
    client.subscribe((topic, 0x01 | NO_LOCAL))

    client.publish(topic, b"mine", 1)
    client.drop()

    join(5, client.client_id, keep=True).nothing()


def test_retained_message_carries_its_properties(join: Clients) -> None:
    """[MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20] [MQTT-3.3.2-4] [MQTT-3.3.4-3]."""
    topic, client = unique("t"), join(5)
    props = [
        (names.PAYLOAD_FORMAT, 1),
        (names.CONTENT_TYPE, "text/plain"),
        (names.USER_PROPERTY, ("b", "2")),
        (names.USER_PROPERTY, ("a", "1")),
    ]
    join(5).publish(topic, b"kept", 1, retain=True, props=props)  # type: ignore[arg-type]

    client.subscribe((topic, 1), props=[(names.SUBSCRIPTION_ID, 9)])

    (got,) = client.take()
    assert [pair for pair in got.properties if pair[0] != names.SUBSCRIPTION_ID] == props
    assert got.property(names.SUBSCRIPTION_ID) == 9
