"""Any bytes in a frame of a Will's copy are a body or a BadFrameError; what is decoded encodes again."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.peers.frames import BadFrameError
from iothub.peers.ports import PeerId
from iothub.peers.will_copies import WillBody, WillCopy

_BODY = WillBody("dev", 3, 5, b"will/topic", b"payload", 1, True, b"\x01\x01", 60)
SEEDS: Sequence[bytes] = (
    WillCopy((7, "client"), bytes(16), _BODY).encode(),
    WillCopy((7, "client"), bytes(16), _BODY, PeerId(2, 1)).encode(),
    WillCopy((7, "client"), bytes(16), None).encode(),
)


def target(data: bytes) -> None:
    """Read the bytes as a copy."""
    try:
        decoded = WillCopy.decode(data)
    except BadFrameError:
        return
    assert WillCopy.decode(decoded.encode()) == decoded
