"""Who gets in: user name and secret, and what a refused client learns and changes (nothing)."""

from __future__ import annotations

import time

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import Clients
from tests.support.clients.packets import packet, string
from tests.support.waiting import until

FAILURE_REPLY_S = 0.25
BAD = [
    pytest.param("acme/dev1", "wrong", id="wrong secret"),
    pytest.param("acme/dev1", "", id="empty secret"),
    pytest.param("acme/dev1", None, id="no secret"),
    pytest.param("acme/nobody", "secret", id="unknown device"),
    pytest.param("nobody/dev1", "secret", id="unknown tenant"),
    pytest.param("dev1", "secret", id="no tenant"),
    pytest.param("acme/dev1/x", "secret", id="one level too many"),
    pytest.param("ACME/dev1", "secret", id="another case"),
    pytest.param("acme/ dev1", "secret", id="a blank"),
    pytest.param("", "secret", id="empty name"),
    pytest.param("/", "secret", id="only the separator"),
    pytest.param("acme/+", "secret", id="a wildcard"),
    pytest.param(None, None, id="nothing at all"),
]


def refusal(version: int) -> int:
    return 0x87 if version == 5 else 5


@pytest.mark.parametrize(("username", "password"), BAD)
def test_bad_credentials_are_indistinguishable(
    tcp: Clients, version: int, username: str | None, password: str | None
) -> None:
    """One code, one delay, no property that tells, Session Present 0, then closed.

    [MQTT-3.1.4-2] [MQTT-3.2.2-6] [MQTT-3.2.2-7] [MQTT-3.2.2-8] [MQTT3-3.2.2-4] [MQTT3-3.2.2-5]
    """
    began = time.monotonic()
    client = tcp.ask(version, username=username, password=password)
    took = time.monotonic() - began

    assert (client.connack.code, client.connack.session_present) == (refusal(version), False)
    assert [name for name, _ in client.connack.properties if name != names.REASON_STRING] == []
    assert took >= FAILURE_REPLY_S * 0.95
    assert client.expect_closed() == []


def test_bad_credentials_through_every_listener(join: Clients, version: int) -> None:
    """[MQTT-3.2.2-7] [MQTT3-3.2.2-5]."""
    client = join.ask(version, password="wrong")

    assert client.connack.code == refusal(version)
    assert client.expect_closed() == []


def test_reason_strings_of_refusals_do_not_differ(tcp: Clients) -> None:
    """A wrong secret and an unknown device read the same."""
    known = tcp.ask(5, username="acme/dev1", password="wrong")
    unknown = tcp.ask(5, username="acme/nobody", password="wrong")

    assert known.connack.body == unknown.connack.body


def test_nothing_behind_a_refused_connect_is_processed(tcp: Clients, version: int) -> None:
    """[MQTT-3.1.4-6] [MQTT3-3.1.4-5]."""
    topic, watcher, client = unique("t"), tcp(version), tcp.open_connection(version)
    watcher.subscribe((topic, 0))

    client.send(client.connect_bytes(unique(), "acme/dev1", "wrong") + client.publish_bytes(topic, b"smuggled"))

    assert [said.code for said in client.expect_closed()] == [refusal(version)]
    watcher.nothing()


def test_refused_client_touches_nothing(tcp: Clients, version: int) -> None:
    """Clean start with a victim's Client Identifier and a retained Will: the victim stays, its Session stays, no Will, nothing retained. (P6)."""
    topic, will = unique("t"), unique("w")
    victim, publisher, watcher = tcp(version, keep=True), tcp(4), tcp(4)
    victim.subscribe((topic, 1))
    watcher.subscribe((will, 0))

    for clean in (True, False):
        refused = tcp.ask(version, victim.client_id, password="wrong", clean=clean, will=(will, b"gone", 0, True))
        assert refused.connack.code == refusal(version)
        refused.expect_closed()

    victim.nothing()
    victim.drop()
    publisher.publish(topic, b"kept", 1)
    watcher.nothing()
    back = tcp(version, victim.client_id, keep=True)
    assert back.connack.session_present
    assert back.payloads() == [b"kept"]
    late = tcp(4)
    late.subscribe((will, 0))
    late.nothing()


def test_client_without_connect_touches_nothing(tcp: Clients) -> None:
    """A CONNECT that is cut off half-way disturbs no Session of that Client Identifier."""
    victim = tcp(5)
    silent = tcp.open_connection(5)

    silent.send(silent.connect_bytes(victim.client_id, "acme/dev1")[:-3])
    silent.drop()

    victim.nothing()


def test_another_device_cannot_claim_a_client_identifier(tcp: Clients, version: int) -> None:
    """Same tenant, valid secret, somebody else's Client Identifier: refused before anything of the session is touched."""
    topic = unique("t")
    victim, publisher = tcp(version, keep=True), tcp(4)
    victim.subscribe((topic, 1))

    for clean in (True, False):
        thief = tcp.ask(version, victim.client_id, device="dev2", clean=clean)
        assert (thief.connack.code, thief.connack.session_present) == (refusal(version), False)
        assert thief.expect_closed() == []

    publisher.publish(topic, b"1", 1)
    assert victim.payloads() == [b"1"]
    victim.drop()
    publisher.publish(topic, b"2", 1)
    thief = tcp.ask(version, victim.client_id, device="dev2", clean=True)
    assert thief.connack.code == refusal(version)
    back = tcp(version, victim.client_id, keep=True)
    assert back.connack.session_present
    assert back.payloads() == [b"2"]


def test_another_device_cannot_take_over_a_live_transient_session(tcp: Clients, version: int) -> None:
    """A session that ends with its connection is its device's while it lives, and anybody's afterwards."""
    victim = tcp(version)

    assert tcp.ask(version, victim.client_id, device="dev2").connack.code == refusal(version)
    victim.nothing()
    victim.disconnect()

    def is_free() -> bool:
        return tcp.ask(version, victim.client_id, device="dev2").connack.code == 0

    until(is_free, "the identifier is free again")


def test_every_device_of_a_tenant_has_its_own_door(join: Clients, version: int) -> None:
    """Devices of one tenant share its topics."""
    topic, one, two = unique("t"), join(version, device="dev1"), join(version, device="dev2")
    one.subscribe((topic, 1))

    two.publish(topic, b"hello", 1)

    assert one.payloads() == [b"hello"]


def test_authentication_method_is_refused(tcp: Clients) -> None:
    """Without an extended method there is only 0x8C, and it is said in CONNACK. [MQTT-4.12.0-1] [MQTT-4.12.0-4]."""
    client = tcp.ask(5, props=[(names.AUTH_METHOD, "SCRAM-SHA-1"), (names.AUTH_DATA, b"n,,n=user")])

    assert client.connack.code == 0x8C
    assert client.expect_closed() == []


@pytest.mark.parametrize("code", [0x00, 0x18, 0x19])
def test_auth_without_a_method_is_a_protocol_error(tcp: Clients, code: int) -> None:
    """Nobody may send AUTH whose CONNECT had no method. [MQTT-4.12.0-6] [MQTT-4.12.0-7]."""
    client = tcp(5)
    assert client.connack.property(names.AUTH_METHOD) is None

    client.send(packet(0xF0, bytes([code, 0x07, names.AUTH_METHOD]) + string("none")))

    client.refused(0x82, 0x8C)


def test_auth_is_no_packet_of_3_1_1(tcp: Clients) -> None:
    """Type 15 is reserved before 5.0. [MQTT3-2.2.2-1]."""
    client = tcp(4)

    client.send(packet(0xF0, b""))

    client.refused()
