"""Any bytes in a frame of retained messages are a body or a BadFrameError; what is decoded encodes again."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.peers.frames import BadFrameError
from iothub.peers.retained_frames import Retained, Synced
from iothub.peers.route_frames import TenantQuestion

SEEDS: Sequence[bytes] = (
    Retained(7, b"a/b", 3, 1_700_000_000_000, 70).encode(),
    TenantQuestion(7, 3).encode(),
    Synced(7, 3, is_settled=True, is_complete=False).encode(),
)


def target(data: bytes) -> None:
    """Read the bytes as everything that a frame of retained messages may have."""
    for body in (Retained, TenantQuestion, Synced):
        try:
            decoded = body.decode(data)
        except BadFrameError:
            continue
        assert body.decode(decoded.encode()) == decoded
