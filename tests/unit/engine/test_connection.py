"""An idle connection is small: its address needs no text, its out-buffer and its session's parts are there when they are needed."""

from __future__ import annotations

import sys
from ipaddress import IPv6Address

import pytest

from iothub.engine.limits import ListenerInfo
from iothub.engine.router import Subscription
from iothub.engine.state import NOTHING, Connection
from iothub.testing.engine import Bench, LoopbackTransport, ack, packets, publish


def connection_from(peer: str) -> Connection:
    return Connection(Bench().plane, LoopbackTransport(), ListenerInfo(), peer, None)


@pytest.mark.parametrize(
    ("peer", "ip"),
    [
        ("127.0.0.1:1883", "127.0.0.1"),
        ("255.255.255.255:65535", "255.255.255.255"),
        ("0.0.0.0:0", "0.0.0.0"),
        ("10.1:80", "10.1"),
        ("10.0.0.1:080", "10.0.0.1"),
        (f"[{IPv6Address(1 << 100)}]:9", str(IPv6Address(1 << 100))),
        (":0", ""),
    ],
)
def test_connection_names_its_peer_as_its_transport_does(peer: str, ip: str) -> None:
    """Whatever a transport calls an address, logs and events call it the same."""
    connection = connection_from(peer)

    assert (connection.peer, connection.peer_ip) == (peer, ip)
    connection.rest()
    assert (connection.peer, connection.peer_ip) == (peer, ip)


def test_connection_that_sends_nothing_has_no_buffer() -> None:
    """All idle ones share an empty one to which nobody can append: bytes of one client can never reach another."""
    bench = Bench()
    transport, connection = bench.accept()

    assert connection.out is NOTHING
    with pytest.raises(BufferError):
        connection.out.append(1)
    transport.is_stuck = True
    bench.plane.send(connection, b"\xd0\x00")
    connection.rest()
    assert connection.out == b"\xd0\x00"
    transport.is_stuck = False
    transport.flush()
    assert transport.take() == b"\xd0\x00"
    connection.rest()
    assert connection.out is NOTHING
    assert bytes(NOTHING) == b""


def test_connection_put_to_rest_while_it_is_dirty_keeps_its_buffer() -> None:
    """Whoever has a batch open for it does not ask again whether the buffer is its own."""
    bench = Bench()
    transport, connection = bench.accept()
    turn = bench.plane.turn
    turn.begin()
    bench.plane.send(connection, b"\xd0\x00")
    connection.out.clear()  # as a transport does that is reset in the middle of a batch
    connection.rest()

    bench.plane.send(connection, b"\xd0\x00")
    bench.plane.end_batch()

    assert transport.take() == b"\xd0\x00"
    connection.rest()
    assert connection.out is NOTHING


def test_connection_without_a_buffer_sends_its_final_packet() -> None:
    """A DISCONNECT may be all that a client is ever sent."""
    bench = Bench()
    transport, connection = bench.accept()
    connection.version = 5

    bench.pass_time(11.0)

    assert connection.is_closing
    assert NOTHING == b""
    assert isinstance(transport.take(), bytes)


def test_transient_session_gets_a_window_with_its_first_delivery() -> None:
    """Most devices only publish. The window is as large as the client's Receive Maximum [MQTT-3.3.4-9]."""
    bench = Bench()
    client = bench.client("s", version=5, receive_maximum=2)
    client.subscribe(b"t", 1)
    publisher = bench.client("p")

    publisher.send(publish(b"t", b"x", 0))
    assert client.session.window is None
    client.take()
    publisher.send(publish(b"t", b"x", 1, 7) * 3)

    assert client.session.window is not None
    assert [first >> 4 for first, _ in packets(client.take())] == [3, 3]
    assert [first >> 4 for first, _ in packets(client.send(ack(0x40, 2)))] == [3]


def test_receipt_without_a_window_is_no_error() -> None:
    """A PUBACK for what was never sent does nothing, a PUBREC gets PUBREL 0x92."""
    client = Bench().client("c", version=5)

    assert client.send(ack(0x40, 1)) == b""
    assert client.send(ack(0x50, 1)) == ack(0x62, 1, 0x92)
    assert not client.connection.is_closing


def test_session_without_subscriptions_shares_the_mapping_of_all_who_have_none() -> None:
    """It cannot be written to; `note` and `forget` give and take."""
    first, second = Bench().client("a").session, Bench().client("b").session
    subscription = Subscription(first, b"t")

    first.forget(None, b"t")
    with pytest.raises(TypeError):
        second.subscriptions[None, b"t"] = subscription  # type: ignore[index]
    first.note(subscription)
    assert dict(first.subscriptions) == {(None, b"t"): subscription}
    assert second.subscriptions == {}
    first.forget(None, b"t")
    assert first.subscriptions == {}
    first.note(subscription)
    first.forget_all()
    assert first.subscriptions is second.subscriptions


def test_idle_connection_stays_small() -> None:
    """2,048 bytes for everything of an idle connection is what the benchmark asks; these are its two largest parts."""
    client = Bench().client("c")

    assert sys.getsizeof(client.connection) <= 256
    assert sys.getsizeof(client.session) <= 224
