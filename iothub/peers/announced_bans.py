"""Hubs announce to each other the bans that they make after failed logins, so that whoever is banned at one hub is banned at all.

Knows no counts and no credentials: each hub counts failed logins by itself, and keeps what is announced as it keeps its own bans, of which there
are at most as many. A ban is announced once, by the hub that made it; a link that takes no more loses it, and the other hub counts by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from iothub.base.errors import UnavailableError
from iothub.peers.account_hints import HintLinks
from iothub.peers.frames import BadFrameError, FrameType, pack, unpack
from iothub.peers.ports import PeerId

BAN_TYPES = (FrameType.BANNED,)

_TEXT_BYTES = 65_535  # what a client shows need not exist
_LEFT_S = 10 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class AnnouncedBan:
    """One device of one tenant, from one source, for `left_s` seconds from now on."""

    tenant: str
    device: str
    source: str
    left_s: float

    def encode(self) -> bytes:
        return pack({"tenant": self.tenant, "device": self.device, "source": self.source, "left_s": self.left_s})

    @classmethod
    def decode(cls, body: bytes) -> AnnouncedBan:
        """Raises BadFrameError."""
        fields = unpack(body, text_bytes=_TEXT_BYTES)
        left_s = fields.get("left_s")
        if not isinstance(left_s, float) or math.isnan(left_s) or not 0.0 < left_s <= _LEFT_S:
            raise BadFrameError(f"field left_s is {left_s!r:.40}, expected seconds")
        return cls(_text(fields, "tenant"), _text(fields, "device"), _text(fields, "source"), left_s)


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise BadFrameError(f"field {name} is {value!r:.40}, expected a text")
    return value


class BanAnnouncer:
    """Announces the bans that this hub makes. On the reactor thread."""

    def __init__(self, links: HintLinks) -> None:
        self._links = links

    def announce_ban(self, tenant: str, device: str, source: str, left_s: float) -> None:
        body = AnnouncedBan(tenant, device, source, min(left_s, _LEFT_S)).encode()
        for peer in self._links.up():
            with suppress(UnavailableError):  # it counts by itself
                self._links.send(peer, FrameType.BANNED, body)


class BanReceiver:
    """Fulfils `Receiver`. On the reactor thread."""

    def __init__(self, ban: Callable[[str, str, str, float], None]) -> None:
        self._ban = ban

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError."""
        del peer, frame_type
        found = AnnouncedBan.decode(body)
        self._ban(found.tenant, found.device, found.source, found.left_s)

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: it counts by itself."""

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: bans end by themselves."""
