"""Any bytes on a link are frames or a BadFrameError; what a decoder holds is bounded, and pieces make no difference."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.peers import frames
from iothub.peers.frames import RELIABLE_FROM, BadFrameError, FrameType, Hello
from iothub.peers.framing import FrameDecoder

FRAME_BYTES = 4096
_HELLO = Hello(1, "an installation", 1, 7, "hub-1", "0.1.0", (64, 65), (3, 12)).encode()
SEEDS: Sequence[bytes] = (
    _HELLO
    + frames.number_frame(FrameType.PING, 12345)
    + frames.number_frame(FrameType.ECHO, 12345)
    + frames.echo_frame(12345, (67890, 67891)),
    _HELLO + frames.encode(FrameType.REQUEST, frames.pack({"id": 1, "verb": "session.list", "tenant": "acme"}), 1),
    frames.encode(FrameType.ROWS, frames.pack({"id": 1, "rows": [{"name": "a"}, {}]}), 2),
    frames.refused_frame("other_installation", "why not") + frames.ack_frame(2, 1),
    Hello(2, "", 0, 0, "", "", (), None).encode(),
    frames.encode(FrameType.HELLO, b"\xdf\xff\xff\xff\xff\x81\xa1\xff"),
    b"\x40\x00\x00\x0f\xff" + bytes(40),
)

_Frame = tuple[FrameType, int, bytes]


def _frames(pieces: Sequence[bytes]) -> tuple[list[_Frame], bool]:
    """Return the frames, and whether something behind them was refused."""
    decoder, found = FrameDecoder(FRAME_BYTES), list[_Frame]()
    try:
        for piece in pieces:
            decoder.add(piece)
            while decoder.cut():
                found.append((decoder.frame_type, decoder.number, decoder.body))
            assert len(decoder._buffer) <= FRAME_BYTES + 5
    except BadFrameError:
        return found, True
    return found, False


def target(data: bytes) -> None:
    """Read the bytes at once and in two pieces, and each body as everything that it may be."""
    half = len(data) // 2
    read, is_refused = _frames([data])
    assert (read, is_refused) == _frames([data[:half], data[half:]])
    for frame_type, number, body in read:
        assert number == 0 or frame_type >= RELIABLE_FROM
        assert len(body) <= FRAME_BYTES
        for decode in (Hello.decode, frames.refusal_of, frames.unpack):
            try:
                decode(body)
            except BadFrameError:
                continue
