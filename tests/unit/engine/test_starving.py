"""A worker that holds too much reads no publisher, but their acknowledgements: those are what makes room."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub.engine.limits import PlaneLimits
from iothub.engine.starving import READ_AHEAD_BYTES
from iothub.testing.engine import Bench, Client, ack, packets, publish

FULL = 110_000
PAYLOAD = bytes(20_000)
FIRST = 1  # the Packet Identifier of the message that each has and does not acknowledge


def full(packet_bytes: int = 1 << 20) -> tuple[Bench, Client, Client]:
    """Two clients that publish to each other: what fills the worker waits for their own PUBACKs."""
    bench = Bench(PlaneLimits(buffered_bytes=FULL))
    one, two = (bench.client(name, receive_maximum=1, packet_bytes=packet_bytes) for name in ("one", "two"))
    one.subscribe(b"to/one", 1)
    two.subscribe(b"to/two", 1)
    for number in range(1, 4):
        one.send(publish(b"to/two", PAYLOAD, 1, number))
        two.send(publish(b"to/one", PAYLOAD, 1, number))
    one.send(publish(b"to/two", PAYLOAD, 1, 4))
    assert bench.plane.overload_level() >= 2
    for client in (one, two):
        client.take()
    return bench, one, two


def received(client: Client) -> list[int]:
    """The Packet Identifiers of the PUBLISHes that came."""
    return [int.from_bytes(body[8:10], "big") for header, body in packets(client.take()) if header >> 4 == 3]


def test_acknowledgement_behind_a_blocked_publish_makes_room() -> None:
    """Both are blocked, and each has what the other waits for behind its PUBLISH: nothing may wait for ever."""
    bench, one, two = full()
    sent = {one: publish(b"to/two", b"last", 1, 9), two: publish(b"to/one", b"last", 1, 9)}
    for client, data in sent.items():
        client.connection.feed(data + ack(0x40, FIRST))
    bench.plane.end_batch()
    came: dict[Client, list[int]] = {one: [], two: []}
    for _ in range(10):
        bench.pass_time(0.1)
        for client, identifiers in came.items():
            for identifier in received(client):
                identifiers.append(identifier)
                client.connection.feed(ack(0x40, identifier))
        bench.plane.end_batch()

    assert bench.plane.overload_level() == 0
    assert came == {one: [2, 3, 4], two: [2, 3, 4, 5]}
    assert [client.transport.is_paused for client in came] == [False, False]
    assert bench.control.closes == []


def test_what_was_published_keeps_its_order_when_acknowledgements_go_before_it() -> None:
    bench, one, two = full()
    data = publish(b"x", b"1") + ack(0x40, FIRST) + publish(b"x", b"2") + ack(0x40, FIRST + 1)[:2]
    one.connection.feed(data)
    bench.plane.end_batch()
    one.connection.feed(ack(0x40, FIRST + 1)[2:] + publish(b"x", b"3"))
    listener = bench.client("three")
    listener.subscribe(b"x")
    for identifier in range(FIRST, FIRST + 4):
        two.send(ack(0x40, identifier))
    bench.pass_time(0.2)

    assert [body[3:] for _, body in packets(listener.take())] == [b"1", b"2", b"3"]
    window = one.session.window
    assert window is not None
    assert window.base == 2


def test_nothing_goes_before_a_packet_for_the_control_plane() -> None:
    """Nor is anything read behind it: a client that has sent DISCONNECT and closed is not taken for one that was lost."""
    bench, one, _ = full()
    one.connection.feed(publish(b"x", b"1") + b"\xe0\x00" + ack(0x40, FIRST))
    bench.plane.end_batch()

    window = one.session.window
    assert window is not None
    assert window.in_flight == 1
    bench.pass_time(9)
    assert one.transport.is_paused
    assert bench.control.closes == []


def test_starved_client_is_read_on_within_its_bound() -> None:
    """A packet's worth beyond which nothing is read: what it has not shown there may take the hub's memory no longer."""
    bench, one, _ = full(packet_bytes=30_000)
    pauses = []
    for number, seconds in ((9, 0.1), (10, 1.0)):
        one.send(publish(b"to/two", PAYLOAD, 1, number))
        pauses.append(one.transport.is_paused)
        bench.pass_time(seconds)
        pauses.append(one.transport.is_paused)
    assert pauses == [True, False, True, True]

    bench.pass_time(8.0)
    assert bench.control.closes == []
    bench.pass_time(2.0)
    assert bench.control.closes == [(one.connection, Reason.OVERLOAD)]


def test_starved_client_is_read_on_for_a_chunk_behind_its_blocked_publish() -> None:
    """However large a packet may be."""
    bench, one, _ = full()
    one.send(publish(b"to/two", PAYLOAD, 1, 9))
    bench.pass_time(0.1)
    one.send(bytes([0x30, 0xFF, 0xFF, 0x3F]) + bytes(READ_AHEAD_BYTES))
    bench.pass_time(9)

    assert one.transport.is_paused
    assert len(one.connection.partial or b"") < len(PAYLOAD) + 2 * READ_AHEAD_BYTES


def test_publisher_that_owes_no_acknowledgement_just_waits() -> None:
    bench, _, _ = full()
    publisher = bench.client("p", keep_alive_s=1)
    publisher.send(publish(b"x", b"1"))
    bench.pass_time(30)

    assert publisher.transport.is_paused
    assert bench.control.closes == []


@pytest.mark.parametrize("header", [0x50, 0x70])
def test_misplaced_acknowledgement_closes_as_ever(header: int) -> None:
    """PUBREC of a QoS 1 message, PUBCOMP of one that was not released."""
    bench, one, _ = full()
    one.connection.feed(publish(b"x", b"1") + ack(header, FIRST))
    bench.plane.end_batch()

    assert bench.control.closes == [(one.connection, Reason.PROTOCOL_ERROR)]
