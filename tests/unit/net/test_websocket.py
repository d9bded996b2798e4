"""WebSocket framing: strict, streaming, and every end with its close code."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub.net.filters import FilterClosed
from iothub.net.websocket import WebSocketFilter
from iothub.net.websocket_frames import FrameReader, Opcode, encode_frame, unmask

KEY = b"\x01\x02\x03\x04"
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def frame(opcode: int, payload: bytes, *, is_final: bool = True) -> bytes:
    unmasked = encode_frame(Opcode.BINARY, payload)
    head = unmasked[: len(unmasked) - len(payload)]
    return bytes((opcode | (0x80 if is_final else 0), head[1] | 0x80)) + head[2:] + KEY + unmask(payload, KEY)


def opened(max_frame_bytes: int = 1 << 20) -> WebSocketFilter:
    websocket = WebSocketFilter("/mqtt", max_frame_bytes)
    assert websocket.receive(UPGRADE) == b""
    assert websocket.is_open
    websocket.replies.clear()
    return websocket


def closed(data: bytes, **options: int) -> tuple[bytes, bytes, Reason]:
    """What came before the end, what was answered, and why."""
    websocket = opened(**options)
    with pytest.raises(FilterClosed) as end:
        websocket.receive(data)
    assert websocket.send(b"late") == b""
    assert websocket.final_bytes() == b""
    return end.value.data, bytes(websocket.replies), end.value.reason


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 511, 512, 513, 65_535, 65_536, 100_001])
def test_websocket_unmasks_every_length(size: int) -> None:
    """Short and long forms of the length, both ways of unmasking."""
    payload = bytes(at * 7 & 0xFF for at in range(size))
    assert opened().receive(frame(Opcode.BINARY, payload)) == payload


def test_websocket_packets_span_frames_and_share_them() -> None:
    """[MQTT-6.0.0-2]: frame boundaries mean nothing to Control Packets; control frames come in between."""
    websocket = opened()
    data = (
        frame(Opcode.BINARY, b"ab", is_final=False)
        + frame(Opcode.PING, b"alive?")
        + frame(Opcode.CONTINUATION, b"", is_final=False)
        + frame(Opcode.CONTINUATION, b"cd")
        + frame(Opcode.PONG, b"unasked")
        + frame(Opcode.BINARY, b"ef")
    )
    got = b"".join(websocket.receive(data[at : at + 1]) for at in range(len(data)))
    assert got == b"abcdef"
    assert bytes(websocket.replies) == encode_frame(Opcode.PONG, b"alive?")


def test_websocket_text_frame_is_refused() -> None:
    """[MQTT-6.0.0-1]: 1003; what came before counts."""
    data, reply, reason = closed(frame(Opcode.BINARY, b"before") + frame(Opcode.TEXT, b"text"))
    assert (data, reply, reason) == (b"before", b"\x88\x02\x03\xeb", Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x01a",  # not masked
        b"\xc2\x80",  # reserved bit
        frame(3, b""),
        frame(11, b""),
        frame(Opcode.CONTINUATION, b"continues nothing"),
        frame(Opcode.BINARY, b"", is_final=False) + frame(Opcode.BINARY, b""),
        frame(Opcode.PING, b"", is_final=False),
        frame(Opcode.PING, b"x" * 126),
        frame(Opcode.CLOSE, b"\x03"),
        frame(Opcode.CLOSE, b"\x03\xee"),  # 1006 is never sent
        frame(Opcode.CLOSE, b"\x00\x01"),
        b"\x82\xfe\x00\x05" + KEY,  # 5 in the long form
        b"\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff" + KEY,
        b"\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00" + KEY,
    ],
)
def test_websocket_broken_framing_is_refused(data: bytes) -> None:
    """1002."""
    assert closed(data)[1] == b"\x88\x02\x03\xea"


def test_websocket_frame_that_is_too_long_is_refused_before_its_body() -> None:
    """1009, on the header alone."""
    assert closed(b"\x82\xff\x00\x00\x00\x00\x00\x10\x00\x01", max_frame_bytes=1 << 20)[1] == b"\x88\x02\x03\xf1"


def test_websocket_close_reason_must_be_utf8() -> None:
    """1007."""
    assert closed(frame(Opcode.CLOSE, b"\x03\xe8\xff"))[1] == b"\x88\x02\x03\xef"


def test_websocket_close_is_answered_after_the_data_before_it() -> None:
    """A DISCONNECT in the same chunk as the Close still counts."""
    data, reply, reason = closed(frame(Opcode.BINARY, b"\xe0\x00") + frame(Opcode.CLOSE, b"\x03\xe9bye") + b"ignored")
    assert (data, reply, reason) == (b"\xe0\x00", b"\x88\x02\x03\xe9", Reason.NETWORK)
    assert closed(frame(Opcode.CLOSE, b""))[1] == b"\x88\x00"


def test_websocket_flood_of_pings_is_not_amplified() -> None:
    """Answers are bounded; framing goes on."""
    websocket = opened()
    assert websocket.receive(frame(Opcode.PING, b"x" * 125) * 1000 + frame(Opcode.BINARY, b"end")) == b"end"
    assert len(websocket.replies) < 5000


def test_websocket_reader_holds_less_than_a_control_frame() -> None:
    """A payload is handed on as it arrives; nothing but a header is kept."""
    reader = FrameReader(1 << 28)
    plain: list[bytes] = []
    reader.receive(b"\x82\xff\x00\x00\x00\x00\x0f\xff\xff\xff" + KEY + b"first", plain)
    assert plain == [unmask(b"first", KEY)]
    assert reader._held == b""


def test_websocket_close_frame_is_sent_once_and_only_when_open() -> None:
    """1000."""
    assert WebSocketFilter("/mqtt", 1).final_bytes() == b""
    websocket = opened()
    assert websocket.final_bytes() == b"\x88\x02\x03\xe8"
    assert websocket.final_bytes() == b""


def test_websocket_sends_one_binary_frame_per_flush() -> None:
    """[MQTT-6.0.0-1]: Control Packets leave in binary frames."""
    websocket = opened()
    assert websocket.send(b"abc") == b"\x82\x03abc"
    assert websocket.send(bytes(126))[:4] == b"\x82\x7e\x00\x7e"
    assert websocket.send(bytes(65_536))[:10] == b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"
