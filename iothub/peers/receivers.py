# cython: annotation_typing=False
"""Who takes which reliable frames. Knows no link and no body. Compiled: each message from another hub passes through it."""

from __future__ import annotations

from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId, Receiver


class Receivers:
    """Fulfils `Apply`. `by_type`: a receiver, and whether somebody waits for the acknowledgement of such a frame."""

    def __init__(self) -> None:
        self.by_type: dict[FrameType, tuple[Receiver, bool]] = {}

    def all(self) -> list[Receiver]:
        """Return each once."""
        return list(dict.fromkeys(receiver for receiver, _ in self.by_type.values()))

    def __call__(self, peer: PeerId, frame_type: FrameType, body: bytes) -> bool:
        """Raises BadFrameError."""
        found = self.by_type.get(frame_type)
        if found is None:
            raise BadFrameError(f"a frame of type {frame_type.name}, which HELLO did not name")
        receiver, is_waited_for = found
        receiver.frame(peer, frame_type, body)
        return is_waited_for
