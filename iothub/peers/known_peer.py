"""One peer as this hub knows it, from its first row or HELLO until it is gone.

Knows nothing of other peers; what happens to it is decided by `iothub/peers/links.py`.
"""

from __future__ import annotations

import random
from typing import Literal

from iothub.base.reasons import PeerRefusal
from iothub.peers.backoff import Backoff
from iothub.peers.connection import Connection
from iothub.peers.link import Link
from iothub.peers.ports import LinkStatus, PeerId


class KnownPeer:
    """The newest incarnation of a node that this hub knows, by its row or by its HELLO."""

    def __init__(self, peer: PeerId, name: str, address: str, rng: random.Random, now: float) -> None:
        self.id = peer
        self.name = name
        self.address = address
        self.looks_left = 2  # at the rows, that do not name it, until it is gone: see `Links.members`
        self.link: Link | None = None  # since its first HELLO
        self.connection: Connection | None = None  # dialled, or accepted and after HELLO
        self.is_dialled = False
        self.backoff = Backoff(rng)
        self.refusal: PeerRefusal | None = None
        self.is_muted = False  # nothing of it is answered: perhaps it is being declared gone
        self.is_expelled = False  # it is gone, and gets that for an answer, until this hub goes on without it
        self.has_left = False  # it stops, and has closed its links
        self.since = now

    @property
    def is_up(self) -> bool:
        return self.link is not None and self.link.is_up

    def status(self, now: float) -> LinkStatus:
        link = self.link
        state: Literal["up", "down", "refused"] = "up" if self.is_up else "down" if self.refusal is None else "refused"
        return LinkStatus(
            peer=self.id,
            name=self.name,
            address=self.address,
            state=state,
            since_s=now - self.since,
            unacknowledged_bytes=link.unacknowledged_bytes if link is not None else 0,
            last_refusal=self.refusal,
            round_trip_s=link.round_trip_s if link is not None and link.is_up else None,
            sent_bytes=link.sent_bytes if link is not None else 0,
            received_bytes=link.received_bytes if link is not None else 0,
            reconnects=max(0, link.connections - 1) if link is not None else 0,
        )
