"""SUBSCRIBE and UNSUBSCRIBE: answers, replacement, overlap, and filters against names."""

from __future__ import annotations

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import CLOSED_S, Clients
from tests.support.clients.packets import PUBACK, UNSUBACK, packet, string


def test_suback_answers_filter_by_filter(join: Clients, version: int) -> None:
    """Its identifier, one code for each filter, in order, refusals in their place.

    [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.8.4-7] [MQTT-3.9.3-1] [MQTT-3.9.3-2] [MQTT-2.2.1-6]
    [MQTT3-3.8.4-1] [MQTT3-3.8.4-2] [MQTT3-3.8.4-4] [MQTT3-3.8.4-5] [MQTT3-3.9.3-1] [MQTT3-3.9.3-2] [MQTT3-2.3.1-7]
    """
    topic, client = unique("t"), join(version)

    answer = client.subscribe((topic, 1), (f"{topic}/+", 2), (f"{topic}/#", 0), (topic, 2), packet_id=65535)

    assert answer.packet_id == 65535
    assert answer.codes == [1, 2, 0, 2]
    client.nothing()


def test_unsuback_answers_also_if_nothing_was_deleted(join: Clients, version: int) -> None:
    """Its identifier and one code for each filter come back.

    [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6] [MQTT-3.11.3-1] [MQTT-3.11.3-2] [MQTT-2.2.1-6]
    [MQTT3-3.10.4-4] [MQTT3-3.10.4-5] [MQTT3-3.10.4-6] [MQTT3-2.3.1-7]
    """
    topic, client = unique("t"), join(version)
    client.subscribe((topic, 1))

    answer = client.unsubscribe(f"{topic}/never", topic, topic, packet_id=4711)

    assert answer.packet_id == 4711
    assert answer.codes == ([0x11, 0x00, 0x11] if version == 5 else [])
    assert answer.kind == UNSUBACK
    client.nothing()


def test_unsubscribe_ends_deliveries(join: Clients, version: int) -> None:
    """Nothing new afterwards; other subscriptions of the Session stay. [MQTT-3.10.4-2] [MQTT3-3.10.4-2]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    client.subscribe((f"{topic}/a", 1), (f"{topic}/b", 1))

    client.unsubscribe(f"{topic}/a")
    publisher.publish(f"{topic}/a", b"no", 1)
    publisher.publish(f"{topic}/b", b"yes", 1)

    assert client.payloads() == [b"yes"]
    client.nothing()


def test_unsubscribe_compares_filters_character_by_character(join: Clients, version: int) -> None:
    """A filter that would match is not the filter. [MQTT-3.10.4-1] [MQTT3-3.10.4-1]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    client.subscribe((f"{topic}/+", 1))

    client.unsubscribe(f"{topic}/a", f"{topic}/#", f"{topic.upper()}/+", "#")
    publisher.publish(f"{topic}/a", b"still", 1)

    assert client.payloads() == [b"still"]


def test_deliveries_begun_are_completed_after_unsubscribe(join: Clients, version: int) -> None:
    """[MQTT-3.10.4-3] [MQTT3-3.10.4-3]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    client.subscribe((topic, 2))
    publisher.publish(topic, b"begun", 2)
    (begun,) = client.get()

    client.unsubscribe(topic)

    client.complete(begun)
    client.nothing()


def test_same_filter_replaces_the_subscription(join: Clients, version: int) -> None:
    """The new QoS holds and there is one copy. [MQTT-3.8.4-3] [MQTT3-3.8.4-3]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    client.subscribe((topic, 2))

    assert client.subscribe((topic, 0)).codes == [0]
    publisher.publish(topic, b"x", 2)

    assert [got.qos for got in client.take()] == [0]
    client.nothing()


def test_replacement_loses_nothing(join: Clients, version: int) -> None:
    """Messages pipelined around a repeated SUBSCRIBE all arrive. [MQTT-3.8.4-4] [MQTT3-3.8.4-3]."""
    topic, client = unique("t"), join(version)
    client.subscribe((topic, 1))
    middle = b"\x00\x09" + (b"\x00" if version == 5 else b"") + string(topic) + b"\x01"

    for number in range(0, 20, 2):
        client.send(
            client.publish_bytes(topic, b"%d" % number, 1, number + 1)
            + packet(0x82, middle)
            + client.publish_bytes(topic, b"%d" % (number + 1), 1, number + 2)
        )

    assert client.payloads(20) == [b"%d" % number for number in range(20)]
    assert [client.expect(PUBACK).packet_id for _ in range(20)] == list(range(1, 21))


def test_overlapping_subscriptions_deliver_at_the_highest_qos(join: Clients, version: int) -> None:
    """One copy, QoS 2, although the exact filter asked for 0. [MQTT-3.3.4-2] [MQTT3-3.3.5-1]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    client.subscribe((f"{topic}/a", 0), (f"{topic}/#", 2), (f"{topic}/+", 1))

    publisher.publish(f"{topic}/a", b"x", 2)

    assert [got.qos for got in client.take()] == [2]
    client.nothing()


def test_subscription_identifiers_of_all_matches_are_sent(join: Clients) -> None:
    """One copy carries all of them; a subscription without one adds none. [MQTT-3.3.4-3] [MQTT-3.3.4-4]."""
    topic, publisher, client = unique("t"), join(5), join(5)
    client.subscribe((f"{topic}/a", 1), props=[(names.SUBSCRIPTION_ID, 7)])
    client.subscribe((f"{topic}/+", 1), props=[(names.SUBSCRIPTION_ID, 268_435_455)])
    client.subscribe((f"{topic}/#", 1))

    publisher.publish(f"{topic}/a", b"x", 1)
    publisher.publish(f"{topic}/b", b"y", 1)
    publisher.publish(f"{topic}/b/c", b"z", 1)

    found = [sorted(got.all_properties(names.SUBSCRIPTION_ID)) for got in client.take(3)]  # type: ignore[type-var]
    assert found == [[7, 268_435_455], [268_435_455], []]
    client.nothing()


def test_subscription_identifier_is_replaced_with_its_subscription(join: Clients) -> None:
    """[MQTT-3.8.4-3] [MQTT-3.3.4-3]."""
    topic, publisher, client = unique("t"), join(5), join(5)

    for identifier in ([(names.SUBSCRIPTION_ID, 1)], [(names.SUBSCRIPTION_ID, 2)], None):
        client.subscribe((topic, 0), props=identifier)  # type: ignore[arg-type]
        publisher.publish(topic, b"", 1)

    assert [got.property(names.SUBSCRIPTION_ID) for got in client.take(3)] == [1, 2, None]


MATCHES = [
    (
        "sport/tennis/player1/#",
        "sport/tennis/player1 sport/tennis/player1/ranking sport/tennis/player1/score/x",
        "sport/tennis",
    ),
    ("sport/#", "sport sport/ sport/a/b", "sports /sport"),
    ("#", "a / a/b /a a/", "$a $SYS/x"),
    ("sport/tennis/+", "sport/tennis/player1 sport/tennis/", "sport/tennis sport/tennis/player1/ranking"),
    ("sport/+", "sport/ sport/a", "sport sport/a/"),
    ("+", "finance", "/finance a/ $x"),
    ("+/+", "/finance a/b a/", "finance a/b/c $SYS/x"),
    ("/+", "/finance /", "finance"),
    ("+/tennis/#", "a/tennis a/tennis/b /tennis", "$SYS/tennis tennis"),
    ("a/+/+/d", "a/b/c/d a///d", "a/b/d a/b/c/d/e"),
    ("a//b", "a//b", "a/b a/x/b"),
    ("Accounts", "Accounts", "ACCOUNTS accounts Accounts/"),
    ("a b/ü+", "", "a b/ü"),
    ("日本/+/€", "日本/ü/€", "日本/€"),
]


@pytest.mark.parametrize(("name", "matching", "others"), [each for each in MATCHES if "ü+" not in each[0]])
def test_filters_match_as_the_specification_says(
    join: Clients, version: int, name: str, matching: str, others: str
) -> None:
    """Level by level, nothing folded, no leading $ for a leading wildcard.

    [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.2-1] [MQTT-4.7.3-4] [MQTT-3.3.2-3]
    [MQTT3-4.7.1-2] [MQTT3-4.7.1-3] [MQTT3-4.7.2-1] [MQTT3-4.7.3-4]
    """
    publisher, client = join(version, tenant="wild"), join(version, tenant="wild")
    client.subscribe((name, 0))

    for topic in f"{matching} {others}".split():
        publisher.send(publisher.publish_bytes(topic, topic.encode()))
    publisher.ping()

    assert [got.topic for got in client.take(len(matching.split()))] == matching.split()
    client.nothing()


def test_dollar_topics_need_a_dollar_filter(tcp: Clients, version: int) -> None:
    """$SYS is published by the hub, and wildcards at the beginning do not see it. [MQTT-4.7.2-1] [MQTT3-4.7.2-1]."""
    everything, system = tcp(version, tenant="wild"), tcp(version, tenant="wild")

    everything.subscribe(("#", 0), ("+/#", 0))
    system.subscribe(("$SYS/#", 0))

    everything.nothing()
    assert all(each.topic.startswith("$SYS/") for each in system.received)


def test_long_filters_and_many_levels_work(tcp: Clients, version: int) -> None:
    """128 levels, 4,096 bytes: far beyond what people use. [MQTT-4.7.3-3] [MQTT3-4.7.3-3]."""
    root, publisher, client = unique("t"), tcp(version), tcp(version)
    deep = root + "/x" * 100
    long = root + "/" + "y" * 3000
    client.subscribe((root + "/+" * 100, 0), (long, 0))

    publisher.publish(deep, b"deep", 1)
    publisher.publish(long, b"long", 1)

    assert client.payloads(2) == [b"deep", b"long"]


@pytest.mark.parametrize("topic", ["/" * 65535, "x" * 65535])
def test_topics_of_the_greatest_length_do_no_harm(tcp: Clients, version: int, topic: str) -> None:
    """65,535 levels or bytes: refused or served, at once, in either packet; the witness does not wait. [MQTT-4.7.3-3] [MQTT3-4.7.3-3]."""
    witness = tcp(4)
    for data in (
        lambda client: client.publish_bytes(topic, b"", 0),
        lambda client: packet(0x82, b"\x00\x01" + (b"\x00" if version == 5 else b"") + string(topic) + b"\x00"),
    ):
        client = tcp(version)
        client.send(data(client) + packet(0xE0, b""))
        witness.ping()
        for said in client.expect_closed(timeout=CLOSED_S):
            assert said.kind in (9, 14)


def test_many_filters_in_one_subscribe(tcp: Clients, version: int) -> None:
    """A hundred filters, a hundred codes. [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT3-3.8.4-4]."""
    root, publisher, client = unique("t"), tcp(version), tcp(version)

    answer = client.subscribe(*((f"{root}/{number}", number % 3) for number in range(100)))

    assert answer.codes == [number % 3 for number in range(100)]
    publisher.publish(f"{root}/98", b"x", 2)
    assert [got.qos for got in client.take()] == [2]
