"""WebSocket framing: any chunking, any fragmentation, and wsproto as the other side."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, Ping

from iothub.net.filters import FilterClosed
from iothub.net.websocket import WebSocketFilter
from iothub.net.websocket_frames import FrameError, FrameReader, Opcode, encode_frame, unmask, unmask_plain
from tests.support.night import by_day

UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
LIMIT = 1 << 20


def cut(data: bytes, points: list[int]) -> list[bytes]:
    places = sorted({point % (len(data) + 1) for point in points} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(places)] or [b""]


events = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.binary(max_size=300), st.booleans()),
        st.tuples(st.just("ping"), st.binary(max_size=125), st.just(True)),
    ),
    max_size=12,
)
points = st.lists(st.integers(0, 1 << 16), max_size=12)


@settings(max_examples=by_day(75, 150), deadline=None)
@given(events, points)
def test_frames_of_wsproto_give_the_same_bytes_in_any_chunking(
    messages: list[tuple[str, bytes, bool]], at: list[int]
) -> None:
    """[MQTT-6.0.0-2]: what the peer fragments and masks, in whatever pieces it arrives, is one stream of bytes."""
    peer = Connection(ConnectionType.CLIENT)
    wire = expected = b""
    pings = 0
    for kind, payload, is_final in messages:
        if kind == "ping":
            wire += peer.send(Ping(payload=payload))
            pings += 1
        else:
            wire += peer.send(BytesMessage(data=payload, message_finished=is_final))
            expected += payload
    reader = FrameReader(LIMIT)
    plain: list[bytes] = []
    for chunk in cut(wire, at):
        reader.receive(chunk, plain)
    assert b"".join(plain) == expected
    peer.receive_data(bytes(reader.pongs))
    assert len(list(peer.events())) == pings


@settings(max_examples=by_day(40, 60), deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(60_000, 70_000).map(bytes)), max_size=4), points)
def test_frames_that_we_send_are_read_by_wsproto(payloads: list[bytes], at: list[int]) -> None:
    """Lengths of all three forms, one binary message per flush."""
    peer = Connection(ConnectionType.CLIENT)
    wire = b"".join(encode_frame(Opcode.BINARY, payload) for payload in payloads)
    got = b""
    for chunk in cut(wire, at):
        peer.receive_data(chunk)
        for event in peer.events():
            assert isinstance(event, BytesMessage)
            got += bytes(event.data)
    assert got == b"".join(payloads)
    assert peer.state is ConnectionState.OPEN


def outcome(data: bytes, at: list[int]) -> tuple[bytes, bytes, str]:
    reader = FrameReader(LIMIT)
    plain: list[bytes] = []
    end = "open"
    try:
        for chunk in cut(data, at):
            reader.receive(chunk, plain)
            assert len(reader._held) < 140
    except FrameError as error:
        end = f"{error.code} {error}"
    if reader.close_code is not None:
        end = f"closed {reader.close_code}"
    return b"".join(plain), bytes(reader.pongs), end


@settings(max_examples=by_day(100, 200), deadline=None)
@given(
    st.lists(
        st.builds(
            lambda first, second, body: bytes((first, second)) + body,
            st.sampled_from([0x02, 0x82, 0x00, 0x80, 0x81, 0x88, 0x89, 0x8A, 0x09, 0xC2, 0x83]),
            st.sampled_from([0x80, 0x81, 0x85, 0xFE, 0xFF, 0x05]),
            st.binary(max_size=16),
        ),
        max_size=6,
    ).map(b"".join),
    points,
)
def test_frames_of_any_bytes_end_the_same_way_in_any_chunking(data: bytes, at: list[int]) -> None:
    """Bytes give payload, answers and one known end; how they were cut does not matter, and nothing is hoarded."""
    assert outcome(data, at) == outcome(data, [])


@settings(max_examples=by_day(50, 100), deadline=None)
@given(st.binary(max_size=200), st.booleans(), points)
def test_websocket_filter_never_fails_but_by_closing(data: bytes, is_upgraded: bool, at: list[int]) -> None:
    """Arbitrary bytes before or after the upgrade: bytes, nothing, or FilterClosed with an answer."""
    websocket = WebSocketFilter("/mqtt", LIMIT)
    try:
        if is_upgraded:
            websocket.receive(UPGRADE)
        for chunk in cut(data, at):
            websocket.receive(chunk)
    except FilterClosed:
        assert websocket.replies


@settings(max_examples=by_day(50, 100), deadline=None)
@given(
    st.one_of(st.binary(max_size=600), st.integers(500, 3000).map(lambda n: bytes(i * 31 & 0xFF for i in range(n)))),
    st.binary(min_size=4, max_size=4),
)
def test_unmask_is_the_plain_xor(data: bytes, key: bytes) -> None:
    """Both ways of unmasking do what RFC 6455 section 5.3 says."""
    expected = bytes(byte ^ key[at & 3] for at, byte in enumerate(data))
    assert unmask_plain(data, key) == expected
    assert unmask(data, key) == expected
