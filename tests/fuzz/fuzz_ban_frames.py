"""Any bytes in a BANNED are a ban or a BadFrameError; what is decoded encodes again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from iothub.peers.announced_bans import AnnouncedBan, decode_bans, encode_bans
from iothub.peers.frames import BadFrameError

SEEDS: Sequence[bytes] = (
    *encode_bans([AnnouncedBan("acme", "dev1", "192.0.2.1", 900.0)]),
    *encode_bans([AnnouncedBan("acme", "dev\u00e9" * 30, "2001:db8::/64", left_s) for left_s in (0.5, 900.0)]),
)


def target(data: bytes) -> None:
    """Read the bytes as the body of a BANNED."""
    with suppress(BadFrameError):
        bans = decode_bans(data)
        assert [ban for body in encode_bans(bans) for ban in decode_bans(body)] == bans
