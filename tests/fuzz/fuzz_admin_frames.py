"""Any bytes on the local socket are requests, answers or an IotHubError; what a decoder holds is bounded, and pieces make no difference."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.base.errors import IotHubError
from iothub.net import admin_frames
from iothub.net.admin_frames import BadFrameError, FrameDecoder
from iothub.records.admin_commands import Json, Request

SEEDS: Sequence[bytes] = (
    admin_frames.hello() + admin_frames.request_frame(Request("session.list", "acme", {"after": "", "limit": 10})),
    admin_frames.hello() + b"".join(admin_frames.row_frames([{"name": "a"}, {}])) + admin_frames.result_frame({}),
    admin_frames.hello() + admin_frames.refusal_frame(IotHubError("why not")),
    b"\x00\x00\x00\x02{}\x00\x00\x00\x00",
    b"\x00\x0f\xff\xff[[[[",
)


def _frames(pieces: Sequence[bytes]) -> tuple[list[Json], bool]:
    """Return the objects, and whether something behind them was refused."""
    decoder, found = FrameDecoder(), list[Json]()
    try:
        for piece in pieces:
            for frame in decoder.feed(piece):
                found.append(frame)
    except BadFrameError:
        return found, True
    assert len(decoder._buffer) <= admin_frames.MAX_BYTES + 4
    return found, False


def target(data: bytes) -> None:
    """Read the bytes at once and in two pieces, and each object as everything that it may be."""
    half = len(data) // 2
    frames, is_refused = _frames([data])
    assert (frames, is_refused) == _frames([data[:half], data[half:]])
    for frame in frames:
        for read in (
            admin_frames.check_hello,
            admin_frames.request_in,
            admin_frames.rows_in,
            admin_frames.result_in,
        ):
            try:
                read(frame)
            except IotHubError:
                continue
