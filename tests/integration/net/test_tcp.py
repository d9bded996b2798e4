"""Plain TCP on real sockets, over both twins: what a client sees, and what the plane is told."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.net.listener_info import ListenerInfo, listener_info

Start = Callable[..., object]


def receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := client.recv(1 << 16)):
        data += chunk
    return data


def is_ended(client: socket.socket) -> bool:
    """The peer has closed or reset, after whatever it still sent."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def test_tcp_reader_that_was_slow_gets_everything(start) -> None:
    """After congestion the rest follows by itself."""
    hub = start(listener_info("tcp", send_buffer_bytes=16_384))
    client = hub.connect()
    connection = hub.only()
    hub.thread.call(lambda: (connection.send(b"x" * 3_000_000), hub.plane.end_batch()))
    assert len(receive(client, 3_000_000)) == 3_000_000
    hub.until(lambda: not connection.out)


def test_tcp_close_writes_what_is_there_first(start) -> None:
    """The final bytes arrive before the end, even with input that nobody has read."""
    hub = start(listener_info("tcp"))

    def refuse(connection, _data) -> None:
        connection.send(b"bye" * 1000)
        connection.transport.close()

    hub.plane.on_feed = refuse
    client = hub.connect()
    client.sendall(b"x" * 65_536)
    assert receive(client, 3000) == b"bye" * 1000
    assert is_ended(client)
    hub.until(lambda: len(hub.plane.connections[0].lost_for) == 1)
    assert len(hub.plane.connections[0].chunks) == 1


def test_tcp_abort_resets_and_drops(start) -> None:
    """`abort` sends nothing more."""
    hub = start(listener_info("tcp"))

    def abort(connection, _data) -> None:
        connection.send(b"never")
        connection.transport.close(abort=True)

    hub.plane.on_feed = abort
    client = hub.connect()
    client.sendall(b"x")
    with pytest.raises(ConnectionResetError):
        client.recv(10)
    hub.until(lambda: len(hub.plane.connections[0].lost_for) == 1)


def test_tcp_pause_leaves_bytes_in_the_socket_and_resume_reads_them(start) -> None:
    """Back-pressure: nothing is read while paused, nothing is lost."""
    hub = start(listener_info("tcp"))
    client = hub.connect()
    connection = hub.only()
    hub.thread.call(connection.transport.pause)
    client.sendall(b"later")
    ticks = hub.plane.ticks
    hub.until(lambda: hub.plane.ticks >= ticks + 2)
    assert connection.received == 0
    hub.thread.call(connection.transport.resume)
    assert receive(client, 5) == b"later"


def test_tcp_close_by_the_peer_is_noticed_while_paused(start) -> None:
    """A paused connection whose peer has gone ends without being read."""
    hub = start(listener_info("tcp"))
    client = hub.connect()
    connection = hub.only()
    hub.thread.call(connection.transport.pause)
    client.close()
    hub.until(lambda: len(connection.lost_for) == 1)


def test_tcp_unread_bytes_of_a_vanished_peer_wait_for_resume(start) -> None:
    """What was sent before the close (a DISCONNECT, say) is still read after the pause; the wait costs no turns."""
    hub = start(listener_info("tcp"))
    client = hub.connect()
    connection = hub.only()
    hub.thread.call(connection.transport.pause)
    client.sendall(b"last words")
    client.close()
    ticks = hub.plane.ticks
    hub.until(lambda: hub.plane.ticks >= ticks + 2)
    before = hub.listeners.transports.counters()["events"]
    hub.until(lambda: hub.plane.ticks >= ticks + 5)
    assert hub.listeners.transports.counters()["events"] - before < 10
    assert connection.lost_for == []
    hub.thread.call(connection.transport.resume)
    hub.until(lambda: connection.received == 10 and len(connection.lost_for) == 1)


def test_tcp_reads_small_chunks_before_there_is_a_session(start) -> None:
    """Until CONNECT has succeeded a client cannot make the hub hold more than 4 KiB at a time."""
    hub = start(listener_info("tcp"))
    hub.plane.has_sessions = False
    client = hub.connect()
    client.sendall(b"x" * 65_536)
    connection = hub.only()
    hub.until(lambda: connection.received == 65_536)
    assert max(connection.chunks) <= 4096


def test_tcp_silent_client_is_closed_at_the_connect_time_out(start) -> None:
    """Half-open clients are given up, admitted ones stay."""
    hub = start(listener_info("tcp", connect_timeout_s=2.0))  # who speaks does so sooner, on any machine
    admitted = hub.connect()
    admitted.sendall(b"x")
    hub.only()
    assert receive(admitted, 1) == b"x"
    hub.plane.has_sessions = False
    silent = hub.connect()
    assert is_ended(silent)
    assert [reason for _, reason in hub.plane.closed] == [Reason.CONNECT_TIMEOUT]
    admitted.sendall(b"y")
    assert receive(admitted, 1) == b"y"


def test_tcp_plane_that_is_full_refuses(start) -> None:
    """The plane may say no; the place is not counted."""
    hub = start(listener_info("tcp"))
    hub.plane.is_full = True
    assert hub.is_refused()
    hub.until(lambda: hub.listeners.gates()["tcp"].connections == 0)


def test_tcp_denied_address_is_closed_at_once(start) -> None:
    """CIDR rules hold before anything is read."""
    hub = start(listener_info("tcp", deny=("127.0.0.0/8",)))
    assert hub.is_refused()
    assert hub.plane.connections == []


def test_tcp_accept_rate_delays_instead_of_refusing(start) -> None:
    """Clients beyond the rate wait in the backlog and get in later."""
    hub = start(listener_info("tcp", accept_rate_per_s=10.0))
    clients = [hub.connect() for _ in range(14)]
    for client in clients:
        client.sendall(b"x")
    for client in clients:
        assert receive(client, 1) == b"x"


def test_tcp_thousand_quick_connects_leave_nothing_behind(start) -> None:
    """Come, speak, go: every client is served and forgotten."""
    hub = start(listener_info("tcp"))
    for _ in range(20):
        clients = [hub.connect() for _ in range(50)]
        for client in clients:
            client.sendall(b"x")
        for client in clients:
            assert client.recv(1) == b"x"
            client.close()
    hub.until(lambda: hub.listeners.gates()["tcp"].connections == 0)
    assert all(len(connection.lost_for) == 1 for connection in hub.plane.connections)
    assert len(hub.plane.connections) == 1000


def test_tcp_close_of_another_connection_in_the_same_batch_is_safe(start) -> None:
    """One client's bytes may close the others while their own events wait in the same batch."""
    hub = start(listener_info("tcp"))

    def close_others(connection, _data) -> None:
        for other in hub.plane.connections:
            if other is not connection:
                other.transport.close(abort=True)

    hub.plane.on_feed = close_others
    clients = [hub.connect() for _ in range(20)]
    hub.until(lambda: len(hub.plane.connections) == 20)
    hub.thread.call(lambda: [client.sendall(b"x") for client in clients])
    hub.until(lambda: sum(len(c.lost_for) for c in hub.plane.connections) >= 19)
    assert all(len(c.lost_for) <= 1 for c in hub.plane.connections)


def test_tcp_port_in_use_names_the_address_and_opens_nothing(start) -> None:
    """Exit code 7, one line, and no half-started hub."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{port}: the port is in use") as refused:
            start(listener_info("tcp"), ListenerInfo(name="other", port=port))
        assert refused.value.exit_code == 7


def test_tcp_listens_on_ipv6(start) -> None:
    """IPv6 addresses are written with brackets."""
    hub = start(listener_info("tcp", bind="::1"))
    client = hub.connect()
    client.sendall(b"six")
    assert receive(client, 3) == b"six"
    assert hub.only().peer == f"[::1]:{client.getsockname()[1]}"


def test_tcp_stop_accepting_keeps_clients(start) -> None:
    """A draining hub serves who is there and lets nobody in."""
    hub = start(listener_info("tcp"))
    client = hub.connect()
    hub.only()
    address = hub.listeners.addresses()["tcp"]
    hub.thread.call(hub.listeners.stop_accepting)
    client.sendall(b"x")
    assert receive(client, 1) == b"x"

    def is_refused() -> bool:
        try:
            socket.create_connection(address, timeout=1).close()
        except ConnectionRefusedError:
            return True
        return False

    hub.until(is_refused)
