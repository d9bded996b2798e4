"""All links of this hub: who is dialled, whose HELLO is accepted or refused, and which link carries what.

Knows no socket and no reactor: a `Dialer` connects, wires bring bytes, and `tick` brings the time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from iothub.base.clock import BootClock
from iothub.peers.frames import FrameType
from iothub.peers.ports import (
    Dialer,
    Identity,
    LinkObserver,
    LinkSettings,
    LinkStatus,
    PeerAddress,
    PeerId,
    Receiver,
    Wire,
    WireOwner,
)

CONNECT_S = 2.0
TICK_S = 0.02


class Links:
    """Every link of this hub."""

    def __init__(
        self,
        me: Identity,
        settings: LinkSettings,
        clock: BootClock,
        rng: random.Random,
        dialer: Dialer,
        observer: LinkObserver,
    ) -> None:
        raise NotImplementedError

    def register(self, types: Iterable[FrameType], receiver: Receiver) -> None:
        """Give reliable frames of these types to `receiver`. Before the first wire: what is registered stands in every HELLO."""
        raise NotImplementedError

    def members(self, peers: Sequence[PeerAddress]) -> None:
        """Say who there is now, by the accounts' rows: dial those with a higher node number, forget those that are there no more."""
        raise NotImplementedError

    def accepted(self, wire: Wire) -> WireOwner:
        """Return the owner of a wire that the listener has accepted."""
        raise NotImplementedError

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Send a reliable frame, now or when the link is up again: it is kept until it is acknowledged or the peer is gone.

        Raises UnavailableError: this incarnation was never linked, or is gone, or does not understand the type, or twice `link_bytes` wait for it.
        """
        raise NotImplementedError

    def up(self) -> tuple[PeerId, ...]:
        """Return the peers whose link is up."""
        raise NotImplementedError

    def evidence_age(self, peer: PeerId) -> float:
        """Return the seconds since the sending of the last ping that this peer has echoed; infinity without one."""
        raise NotImplementedError

    def is_full(self, peer: PeerId) -> bool:
        """Tell whether `link_bytes` wait for this peer: publishers whose messages it needs are not read any more."""
        raise NotImplementedError

    def is_half_full(self, peer: PeerId) -> bool:
        raise NotImplementedError

    def tick(self, now: float) -> None:
        """Do what is due: pings, acknowledgements, silence, dialling. `now`: of `boottime`; each `TICK_S` while there is a peer."""
        raise NotImplementedError

    def close(self) -> None:
        """Close every link; what is unacknowledged is forgotten."""
        raise NotImplementedError

    def status(self) -> list[LinkStatus]:
        raise NotImplementedError
