"""What 5.0 adds to a message: forwarded unaltered, aliased, expired, windowed, limited."""

from __future__ import annotations

import select

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import FOREIGN_BROKER, Client, Clients
from tests.support.clients.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Properties


def test_message_properties_are_forwarded_unaltered(join: Clients) -> None:
    """Request/response, format, type, and User Properties in their order with repetitions.

    [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20] [MQTT-1.5.7-1]
    """
    topic, publisher, client = unique("t"), join(5), join(5)
    client.subscribe((topic, 2))
    props: Properties = [
        (names.PAYLOAD_FORMAT, 1),
        (names.CONTENT_TYPE, "application/json; charset=ü"),
        (names.RESPONSE_TOPIC, "answers/for me"),
        (names.CORRELATION_DATA, bytes(range(256))),
        (names.USER_PROPERTY, ("b", "1")),
        (names.USER_PROPERTY, ("a", "")),
        (names.USER_PROPERTY, ("", "日本")),
        (names.USER_PROPERTY, ("b", "1")),
    ]

    for qos in range(3):
        publisher.publish(topic, "{}€".encode(), qos, props=props)

    assert [got.properties for got in client.take(3)] == [props] * 3


def test_message_properties_survive_the_queue(join: Clients) -> None:
    """The same through the store of an offline Session, with the identifiers of its subscription. [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.4-3]."""
    topic, publisher, client = unique("t"), join(5), join(5, keep=True)
    client.subscribe((topic, 1), props=[(names.SUBSCRIPTION_ID, 300)])
    client.disconnect()
    props: Properties = [
        (names.CORRELATION_DATA, b"\x00"),
        (names.USER_PROPERTY, ("b", "1")),
        (names.USER_PROPERTY, ("a", "2")),
    ]
    publisher.publish(topic, b"x", 1, props=props)

    (got,) = join(5, client.client_id, keep=True).take()

    assert [pair for pair in got.properties if pair[0] != names.SUBSCRIPTION_ID] == props
    assert got.all_properties(names.SUBSCRIPTION_ID) == [300]


def test_request_and_response(join: Clients) -> None:
    """A requester gets its answer by Response Topic and Correlation Data. §4.10 [MQTT-3.3.2-15] [MQTT-3.3.2-16]."""
    service, reply, requester, responder = unique("service"), unique("reply"), join(5), join(5)
    responder.subscribe((service, 1))
    requester.subscribe((reply, 1))

    requester.publish(service, b"6*7", 1, props=[(names.RESPONSE_TOPIC, reply), (names.CORRELATION_DATA, b"\x01\x02")])
    (request,) = responder.take()
    where, which = request.property(names.RESPONSE_TOPIC), request.property(names.CORRELATION_DATA)
    responder.publish(str(where), b"42", 1, props=[(names.CORRELATION_DATA, which)])

    (answer,) = requester.take()
    assert (answer.payload, answer.property(names.CORRELATION_DATA)) == (b"42", b"\x01\x02")


# --- Topic Alias


def test_topic_alias_of_a_publisher(join: Clients) -> None:
    """Set, used, set anew, up to the hub's maximum; the subscriber sees names. [MQTT-3.3.2-12]."""
    root, publisher, client = unique("t"), join(5), join(5)
    client.subscribe((f"{root}/#", 1))
    maximum = publisher.property(names.TOPIC_ALIAS_MAXIMUM, 0)
    assert maximum >= 1

    for alias, name in ((1, "a"), (maximum, "b"), (1, ""), (maximum, ""), (1, "c"), (1, "")):
        publisher.publish(f"{root}/{name}" if name else "", b"x", 1, props=[(names.TOPIC_ALIAS, alias)])

    got = client.take(6)
    assert [each.topic for each in got] == [f"{root}/{name}" for name in "ababcc"]
    assert {each.property(names.TOPIC_ALIAS) for each in got} == {None}


def test_topic_alias_above_the_maximum_is_refused(tcp: Clients) -> None:
    """[MQTT-3.2.2-17] [MQTT-3.3.2-9]."""
    client = tcp(5)
    above = client.property(names.TOPIC_ALIAS_MAXIMUM, 0) + 1
    if above > 0xFFFF:
        client = tcp(5, tenant="strict")
        above = client.property(names.TOPIC_ALIAS_MAXIMUM, 0) + 1

    client.send(client.publish_bytes("t", b"", 0, props=[(names.TOPIC_ALIAS, above)]))

    client.refused(0x94)


def test_topic_alias_ends_with_its_connection(join: Clients) -> None:
    """Also for a resumed Session. [MQTT-3.3.2-7]."""
    client = join(5, keep=True)
    client.publish(unique("t"), b"", 1, props=[(names.TOPIC_ALIAS, 1)])
    client.disconnect()

    again = join(5, client.client_id, keep=True)
    again.send(again.publish_bytes("", b"", 0, props=[(names.TOPIC_ALIAS, 1)]))

    again.refused(0x82)


def test_no_topic_alias_without_a_maximum(join: Clients) -> None:
    """[MQTT-3.1.2-26] [MQTT-3.1.2-27] [MQTT-3.3.2-11]."""
    topic, publisher = unique("t"), join(5)
    for props in ([], [(names.TOPIC_ALIAS_MAXIMUM, 0)]):
        client = join(5, props=props)
        client.subscribe((topic, 1))

        for _ in range(5):
            publisher.publish(topic, b"x", 1)

        got = client.take(5)
        assert {(each.topic, each.property(names.TOPIC_ALIAS)) for each in got} == {(topic, None)}


def test_topic_aliases_of_the_hub_stay_within_the_maximum(join: Clients) -> None:
    """Whatever the hub does with two aliases and five topics, the names come out right. [MQTT-3.1.2-26] [MQTT-3.3.2-11] [MQTT-3.3.2-7]."""
    root, publisher = unique("t"), join(5)
    client = join(5, props=[(names.TOPIC_ALIAS_MAXIMUM, 2)])
    client.subscribe((f"{root}/#", 1))
    sent = [f"{root}/{number % 5}" for number in range(25)]

    for topic in sent:
        publisher.publish(topic, b"x", 1)

    known: dict[int, str] = {}
    seen = []
    for got in client.take(25):
        alias = got.property(names.TOPIC_ALIAS)
        if alias is not None:
            assert 1 <= int(str(alias)) <= 2
            if got.topic:
                known[int(str(alias))] = got.topic
        seen.append(got.topic or known[int(str(alias))])
    assert seen == sent


# --- Receive Maximum


def held(client: Client) -> int:
    """How many deliveries have come."""
    client.ping()
    client.ping()
    return sum(each.kind == 3 for each in client.received)


@pytest.mark.parametrize("maximum", [1, 3])
@pytest.mark.parametrize("keep", [False, True], ids=["transient", "persistent"])
def test_receive_maximum_bounds_what_is_unacknowledged(join: Clients, maximum: int, keep: bool) -> None:
    """Never one more; each acknowledgement lets exactly one in; other packets are not delayed.

    [MQTT-3.3.4-9] [MQTT-3.3.4-10] [MQTT-4.9.0-1] [MQTT-4.9.0-2] [MQTT-4.9.0-3]
    """
    topic, publisher, client = unique("t"), join(5), join(5, keep=keep, props=[(names.RECEIVE_MAXIMUM, maximum)])
    client.subscribe((topic, 2))
    for number in range(9):
        publisher.publish(topic, b"%d" % number, 1 + number % 2)
    waiting = client.get(maximum)

    assert held(client) == 0
    assert client.subscribe((unique("t"), 0)).codes == [0]
    for number in range(9):
        first = waiting.pop(0)
        assert first.payload == b"%d" % number
        client.complete(first)
        if number + maximum < 9:
            waiting += client.get()
        assert held(client) == 0


def test_pubrec_does_not_free_a_place(join: Clients) -> None:
    """A QoS 2 delivery counts until PUBCOMP. [MQTT-3.3.4-9] [MQTT-4.9.0-1]."""
    topic, publisher, client = unique("t"), join(5), join(5, props=[(names.RECEIVE_MAXIMUM, 1)])
    client.subscribe((topic, 2))
    publisher.publish(topic, b"1", 2)
    publisher.publish(topic, b"2", 2)
    (first,) = client.get()

    client.ack(PUBREC, first.packet_id)
    client.expect(PUBREL)
    assert held(client) == 0
    client.ack(PUBCOMP, first.packet_id)

    assert client.payloads() == [b"2"]


def test_window_holds_after_reconnection(join: Clients) -> None:
    """The new connection's Receive Maximum bounds what is sent again, too. [MQTT-4.9.0-1] [MQTT-4.4.0-1] [MQTT-3.3.4-9]."""
    topic, publisher, client = unique("t"), join(5), join(5, keep=True, props=[(names.RECEIVE_MAXIMUM, 5)])
    client.subscribe((topic, 1))
    for number in range(8):
        publisher.publish(topic, b"%d" % number, 1)
    sent = client.get(5)
    client.drop()

    again = join(5, client.client_id, keep=True, props=[(names.RECEIVE_MAXIMUM, 2)])

    first = again.get(2)
    assert held(again) == 0
    assert [each.packet_id for each in first] == [each.packet_id for each in sent[:2]]
    for each in first:
        again.ack(PUBACK, each.packet_id)
    assert again.payloads(6) == [b"%d" % number for number in range(2, 8)]


def test_exceeding_the_hubs_receive_maximum_is_an_error(tcp: Clients) -> None:
    """One unfinished QoS 2 exchange too many: 0x93. [MQTT-3.3.4-7] [MQTT-4.9.0-1]."""
    client = tcp(5, tenant="strict")
    maximum = client.property(names.RECEIVE_MAXIMUM, 5)
    assert maximum == 5 or FOREIGN_BROKER
    for number in range(5):
        client.send(client.publish_bytes(unique("t"), b"", 2, number + 1))
        client.expect(PUBREC)
    client.nothing()

    client.send(client.publish_bytes(unique("t"), b"", 2, 6))

    client.refused(0x93)


def test_old_clients_were_told_no_receive_maximum(tcp: Clients) -> None:
    """3.1.1 has none: QoS 2 exchanges that wait for their PUBREL are the client's affair. [MQTT3-4.3.3-2]."""
    client = tcp(4, tenant="strict")
    for number in range(50):
        client.send(client.publish_bytes(unique("t"), b"", 2, number + 1))

    assert [client.expect(PUBREC).packet_id for _ in range(50)] == list(range(1, 51))
    client.nothing()


def test_the_hubs_receive_maximum_may_be_used_up_again_and_again(tcp: Clients, version: int) -> None:
    """Completed exchanges give their places back. [MQTT-4.9.0-1] [MQTT-4.3.3-12]."""
    client = tcp(version, tenant="strict")
    for turn in range(4):
        for number in range(5):
            client.send(client.publish_bytes(unique("t"), b"%d" % turn, 2, number + 1))
            assert client.expect(PUBREC).packet_id == number + 1
        for number in range(5):
            client.ack(PUBREL, number + 1)
            assert client.expect(PUBCOMP).packet_id == number + 1
    client.nothing()


# --- Maximum Packet Size


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("keep", [False, True], ids=["transient", "persistent"])
def test_packets_too_large_for_a_client_are_not_sent(join: Clients, qos: int, keep: bool) -> None:
    """And count as sent: what is behind them comes, others get them. [MQTT-3.1.2-24] [MQTT-3.1.2-25]."""
    topic, publisher, other = unique("t"), join(5), join(5)
    client = join(5, keep=keep, props=[(names.MAXIMUM_PACKET_SIZE, 100), (names.RECEIVE_MAXIMUM, 1)])
    for subscriber in (client, other):
        subscriber.subscribe((topic, 2))

    for payload in (b"1", b"x" * 100, b"2", b"y" * 1000, b"3"):
        publisher.publish(topic, payload, qos)

    assert client.payloads(3) == [b"1", b"2", b"3"]
    client.nothing()
    assert len(other.payloads(5)) == 5


def test_a_packet_of_exactly_the_maximum_size_is_sent(join: Clients) -> None:
    """[MQTT-3.1.2-24]."""
    topic, publisher = unique("t"), join(5)
    payload = b"z" * (
        100 - 2 - 2 - len(topic) - 2 - 1
    )  # header and length, topic length, topic, identifier, no properties
    client = join(5, props=[(names.MAXIMUM_PACKET_SIZE, 100)])
    client.subscribe((topic, 1))

    publisher.publish(topic, payload + b"!", 1)
    publisher.publish(topic, payload, 1)

    assert client.payloads() == [payload]
    client.nothing()


def test_the_hubs_own_maximum_packet_size(tcp: Clients, version: int) -> None:
    """Told in CONNACK, obeyed before the body is there: 0x95, or in 3.1.1 closed. [MQTT-3.2.2-15] §3.2.2.3.6."""
    topic, watcher, client = unique("t"), tcp(4, tenant="strict"), tcp(version, tenant="strict")
    watcher.subscribe((topic, 1))
    assert client.property(names.MAXIMUM_PACKET_SIZE, 2048) == 2048
    client.publish(topic, b"x" * 1900, 1)
    assert len(watcher.payloads()[0]) == 1900

    client.send(b"\x30\x81\x10")  # Remaining Length 2,049

    client.refused(0x95)


# --- Message Expiry Interval


def test_message_expiry_is_forwarded(join: Clients) -> None:
    """What remains, and never without need. [MQTT-3.3.2-6]."""
    topic, publisher, client = unique("t"), join(5), join(5)
    client.subscribe((topic, 1))

    publisher.publish(topic, b"1", 1, props=[(names.MESSAGE_EXPIRY, 100)])
    publisher.publish(topic, b"2", 1)

    first, second = client.take(2)
    assert int(str(first.property(names.MESSAGE_EXPIRY))) in range(1, 101)
    assert second.property(names.MESSAGE_EXPIRY) is None


def test_messages_expire_in_the_queue_in_a_window_and_retained(tcp: Clients) -> None:
    """After four and a half seconds the ones of three seconds are gone, the others carry what remains, and what was sent already is completed.

    [MQTT-3.3.2-5] [MQTT-3.3.2-6] [MQTT-4.3.3-7] [MQTT-4.3.3-13]
    """
    topic, kept, publisher = unique("t"), unique("t"), tcp(5)
    offline = tcp(5, keep=True)
    slow = tcp(5, props=[(names.RECEIVE_MAXIMUM, 1)])
    for client in (offline, slow):
        client.subscribe((topic, 2))
    offline.disconnect()
    short, long = [(names.MESSAGE_EXPIRY, 3)], [(names.MESSAGE_EXPIRY, 1000)]
    publisher.publish(topic, b"short", 2, props=short)
    publisher.publish(topic, b"short too", 2, props=short)
    publisher.publish(topic, b"long", 2, props=long)
    publisher.publish(topic, b"for ever", 2)
    publisher.publish(f"{kept}/short", b"x", 1, retain=True, props=short)
    publisher.publish(f"{kept}/long", b"y", 1, retain=True, props=long)
    (begun,) = slow.get()
    assert begun.payload == b"short"  # within three seconds

    for _ in range(3):
        tcp.a_while()

    back, late = tcp(5, offline.client_id, keep=True), tcp(5)
    got = back.take(2)
    assert [each.payload for each in got] == [b"long", b"for ever"]
    assert int(str(got[0].property(names.MESSAGE_EXPIRY))) in range(1, 1000)
    back.nothing()
    late.subscribe((f"{kept}/+", 1))
    (found,) = late.take()
    assert found.payload == b"y"
    assert int(str(found.property(names.MESSAGE_EXPIRY))) in range(1, 1000)
    late.nothing()
    slow.complete(begun)
    assert slow.payloads(2) == [b"long", b"for ever"]
    slow.nothing()


# --- Keep Alive


def test_server_keep_alive_is_told_and_holds(tcp: Clients) -> None:
    """The hub's greatest Keep Alive is 18 hours; who asks for more, or for none, is told. [MQTT-3.2.2-22] [MQTT-3.1.2-22]."""
    assert tcp(5, keep_alive=65535).connack.property(names.SERVER_KEEP_ALIVE) == 18 * 3600
    assert tcp(5, keep_alive=0).connack.property(names.SERVER_KEEP_ALIVE) == 18 * 3600
    assert tcp(5, keep_alive=18 * 3600).connack.property(names.SERVER_KEEP_ALIVE) is None


def test_any_packet_keeps_a_client_alive(tcp: Clients, version: int) -> None:
    """Keep Alive 3 with a PUBLISH now and then outlives a silent neighbour. [MQTT-3.1.2-22] [MQTT3-3.1.2-24]."""
    lively = tcp(version, keep_alive=3)
    neighbour = tcp(version, keep_alive=3)

    while is_open_for(neighbour, 0.4):
        lively.send(lively.publish_bytes(unique("t"), b""))
    neighbour.refused(0x8D)

    lively.nothing()


def is_open_for(client: Client, seconds: float) -> bool:
    return not select.select([client.stream], [], [], seconds)[0]
