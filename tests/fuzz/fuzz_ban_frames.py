"""Any bytes in a BANNED are a ban or a BadFrameError; what is decoded encodes again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from iothub.peers.announced_bans import AnnouncedBan
from iothub.peers.frames import BadFrameError

SEEDS: Sequence[bytes] = (
    AnnouncedBan("acme", "dev1", "192.0.2.1", 900.0).encode(),
    AnnouncedBan("acme", "dev\u00e9" * 30, "2001:db8::/64", 0.5).encode(),
)


def target(data: bytes) -> None:
    """Read the bytes as the body of a BANNED."""
    with suppress(BadFrameError):
        ban = AnnouncedBan.decode(data)
        assert AnnouncedBan.decode(ban.encode()) == ban
