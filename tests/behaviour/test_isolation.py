"""Two tenants with the same names for everything: nothing crosses."""

from __future__ import annotations

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import Client, Clients

TENANTS = ("acme", "beta")


def pair(join: Clients, version: int, **options: object) -> tuple[Client, Client]:
    """The same client in both tenants."""
    name = unique()
    one, two = (join(version, name, tenant=tenant, **options) for tenant in TENANTS)
    return one, two


def test_same_client_identifier_lives_in_both_tenants(join: Clients, version: int) -> None:
    """Nobody is taken over, whatever the order and Clean Start; Session Present is each tenant's own."""
    one, two = pair(join, version, keep=True)
    one.nothing()
    two.nothing()
    one.disconnect()

    third = join(version, two.client_id, tenant="beta", clean=True)

    assert not third.connack.session_present
    assert join(version, one.client_id, keep=True).connack.session_present


@pytest.mark.parametrize("name", ["#", "+/#", "{topic}", "{topic}/#", "+/+/+", "acme/#", "beta/#", "/acme/#", "../#"])
def test_messages_stay_in_their_tenant(join: Clients, version: int, name: str) -> None:
    """Whatever filter another tenant subscribes with (one in which nothing is retained)."""
    topic = unique("t")
    here, there = pair(join, version)
    spy = join(version, tenant="wild")
    spy.subscribe((name.format(topic=topic), 0))
    here.subscribe((topic, 1))

    for at in (topic, f"beta/{topic}", f"/beta/{topic}"):
        here.publish(at, b"mine", 1)

    assert here.payloads() == [b"mine"]
    there.nothing()
    spy.nothing()


def test_retained_messages_stay_in_their_tenant(join: Clients, version: int) -> None:
    """The same topic retains two messages; removing one leaves the other."""
    topic = unique("t")
    here, there = pair(join, version)
    here.publish(topic, b"here", 1, retain=True)
    there.publish(topic, b"there", 1, retain=True)
    here.publish(topic, b"", 1, retain=True)

    late_here, late_there = pair(join, version)
    for late in (late_here, late_there):
        late.subscribe((topic, 1))

    assert late_there.payloads() == [b"there"]
    late_here.nothing()


def test_queues_stay_in_their_tenant(join: Clients, version: int) -> None:
    """Offline Sessions of the same Client Identifier and filter."""
    topic = unique("t")
    here, there = pair(join, version, keep=True)
    for client in (here, there):
        client.subscribe((topic, 1))
        client.disconnect()
    join(version).publish(topic, b"here", 1)

    assert join(version, here.client_id, keep=True).payloads() == [b"here"]
    other = join(version, here.client_id, tenant="beta", keep=True)
    assert other.connack.session_present
    other.nothing()


def test_wills_stay_in_their_tenant(join: Clients, version: int) -> None:
    """The same Client Identifier with the same Will topic: each tenant hears its own."""
    topic, name = unique("w"), unique()
    here, there = pair(join, version)
    for client in (here, there):
        client.subscribe((topic, 1))
    victims = [join(version, name, tenant=tenant, will=(topic, tenant.encode(), 1, False)) for tenant in TENANTS]

    victims[0].drop()

    assert here.payloads() == [b"acme"]
    there.nothing()
    victims[1].drop()
    assert there.payloads() == [b"beta"]
    here.nothing()


def test_shared_groups_stay_in_their_tenant(join: Clients, version: int) -> None:
    """The same group name and filter: two groups; no tenant's messages are dealt to the other's members."""
    topic = unique("t")
    here, there = pair(join, version)
    for client in (here, there):
        client.subscribe((f"$share/g/{topic}", 1))

    for number in range(6):
        join(version).publish(topic, b"%d" % number, 1)

    assert here.payloads(6) == [b"%d" % number for number in range(6)]
    there.nothing()


def test_topic_aliases_and_response_topics_stay_in_their_tenant(join: Clients) -> None:
    """An alias is a connection's own, a Response Topic names a topic of the requester's tenant."""
    topic = unique("t")
    here, there = pair(join, 5)
    for client in (here, there):
        client.subscribe((f"{topic}/+", 1))

    here.publish(f"{topic}/here", b"1", 1, props=[(names.TOPIC_ALIAS, 1), (names.RESPONSE_TOPIC, f"{topic}/reply")])
    there.publish(f"{topic}/there", b"2", 1, props=[(names.TOPIC_ALIAS, 1)])
    here.publish("", b"3", 1, props=[(names.TOPIC_ALIAS, 1)])
    there.publish(f"{topic}/reply", b"4", 1)

    assert [(got.topic, got.payload) for got in here.take(2)] == [(f"{topic}/here", b"1"), (f"{topic}/here", b"3")]
    assert [(got.topic, got.payload) for got in there.take(2)] == [(f"{topic}/there", b"2"), (f"{topic}/reply", b"4")]


def test_unsubscribing_in_one_tenant_leaves_the_other(join: Clients, version: int) -> None:
    topic = unique("t")
    here, there = pair(join, version)
    for client in (here, there):
        client.subscribe((topic, 1))

    there.unsubscribe(topic)
    here.publish(topic, b"still", 1)

    assert here.payloads() == [b"still"]


def test_no_matching_subscribers_says_nothing_about_others(join: Clients) -> None:
    """0x10 or not must not depend on another tenant's subscriptions."""
    topic = unique("t")
    here, there = pair(join, 5)

    alone = here.publish(topic, b"", 1)
    there.subscribe(("#", 0))
    with_others = here.publish(topic, b"", 1)

    assert alone is not None
    assert with_others is not None
    assert alone.code == with_others.code


@pytest.mark.parametrize(
    "username", ["beta/../acme/dev1", "beta/acme/dev1", "beta//acme", "acme\\dev1", "Acme/dev1", "\u0430cme/dev1"]
)
def test_look_alike_user_names_are_nobody(tcp: Clients, username: str) -> None:
    """Nothing in a user name leads from one tenant into another, nor does a look-alike letter."""
    assert tcp.ask(5, username=username).connack.code == 0x87
