"""Frames between hubs, each numbered by its sender, and what must be true of them.

Knows nothing of numbers and acknowledgements of links but through `Links`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from iothub.base.errors import UnavailableError
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from tests.simulation.simulation import Check, Simulation, ViolationError

if TYPE_CHECKING:
    from tests.simulation.hub import SimHub

TAIL_S = 0.5  # of traffic after the faults
LARGEST_BYTES = 3000


class Delivery(Check):
    """Each frame that was sent to an incarnation is applied there exactly once and in order, or that incarnation is reported as gone.

    Nothing is acknowledged before it was applied, and nothing of an incarnation is applied after it was reported as gone, or a later one met.
    """

    def __init__(self) -> None:
        self.sent: dict[tuple[PeerId, PeerId], int] = defaultdict(int)
        self.applied: dict[tuple[PeerId, PeerId], int] = defaultdict(int)
        self.newest: dict[tuple[PeerId, int], int] = defaultdict(int)  # (hub, node) -> incarnation
        self.gone: set[tuple[PeerId, PeerId]] = set()

    def note_frame(self, hub: SimHub, peer: PeerId, body: bytes) -> None:
        source, target, number = _named(body)
        if target != hub.id or source != peer:
            raise ViolationError(f"{hub.id} got from {peer} what {source} sent to {target}")
        if (hub.id, peer) in self.gone or peer.incarnation < self.newest[hub.id, peer.node]:
            raise ViolationError(f"{hub.id} applied a frame of {peer}, an old incarnation")
        if number != self.applied[peer, hub.id] + 1:
            raise ViolationError(f"{hub.id} applied frame {number} of {peer} after {self.applied[peer, hub.id]}")
        self.applied[peer, hub.id] = number

    def note_peer_up(self, hub: SimHub, peer: PeerId) -> None:
        if peer.incarnation <= self.newest[hub.id, peer.node]:
            raise ViolationError(f"{hub.id} met {peer} after {self.newest[hub.id, peer.node]}")
        self.newest[hub.id, peer.node] = peer.incarnation

    def note_peer_gone(self, hub: SimHub, peer: PeerId) -> None:
        if hub.sim.is_member(peer):
            raise ViolationError(f"{hub.id} gave {peer} up, which is a member")
        self.gone.add((hub.id, peer))

    def turn_ended(self, sim: Simulation, hub: SimHub) -> None:
        for peer in hub.links.up():
            link = hub.links._link(peer)
            assert link is not None
            acknowledged = self.sent[hub.id, peer] - link.unacknowledged_frames
            if acknowledged > self.applied[hub.id, peer]:
                raise ViolationError(
                    f"{peer} acknowledged frame {acknowledged} of {hub.id}, applied {self.applied[hub.id, peer]}"
                )

    def remaining(self, sim: Simulation) -> list[str]:
        ids = {hub.id for hub in sim.living_members()}
        found = []
        for (source, target), number in self.sent.items():
            if {source, target} <= ids and self.applied[source, target] < number:
                found.append(f"{target} has applied {self.applied[source, target]} of {number} frames of {source}")
        for hub in sim.living_members():
            waiting = {status.peer: status.unacknowledged_bytes for status in hub.links.status()}
            found += [f"{hub.id} waits for {peer}: {count} bytes" for peer, count in waiting.items() if count]
        return found + self._unreported(sim, ids)

    def _unreported(self, sim: Simulation, ids: set[PeerId]) -> list[str]:
        met = {(hub, PeerId(node, incarnation)) for (hub, node), incarnation in self.newest.items() if hub in ids}
        return [
            f"{hub} does not say that {peer} is gone"
            for hub, peer in met
            if not sim.is_member(peer) and (hub, peer) not in self.gone
        ]


class Traffic:
    """Sends frames to every peer, some of them from inside `frame` and `peer_up`; fulfils `Workload` and `Receiver`."""

    def __init__(self, hub: SimHub, delivery: Delivery) -> None:
        self.receivers = (((FrameType.REQUEST, FrameType.ROWS), self, False), ((FrameType.ANSWER,), self, True))
        self._hub = hub
        self._delivery = delivery
        self._due = 0.0

    def act(self) -> None:
        sim, rng = self._hub.sim, self._hub.world.rng
        now = sim.world.now
        if now < self._due or (sim.is_healing and now > self._due + TAIL_S):
            return
        self._due = now + rng.random() * 0.3 if not sim.is_healing else float("inf")
        for peer in self._peers():
            if not self._hub.links.is_full(peer):
                for _ in range(rng.randint(0, 4)):
                    self._send(peer, rng.choice((FrameType.REQUEST, FrameType.ROWS)), rng.randint(0, 300))

    def burst(self) -> None:
        """Send more than a link takes, and have it say so."""
        for peer in self._peers():
            for _ in range(20):
                self._send(peer, FrameType.ROWS, LARGEST_BYTES)

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        self._hub.pause_here()
        self._delivery.note_frame(self._hub, peer, body)
        self._hub.pause_here()
        if frame_type == FrameType.REQUEST and self._hub.world.rng.random() < 0.5:
            self._send(peer, FrameType.ANSWER, 10)

    def peer_up(self, peer: PeerId) -> None:
        self._delivery.note_peer_up(self._hub, peer)
        self._send(peer, FrameType.REQUEST, 10)

    def peer_gone(self, peer: PeerId) -> None:
        self._delivery.note_peer_gone(self._hub, peer)

    def _peers(self) -> list[PeerId]:
        return [status.peer for status in self._hub.links.status()]

    def _send(self, peer: PeerId, frame_type: FrameType, size: int) -> None:
        me, sent = self._hub.id, self._delivery.sent
        number = sent[me, peer] + 1
        body = b"%d.%d>%d.%d:%d|%b" % (*me, *peer, number, bytes(size))
        sent[me, peer] = number  # before: it may be applied while this hub is frozen inside the call
        try:
            self._hub.links.send(peer, frame_type, body)
        except UnavailableError:  # full, gone, or never linked
            sent[me, peer] = number - 1


def _named(body: bytes) -> tuple[PeerId, PeerId, int]:
    source, _, rest = body.partition(b"|")[0].partition(b">")
    target, _, number = rest.partition(b":")
    ids = [PeerId(*map(int, each.split(b"."))) for each in (source, target)]
    return ids[0], ids[1], int(number)
