"""Will Messages: when they are published, what they look like, and when they never are."""

from __future__ import annotations

import time

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import CLOSED_S, Client, Clients
from tests.support.clients.packets import Properties, packet, string

IN_TIME_S = 4  # more than a connect takes on a slow machine


def watch(join: Clients, version: int, topic: str, options: int = 2) -> Client:
    client = join(version)
    client.subscribe((topic, options))
    return client


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_will_is_published_when_the_connection_breaks(join: Clients, version: int, qos: int) -> None:
    """At its QoS, RETAIN 0, once. [MQTT-3.1.2-7] [MQTT-3.1.2-8] [MQTT-3.1.2-14] [MQTT3-3.1.2-8] [MQTT3-3.1.2-16]."""
    topic = unique("w")
    watcher = watch(join, version, topic)

    join(version, will=(topic, b"gone", qos, False)).drop()

    (got,) = watcher.take()
    assert (got.topic, got.payload, got.qos, got.retain) == (topic, b"gone", qos, False)
    watcher.nothing()


def test_retained_will_is_retained(join: Clients, version: int) -> None:
    """[MQTT-3.1.2-15] [MQTT3-3.1.2-17]."""
    topic = unique("w")
    watcher = watch(join, version, topic)

    join(version, will=(topic, b"gone", 1, True)).drop()
    watcher.take()

    (kept,) = watch(join, version, topic).take()
    assert (kept.payload, kept.retain, kept.qos) == (b"gone", True, 1)


def test_disconnect_discards_the_will(join: Clients, version: int) -> None:
    """[MQTT-3.1.2-10] [MQTT-3.14.4-3] [MQTT3-3.1.2-10] [MQTT3-3.14.4-3]."""
    topic = unique("w")
    watcher = watch(join, version, topic)

    going = join(version, will=(topic, b"gone", 1, False))
    going.send(packet(0xE0, b""))
    going.expect_closed()

    watcher.nothing()


def test_disconnect_with_will_publishes_it(join: Clients) -> None:
    """Reason Code 0x04. [MQTT-3.1.2-8] §3.14.2.1."""
    topic = unique("w")
    watcher = watch(join, 5, topic)

    join(5, will=(topic, b"as asked", 1, False)).disconnect(0x04)

    assert watcher.payloads() == [b"as asked"]


@pytest.mark.parametrize("code", [0x80, 0x81, 0x93])
def test_disconnect_with_an_error_publishes_the_will(tcp: Clients, code: int) -> None:
    """Any code but 0x00 keeps the Will. [MQTT-3.1.2-8] [MQTT-3.14.4-3]."""
    topic = unique("w")
    watcher = watch(tcp, 5, topic)

    tcp(5, will=(topic, b"failed", 1, False)).disconnect(code)

    assert watcher.payloads() == [b"failed"]


def test_connections_without_a_will_publish_none(join: Clients, version: int) -> None:
    """Nor does one whose earlier connection had one. [MQTT3-3.1.2-12] [MQTT-3.1.2-10] [MQTT3-3.1.2-10]."""
    topic = unique("w")
    watcher = watch(join, version, topic)
    first = join(version, keep=True, will=(topic, b"1", 1, False))
    first.drop()
    assert watcher.payloads() == [b"1"]

    second = join(version, first.client_id, keep=True)
    second.drop()
    join(version, first.client_id, keep=True).nothing()

    watcher.nothing()


def test_protocol_error_publishes_the_will(join: Clients, version: int) -> None:
    """[MQTT-3.1.2-8] [MQTT3-3.1.2-8]."""
    topic = unique("w")
    watcher = watch(join, version, topic)

    join(version, will=(topic, b"clumsy", 1, False)).send(packet(0xC0, b"x"))

    assert watcher.payloads() == [b"clumsy"]


def test_take_over_publishes_the_will_of_the_old_connection(join: Clients, version: int) -> None:
    """Its connection was closed without DISCONNECT; there was no delay to wait for. [MQTT-3.1.2-8] [MQTT3-3.1.2-8] [MQTT-3.1.4-3]."""
    topic = unique("w")
    watcher = watch(join, version, topic)
    old = join(version, will=(topic, b"taken over", 1, False))

    join(version, old.client_id)

    assert watcher.payloads() == [b"taken over"]
    watcher.nothing()


@pytest.mark.parametrize("is_broken", [True, False], ids=["broken", "taken-over"])
def test_will_of_a_kept_session_is_published_though_its_client_is_back(
    join: Clients, version: int, is_broken: bool
) -> None:
    """The session goes on, the old connection does not; without a delay there is nothing to wait for. [MQTT-3.1.2-8] [MQTT3-3.1.2-8]."""
    topic = unique("w")
    watcher = watch(join, version, topic)
    old = join(version, keep=True, will=(topic, b"gone", 1, False))

    if is_broken:
        old.drop()
    join(version, old.client_id, keep=True)

    assert watcher.payloads() == [b"gone"]
    watcher.nothing()


def test_keep_alive_publishes_the_will(tcp: Clients, version: int) -> None:
    """A silent client is gone after one and a half Keep Alive. [MQTT-3.1.2-22] [MQTT-3.1.2-8] [MQTT3-3.1.2-24] [MQTT3-3.1.2-8]."""
    topic = unique("w")
    watcher = watch(tcp, version, topic)
    began = time.monotonic()

    tcp(version, keep_alive=1, will=(topic, b"silent", 1, False))

    assert watcher.payloads() == [b"silent"]
    assert time.monotonic() - began >= 1.0


def test_will_carries_its_properties(join: Clients) -> None:
    """Everything but the delay, in order. [MQTT-3.1.3-10] [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-20]."""
    topic = unique("w")
    watcher = watch(join, 5, topic)
    props: Properties = [
        (names.PAYLOAD_FORMAT, 1),
        (names.CONTENT_TYPE, "text/plain"),
        (names.RESPONSE_TOPIC, "reply/here"),
        (names.CORRELATION_DATA, b"\x00\xff"),
        (names.USER_PROPERTY, ("z", "1")),
        (names.USER_PROPERTY, ("a", "2")),
        (names.USER_PROPERTY, ("z", "1")),
    ]

    join(5, will=(topic, b"gone", 1, False), will_props=[(names.WILL_DELAY, 0), *props]).drop()

    (got,) = watcher.take()
    assert got.properties == props


def test_will_expires_like_any_message(tcp: Clients) -> None:
    """The remaining Message Expiry Interval is forwarded. [MQTT-3.3.2-6]."""
    topic = unique("w")
    watcher = watch(tcp, 5, topic)

    tcp(5, will=(topic, b"gone", 1, False), will_props=[(names.MESSAGE_EXPIRY, 60)]).drop()

    (got,) = watcher.take()
    assert got.property(names.MESSAGE_EXPIRY) in range(1, 61)


def test_will_of_an_empty_payload_removes_a_retained_message(join: Clients, version: int) -> None:
    """A Will is a publication like any other. [MQTT-3.1.2-15] [MQTT-3.3.1-6] [MQTT3-3.1.2-17]."""
    topic = unique("w")
    watcher = watch(join, version, topic)
    watcher.publish(topic, b"online", 1, retain=True)
    watcher.take()

    join(version, will=(topic, b"", 1, True)).drop()

    assert watcher.payloads() == [b""]
    late = watch(join, version, topic)
    late.nothing()


def test_will_reaches_offline_sessions(tcp: Clients, version: int) -> None:
    """[MQTT-4.5.0-1] [MQTT3-3.1.2-5]."""
    topic = unique("w")
    sleeper, watcher = tcp(version, keep=True), watch(tcp, version, topic)
    sleeper.subscribe((topic, 1))
    sleeper.drop()

    tcp(version, will=(topic, b"gone", 1, False)).drop()
    watcher.take()

    assert tcp(version, sleeper.client_id, keep=True).payloads() == [b"gone"]


@pytest.mark.parametrize(("topic", "code"), [("a/+", 0x90), ("#", 0x90), ("", 0x90), ("a\x00b", 0x81)])
def test_bad_will_topics_are_refused(tcp: Clients, version: int, topic: str, code: int) -> None:
    """At CONNECT, not when it is too late. [MQTT-3.1.3-11] [MQTT-4.7.0-1] [MQTT3-3.1.3-10] [MQTT3-4.7.1-1]."""
    client = tcp.open_connection(version)

    client.send(client.connect_bytes(unique(), "acme/dev1", will=(topic, b"", 0, False)))

    said = client.expect_closed(timeout=CLOSED_S)
    assert [each.code for each in said] == ([code] if version == 5 else [])


def test_user_name_stands_behind_the_will(tcp: Clients, version: int) -> None:
    """Client Identifier, Will, User Name, Password.

    [MQTT-3.1.3-1] [MQTT3-3.1.3-1] [MQTT-3.1.3-12] [MQTT3-3.1.3-11] [MQTT-3.1.2-17] [MQTT-3.1.2-19]
    """
    client = tcp.open_connection(version)
    props = b"\x00" if version == 5 else b""
    payload = string(unique()) + props + string("w") + string("gone") + string("acme/dev1") + string("secret")

    client.send(packet(0x10, string("MQTT") + bytes([version, 0xC6, 0, 60]) + props + payload))

    assert client.next().code == 0


# --- delay


def delayed(topic: str, seconds: int) -> dict[str, object]:
    return {"will": (topic, b"late", 1, False), "will_props": [(names.WILL_DELAY, seconds)]}


def test_will_delay_is_waited_for(tcp: Clients) -> None:
    """[MQTT-3.1.2-8]."""
    topic = unique("w")
    watcher = watch(tcp, 5, topic)
    began = time.monotonic()

    tcp(5, keep=True, **delayed(topic, 1)).drop()

    assert watcher.payloads() == [b"late"]
    assert time.monotonic() - began >= 0.9
    watcher.nothing()


def test_session_end_comes_before_the_will_delay(tcp: Clients) -> None:
    """No kept Session: at once. A Session of one second: after that second. Clean start: the Session ended.

    [MQTT-3.1.2-8] [MQTT-3.1.3-9]
    """
    at_once, expiring, replaced = unique("w"), unique("w"), unique("w")
    watcher = tcp(5)
    watcher.subscribe((at_once, 1), (expiring, 1), (replaced, 1))

    tcp(5, **delayed(at_once, 3600)).drop()
    assert watcher.take()[0].topic == at_once

    old = tcp(5, keep=True, **delayed(replaced, 3600))
    old.drop()
    tcp(5, old.client_id, clean=True)
    assert watcher.take()[0].topic == replaced

    tcp(5, props=[(names.SESSION_EXPIRY, 1)], **delayed(expiring, 3600)).drop()
    assert watcher.take()[0].topic == expiring


def test_reconnecting_in_time_prevents_the_will(tcp: Clients) -> None:
    """The delay runs out later, and nothing happens; a new connection's own Will is another. [MQTT-3.1.3-9]."""
    topic, other, control = unique("w"), unique("w"), unique("w")
    watcher = tcp(5)
    watcher.subscribe((topic, 1), (other, 1), (control, 1))
    client = tcp(5, keep=True, **delayed(topic, IN_TIME_S))
    client.drop()
    again = tcp(5, client.client_id, keep=True, **delayed(other, 0))

    tcp(5, keep=True, **delayed(control, IN_TIME_S)).drop()

    assert [got.topic for got in watcher.take()] == [control]
    again.drop()
    assert [got.topic for got in watcher.take()] == [other]


def test_disconnect_changes_when_a_delayed_will_comes(tcp: Clients) -> None:
    """DISCONNECT 0x04 that ends the Session publishes at once. [MQTT-3.1.2-8]."""
    topic = unique("w")
    watcher = watch(tcp, 5, topic)

    tcp(5, keep=True, **delayed(topic, 3600)).disconnect(0x04, [(names.SESSION_EXPIRY, 0)])

    assert watcher.payloads() == [b"late"]


def test_take_over_within_the_delay_prevents_the_will(tcp: Clients) -> None:
    """The Session goes on with a new connection before the delay is over. [MQTT-3.1.3-9] [MQTT-3.1.4-3]."""
    topic = unique("w")
    watcher = watch(tcp, 5, topic)
    old = tcp(5, keep=True, **delayed(topic, 1))

    tcp(5, old.client_id, keep=True)
    old.refused(0x8E)
    tcp.a_while()

    watcher.nothing()
