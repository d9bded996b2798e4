"""Limits that a CONNECT can hit: connections, connects, sessions, and what CONNECT and CONNACK agree on. Each driven to half above it."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.support.clients.packets import CONNACK, DISCONNECT, PUBREC
from tests.support.clients.raw import RawClient
from tests.support.hubs.quota_harness import Tenancy, closing_packets

Make = Callable[..., Tenancy]

RECEIVE_MAXIMUM, MAXIMUM_PACKET, TOPIC_ALIAS_MAXIMUM, SERVER_KEEP_ALIVE, SESSION_EXPIRY = 0x21, 0x27, 0x22, 0x13, 0x11
USER_PROPERTY, TOPIC_ALIAS = 0x26, 0x23


def codes(tenancy: Tenancy, version: int, count: int, **options: object) -> list[int]:
    """Connect so many clients; the code of each CONNACK, which closes when it refuses."""
    answers = []
    for _ in range(count):
        client, connack = tenancy.ask(version, **options)
        assert connack is not None
        answers.append(connack.code)
        if connack.code:
            assert client.expect_closed() == []
    return answers


def test_connections(tenant: Make, version: int) -> None:
    """CONNACK 3 or 0x97, close. A connection that goes makes room, taking over one's own session needs none, and a lowered limit kicks nobody."""
    here = tenant("connections=4")
    refused = 3 if version == 4 else 0x97
    first = here.connect(version, "first")

    assert codes(here, version, 5) == [0, 0, 0, refused, refused]
    assert (here.used("connections"), here.refused("connections")) == (4, 2)

    again = here.connect(version, "first")
    first.expect_closed()
    again.disconnect()
    here.comes_to_use("connections", 3)
    assert codes(here, version, 1) == [0]

    here.set("connections=2")
    for client in (here.clients[1], here.clients[2]):
        client.ping()
    assert codes(here, version, 1) == [refused]
    assert here.refused("connections") == 3


def test_refused_connections_leave_no_trace(tenant: Make, version: int) -> None:
    """Twenty clients come and go at a limit of one: the count is exact all the time."""
    here = tenant("connections=1 sessions=1 subscriptions=2 shared_groups=1 group_members=1")

    for number in range(20):
        client = here.connect(version, f"c{number}", device="dev2" if number % 2 else "dev1")
        assert client.subscribe(("a", 0), ("$share/g/b", 1)).codes == [0, 1]
        client.disconnect()
        here.comes_to_use("connections", 0)

    assert [here.used(name) for name in ("subscriptions", "shared_groups", "sessions")] == [0, 0, 0]
    assert sum(here.refused(name) for name in ("connections", "subscriptions", "shared_groups", "group_members")) == 0


def test_connects(tenant: Make, version: int) -> None:
    """CONNACK 3 or 0x9F, close: a window's worth at once, not one more."""
    here = tenant("connects=4/1m")

    assert codes(here, version, 6) == [0] * 4 + [3 if version == 4 else 0x9F] * 2
    assert here.refused("connects") == 2
    assert here.used("connections") == 4


def test_sessions(tenant: Make, version: int) -> None:
    """CONNACK 3 or 0x97 for a new session that is to be kept; old ones come back, and others need no place."""
    here = tenant("sessions=4")
    kept = {"clean": False, "props": [(SESSION_EXPIRY, 1000)] if version == 5 else None}
    for number in range(4):
        here.connect(version, f"kept{number}", **kept).disconnect()

    assert codes(here, version, 2, **kept) == [3 if version == 4 else 0x97] * 2
    assert (here.used("sessions"), here.refused("sessions")) == (4, 2)

    back, connack = here.ask(version, "kept0", **kept)
    assert connack is not None
    assert connack.session_present
    back.disconnect()
    here.connect(version).ping()  # not kept: no place needed
    here.connect(version, "kept1", clean=True)  # ends the session of that name
    assert here.used("sessions") == 3
    assert codes(here, version, 1, **kept) == [0]


def test_session_expiry(tenant: Make, version: int) -> None:
    """A longer life is cut, and a 5.0 client is told; the device's own limit comes first."""
    here = tenant("session_expiry_s=1s", device=("session_expiry_s=1h",))
    for device in ("dev1", "dev2"):
        props = [(SESSION_EXPIRY, 5000)] if version == 5 else None
        client, connack = here.ask(version, device, device=device, clean=False, props=props)
        assert connack is not None
        assert connack.property(SESSION_EXPIRY) == (None if version == 4 else 3600 if device == "dev1" else 1)
        client.disconnect()
    here.comes_to_use("sessions", 1)

    props = [(SESSION_EXPIRY, 5000)] if version == 5 else None
    present = {}
    for device in ("dev1", "dev2"):
        _, connack = here.ask(version, device, device=device, clean=False, props=props)
        assert connack is not None
        present[device] = connack.session_present
    assert present == {"dev1": True, "dev2": False}


def test_keep_alive(tenant: Make, version: int) -> None:
    """A shorter one is raised: 5.0 is told, 3.x simply has more time."""
    here = tenant("keep_alive_min_s=5s")

    client, connack = here.ask(version, keep_alive=1)
    assert connack is not None
    assert connack.property(SERVER_KEEP_ALIVE) == (5 if version == 5 else None)
    time.sleep(2.0)
    client.ping()


def test_receive_maximum(tenant: Make, version: int) -> None:
    """QoS 2 whose PUBREL does not come: DISCONNECT 0x93; 3.x was told no limit. The device's own limit comes first."""
    here = tenant("receive_maximum=2", device=("receive_maximum=4",))
    client, connack = here.ask(version)
    assert connack is not None
    assert connack.property(RECEIVE_MAXIMUM) == (4 if version == 5 else None)

    for number in range(1, 5):
        client.send(client.publish_bytes("t", b"x", 2, number))
        assert client.expect(PUBREC).packet_id == number
    client.send(client.publish_bytes("t", b"x", 2, 5) + client.publish_bytes("t", b"x", 2, 6))

    if version == 5:
        assert closing_packets(client) == [(DISCONNECT, 0x93)]
    else:
        assert [client.expect(PUBREC).packet_id for _ in range(2)] == [5, 6]
    assert here.refused("receive_maximum") == (1 if version == 5 else 0)


def test_topic_aliases(tenant: Make) -> None:
    """5.0 alone knows them: DISCONNECT 0x94."""
    here = tenant("topic_aliases=4")
    client, connack = here.ask(5)
    assert connack is not None
    assert connack.property(TOPIC_ALIAS_MAXIMUM) == 4

    for alias in range(1, 5):
        client.publish("t", b"x", 1, alias, props=[(TOPIC_ALIAS, alias)])
    client.send(client.publish_bytes("t", b"x", 1, 5, props=[(TOPIC_ALIAS, 5)]))

    assert closing_packets(client) == [(DISCONNECT, 0x94)]
    assert here.refused("topic_aliases") == 1


def test_will_bytes(tenant: Make, version: int) -> None:
    """Close, or CONNACK 0x95. The device's own limit comes first."""
    here = tenant("will_bytes=60", device=("will_bytes=100",))

    here.connect(version, will=("w", b"x" * 100, 0, False))
    _, connack = here.ask(version, will=("w", b"x" * 150, 0, False))
    assert (connack.code if connack else None) == (None if version == 4 else 0x95)
    _, connack = here.ask(version, device="dev2", will=("w", b"x" * 90, 0, False))
    assert (connack.code if connack else None) == (None if version == 4 else 0x95)
    assert here.refused("will_bytes") == 2
    assert here.used("connections") == 1


def test_packet_bytes(tenant: Make, version: int) -> None:
    """Close, or DISCONNECT 0x95: before the body is there. A CONNECT is held to it as well; the device's own limit comes first."""
    here = tenant("packet_bytes=200", device=("packet_bytes=400",))
    client, connack = here.ask(version)
    assert connack is not None
    assert connack.property(MAXIMUM_PACKET) == (400 if version == 5 else None)

    client.publish("t", b"x" * 300, 1)
    client.send(client.publish_bytes("t", b"x" * 450, 1)[:20])
    assert closing_packets(client) == ([] if version == 4 else [(DISCONNECT, 0x95)])

    other = here.connect(version, device="dev2")
    other.send(other.publish_bytes("t", b"x" * 300, 1)[:20])
    assert closing_packets(other) == ([] if version == 4 else [(DISCONNECT, 0x95)])

    _, connack = here.ask(version, device="dev2", will=("w", b"x" * 200, 0, False))
    assert (connack.code if connack else None) == (None if version == 4 else 0x95)
    assert here.refused("packet_bytes") == 3


def test_changed_packet_bytes_hold_for_live_connections(tenant: Make, version: int) -> None:
    """Within a second, without a reconnect."""
    here = tenant()
    client = here.connect(version)
    client.publish("t", b"x" * 300, 1)

    here.set("packet_bytes=200")

    client.send(client.publish_bytes("t", b"x" * 300, 1)[:20])
    assert closing_packets(client) == ([] if version == 4 else [(DISCONNECT, 0x95)])


def test_user_properties(tenant: Make) -> None:
    """5.0 alone knows them: DISCONNECT 0x97, for a CONNECT CONNACK 0x97."""
    here = tenant("user_properties=4")
    allowed: list[tuple[int, object]] = [(USER_PROPERTY, ("k", "v"))] * 4
    above: list[tuple[int, object]] = [(USER_PROPERTY, ("k", "v"))] * 6

    def refused(client: RawClient) -> None:
        assert closing_packets(client) == [(DISCONNECT, 0x97)]

    client = here.connect(5, props=allowed)
    client.publish("t", b"x", 1, props=allowed)
    assert client.subscribe(("a", 0), props=allowed).codes == [0]
    client.send(client.publish_bytes("t", b"x", 1, 2, props=above))
    refused(client)
    client = here.connect(5)
    client.send_packet(0x82, b"\0\1\x2a" + b"\x26\0\1k\0\1v" * 6 + b"\0\1a\0")
    refused(client)
    _, connack = here.ask(5, props=above)
    assert connack is not None
    assert connack.code == 0x97
    assert here.refused("user_properties") == 3


def test_connack_is_last_word_of_a_refusal(tenant: Make, version: int) -> None:
    """Nothing follows it, and no session was made."""
    here = tenant("connections=0")
    client, connack = here.ask(version, "c", clean=False)

    assert connack is not None
    assert (connack.kind, connack.code) == (CONNACK, 3 if version == 4 else 0x97)
    assert client.expect_closed() == []
    assert here.used("sessions") == 0
