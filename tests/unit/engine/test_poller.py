"""The compiled poller with its sockets and listeners, on Unix sockets: batches, ends in the middle of them, defects that stay where they are."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from iothub.base.reasons import Reason
from iothub.engine.poller import Poller
from iothub.engine.state import NOTHING
from iothub.net.acceptor import Acceptor
from iothub.net.filter_factory import FilterFactory
from iothub.net.gate import Gate
from iothub.net.listener_info import listener_info
from iothub.peers.listening import LinkAcceptor
from iothub.testing.clock import ManualClock
from iothub.testing.echo_plane import EchoConnection
from iothub.testing.engine import Bench as PlaneBench
from tests.support.in_process.poller_bench import FAR, Bench


@pytest.fixture
def bench(tmp_path) -> Iterator[Bench]:
    made = Bench(str(tmp_path / "socket"))
    yield made
    made.close()


def test_poller_turn_drains_what_is_ready(bench) -> None:
    """Everything that was sent is handled in one turn, each connection's output leaves in one send per batch."""
    clients = [bench.client() for _ in range(20)]
    for client, _ in clients:
        client.sendall(b"hello")
    before = bench.poller.counters()
    bench.turn()
    after = bench.poller.counters()
    assert all(client.recv(10) == b"hello" for client, _ in clients)
    assert after["recv_calls"] - before["recv_calls"] == after["send_calls"] - before["send_calls"] == 20
    assert after["bytes_in"] - before["bytes_in"] == after["bytes_out"] - before["bytes_out"] == 100


def test_poller_few_events_end_as_one_batch_when_another_hub_gets_something(bench) -> None:
    """One frame for all of them; else each event ends a batch of its own."""
    clients = [bench.client() for _ in range(3)]
    ends: list[int] = []
    end_batch = bench.plane.end_batch

    def end() -> None:
        ends.append(len(bench.plane.dirty))
        end_batch()

    bench.plane.end_batch = end
    for is_routing in (False, True):
        bench.plane.is_routing = lambda is_routing=is_routing: is_routing
        for client, _ in clients:
            client.sendall(b"x")
        bench.turn()

    assert [count for count in ends if count] == [1, 1, 1, 3]


def test_poller_batch_ends_once_for_each_event_and_never_for_nothing(bench) -> None:
    (client, _), ends = bench.client(), []
    end_batch = bench.plane.end_batch
    bench.plane.end_batch = lambda: (ends.append(True), end_batch())
    client.sendall(b"x")

    bench.turn()
    bench.turn()

    assert (client.recv(2), ends) == (b"x", [True])


class Handshake:
    """A stream that answers before there is a connection."""

    def __init__(self, transport) -> None:
        self.transport, self.out, self.unsent = transport, bytearray(), 0

    def received(self, data: bytes) -> None:
        self.out += data.upper()
        self.transport.wake()

    def pending(self) -> bytearray:
        return self.out


def test_poller_answers_a_handshake_that_comes_after_a_batch_of_others(bench) -> None:
    """Handshakes are handled behind the traffic, whose batch has ended by then."""
    (client, _), (newcomer, connection) = bench.client(), bench.client()
    transport = connection.transport
    transport.connection, transport.stream = None, Handshake(transport)
    newcomer.sendall(b"hello")
    client.sendall(b"x")

    bench.turn()

    assert (client.recv(2), newcomer.recv(6)) == (b"x", b"HELLO")


def test_poller_waits_for_a_descriptor_of_somebody_else_too(bench) -> None:
    """Until then what clients send is served, and nobody else is to do anything."""
    client, _ = bench.client()
    theirs, other = socket.socketpair()
    bench.poller.watch(theirs.fileno())
    client.sendall(b"x")
    told = [bench.poller.wait(time.monotonic() + 100)]
    other.send(b"y")
    told.append(bench.poller.wait(time.monotonic() + 100))
    client.sendall(b"z")
    told.append(bench.poller.wait(time.monotonic() + 100))

    assert (told, client.recv(3), theirs.recv(2)) == ([False, True, True], b"xz", b"y")
    for each in (theirs, other):
        each.close()


def test_poller_waits_until_a_time_and_for_none_that_has_passed(bench) -> None:
    began = time.monotonic()

    assert bench.poller.wait(time.monotonic() + 0.03)
    assert bench.poller.wait(0)
    assert 0.03 <= time.monotonic() - began < 5


def test_poller_that_has_lost_its_descriptor_says_so_and_does_not_wait_again_and_again(bench) -> None:
    """Then timers run on, and a hub can be stopped."""
    with Path(os.devnull).open() as file:
        os.dup2(file.fileno(), bench.poller.fileno())

    with pytest.raises(OSError, match="epoll_wait failed"):
        bench.poller.wait(time.monotonic() + 100)


def test_poller_says_that_the_time_has_come_though_clients_send_all_the_time(bench) -> None:
    client, _ = bench.client()
    told = []
    for until in (time.monotonic() + 100, time.monotonic() - 1):
        client.sendall(b"x")
        told.append(bench.poller.wait(until))

    assert (told, client.recv(3)) == ([False, True], b"xx")


def test_poller_turn_that_is_cut_short_lets_others_have_theirs(bench) -> None:
    """What is left is served before anything new is waited for."""

    def feed_slowly(connection: EchoConnection, data: bytes) -> None:
        until = time.monotonic() + 0.003
        while time.monotonic() < until:
            pass
        EchoConnection.feed(connection, data)

    clients = [bench.client() for _ in range(20)]
    for client, connection in clients:
        client.sendall(b"x")
        connection.feed = partial(feed_slowly, connection)
    told = [bench.poller.wait(time.monotonic() + 100) for _ in clients]
    assert told == [True] * 20

    assert [client.recv(2) for client, _ in clients] == [b"x"] * 20


def test_poller_writes_once_to_each_of_many_for_all_that_is_ready(bench) -> None:
    """As for members of a shared group: few publishers, many receivers, and what came while those were handled is for the same ones."""
    receivers = [bench.client() for _ in range(20)]
    publishers = [bench.client() for _ in range(3)]
    late, _ = bench.client()
    fed = 0

    def feed(_connection: EchoConnection, data: bytes) -> None:
        nonlocal fed
        fed += 1
        for _, receiver in receivers:
            receiver.send(data)
        if fed == len(publishers):
            late.sendall(b"x")

    bench.plane.on_feed = feed
    for publisher, _ in publishers:
        publisher.sendall(b"x")
    before = bench.poller.counters()["send_calls"]
    bench.turn()

    assert [client.recv(10) for client, _ in receivers] == [b"xxxx"] * 20
    assert bench.poller.counters()["send_calls"] - before == 20


@pytest.mark.parametrize("deadline", [0.0, FAR])
def test_poller_puts_off_what_is_for_many_only_once(bench, deadline: float) -> None:
    """Publishers that send on and on do not keep it from its receivers, nor does the end of the turn."""
    receivers = [bench.client() for _ in range(20)]
    publisher, _ = bench.client()
    waits: list[int] = []
    fed = 0

    def feed(_connection: EchoConnection, data: bytes) -> None:
        nonlocal fed
        fed += 1
        waits.append(len(receivers[0][1].out))
        for _, receiver in receivers:
            receiver.send(data)
        if fed < 10:
            publisher.sendall(b"x")

    bench.plane.on_feed = feed
    publisher.sendall(b"x")
    while fed < 10:
        bench.turn(deadline)
    assert waits == ([0] * 10 if deadline == 0.0 else [0, 1] * 5)
    assert all(client.recv(20) == b"x" * 10 for client, _ in receivers)


def test_poller_turn_ends_at_the_deadline_and_starves_nobody(bench) -> None:
    """What the deadline leaves over is first in the next turn."""
    clients = [bench.client() for _ in range(30)]
    order: list[EchoConnection] = []
    bench.plane.on_feed = lambda connection, _data: order.append(connection)
    for client, _ in clients:
        client.sendall(b"x")
    for _ in range(30):
        for client, _ in clients:
            client.sendall(b"x")
        bench.turn(0.0)
    assert {id(connection) for connection in order} == {id(connection) for _, connection in clients}


def test_poller_one_batch_may_close_those_that_come_later_in_it(bench) -> None:
    """Stale events of closed sockets are ignored; each is lost once; their numbers can be given out again afterwards."""
    clients = [bench.client() for _ in range(50)]

    def close_all(_connection, _data) -> None:
        for connection in bench.plane.connections:
            connection.transport.close(abort=True)

    bench.plane.on_feed = close_all
    for client, _ in clients:
        client.sendall(b"x")
    bench.turn()
    assert [connection.lost_for for _, connection in clients] == [[Reason.NETWORK]] * 50
    assert bench.gate.connections == 0
    bench.plane.on_feed = EchoConnection.send
    client, _ = bench.client()
    client.sendall(b"new")
    bench.turn()
    assert client.recv(3) == b"new"


def test_poller_loss_may_give_others_output(bench) -> None:
    """A will, say: what `lost` makes the plane send leaves in the same turn."""
    (survivor, connection), (leaver, _) = bench.client(), bench.client()
    bench.plane.on_lost = lambda _lost: connection.send(b"will")
    leaver.close()
    bench.turn()
    assert survivor.recv(4) == b"will"


def test_poller_output_outside_of_a_turn_is_scheduled_once(bench) -> None:
    """`schedule` is called once; `settle` writes."""
    client, connection = bench.client()
    bench.scheduled = 0
    for _ in range(3):
        connection.send(b"x")
        bench.plane.end_batch()
    assert bench.scheduled == 1
    bench.poller.settle()
    assert client.recv(10) == b"xxx"
    connection.transport.close()
    assert bench.scheduled == 2


def test_poller_defects_of_callees_stay_where_they_are(bench, caplog) -> None:
    """An exception in feed, lost or end_batch ends at most one connection; the turn goes on."""
    (client, _), (victim, broken) = bench.client(), bench.client()

    def fail(connection: EchoConnection, data: bytes) -> None:
        if connection is broken:
            raise ZeroDivisionError
        connection.send(data)

    def fail_too(_connection: EchoConnection) -> None:
        raise KeyError("lost")

    bench.plane.on_feed, bench.plane.on_lost = fail, fail_too
    victim.sendall(b"x")
    client.sendall(b"ok")
    bench.turn()
    assert victim.recv(1) == b""
    assert client.recv(2) == b"ok"
    assert broken.lost_for == [Reason.IMPLEMENTATION]
    bench.plane.dirty.append(object())  # type: ignore[arg-type] - has no transport
    bench.poller.settle()
    client.sendall(b"ok")
    bench.turn()
    assert client.recv(2) == b"ok"
    assert {"ZeroDivisionError", "KeyError", "AttributeError"} <= set(caplog.text.replace(":", " ").split())


def test_poller_peer_that_vanishes_while_written_to_is_lost_once(bench) -> None:
    """A failed send is handled after the flush."""
    client, connection = bench.client()
    connection.send(b"x" * 100)
    client.close()
    bench.plane.end_batch()
    bench.poller.settle()
    bench.turn()
    assert connection.lost_for == [Reason.NETWORK]


def test_poller_polite_close_that_nobody_reads_ends_after_five_seconds(bench) -> None:
    """A peer that does not take our last words cannot keep its place."""
    _, connection = bench.client()
    connection.send(b"x" * 5_000_000)
    connection.transport.close()
    bench.turn()
    bench.poller.settle()
    assert connection.lost_for == []
    assert connection.transport.is_congested
    bench.poller.tick(FAR)
    assert connection.lost_for == [Reason.NETWORK]
    assert bench.gate.connections == 0


def test_poller_close_that_drains_reads_what_comes_later(bench) -> None:
    """A peer that is just sending gets our last bytes and an end, not a reset; its descriptor is kept until it ends, too."""
    client, connection = bench.client()
    connection.send(b"why")
    connection.transport.close(drains=True)
    bench.poller.settle()
    assert connection.lost_for == [Reason.NETWORK]
    assert bench.gate.connections == 1

    client.sendall(b"more")
    bench.turn()

    assert (client.recv(10), client.recv(10)) == (b"why", b"")
    assert bench.gate.connections == 1
    client.close()
    bench.turn()
    assert bench.gate.connections == 0


@pytest.mark.parametrize("is_silent", [True, False])
def test_poller_drains_for_a_moment_and_a_mebibyte(bench, is_silent: bool) -> None:
    """Who does not end is ended."""
    client, connection = bench.client()
    connection.transport.close(drains=True)
    bench.poller.settle()

    if is_silent:
        bench.poller.tick(FAR)
    else:
        for _ in range(16):
            assert bench.gate.connections == 1
            client.sendall(bytes(1 << 16))
            bench.turn()

    assert bench.gate.connections == 0


def test_poller_drains_many_small_packets(bench) -> None:
    """What counts is bytes: a client that publishes small messages has not read the reason after a few of them."""
    client, connection = bench.client()
    connection.transport.close(drains=True)
    bench.poller.settle()

    for _ in range(100):
        client.sendall(b"small")
        bench.turn()

    assert bench.gate.connections == 1


def test_poller_drains_for_one_though_many_have_just_ended(bench) -> None:
    """Those that are being drained are bounded, 1,024 of them: a storm of clients that are refused costs others nothing."""
    for _ in range(1025):
        client, connection = bench.client()
        assert bench.gate.connections == 1
        connection.transport.close(drains=True)
        bench.poller.settle()
        assert bench.gate.connections == 1
        client.close()
        bench.turn()


def test_poller_that_closes_leaves_last_bytes_to_those_it_drains(bench) -> None:
    """No reset: the hub stops, and the peer reads why a moment later."""
    client, connection = bench.client()
    connection.send(b"why")
    connection.transport.close(drains=True)
    bench.poller.settle()

    bench.poller.close()

    assert (client.recv(10), client.recv(10)) == (b"why", b"")


def test_poller_transport_is_safe_after_the_end(bench) -> None:
    """Whoever still holds a transport may call it; nothing happens."""
    client, connection = bench.client()
    client.close()
    bench.turn()
    transport = connection.transport
    transport.pause()
    transport.resume()
    transport.wake()
    transport.close()
    transport.close(abort=True)
    bench.poller.settle()
    assert connection.lost_for == [Reason.NETWORK]


def test_poller_close_resets_everybody(bench) -> None:
    """Shutdown: `lost` of each connection is called, every place is free; a second close does nothing."""
    clients = [bench.client() for _ in range(3)]
    bench.poller.close()
    assert [connection.lost_for for _, connection in clients] == [[Reason.NETWORK]] * 3
    assert bench.gate.connections == 0
    bench.poller.close()
    bench.turn()
    bench.poller.settle()


class OnPlane:
    """A poller that has the engine itself, as a hub has, and what it has accepted at a Unix socket."""

    def __init__(self, folder) -> None:
        self.plane = PlaneBench().plane
        self.poller = Poller(self.plane, lambda: None)
        self.path = str(folder / "socket")
        self.client = socket.socket(socket.AF_UNIX)
        self.client.settimeout(5)

    def accept(self, acceptor) -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self.path)
        listening.listen(1)
        listening.setblocking(False)
        self.poller.listen(listening.detach(), acceptor)
        self.client.connect(self.path)
        self.poller.turn(FAR)

    def accept_client(self):
        clock, info = ManualClock(), listener_info("tcp")
        self.accept(Acceptor(self.plane, Gate(info, clock), clock, FilterFactory(info)))
        return self.plane.control.opens[-1]

    def close(self) -> None:
        self.poller.close()
        self.client.close()


@pytest.fixture
def on_plane(tmp_path) -> Iterator[OnPlane]:
    made = OnPlane(tmp_path)
    yield made
    made.close()


def test_poller_takes_the_buffer_of_a_connection_that_has_sent_everything(on_plane) -> None:
    """An idle connection of the engine has none of its own; what the kernel does not take yet stays in it."""
    plane, poller, client = on_plane.plane, on_plane.poller, on_plane.client
    connection = on_plane.accept_client()
    plane.send(connection, b"\xd0\x00")
    poller.settle()
    assert client.recv(10) == b"\xd0\x00"
    poller.tick(0.0)
    assert connection.out is NOTHING
    plane.send(connection, bytes(1 << 20))
    poller.settle()
    poller.tick(0.0)
    assert connection.out is not NOTHING
    received = 0
    while received < 1 << 20:
        received += len(client.recv(1 << 16))
        poller.turn(FAR)
    poller.tick(0.0)
    assert connection.out is NOTHING


class Tap:
    """Stands in the place of a connection's byte sink, as a trace does."""

    def __init__(self, connection) -> None:
        self.passed = b""
        self._sink = connection.plane
        connection.plane = self

    def feed(self, connection, data: bytes) -> None:
        self.passed += data
        self._sink.feed(connection, data)

    def lost(self, connection, reason: Reason) -> None:
        self._sink.lost(connection, reason)


class Linked:
    """A link's end of its wire, which answers what it gets."""

    def __init__(self, wire) -> None:
        self.wire, self.got = wire, b""
        self.lost_for: list[str] = []

    def received(self, data: bytes) -> None:
        self.got += data
        self.wire.write(b"answer")

    def lost(self, reason: str) -> None:
        self.lost_for.append(reason)


def test_poller_gives_the_bytes_of_a_traced_client_to_its_trace(on_plane) -> None:
    """Also those of a connection that the engine has had directly before, and has directly afterwards."""
    plane, connection = on_plane.plane, on_plane.accept_client()
    parts = [b"\x10\x0c\x00\x04", b"MQTT", b"\x04\x02\x00\x3c\x00\x00"]
    on_plane.client.sendall(parts[0])
    on_plane.poller.turn(FAR)
    tap = Tap(connection)

    on_plane.client.sendall(parts[1])
    on_plane.poller.turn(FAR)
    connection.plane = plane
    on_plane.client.sendall(parts[2])
    on_plane.poller.turn(FAR)

    assert tap.passed == parts[1]
    assert [(got, header) for got, header, _ in plane.control.packets] == [(connection, 0x10)]


def test_poller_gives_the_bytes_of_a_link_to_the_link(on_plane) -> None:
    """It is served beside the clients, and is none of them."""
    links: list[Linked] = []

    def owner_of(wire) -> Linked:
        links.append(Linked(wire))
        return links[-1]

    on_plane.accept(LinkAcceptor(None, Clock(), owner_of, lambda *_: None))

    on_plane.client.sendall(b"hello")
    on_plane.poller.turn(FAR)

    [link] = links
    assert (link.got, on_plane.client.recv(10)) == (b"hello", b"answer")
    on_plane.client.close()
    on_plane.poller.turn(FAR)
    assert (len(link.lost_for), on_plane.plane.control.opens) == (1, [])
