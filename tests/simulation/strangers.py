"""Somebody who connects to a hub and is no peer of it: each must be refused by its name.

Knows what a HELLO looks like, and nothing of links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iothub.base.reasons import PeerRefusal
from iothub.peers.frames import HELLO_BYTES, PROTOCOL, FrameType, Hello, encode
from tests.simulation.world import SimWire, World

if TYPE_CHECKING:
    from tests.simulation.hub import SimHub


class Stranger:
    """Fulfils `Process`. `expected`: how the hub must refuse it."""

    node = 0

    def __init__(self, world: World, target: SimHub) -> None:
        self.target = target
        node = target.node
        certified, said, self.expected = world.rng.choice(
            (
                (None, _hello(0, installation="theirs"), PeerRefusal.INSTALLATION),
                (None, _hello(0, protocol=PROTOCOL + 2), PeerRefusal.VERSION),
                (7, _hello(0), PeerRefusal.CERTIFICATE),
                (None, _hello(node), PeerRefusal.NUMBER),
                (None, _hello(node + 100), PeerRefusal.DIRECTION),
                (None, b"GET / HTTP/1.1\r\n\r\n", PeerRefusal.MALFORMED),
                (None, encode(FrameType.REQUEST, b"x", 1), PeerRefusal.MALFORMED),
                (None, b"%c%b" % (FrameType.HELLO, (HELLO_BYTES + 1).to_bytes(4, "big")), PeerRefusal.MALFORMED),
                (None, _hello(0)[:20], PeerRefusal.TIMEOUT),
                (None, b"", PeerRefusal.TIMEOUT),
            )
        )
        mine = SimWire(world, self, "sim:hub", None)
        theirs = SimWire(world, target, "sim:stranger", certified)
        mine.other, theirs.other = theirs, mine
        target.later(lambda: target.accept(theirs))
        mine.write(said)
        mine.flush()

    def wake(self) -> None:
        """It reads nothing."""

    def pause_here(self) -> None:
        """It has no turns."""


def _hello(node: int, *, installation: str = "ours", protocol: int = PROTOCOL) -> bytes:
    return Hello(protocol, installation, node, 1, "stranger", "0.1.0", (), None).encode()
