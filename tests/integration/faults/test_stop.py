"""SIGTERM: everybody is told, what is queued stays, and the next start knows what was never sent."""

from __future__ import annotations

from tests.support.clients.packets import DISCONNECT, PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub

CLIENTS = 200
QUEUED = 20
SHUTTING_DOWN = 0x8B


def test_sigterm_sends_disconnect_to_two_hundred_clients(hub: Hub) -> None:
    """Exit 0, in time by the hub's own limit; 5.0 clients get DISCONNECT 0x8B; queued messages arrive after the restart with DUP=0."""
    hub.start()
    port = hub.ports["tcp"]
    with RawClient(port) as sleeper:
        sleeper.connect("sleeper", "acme/dev1", clean=False)
        sleeper.subscribe(("to/sleeper", 2))
        sleeper.disconnect()
    clients = [RawClient(port, 5 if number % 2 else 4) for number in range(CLIENTS)]
    for number, client in enumerate(clients):
        client.send(client.connect_bytes(f"c{number}", "acme/dev1", clean=False))
    for client in clients:
        assert client.expect(2).code == 0
    for number in range(1, QUEUED + 1):
        clients[0].publish("to/sleeper", str(number).encode(), 1 + number % 2, number)

    assert hub.stop() == 0
    for client in clients:
        final = [one.code for one in client.expect_closed() if one.kind == DISCONNECT]
        assert final == ([SHUTTING_DOWN] if client.version == 5 else [])
        client.close()
    assert "Traceback" not in hub.log
    hub.start()
    with RawClient(port) as sleeper:
        assert sleeper.connect("sleeper", "acme/dev1", clean=False).session_present
        got = [sleeper.expect(PUBLISH) for _ in range(QUEUED)]
    assert [one.payload for one in got] == [str(number).encode() for number in range(1, QUEUED + 1)]
    assert not any(one.dup for one in got)


def test_after_a_clean_stop_dup_tells_the_sent_from_the_unsent(hub: Hub) -> None:
    """With Receive Maximum 3, three were sent and not acknowledged: they come again with DUP, the others are first deliveries [MQTT-3.3.1-1]."""
    hub.start()
    port = hub.ports["tcp"]
    props: list[tuple[int, object]] = [(0x11, 3600), (0x21, 3)]
    reader = RawClient(port, 5)
    reader.connect("reader", "acme/dev1", clean=False, props=props)
    reader.subscribe(("to/reader", 1))
    with RawClient(port) as publisher:
        publisher.connect("publisher", "acme/dev2")
        for number in range(1, 9):
            publisher.publish("to/reader", str(number).encode(), 1, number)
    first = [reader.expect(PUBLISH) for _ in range(3)]
    reader.fence()
    assert hub.stop() == 0
    reader.close()
    hub.start()

    with RawClient(port, 5) as reader:
        assert reader.connect("reader", "acme/dev1", clean=False, props=props).session_present
        again = []
        for _ in range(8):
            again.append(reader.expect(PUBLISH))
            reader.ack(PUBACK, again[-1].packet_id)

    assert [one.payload for one in again] == [str(number).encode() for number in range(1, 9)]
    assert [one.dup for one in again] == [True] * 3 + [False] * 5
    assert [one.packet_id for one in again[:3]] == [one.packet_id for one in first]


def test_after_a_kill_what_may_have_been_sent_has_dup(hub: Hub) -> None:
    """A kill cannot say what was sent: the unacknowledged keep their identifiers and have DUP."""
    hub.start()
    port = hub.ports["tcp"]
    reader = RawClient(port)
    reader.connect("reader", "acme/dev1", clean=False)
    reader.subscribe(("to/reader", 1))
    with RawClient(port) as publisher:
        publisher.connect("publisher", "acme/dev2")
        for number in range(1, 6):
            publisher.publish("to/reader", str(number).encode(), 1, number)
    first = [reader.expect(PUBLISH) for _ in range(5)]
    hub.kill()
    reader.close()
    assert "did not stop cleanly" not in hub.log
    hub.start()
    assert "the last hub did not stop cleanly" in hub.log

    with RawClient(port) as reader:
        assert reader.connect("reader", "acme/dev1", clean=False).session_present
        again = [reader.expect(PUBLISH) for _ in range(5)]

    assert [(one.payload, one.packet_id) for one in again] == [(one.payload, one.packet_id) for one in first]
    assert all(one.dup for one in again)
