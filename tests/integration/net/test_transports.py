"""The same behaviour over TCP, TLS, WebSocket and WebSocket over TLS, in both twins: one limits object, one stream of bytes."""

from __future__ import annotations

import contextlib
import os
import socket

from iothub.base.reasons import Reason
from iothub.net.listener_info import ListenerInfo, listener_info
from iothub.net.ports import Channel
from iothub.testing.byte_clients import ByteClient
from iothub.testing.echo_plane import EchoPlane


def receive(client: ByteClient, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := client.receive()):
        data += chunk
    return data


def is_ended(sock) -> bool:
    """The peer has closed or reset, after whatever it still sent."""
    with contextlib.suppress(OSError):
        while sock.recv(1 << 16):
            pass
    return True


def test_transport_echoes_and_forgets(start_one, transport) -> None:
    """Bytes both ways; the client's address and listener; one `lost` at the end."""
    hub = start_one()
    client = hub.client(transport)
    client.send(b"hello")
    assert receive(client, 5) == b"hello"
    connection = hub.only()
    assert connection.peer == "{}:{}".format(*client.sock.getsockname())
    assert connection.listener.name == transport
    client.close()
    hub.until(lambda: connection.lost_for == [Reason.NETWORK])
    hub.until(lambda: hub.listeners.gates()[transport].connections == 0)
    assert hub.listeners.gates()[transport].handshakes == 0


def test_transport_moves_megabytes_in_order(start_one, transport) -> None:
    """Records, frames and chunks of all sizes make one stream."""
    hub = start_one()
    client = hub.client(transport)
    for size in (1, 125, 126, 4095, 16_384, 16_385, 65_535, 65_536, 200_000):
        data = os.urandom(size)
        client.send(data)
        assert receive(client, size) == data
    hub.thread.call(lambda: (hub.plane.connections[0].send(b"y" * 2_000_000), hub.plane.end_batch()))
    assert receive(client, 2_000_000) == b"y" * 2_000_000


def test_transport_peer_that_never_reads_costs_bounded_memory(start_one, transport) -> None:
    """At most one chunk is encoded ahead; the rest stays in `connection.out`, where the engine's limits see it."""
    hub = start_one(send_buffer_bytes=16_384)
    client = hub.client(transport, buffer_bytes=4096)
    client.send(b"x")
    connection = hub.only()
    hub.until(lambda: connection.received == 1)
    hub.thread.call(lambda: (connection.send(b"z" * 3_000_000), hub.plane.end_batch()))
    hub.ticks(2)
    waiting = len(connection.out)
    hub.ticks(2)
    assert 2_000_000 < waiting == len(connection.out)
    hub.thread.call(lambda: connection.transport.close(abort=True))
    hub.until(lambda: len(connection.lost_for) == 1)


def test_transport_close_says_good_bye_after_the_last_bytes(start_one, transport) -> None:
    """What is in `out` arrives, then the layers' own good-byes, then the end."""
    hub = start_one()

    def refuse(connection, _data) -> None:
        connection.send(b"bye")
        connection.transport.close()

    hub.plane.on_feed = refuse
    client = hub.client(transport)
    client.send(b"x" * 10_000)
    assert receive(client, 3) == b"bye"
    assert client.receive() == b""
    if transport in {"ws", "wss"}:
        assert client.close_code == 1000
    hub.until(lambda: len(hub.plane.connections[0].lost_for) == 1)


def test_transport_garbage_is_refused_and_others_are_served(start_one, transport) -> None:
    """64 KiB of noise in place of a handshake: closed, and a witness does not notice."""
    hub = start_one()
    hub.plane.on_feed = lambda connection, data: (
        connection.send(data) if len(data) < 10 else connection.transport.close()
    )
    witness = hub.client(transport)
    for noise in (b"\xff" * 65_536, os.urandom(65_536), b"SSH-2.0-x\r\n" * 4000, b"GET / HTTP/1.1\r\n" * 4000):
        bare = hub.connect(transport)
        with contextlib.suppress(ConnectionError):
            bare.sendall(noise)
        assert is_ended(bare)
        bare.close()
        witness.send(b"ok?")
        assert receive(witness, 3) == b"ok?"
    hub.until(lambda: hub.listeners.gates()[transport].connections == 1)


def test_transport_silent_and_slow_clients_end_at_the_connect_time_out(start_one, transport) -> None:
    """Half-open, half a handshake, one byte now and then: one bound from accept covers all of it."""
    hub = start_one(connect_timeout_s=2.0)  # a TLS handshake takes less, on any machine
    hub.plane.has_sessions = False
    silent, slow = hub.connect(transport), hub.connect(transport)
    start = {"tcp": b"\x10", "tls": b"\x16\x03\x01\x02", "ws": b"GET /mqtt", "wss": b"\x16\x03\x01\x02"}[transport]
    for byte in start:
        hub.ticks(1)
        with contextlib.suppress(ConnectionError):
            slow.sendall(bytes((byte,)))
    assert is_ended(silent)
    assert is_ended(slow)
    open_but_silent = hub.client(transport)
    assert open_but_silent.receive() == b""
    hub.until(lambda: hub.listeners.gates()[transport].connections == 0)
    assert all(connection.received <= 4 for connection in hub.plane.connections)


def test_transport_limit_of_connections_is_the_same_everywhere(start_one, transport) -> None:
    """The count is taken at accept: handshakes cannot get around it."""
    hub = start_one(max_connections=2)
    first = hub.client(transport)
    hub.connect(transport)
    hub.until(lambda: hub.listeners.gates()[transport].connections == 2)
    assert hub.is_refused(transport)
    assert hub.listeners.gates()[transport].refused == {Reason.OVERLOAD: 1}
    first.send(b"in")
    assert receive(first, 2) == b"in"
    first.close()
    hub.until(lambda: hub.listeners.gates()[transport].connections == 1)
    third = hub.client(transport)
    third.send(b"in")
    assert receive(third, 2) == b"in"


def test_transport_exception_in_feed_ends_that_client_only(start_one, transport, caplog) -> None:
    """A defect of ours costs one client."""
    hub = start_one()

    def fail(connection, data) -> None:
        if data == b"bad":
            raise ZeroDivisionError
        connection.send(data)

    hub.plane.on_feed = fail
    good, bad = hub.client(transport), hub.client(transport)
    bad.send(b"bad")
    assert bad.receive() == b""
    good.send(b"good")
    assert receive(good, 4) == b"good"
    assert "ZeroDivisionError" in caplog.text
    hub.until(lambda: sorted(len(each.lost_for) for each in hub.plane.connections) == [0, 1])


def test_transport_behind_a_trusted_proxy_has_the_clients_address(start_one, transport) -> None:
    """The PROXY header comes before everything else."""
    hub = start_one(proxy_trusted=("127.0.0.1",))
    client = hub.client(transport, preamble=b"PROXY TCP4 192.0.2.7 192.0.2.1 1234 1883\r\n")
    client.send(b"hi")
    assert receive(client, 2) == b"hi"
    assert hub.only().peer == "192.0.2.7:1234"


def test_transport_proxy_rules(start_one, transport) -> None:
    """Without a header, or announcing a denied client: closed. From an address that is no trusted proxy: closed unread."""
    hub = start_one(proxy_trusted=("127.0.0.1",), deny=("192.0.2.0/24",))
    for preamble in (b"\x10\x00" * 8, b"PROXY TCP4 192.0.2.7 192.0.2.1 1234 1883\r\n", b"PROXY TCP4 x\r\n"):
        bare = hub.connect(transport)
        bare.sendall(preamble)
        if transport != "tcp" and preamble.endswith(b"1883\r\n"):
            bare.close()  # the rule is held against it when the other handshakes are through
            continue
        assert is_ended(bare)
    hub.until(lambda: hub.listeners.gates()[transport].connections == 0)
    assert hub.plane.connections == []
    stranger = start_one(proxy_trusted=("192.0.2.1",))
    assert stranger.is_refused(transport)
    assert stranger.plane.connections == []


def test_transport_serves_a_socket_that_this_process_has_connected(start, twin) -> None:
    """What the acceptor writes at once leaves; a refusal closes the socket; both ends are told."""
    hub = start(listener_info("tcp"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        for is_wanted in (True, False):
            connected = socket.create_connection(server.getsockname())
            connected.setblocking(False)
            acceptor = OneAcceptor(hub.plane, is_wanted=is_wanted)
            hub.thread.call(lambda each=connected, one=acceptor: hub.listeners.transports.adopt(each, one))
            peer, _ = server.accept()
            with peer:
                peer.settimeout(300)
                if is_wanted:
                    assert peer.recv(100) == b"first words"
                    peer.sendall(b"echo")
                    assert peer.recv(100) == b"echo"
                else:
                    assert is_ended(peer)
            hub.until(lambda one=acceptor: one.releases == one.is_wanted)
    assert hub.plane.connections[0].lost_for == [Reason.NETWORK]


class OneAcceptor:
    """Serves one socket, or does not want it."""

    def __init__(self, plane: EchoPlane, *, is_wanted: bool) -> None:
        self.listener, self.plane, self.is_wanted, self.releases = ListenerInfo("dialled"), plane, is_wanted, 0

    def allowance(self) -> int:
        return 1

    def accepted(self, channel: Channel, ip: str, port: int) -> bool:
        if self.is_wanted:
            channel.connection = self.plane.accept(channel, self.listener, f"{ip}{port}", None)
            channel.connection.out += b"first words"
            channel.wake()
        return self.is_wanted

    def shed(self, ip: str, port: int) -> None:
        raise AssertionError

    def released(self, _channel: Channel) -> None:
        self.releases += 1
