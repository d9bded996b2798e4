"""Any bytes in a frame of the session directory are a body or a BadFrameError; what is decoded encodes again."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.peers.directory_frames import BODIES, Announced, Entries, Held, Hold, Release, Take
from iothub.peers.frames import BadFrameError
from iothub.peers.ports import PeerId
from iothub.peers.view import View

_KEY = (7, "client")
SEEDS: Sequence[bytes] = (
    Hold(_KEY, 3, takes=True).encode(),
    Held(_KEY, 3, is_granted=True, written_s=0.25).encode(),
    Release(_KEY, 3, has_written=False).encode(),
    Take(_KEY, 3).encode(),
    Announced(View(2, [PeerId(1, 5), PeerId(2, 1)]), is_whole=True).encode(),
    Entries([(_KEY, 3), ((8, "other"), 4)], is_last=True).encode(),
)


def target(data: bytes) -> None:
    """Read the bytes as every body."""
    for body in BODIES.values():
        try:
            decoded = body.decode(data)
        except BadFrameError:
            continue
        assert body.decode(decoded.encode()) == decoded
