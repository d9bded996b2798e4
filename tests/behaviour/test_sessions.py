"""Sessions that outlive their connections: what is kept, how it comes back, and when it ends."""

from __future__ import annotations

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import Clients
from tests.support.clients.packets import DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, packet, properties
from tests.support.waiting import until


def test_session_present_tells_the_truth(join: Clients, version: int) -> None:
    """Nothing there, there, discarded by clean start, nothing there.

    [MQTT-3.1.2-4] [MQTT-3.1.2-5] [MQTT-3.1.2-6] [MQTT-3.2.2-2] [MQTT-3.2.2-3] [MQTT-3.1.4-4]
    [MQTT3-3.1.2-4] [MQTT3-3.1.2-6] [MQTT3-3.2.2-1] [MQTT3-3.2.2-2] [MQTT3-3.2.2-3] [MQTT3-3.1.4-3]
    """
    name = unique()

    def present(**options: object) -> bool:
        client = join(version, name, **options)
        client.disconnect()
        return client.connack.session_present

    assert not present(keep=True)
    assert present(keep=True)
    assert present(keep=True)
    assert not present(clean=True)
    assert not present(keep=True)


def test_subscriptions_survive_the_connection(join: Clients, version: int) -> None:
    """[MQTT-4.1.0-1] [MQTT-3.1.2-5] [MQTT-3.1.2-23] [MQTT3-4.1.0-1] [MQTT3-3.1.2-4] [MQTT3-4.1.0-2]."""
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    client.subscribe((f"{topic}/a", 0), (f"{topic}/b", 1), (f"{topic}/gone", 1))
    client.unsubscribe(f"{topic}/gone")
    client.disconnect()

    again = join(version, client.client_id, keep=True)
    for name in ("gone", "a", "b"):
        publisher.publish(f"{topic}/{name}", name.encode(), 2)

    assert sorted((got.payload, got.qos) for got in again.take(2)) == [(b"a", 0), (b"b", 1)]
    again.nothing()


def test_clean_session_keeps_nothing(join: Clients, version: int) -> None:
    """[MQTT3-3.1.2-6] [MQTT-3.1.2-4] [MQTT-4.1.0-2]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    client.subscribe((topic, 1))
    client.drop()
    publisher.publish(topic, b"lost", 1)

    again = join(version, client.client_id, keep=True)

    assert not again.connack.session_present
    publisher.publish(topic, b"lost too", 1)
    again.nothing()


def test_clean_start_throws_queue_and_subscriptions_away(join: Clients, version: int) -> None:
    """[MQTT-3.1.2-4] [MQTT3-3.1.2-6]."""
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    client.subscribe((topic, 1))
    client.disconnect()
    publisher.publish(topic, b"old", 1)

    fresh = join(version, client.client_id, keep=True, clean=True)
    publisher.publish(topic, b"new", 1)

    assert not fresh.connack.session_present
    fresh.nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_for_an_offline_session(join: Clients, version: int, qos: int) -> None:
    """In order, at the lower QoS, DUP 0, RETAIN 0, once.

    [MQTT-4.5.0-1] [MQTT-4.6.0-5] [MQTT-4.6.0-6] [MQTT-3.8.4-8] [MQTT-4.1.0-1] [MQTT3-3.1.2-5] [MQTT3-4.5.0-1] [MQTT3-4.6.0-6] [MQTT3-4.6.0-5]
    """
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    client.subscribe((topic, qos))
    client.disconnect()
    for number in range(25):
        publisher.publish(topic, b"%d" % number, 1 + number % 2)

    again = join(version, client.client_id, keep=True)

    got = again.take(25)
    assert [each.payload for each in got] == [b"%d" % number for number in range(25)]
    assert [each.qos for each in got] == [min(qos, 1 + number % 2) for number in range(25)]
    assert {(each.dup, each.retain) for each in got} == {(False, False)}
    again.nothing()
    again.disconnect()
    join(version, client.client_id, keep=True).nothing()


def test_offline_and_online_messages_do_not_overtake(tcp: Clients, version: int) -> None:
    """The publisher goes on while the session comes back: one unbroken order across store and memory. [MQTT-4.6.0-5] [MQTT3-4.6.0-6]."""
    topic, publisher, client = unique("t"), tcp(version), tcp(version, keep=True)
    client.subscribe((topic, 1))
    client.drop()
    number = 0

    def publish(count: int) -> None:
        nonlocal number
        for _ in range(count):
            publisher.publish(topic, b"%d" % number, 1)
            number += 1

    publish(30)
    for _ in range(3):
        again = tcp(version, client.client_id, keep=True)
        publish(10)
        first = again.take(7)
        again.drop()
        publish(5)
        start = int(first[0].payload)
        assert [int(each.payload) for each in first] == list(range(start, start + 7))
    last = tcp(version, client.client_id, keep=True)
    publish(10)

    seen = []
    while not seen or seen[-1] != number - 1:
        seen.append(int(last.take()[0].payload))
    assert seen == list(range(seen[0], number))
    assert seen[0] <= 21


def test_qos_0_does_not_wait(join: Clients, version: int) -> None:
    """Neither a QoS 0 message nor a QoS 0 subscription is queued for an offline session."""
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    client.subscribe((f"{topic}/0", 0), (f"{topic}/1", 1))
    client.disconnect()
    publisher.publish(f"{topic}/0", b"", 2)
    publisher.publish(f"{topic}/1", b"", 0)
    publisher.publish(f"{topic}/1", b"kept", 1)

    again = join(version, client.client_id, keep=True)

    assert again.payloads() == [b"kept"]
    again.nothing()


def test_unacknowledged_qos_1_is_sent_again(join: Clients, version: int) -> None:
    """Same identifiers, DUP 1, same order, before anything newer; what was acknowledged stays away.

    [MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.3.2-3] [MQTT-4.3.2-5] [MQTT3-4.4.0-1] [MQTT3-3.3.1-1] [MQTT3-4.3.2-1]
    """
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    client.subscribe((topic, 1))
    for number in range(4):
        publisher.publish(topic, b"%d" % number, 1)
    sent = client.get(4)
    client.ack(PUBACK, sent[0].packet_id)
    client.nothing()
    client.drop()
    publisher.publish(topic, b"new", 1)

    again = join(version, client.client_id, keep=True)

    got = again.take(4)
    assert [each.payload for each in got] == [b"1", b"2", b"3", b"new"]
    assert [each.packet_id for each in got[:3]] == [each.packet_id for each in sent[1:]]
    assert [each.dup for each in got] == [True, True, True, False]
    again.nothing()


def test_qos_2_goes_on_where_it_was_broken_off(join: Clients, version: int) -> None:
    """Before PUBREC the PUBLISH comes again, after it only PUBREL, and after PUBCOMP nothing.

    [MQTT-4.4.0-1] [MQTT-4.3.3-3] [MQTT-4.3.3-5] [MQTT-4.3.3-6] [MQTT-3.3.1-1] [MQTT3-4.4.0-1] [MQTT3-4.3.3-1]
    """
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    client.subscribe((topic, 2))
    publisher.publish(topic, b"x", 2)
    (first,) = client.get()
    client.drop()

    second = join(version, client.client_id, keep=True)
    (again,) = second.get()
    assert (again.packet_id, again.dup, again.payload) == (first.packet_id, True, b"x")
    second.ack(PUBREC, again.packet_id)
    assert second.expect(PUBREL).packet_id == first.packet_id
    second.drop()

    for _ in range(2):
        third = join(version, client.client_id, keep=True)
        released = third.expect(PUBREL)
        assert (released.packet_id, released.flags) == (first.packet_id, 2)
        third.nothing()
        third.drop()
    last = join(version, client.client_id, keep=True)
    last.ack(PUBCOMP, last.expect(PUBREL).packet_id)
    last.nothing()
    last.disconnect()
    join(version, client.client_id, keep=True).nothing()


def test_qos_2_publisher_may_break_off_anywhere(join: Clients, version: int) -> None:
    """The PUBLISH repeated on a new connection is the same message; its PUBREL ends it.

    [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT3-4.3.3-2] [MQTT-4.1.0-1]
    """
    topic, client, publisher = unique("t"), join(version), join(version, keep=True)
    client.subscribe((topic, 2))
    publisher.send(publisher.publish_bytes(topic, b"once", 2, 9))
    publisher.expect(PUBREC)
    publisher.drop()

    for _ in range(2):
        publisher = join(version, publisher.client_id, keep=True)
        publisher.send(publisher.publish_bytes(topic, b"once", 2, 9, dup=True))
        assert publisher.expect(PUBREC).code == 0
        publisher.drop()
    publisher = join(version, publisher.client_id, keep=True)
    publisher.ack(PUBREL, 9)
    assert (publisher.expect(PUBCOMP).packet_id, len(publisher.received)) == (9, 0)
    publisher.publish(topic, b"next", 2, packet_id=9)

    assert client.payloads(2) == [b"once", b"next"]
    client.nothing()


def test_take_over_moves_the_session(join: Clients, version: int) -> None:
    """The old connection gets 0x8E and is closed, the new one goes on with what was unacknowledged.

    [MQTT-3.1.4-3] [MQTT3-3.1.4-2] [MQTT-3.14.2-2] [MQTT-4.4.0-1]
    """
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    client.subscribe((topic, 1))
    publisher.publish(topic, b"x", 1)
    (sent,) = client.get()

    again = join(version, client.client_id, keep=True)

    client.refused(0x8E)
    assert all(found.property(names.SESSION_EXPIRY) is None for found in client.received)
    assert again.connack.session_present
    (got,) = again.take()
    assert (got.payload, got.packet_id, got.dup) == (b"x", sent.packet_id, True)
    again.nothing()


def test_take_over_of_a_transient_session(join: Clients, version: int) -> None:
    """Without anything to keep there is no session to be present. [MQTT-3.1.4-3] [MQTT3-3.1.4-2]."""
    topic, publisher, client = unique("t"), join(version), join(version)
    client.subscribe((topic, 1))

    again = join(version, client.client_id)

    client.refused(0x8E)
    assert not again.connack.session_present
    publisher.publish(topic, b"x", 1)
    again.nothing()


def test_take_over_across_versions(tcp: Clients) -> None:
    """A session is the client's, not the protocol level's. [MQTT-3.1.4-3] [MQTT3-3.1.4-2] [MQTT-3.1.2-5]."""
    topic, publisher, old = unique("t"), tcp(5), tcp(4, keep=True)
    old.subscribe((topic, 1))

    new = tcp(5, old.client_id, keep=True)

    assert old.expect_closed() == []
    assert new.connack.session_present
    publisher.publish(topic, b"x", 1)
    assert new.payloads() == [b"x"]


def test_a_storm_of_take_overs_leaves_one(tcp: Clients, version: int) -> None:
    """Twenty connections with one Client Identifier: the last one lives, the session never broke. [MQTT-3.1.4-3] [MQTT3-3.1.4-2]."""
    topic, publisher, first = unique("t"), tcp(version), tcp(version, keep=True)
    first.subscribe((topic, 1))

    storm = [tcp(version, first.client_id, keep=True) for _ in range(20)]

    assert all(each.connack.session_present for each in storm)
    for each in storm[:-1]:
        each.refused(0x8E)
    publisher.publish(topic, b"x", 1)
    assert storm[-1].payloads() == [b"x"]


# --- the end of a session, in 5.0


def test_expiry_interval_zero_ends_with_the_connection(join: Clients) -> None:
    """Absent is the same as 0. [MQTT-4.1.0-2] [MQTT-3.2.2-3]."""
    for props in ([], [(names.SESSION_EXPIRY, 0)]):
        client = join(5, clean=False, props=props)
        client.disconnect()
        assert not join(5, client.client_id, clean=False).connack.session_present


def test_disconnect_may_change_the_expiry_interval(join: Clients) -> None:
    """To 0: the Session ends at once; from 3600 to the greatest: it stays. §3.14.2.2.2 [MQTT-3.1.2-23] [MQTT-4.1.0-2]."""
    ended, kept = join(5, keep=True), join(5, keep=True)

    ended.disconnect(0, [(names.SESSION_EXPIRY, 0)])
    kept.disconnect(0, [(names.SESSION_EXPIRY, 0xFFFFFFFF)])

    assert not join(5, ended.client_id, clean=False).connack.session_present
    assert join(5, kept.client_id, clean=False).connack.session_present


def test_connect_without_expiry_ends_a_kept_session_at_its_end(join: Clients) -> None:
    """The last CONNECT's interval holds: a Session resumed without one ends with that connection. [MQTT-3.1.2-23] [MQTT-4.1.0-2]."""
    client = join(5, keep=True)
    client.disconnect()
    resumed = join(5, client.client_id, clean=False)
    assert resumed.connack.session_present
    resumed.disconnect()

    assert not join(5, client.client_id, clean=False).connack.session_present


def test_sessions_expire_and_others_do_not(tcp: Clients) -> None:
    """One second; ten minutes; DISCONNECT makes a second out of an hour; a 3.1.1 session has no end.

    [MQTT-4.1.0-2] [MQTT-3.1.2-23] [MQTT3-4.1.0-1]
    """
    topic, publisher = unique("t"), tcp(5)
    short = tcp(5, props=[(names.SESSION_EXPIRY, 1)])
    longer = tcp(5, props=[(names.SESSION_EXPIRY, 600)])
    shortened = tcp(5, keep=True)
    old = tcp(4, keep=True)
    for client in (short, longer, shortened, old):
        client.subscribe((topic, 1))
    short.drop()
    longer.drop()
    shortened.disconnect(0, [(names.SESSION_EXPIRY, 1)])
    old.drop()
    publisher.publish(topic, b"x", 1)

    tcp.a_while()

    assert not tcp(5, short.client_id, clean=False).connack.session_present
    assert not tcp(5, shortened.client_id, clean=False).connack.session_present
    for name, version in ((longer.client_id, 5), (old.client_id, 4)):
        back = tcp(version, name, keep=True)
        assert back.connack.session_present
        assert back.payloads() == [b"x"]


def test_a_connected_session_does_not_expire(tcp: Clients) -> None:
    """The interval begins when the connection ends. [MQTT-3.1.2-23] [MQTT-4.1.0-1] [MQTT3-4.1.0-2]."""
    topic, client = unique("t"), tcp(5, props=[(names.SESSION_EXPIRY, 1)])
    client.subscribe((topic, 1))
    tcp.a_while()

    again = tcp(5, client.client_id, clean=False)

    assert again.connack.session_present


def test_malformed_packet_does_not_end_a_session(join: Clients, version: int) -> None:
    """The connection is closed, the Session stays as its interval says. [MQTT-4.13.1-1] [MQTT3-4.8.0-1] [MQTT-3.1.2-23]."""
    topic, publisher, client = unique("t"), join(version), join(version, keep=True)
    client.subscribe((topic, 1))

    client.send(packet(0xC0, b"x"))
    client.refused(0x81)
    publisher.publish(topic, b"x", 1)

    assert join(version, client.client_id, keep=True).payloads() == [b"x"]


def test_publications_of_a_client_that_goes_at_once_arrive(join: Clients, version: int) -> None:
    """PUBLISH, DISCONNECT, close in one write: what was sent before counts. [MQTT-4.5.0-1] [MQTT3-4.5.0-1]."""
    topic, client, publisher = unique("t"), join(version), join(version)
    client.subscribe((topic, 1))

    publisher.send(
        b"".join(publisher.publish_bytes(topic, b"%d" % n, n % 2, n + 1) for n in range(10)) + packet(0xE0, b"")
    )

    assert client.payloads(10) == [b"%d" % n for n in range(10)]


def test_disconnect_properties_are_accepted(join: Clients) -> None:
    """Reason String and User Property of a DISCONNECT are no error. §3.14.2.2."""
    client = join(5, keep=True)

    body = properties([(names.REASON_STRING, "bye"), (names.USER_PROPERTY, ("a", "b"))])
    client.send_packet(DISCONNECT << 4, b"\x00" + body)

    assert client.expect_closed() == []
    until(lambda: join(5, client.client_id, keep=True).connack.session_present, "the session is kept")


def test_publish_kinds_are_what_the_tests_think() -> None:
    """The packet types of §2.1.2."""
    assert (PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT) == (3, 4, 5, 6, 7, 14)
