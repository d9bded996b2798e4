"""Hubs announce to each other the bans that they make after failed logins, so that whoever is banned at one hub is banned at all.

Knows no counts and no credentials: each hub counts failed logins by itself, and keeps what is announced as it keeps its own bans, of which there
are at most as many.

    a hub bans -> BANNED to each hub that was linked and is not gone; one whose link is down gets it when it is linked again
    a hub is linked for the first time -> BANNED with all that are in force here, whoever made them

A link for which twice `link_bytes` wait loses a ban, and the other hub counts by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

from iothub.base.errors import UnavailableError
from iothub.peers.frames import BadFrameError, FrameType, pack, unpack
from iothub.peers.ports import PeerId

BAN_TYPES = (FrameType.BANNED,)

BANS = 1_000
"""In one frame."""
BANS_BYTES = 64 << 10
"""Of the names in one frame that has more than one ban."""
_TEXT_BYTES = 65_535  # what a client shows need not exist
_LEFT_S = 10 * 366 * 86_400.0


class AnnouncedBan(NamedTuple):
    """One device of one tenant, from one source, for `left_s` seconds from now on."""

    tenant: str
    device: str
    source: str
    left_s: float


def encode_bans(bans: Iterable[AnnouncedBan]) -> Iterator[bytes]:
    """Yield the bodies of as many frames as these bans need."""
    part: list[AnnouncedBan] = []
    size = 0
    for ban in bans:
        length = 4 * (len(ban.tenant) + len(ban.device) + len(ban.source))  # a character has up to 4 bytes
        if part and (len(part) == BANS or size + length > BANS_BYTES):
            yield pack({"bans": part})
            part, size = [], 0
        part.append(ban._replace(left_s=min(ban.left_s, _LEFT_S)))
        size += length
    if part:
        yield pack({"bans": part})


def decode_bans(body: bytes) -> list[AnnouncedBan]:
    """Raises BadFrameError."""
    found = unpack(body, text_bytes=_TEXT_BYTES, items=BANS).get("bans")
    if not isinstance(found, list):
        raise BadFrameError(f"field bans is {found!r:.40}, expected a list")
    return [_ban(each) for each in found]


def _ban(value: object) -> AnnouncedBan:
    if not isinstance(value, list) or len(value) != 4:
        raise BadFrameError(f"field bans has {value!r:.40}, expected a tenant, a device, a source and seconds")
    tenant, device, source, left_s = value
    if not all(isinstance(name, str) for name in (tenant, device, source)):
        raise BadFrameError(f"field bans has {value!r:.40}, expected three texts and seconds")
    if not isinstance(left_s, float) or math.isnan(left_s) or not 0.0 < left_s <= _LEFT_S:
        raise BadFrameError(f"field bans has {left_s!r:.40}, expected seconds")
    return AnnouncedBan(tenant, device, source, left_s)


class BanLinks(Protocol):
    """What bans ask of the links. Fulfilled by `iothub.peers.links`."""

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int: ...

    def linked(self) -> tuple[PeerId, ...]: ...


class BanAnnouncer:
    """Announces the bans that this hub makes. On the reactor thread."""

    def __init__(self, links: BanLinks) -> None:
        self._links = links

    def announce_ban(self, tenant: str, device: str, source: str, left_s: float) -> None:
        for body in encode_bans([AnnouncedBan(tenant, device, source, left_s)]):
            for peer in self._links.linked():
                with suppress(UnavailableError):  # it counts by itself
                    self._links.send(peer, FrameType.BANNED, body)


class BanReceiver:
    """Fulfils `Receiver`. On the reactor thread."""

    def __init__(
        self,
        links: BanLinks,
        ban: Callable[[str, str, str, float], None],
        in_force: Callable[[], Iterable[tuple[str, str, str, float]]],
    ) -> None:
        """`in_force`: tenant, device, source and seconds left of every ban here."""
        self._links = links
        self._ban = ban
        self._in_force = in_force

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError: no ban of the frame is kept."""
        del peer, frame_type
        for ban in decode_bans(body):
            self._ban(*ban)

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: a hub that comes later knows nothing, and the hub that made a ban may be gone."""
        with suppress(UnavailableError):  # it does not understand bans
            for body in encode_bans(AnnouncedBan(*ban) for ban in self._in_force()):
                self._links.send(peer, FrameType.BANNED, body)

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: bans end by themselves."""
