"""A chain of filters: order, ends, and bounded memory."""

from __future__ import annotations

from iothub.base.reasons import Reason
from iothub.net.filters import ClientFacts, FilterClosed
from iothub.net.listener_info import listener_info
from iothub.net.ports import Channel
from iothub.net.stream import CHUNK_BYTES, Stream
from iothub.testing.echo_plane import EchoConnection, EchoPlane


class Layer:
    """Wraps in a letter; "!" ends the connection, "?" is answered, "+" opens."""

    def __init__(self, letter: bytes, *, is_open: bool = True, is_deaf: bool = False) -> None:
        self.is_deaf = is_deaf
        self.letter = letter
        self.is_open = is_open
        self.replies = bytearray()

    def receive(self, data: bytes) -> bytes:
        if self.is_deaf:
            return data
        if data.endswith(b"+"):
            self.is_open = True
            return b""
        if data.endswith(b"?"):
            self.replies += b"answer" * 10_000
            return b""
        if data.endswith(b"!"):
            self.replies += b"bad"
            raise FilterClosed(Reason.PROTOCOL_ERROR, "an exclamation", data[:-1])
        return data

    def send(self, data: bytes) -> bytes:
        return self.letter + data

    def final_bytes(self) -> bytes:
        return b"bye"


class RecordingChannel:
    """A channel without a socket."""

    def __init__(self) -> None:
        self.connection: EchoConnection | None = None
        self.stream: Stream | None = None
        self.wakes = 0
        self.failures: list[Reason] = []

    def wake(self) -> None:
        self.wakes += 1

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self, *, abort: bool = False, drains: bool = False) -> None: ...

    def fail(self, reason: Reason) -> None:
        self.failures.append(reason)


class Owner:
    """Lets in, or not."""

    def __init__(self, *, is_locked: bool = False) -> None:
        self.is_locked = is_locked
        self.plane = EchoPlane()

    def opened(self, channel: Channel, client: ClientFacts) -> bool:
        if self.is_locked:
            return False
        channel.connection = self.plane.accept(
            channel, listener_info("tcp"), f"{client.ip}:{client.port}", client.subject
        )
        return True


def stream_of(*layers: Layer, owner: Owner | None = None) -> tuple[Stream, RecordingChannel]:
    channel = RecordingChannel()
    stream = Stream(channel, owner or Owner(), list(layers), ClientFacts("10.0.0.1", 7))
    channel.stream = stream
    return stream, channel


def taken(stream: Stream) -> bytes:
    data = bytes(stream.pending())
    stream.pending().clear()
    return data


def test_stream_opens_when_every_layer_is_open_and_feeds_from_then_on() -> None:
    """The plane hears of a client only when its handshakes are over."""
    stream, channel = stream_of(Layer(b"A", is_deaf=True), Layer(b"B", is_open=False))
    stream.received(b"early")
    assert channel.connection is None
    stream.received(b"+")
    assert stream.is_open
    connection = channel.connection
    assert connection is not None
    stream.received(b"data")
    assert connection.received == 4
    assert taken(stream) == b"ABdata"


def test_stream_end_feeds_what_came_before_and_says_good_bye_through_the_outer_layers() -> None:
    """The inner layer's last words are wrapped by the outer one; nothing follows."""
    stream, channel = stream_of(Layer(b"A", is_deaf=True), Layer(b"B"))
    stream.received(b"last!")
    connection = channel.connection
    assert connection is not None
    assert connection.received == 4
    assert channel.failures == [Reason.PROTOCOL_ERROR]
    assert taken(stream).startswith(b"Abad")
    stream.received(b"more")
    assert connection.received == 4
    assert taken(stream) == b""


def test_stream_refused_at_the_door_ends() -> None:
    """A denied address is told nothing but good-bye."""
    stream, channel = stream_of(Layer(b"A"), owner=Owner(is_locked=True))
    stream.received(b"data")
    assert channel.failures == [Reason.ADDRESS_DENIED]
    assert taken(stream) == b"bye"


def test_stream_wraps_one_chunk_ahead() -> None:
    """What the socket does not take stays unwrapped in `connection.out`."""
    stream, channel = stream_of(Layer(b"A"))
    stream.received(b"x")
    connection = channel.connection
    assert connection is not None
    connection.out += bytes(3 * CHUNK_BYTES)
    assert len(stream.pending()) == CHUNK_BYTES + 1
    assert len(stream.pending()) == CHUNK_BYTES + 1
    assert len(connection.out) == 2 * CHUNK_BYTES + 1


def test_stream_peer_that_asks_and_never_reads_is_ended() -> None:
    """Answers of a layer are bounded too."""
    stream, channel = stream_of(Layer(b"A"))
    asked = 0
    while not channel.failures and asked < 1000:
        stream.received(b"?")
        asked += 1
    assert channel.failures == [Reason.SLOW_CONSUMER]
    assert len(stream.pending()) < 2 * CHUNK_BYTES
