"""All frames of some bytes, as a test compares them."""

from __future__ import annotations

from iothub.peers.frames import FrameType
from iothub.peers.framing import FrameDecoder

Frame = tuple[FrameType, int, bytes]


def cut_frames(decoder: FrameDecoder, data: bytes) -> list[Frame]:
    """Return (type, number or 0, body) of the frames that are whole now. Raises BadFrameError."""
    decoder.add(data)
    found: list[Frame] = []
    while decoder.cut():
        found.append((decoder.frame_type, decoder.number, decoder.body))
    return found
