"""A run: hubs, their rows of the accounts, the faults of a schedule, and checks that look after each turn.

Knows no workload and no check of its own: `tests/simulation/suites.py` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from iothub.base.reasons import LinkClose
from iothub.peers.ports import PeerAddress, PeerId
from tests.simulation.hub import SimHub, Workload
from tests.simulation.schedule import FAULTS_END_S, HARMLESS, Fault, Schedule, schedule
from tests.simulation.strangers import Stranger
from tests.simulation.world import SimWire, World

HEAL_S = 15.0  # from the end of the faults until everything works: silence, a refusal's back-off, a HELLO that is lost, dialled again
LOOK_S = 1.0  # at the accounts' rows


class ViolationError(Exception):
    """A rule does not hold."""


class Check:
    """What must hold. Raises ViolationError when it does not."""

    def turn_ended(self, sim: Simulation, hub: SimHub) -> None:
        """Look after each turn of each hub."""

    def link_down(self, sim: Simulation, hub: SimHub, peer: PeerId, reason: LinkClose) -> None:
        """Look when a link has broken."""

    def remaining(self, sim: Simulation) -> list[str]:
        """Return what has not happened yet, once the faults are over: nothing may remain in the end."""
        return []


@dataclass(frozen=True, slots=True)
class Suite:
    """What a milestone adds: checks, and what uses the links of each hub."""

    checks: Sequence[Check]
    workloads: Sequence[Callable[[SimHub], Workload]]
    simulation: type[Simulation] | None = None  # None: the plain one
    schedule: Callable[[int], Schedule] = schedule


class Simulation:
    """Runs one schedule. `log`: each event as a line, for a person; None: nothing is kept."""

    heal_s = HEAL_S
    tick_s = (0.02, 0.1)  # from one look of a hub whether a tick of its links is due to the next, at least and at most

    def __init__(self, schedule: Schedule, suite: Suite, log: Callable[[str], None] | None = None) -> None:
        self.schedule = schedule
        self.suite = suite
        self.workloads = suite.workloads
        self.world = World(schedule.seed)
        self.rows: dict[int, PeerAddress] = {}
        self.gone: list[PeerId] = []  # as rows that say so
        self.version = 0  # of the rows
        self.members: dict[int, SimHub] = {}  # the newest incarnation of each node, dead or alive
        self.alive: dict[str, SimHub] = {}  # by address; those that are taken for dead, too
        self.active: dict[PeerId, float] = {}
        self.strangers: list[Stranger] = []
        self.is_healing = False
        self.disturbed_until = -HEAL_S
        self._log = log

    def run(self) -> None:
        """Raises ViolationError."""
        for node in range(1, self.schedule.hubs + 1):
            self._start(node, 1)
        for fault in self.schedule.faults:
            self.world.after(fault.at_s, partial(self._strike, fault))
        ends = [fault.at_s + fault.lasts_s for fault in self.schedule.faults]
        self.world.run_until(max([FAULTS_END_S, *ends]) + 0.1)
        self.world.heal()
        self.is_healing = True
        self._wait_until_quiet(self.world.now + self.heal_s)

    def note(self, hub: SimHub | None, text: str) -> None:
        if self._log is not None:
            who = f"{hub.node}.{hub.id.incarnation}" if hub is not None else "-"
            self._log(f"{self.world.now:8.3f}  {who:5} {text}")

    def listening(self, address: str) -> SimHub | None:
        return self.alive.get(address)

    def living_members(self) -> list[SimHub]:
        return [hub for hub in self.members.values() if not hub.is_dead and self.is_member(hub.id)]

    def is_member(self, peer: PeerId) -> bool:
        row = self.rows.get(peer.node)
        return row is not None and row.incarnation == peer.incarnation

    def disturb(self, lasts_s: float) -> None:
        """Note until when links may break."""
        self.disturbed_until = max(self.disturbed_until, self.world.now + lasts_s)

    def turn_ended(self, hub: SimHub) -> None:
        self.active[hub.id] = hub.last_active
        for check in self.suite.checks:
            check.turn_ended(self, hub)

    def link_down(self, hub: SimHub, peer: PeerId, reason: LinkClose) -> None:
        for check in self.suite.checks:
            check.link_down(self, hub, peer, reason)

    def _wait_until_quiet(self, deadline: float) -> None:
        remaining = ["?"]
        while remaining:
            self.world.run_until(self.world.now + 0.25)
            remaining = self._remaining()
            if remaining and self.world.now > deadline:
                raise ViolationError(f"{self.heal_s} s after the last fault: {'; '.join(remaining[:6])}")

    def _remaining(self) -> list[str]:
        found = []
        hubs = self.living_members()
        for hub in hubs:
            up = hub.links.up()
            found += [
                f"{hub.id} is not linked to {other.id}" for other in hubs if other is not hub and other.id not in up
            ]
        for check in self.suite.checks:
            found += check.remaining(self)
        return found

    def _start(self, node: int, incarnation: int) -> None:
        hub = SimHub(self, node, incarnation)
        self.note(hub, "starts")
        self.rows[node] = hub.row
        self.version += 1
        self.members[node] = hub
        self.alive[hub.row.address] = hub
        self.active[hub.id] = self.world.now
        self._look(hub)

    def _look(self, hub: SimHub) -> None:
        """Read the rows as they are now, give them to the hub a little later, and read again when it has had them."""
        if hub.is_dead:
            return
        rows, gone, version = list(self.rows.values()), list(self.gone), self.version
        rng = self.world.rng

        def note_rows() -> None:
            hub.view_version = version
            for peer in gone:
                hub.links.drop(peer)
            hub.links.members(rows)
            self.world.after(LOOK_S * rng.uniform(0.8, 1.2), partial(self._look, hub))

        self.world.after(rng.random() * 0.3, lambda: hub.later(note_rows))

    def _strike(self, fault: Fault) -> None:
        hub, world = self.members[fault.node], self.world
        if hub.is_dead or not self.is_member(hub.id):
            return
        self.note(hub, f"{fault.kind} {fault.other} {fault.lasts_s}")
        if fault.kind not in HARMLESS:
            self.disturb(fault.lasts_s)
        match fault.kind:
            case "crash" | "power":
                self._kill(hub, is_silent=fault.kind == "power")
                world.after(fault.lasts_s, partial(self._start_next, hub))
            case "leave":
                self._kill(hub, is_silent=False)
                self._delete_row(fault.node)
            case "expel":
                self._delete_row(fault.node)
                world.after(fault.lasts_s, partial(self._begin_again, hub))
            case "twin":
                hub.frozen_until = world.now + fault.lasts_s
                world.after(fault.lasts_s / 2, partial(self._start_next, hub))
            case "freeze":
                hub.frozen_until = world.now + fault.lasts_s
            case "freeze_in_turn":
                hub.pause = (world.rng.randint(0, 12), fault.lasts_s)
            case "flap":
                for end in self._ends(hub, fault.other):
                    world.after(world.delay(), partial(end.reset, "reset"))
            case "black_hole":
                for end in self._ends(hub, fault.other):
                    end.swallow()
            case "cut" | "cut_one_way":
                world.cut(fault.node, fault.other, fault.lasts_s)
                if fault.kind == "cut":
                    world.cut(fault.other, fault.node, fault.lasts_s)
            case "slow":
                world.delay_s = 0.5
                world.after(fault.lasts_s, partial(setattr, world, "delay_s", 0.005))
            case "stranger":
                self.strangers.append(Stranger(world, hub))
            case "burst":
                for each in (hub, self.members[fault.other]):
                    for workload in each.workloads:
                        each.later(workload.burst)

    def _delete_row(self, node: int) -> None:
        row = self.rows.pop(node)
        self.gone.append(PeerId(row.node, row.incarnation))
        self.version += 1

    def _kill(self, hub: SimHub, *, is_silent: bool) -> None:
        hub.kill(is_silent=is_silent)
        del self.alive[hub.row.address]

    def _start_next(self, former: SimHub) -> None:
        if self.members[former.node] is former:
            self._start(former.node, former.id.incarnation + 1)

    def _begin_again(self, expelled: SimHub) -> None:
        if not expelled.is_dead and self.members[expelled.node] is expelled:
            self._kill(expelled, is_silent=False)
            self._start_next(expelled)

    def _ends(self, hub: SimHub, other: int) -> list[SimWire]:
        """Return both ends of every connection of a hub with another node."""
        return [end for wire in hub.wires if wire.other.process.node == other for end in (wire, wire.other)]
