"""What must be true of links whatever uses them: evidence, one connection for each peer, bounds, refusals by name."""

from __future__ import annotations

from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.peers.connection import Connection
from iothub.peers.link import SILENT_S
from iothub.peers.links import STRANGERS
from iothub.peers.ports import PeerId
from tests.simulation.hub import SETTINGS, SimHub
from tests.simulation.simulation import Check, Simulation, ViolationError

_UNSENT_BYTES = 3 * (SETTINGS.window_bytes + SETTINGS.frame_bytes)
_KEPT_BYTES = 2 * SETTINGS.link_bytes + SETTINGS.frame_bytes + 16
_EPSILON_S = 1e-4
_AFTERMATH_S = SILENT_S + 1.0


class Evidence(Check):
    """Evidence of a peer is never newer than the last moment in which it ran."""

    def turn_ended(self, sim: Simulation, hub: SimHub) -> None:
        for peer in hub.links.up():
            seen_at = sim.world.now - hub.links.evidence_age(peer)
            if seen_at > sim.active[peer] + _EPSILON_S:
                raise ViolationError(
                    f"{hub.id} has evidence of {peer} at {seen_at:.3f}, it ran until {sim.active[peer]:.3f}"
                )


class Silence(Check):
    """No link breaks while nothing goes wrong, however much there is to send."""

    def link_down(self, sim: Simulation, hub: SimHub, peer: PeerId, reason: LinkClose) -> None:
        is_calm = sim.world.now > sim.disturbed_until + _AFTERMATH_S
        if is_calm and reason in (LinkClose.SILENT, LinkClose.BAD_FRAME):
            raise ViolationError(f"{hub.id} lost its link to {peer} without a cause: {reason.value}")


class OneConnection(Check):
    """The bytes of a peer are read from one connection at a time."""

    def turn_ended(self, sim: Simulation, hub: SimHub) -> None:
        owners = [wire.owner for wire in hub.wires]
        linked = [
            each.link.peer.node for each in owners if isinstance(each, Connection) and each.link and each.is_open()
        ]
        if len(set(linked)) < len(linked):
            raise ViolationError(f"{hub.id} reads two connections of one node: {linked}")


class Bounds(Check):
    """No buffer grows beyond its bound."""

    def turn_ended(self, sim: Simulation, hub: SimHub) -> None:
        for wire in hub.wires:
            if wire.unsent() > _UNSENT_BYTES:
                raise ViolationError(f"{hub.id} has {wire.unsent()} bytes unsent to {wire.address}")
            if isinstance(wire.owner, Connection) and len(wire.owner._decoder._buffer) > SETTINGS.frame_bytes + 5:
                raise ViolationError(f"{hub.id} holds {len(wire.owner._decoder._buffer)} bytes of {wire.address}")
        for known in hub.links._peers.values():
            if known.link is not None and known.link.unacknowledged_bytes > _KEPT_BYTES:
                raise ViolationError(f"{hub.id} keeps {known.link.unacknowledged_bytes} bytes for {known.id}")
        if len(hub.links._strangers) > STRANGERS:
            raise ViolationError(f"{hub.id} has {len(hub.links._strangers)} connections without HELLO")


class Refusals(Check):
    """Somebody who is no peer is refused by its name, or for lack of a HELLO, when the hub was frozen for longer than it waits."""

    def remaining(self, sim: Simulation) -> list[str]:
        return [
            f"{each.target.id} has not refused a stranger: {each.expected.value}"
            for each in sim.strangers
            if not each.target.is_dead
            and not {(each.expected, False), (PeerRefusal.TIMEOUT, False)} & set(each.target.refusals)
        ]
