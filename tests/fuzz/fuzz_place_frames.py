"""Any bytes in a frame of places are a body or a BadFrameError; what is decoded encodes again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from iothub.peers.frames import BadFrameError
from iothub.peers.place_frames import TenantPlace, decode_known, encode_known

SEEDS: Sequence[bytes] = (
    TenantPlace(7, (3, 0, 1 << 60)).encode(),
    TenantPlace(0, ()).encode(),
    encode_known((1, 2)),
)


def target(data: bytes) -> None:
    """Read the bytes as everything that a frame of places may have."""
    with suppress(BadFrameError):
        asked = TenantPlace.decode(data)
        assert TenantPlace.decode(asked.encode()) == asked
    with suppress(BadFrameError):
        place = decode_known(data)
        assert decode_known(encode_known(place)) == place
