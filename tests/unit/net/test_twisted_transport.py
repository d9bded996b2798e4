"""The plain twin on a fake Twisted transport: combining, congestion, ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock as TwistedClock
from twisted.python.failure import Failure

from iothub.base.reasons import Reason
from iothub.net import twisted_transport
from iothub.net.acceptor import Acceptor
from iothub.net.filter_factory import FilterFactory
from iothub.net.gate import Gate
from iothub.net.listener_info import listener_info
from iothub.net.twisted_transport import DRAIN_BYTES, PlainChannel, TwistedTransports
from iothub.testing.clock import ManualClock
from iothub.testing.echo_plane import EchoConnection, EchoPlane


class FakeTransport:
    """What the twin uses of `twisted.internet.tcp.Server`; the handle is one end of a socket pair."""

    def __init__(self, handle: socket.socket) -> None:
        self.bufferSize = 0
        self.handle = handle
        self.calls: list[str] = []
        self.writes: list[bytes] = []
        self.producer: PlainChannel | None = None
        self.is_full = False

    def getHandle(self) -> socket.socket:
        return self.handle

    def getPeer(self) -> IPv4Address:
        return IPv4Address("TCP", "10.0.0.1", 7)

    def fileno(self) -> int:
        return self.handle.fileno()

    def registerProducer(self, producer: PlainChannel, _streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        if self.is_full and self.producer is not None:
            self.producer.pauseProducing()

    def __getattr__(self, name: str):
        return lambda: self.calls.append(name)


class Bench:
    """A hub of the plain twin whose reactor turns are made by the test."""

    def __init__(self) -> None:
        self.plane, self.clock, self.reactor = EchoPlane(), ManualClock(), TwistedClock()
        self.hub = TwistedTransports(self.plane, self.clock, self.reactor)
        info = listener_info("tcp", max_connections=3)
        self.gate = Gate(info, self.clock)
        self.acceptor = Acceptor(self.plane, self.gate, self.clock, FilterFactory(info))
        self.sockets: list[socket.socket] = []

    def channel(self) -> tuple[PlainChannel, FakeTransport, socket.socket]:
        ours, theirs = socket.socketpair()
        self.sockets += [ours, theirs]
        transport = FakeTransport(ours)
        channel = PlainChannel(self.hub, self.acceptor)
        channel.makeConnection(transport)
        return channel, transport, theirs

    def turn(self) -> None:
        self.reactor.advance(0)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for sock in made.sockets:
        sock.close()


def test_plain_channel_combines_the_output_of_a_turn(bench) -> None:
    """Many feeds, one write."""
    channel, transport, _ = bench.channel()
    for data in (b"a", b"b", b"c"):
        channel.dataReceived(data)
    assert transport.writes == []
    bench.turn()
    assert transport.writes == [b"abc"]
    assert transport.bufferSize == 1 << 16


def test_plain_channel_leaves_in_out_what_twisted_does_not_take(bench) -> None:
    """Congestion: one chunk beyond the mark, the rest waits where the engine sees it, and follows."""
    channel, transport, _ = bench.channel()
    transport.is_full = True
    channel.dataReceived(b"x" * 200_000)
    bench.turn()
    assert [len(data) for data in transport.writes] == [65_536]
    assert len(channel.connection.out) == 200_000 - 65_536
    transport.is_full = False
    transport.producer.resumeProducing()
    bench.turn()
    assert sum(map(len, transport.writes)) == 200_000


def test_plain_channel_polite_close_flushes_and_is_told_once(bench) -> None:
    """The connection hears of its end as soon as its last byte is with Twisted."""
    channel, transport, _ = bench.channel()
    connection = channel.connection
    connection.send(b"bye")
    connection.transport.close()
    bench.turn()
    assert (transport.writes, transport.calls) == ([b"bye"], ["loseConnection"])
    assert connection.lost_for == [Reason.NETWORK]
    channel.connectionLost(Failure(ConnectionError()))
    assert connection.lost_for == [Reason.NETWORK]
    assert bench.gate.connections == 0


def test_plain_channel_close_with_unread_input_shuts_and_drains(bench) -> None:
    """So that no reset eats the last words; for a second at most."""
    channel, transport, theirs = bench.channel()
    theirs.sendall(b"unread")
    channel.connection.transport.close()
    bench.turn()
    assert transport.calls == ["startReading", "loseWriteConnection"]
    bench.clock.advance(1.1)
    bench.hub.tick()
    assert transport.calls[-1] == "loseConnection"


def test_plain_channel_that_drains_reads_what_comes_later_within_bounds(bench) -> None:
    """A peer that is still sending does not lose our last packet to a reset; it cannot send for ever."""
    channel, transport, _ = bench.channel()
    channel.connection.transport.close(drains=True)
    bench.turn()
    assert transport.calls == ["startReading", "loseWriteConnection"]

    for _ in range(DRAIN_BYTES >> 16):
        assert transport.calls[-1] == "loseWriteConnection"
        channel.dataReceived(bytes(1 << 16))

    assert transport.calls[-1] == "loseConnection"


def test_plain_channels_that_drain_are_bounded(bench, monkeypatch) -> None:
    """Their descriptors are needed: the others are closed at once."""
    monkeypatch.setattr(twisted_transport, "MOST_DRAINING", 1)
    (first, drained, _), (second, closed, _) = bench.channel(), bench.channel()
    for channel in (first, second):
        channel.connection.transport.close(drains=True)
    bench.turn()

    assert (drained.calls[-1], closed.calls[-1]) == ("loseWriteConnection", "loseConnection")

    first.connectionLost()
    third, also_drained, _ = bench.channel()
    third.connection.transport.close(drains=True)
    bench.turn()

    assert also_drained.calls[-1] == "loseWriteConnection"


def test_plain_channel_that_cannot_flush_its_final_bytes_is_aborted(bench) -> None:
    """Five seconds."""
    channel, transport, _ = bench.channel()
    transport.is_full = True
    channel.connection.send(b"x" * 200_000)
    channel.connection.transport.close()
    bench.turn()
    bench.clock.advance(4.9)
    bench.hub.tick()
    assert transport.calls == []
    bench.clock.advance(0.2)
    bench.hub.tick()
    assert transport.calls == ["abortConnection"]


def test_plain_channel_pause_watches_for_the_peers_end(bench) -> None:
    """A paused peer that goes away is noticed at a tick; one that left bytes behind waits, for thirty seconds."""
    channel, transport, theirs = bench.channel()
    channel.pause()
    channel.pause()
    bench.hub.tick()
    assert transport.calls == ["stopReading"]
    theirs.sendall(b"last")
    theirs.close()
    bench.hub.tick()
    assert transport.calls == ["stopReading"]
    channel.resume()
    assert transport.calls == ["stopReading", "startReading"]
    bench.clock.advance(30.1)
    bench.hub.tick()
    assert transport.calls[-1] == "abortConnection"


def test_plain_channel_pause_leaves_time_for_what_the_engine_has_not_parsed(bench) -> None:
    """A DISCONNECT behind a SUBSCRIBE that waits: its client has closed, and is still to be heard, for thirty seconds."""
    channel, transport, theirs = bench.channel()
    channel.pause()
    channel.connection.partial = bytearray(b"\xe0\x00")
    theirs.close()
    bench.hub.tick()
    assert transport.calls == ["stopReading"]
    bench.clock.advance(30.1)
    bench.hub.tick()
    assert transport.calls[-1] == "abortConnection"


def test_plain_channel_defects_of_callees_stay_where_they_are(bench, caplog) -> None:
    """An exception in feed ends that connection; one in end_batch is logged."""
    channel, transport, _ = bench.channel()
    connection = channel.connection

    def fail(_connection: EchoConnection, _data: bytes) -> None:
        raise ZeroDivisionError

    bench.plane.on_feed = fail
    channel.dataReceived(b"x")
    bench.plane.dirty.append(object())  # type: ignore[arg-type] - has no transport
    bench.turn()
    assert connection.lost_for == [Reason.IMPLEMENTATION]
    assert transport.calls == ["loseConnection"]
    channel.dataReceived(b"ignored")
    assert "ZeroDivisionError" in caplog.text
    assert "AttributeError" in caplog.text


def test_plain_hub_counts_and_closes(bench) -> None:
    """Refused clients are aborted; close aborts the rest; counters are there."""
    channels = [bench.channel() for _ in range(4)]
    assert channels[3][1].calls == ["abortConnection"]
    bench.hub.close()
    assert [transport.calls for _, transport, _ in channels] == [["abortConnection"]] * 4
    assert set(bench.hub.counters()) == {"turns", "events", "bytes_in", "bytes_out", "recv_calls", "send_calls"}
