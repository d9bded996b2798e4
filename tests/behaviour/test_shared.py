"""Shared Subscriptions, §4.8.2: each message to one member, and what happens when that member fails."""

from __future__ import annotations

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import Client, Clients
from tests.support.clients.packets import PUBACK, PUBREC


def drain(*members: Client) -> list[list[bytes]]:
    """What each member has got by now."""
    found = []
    for member in members:
        member.ping()
        member.ping()
        found.append([got.payload for got in member.take(sum(each.kind == 3 for each in member.received))])
    return found


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member(join: Clients, version: int, qos: int) -> None:
    """Three online members: together exactly the messages, each its share. §4.8.2 [MQTT-4.8.2-1]."""
    topic, publisher = unique("t"), join(version)
    members = [join(version) for _ in range(3)]
    for member in members:
        assert member.subscribe((f"$share/g/{topic}/+", qos)).codes == [qos]

    for number in range(30):
        publisher.publish(f"{topic}/x", b"%d" % number, qos)
    publisher.ping()

    shares = drain(*members)
    assert sorted(payload for share in shares for payload in share) == sorted(numbers(30))
    assert all(len(share) >= 5 for share in shares)


def test_groups_and_plain_subscriptions_each_get_everything(join: Clients) -> None:
    """Two groups, the same group name on another filter, and a plain subscription are four subscriptions. §4.8.2."""
    topic, publisher = unique("t"), join(5)
    one, two, other, plain = (join(5) for _ in range(4))
    one.subscribe((f"$share/a/{topic}", 1))
    two.subscribe((f"$share/b/{topic}", 1))
    other.subscribe((f"$share/a/{topic}/#", 1))
    plain.subscribe((topic, 1))

    for number in range(5):
        publisher.publish(topic, b"%d" % number, 1)

    for client in (one, two, other, plain):
        assert client.payloads(5) == numbers(5)
        client.nothing()


def test_a_member_with_a_plain_subscription_gets_both(join: Clients) -> None:
    """A shared and a non-shared subscription of one Session are separate deliveries. §4.8.2."""
    topic, publisher, client = unique("t"), join(5), join(5)
    client.subscribe((f"$share/g/{topic}", 1), props=[(names.SUBSCRIPTION_ID, 1)])
    client.subscribe((topic, 1), props=[(names.SUBSCRIPTION_ID, 2)])

    publisher.publish(topic, b"x", 1)

    got = client.take(2)
    assert sorted(int(str(each.property(names.SUBSCRIPTION_ID))) for each in got) == [1, 2]
    client.nothing()


def test_shared_delivery_respects_the_members_qos(join: Clients) -> None:
    """[MQTT-4.8.2-3]."""
    topic, publisher, client = unique("t"), join(5), join(5)
    client.subscribe((f"$share/g/{topic}", 1))

    publisher.publish(topic, b"x", 2)

    assert [got.qos for got in client.take()] == [1]


def test_shared_subscriptions_get_no_retained_messages(join: Clients, version: int) -> None:
    """§4.8.2."""
    topic, client = unique("t"), join(version)
    join(version).publish(topic, b"kept", 1, retain=True)

    client.subscribe((f"$share/g/{topic}", 1))
    client.subscribe((topic, 0))

    assert [(got.payload, got.qos) for got in client.take()] == [(b"kept", 0)]
    client.nothing()


def test_unsubscribing_leaves_the_group(join: Clients, version: int) -> None:
    """The others go on; the plain filter of the same text is another subscription. [MQTT-3.10.4-1] [MQTT-3.10.4-2]."""
    topic, publisher, leaving, staying = unique("t"), join(version), join(version), join(version)
    for member in (leaving, staying):
        member.subscribe((f"$share/g/{topic}", 1))

    codes = leaving.unsubscribe(topic, f"$share/h/{topic}", f"$share/g/{topic}").codes
    for number in range(6):
        publisher.publish(topic, b"%d" % number, 1)

    assert codes == ([0x11, 0x11, 0] if version == 5 else [])
    assert staying.payloads(6) == numbers(6)
    leaving.nothing()


def test_a_gone_member_gets_nothing(join: Clients, version: int) -> None:
    """A transient member leaves with its connection."""
    topic, publisher, gone, here = unique("t"), join(version), join(version), join(version)
    for member in (gone, here):
        member.subscribe((f"$share/g/{topic}", 1))
    gone.disconnect()
    here.ping()

    for number in range(6):
        publisher.publish(topic, b"%d" % number, 1)

    assert here.payloads(6) == numbers(6)


def test_online_members_come_first(join: Clients, version: int) -> None:
    """An offline persistent member gets messages only while nobody is online; then nothing is lost."""
    topic, publisher = unique("t"), join(version)
    sleeper, awake = join(version, keep=True), join(version)
    for member in (sleeper, awake):
        member.subscribe((f"$share/g/{topic}", 1))
    sleeper.disconnect()
    awake.ping()

    for number in range(6):
        publisher.publish(topic, b"%d" % number, 1)
    assert awake.payloads(6) == numbers(6)
    awake.disconnect()
    publisher.ping()
    for number in range(6, 9):
        publisher.publish(topic, b"%d" % number, 1)

    back = join(version, sleeper.client_id, keep=True)
    assert back.payloads(3) == [b"6", b"7", b"8"]
    back.nothing()


@pytest.mark.parametrize("keep", [False, True], ids=["transient", "persistent"])
def test_unsent_qos_1_of_an_ended_session_goes_to_another_member(join: Clients, keep: bool) -> None:
    """What waited behind the first member's window when its Session ended reaches the second. §4.8.2."""
    topic, publisher = unique("t"), join(5)
    failing = join(5, keep=keep, props=[(names.RECEIVE_MAXIMUM, 1)])
    failing.subscribe((f"$share/g/{topic}", 1))
    for number in range(3):
        publisher.publish(topic, b"%d" % number, 1)
    (held,) = failing.get()
    rescuer = join(5)
    rescuer.subscribe((f"$share/g/{topic}", 1))

    failing.disconnect(0, [(names.SESSION_EXPIRY, 0)])

    assert held.payload == b"0"
    rescued: set[bytes] = set()
    while not rescued >= {b"1", b"2"}:
        rescued |= set(rescuer.payloads())


def test_unacknowledged_qos_1_of_an_ended_session_goes_to_another_member(join: Clients) -> None:
    """§4.8.2: if the Session terminates before the Client reconnects, the Server SHOULD send it to another member."""
    topic, publisher, failing = unique("t"), join(5), join(5)
    failing.subscribe((f"$share/g/{topic}", 1))
    publisher.publish(topic, b"x", 1)
    failing.get()
    rescuer = join(5)
    rescuer.subscribe((f"$share/g/{topic}", 1))

    failing.drop()

    assert rescuer.payloads() == [b"x"]


def test_qos_2_begun_is_completed_with_its_member(join: Clients) -> None:
    """The member's Session lives: it gets the rest at reconnection, nobody else does. [MQTT-4.8.2-4]."""
    topic, publisher = unique("t"), join(5)
    member = join(5, keep=True)
    member.subscribe((f"$share/g/{topic}", 2))
    publisher.publish(topic, b"begun", 2)
    (begun,) = member.get()
    other = join(5)
    other.subscribe((f"$share/g/{topic}", 2))

    member.drop()
    back = join(5, member.client_id, keep=True)

    (again,) = back.take()
    assert (again.packet_id, again.dup, again.payload) == (begun.packet_id, True, b"begun")
    other.nothing()


def test_qos_2_begun_dies_with_its_session(join: Clients) -> None:
    """[MQTT-4.8.2-5]."""
    topic, publisher, watcher = unique("t"), join(5), join(5)
    member = join(5, will=(topic + "/gone", b"", 0, False))
    watcher.subscribe((topic + "/gone", 0))
    member.subscribe((f"$share/g/{topic}", 2))
    publisher.publish(topic, b"begun", 2)
    member.get()
    other = join(5)
    other.subscribe((f"$share/g/{topic}", 2))

    member.drop()
    watcher.take()

    other.nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_rejected_message_is_discarded(join: Clients, qos: int) -> None:
    """Nobody else gets what a member refused. [MQTT-4.8.2-6]."""
    topic, publisher = unique("t"), join(5)
    member = join(5)
    member.subscribe((f"$share/g/{topic}", qos))
    publisher.publish(topic, b"no, thanks", qos)
    (got,) = member.get()
    other = join(5)
    other.subscribe((f"$share/g/{topic}", qos))

    member.ack(PUBACK if qos == 1 else PUBREC, got.packet_id, 0x83)
    member.ping()
    member.drop()

    other.nothing()


def test_retain_as_published_holds_for_shared_subscriptions(join: Clients) -> None:
    """[MQTT-3.3.1-13]."""
    topic, publisher, client = unique("t"), join(5), join(5)
    client.subscribe((f"$share/g/{topic}", 0x09))

    publisher.publish(topic, b"x", 1, retain=True)

    assert [got.retain for got in client.take()] == [True]
