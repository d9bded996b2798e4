"""One simulated hub: a process with an incarnation, turns, freezes and a real `Links`.

Knows no check and no workload: what is registered on its links is given to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.hub.cluster.peer_links import CLOCK_LOOK_S, OnTick
from iothub.peers.cluster_clock import HubClock
from iothub.peers.frames import FrameType
from iothub.peers.links import Links
from iothub.peers.ports import Identity, LinkSettings, PeerAddress, PeerId, Receiver, Wire, WireOwner
from iothub.peers.ticking import Ticking
from tests.simulation.world import LATENCY_S, SimWire

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

SETTINGS = LinkSettings(frame_bytes=4 << 10, link_bytes=12 << 10, window_bytes=2 << 10)
CONNECT_TIMEOUT_S = 1.5


class Crashed(BaseException):
    """The process was killed inside a turn. No Exception: nothing of the product may catch it."""


class Workload(Protocol):
    """What uses the links of one hub. Later milestones add theirs: routes, sessions."""

    receivers: Iterable[tuple[Iterable[FrameType], Receiver, bool]]

    def act(self) -> None:
        """Do what is due at the end of a turn."""
        ...

    def burst(self) -> None:
        """Send more than a link takes."""
        ...


class SimHub:
    """Fulfils `BootClock`, `Dialer` and `LinkObserver` for its links. Its clock has nothing to do with those of the others."""

    def __init__(self, sim: Simulation, node: int, incarnation: int) -> None:
        self.sim = sim
        self.world = sim.world
        self.node = node
        self.id = PeerId(node, incarnation)
        self.is_dead = False
        self.view_version = 0  # of the rows, as last read
        self.joined: frozenset[PeerId] = frozenset()  # who was up then
        self.frozen_until = 0.0
        self.pause: tuple[int, float] | None = None  # (places until it freezes inside a turn, for how long)
        self.last_active = self.world.now
        self.wires: list[SimWire] = []
        self.refusals: list[tuple[PeerRefusal, bool]] = []
        self._offset = self.world.rng.uniform(0, 1e6)
        self._inbox: list[Callable[[], None]] = []
        self._is_due = self._is_in_turn = False
        self._is_tick_due = True
        self.on_tick: OnTick = lambda: math.inf
        self._ticking = Ticking(self, self._tick, lambda _at: None)
        me = Identity("ours", node, incarnation, f"hub-{node}", "0.1.0")
        self.row = PeerAddress(node, incarnation, me.name, f"sim:{node}.{incarnation}")
        self.links = Links(me, SETTINGS, self, self.world.rng, self, self, self._tell_clock, self._ticking.changed)
        self.workloads = [make(self) for make in sim.workloads]
        for workload in self.workloads:
            for types, receiver, is_waited_for in workload.receivers:
                self.links.register(types, receiver, is_waited_for=is_waited_for)
        self._tick_later()

    # What its links ask it.

    def _tell_clock(self) -> HubClock:
        return HubClock(self.boottime(), self.boottime())

    def boottime(self) -> float:
        return self.world.now + self._offset

    def dial(self, address: PeerAddress, owner_of: Callable[[Wire], WireOwner], failed: Callable[[str], None]) -> None:
        self.world.after(self.world.delay(), lambda: self._connect(address, owner_of, failed))

    def link_up(self, peer: PeerId, name: str, address: str) -> None:
        self.sim.note(self, f"link up {tuple(peer)}")

    def link_down(self, peer: PeerId, reason: LinkClose, detail: str) -> None:
        self.sim.note(self, f"link down {tuple(peer)} {reason.value} {detail}")
        self.sim.link_down(self, peer, reason)

    def refused(self, node: int | None, address: str, refusal: PeerRefusal, detail: str, *, by_peer: bool) -> None:
        self.sim.note(self, f"{'refused by' if by_peer else 'refuses'} {node}: {refusal.value}, {detail}")
        self.refusals.append((refusal, by_peer))

    def peer_gone(self, peer: PeerId, dropped_frames: int, dropped_bytes: int) -> None:
        self.sim.note(self, f"peer gone {tuple(peer)}, {dropped_frames} frames dropped")

    # Its life.

    def wake(self) -> None:
        """Have a turn soon, or when the freeze is over."""
        if not self._is_due and not self.is_dead:
            self._is_due = True
            self.world.after(self.world.rng.random() * LATENCY_S, self._turn)

    def later(self, action: Callable[[], None]) -> None:
        """Do something in its next turn."""
        self._inbox.append(action)
        self.wake()

    def pause_here(self) -> None:
        """Freeze inside the turn if it was asked for: the others go on meanwhile."""
        if self.pause is None or not self._is_in_turn:
            return
        places, lasts_s = self.pause
        if places > 0:
            self.pause = (places - 1, lasts_s)
            return
        self.pause = None
        self.sim.note(self, f"freezes inside a turn for {lasts_s:.1f} s")
        self.sim.disturb(lasts_s)
        self.world.run_until(self.world.now + lasts_s)
        if self.is_dead:
            raise Crashed

    def kill(self, *, is_silent: bool) -> None:
        """End the process. `is_silent`: with its machine, so that no connection ends."""
        self.is_dead = True
        for wire in self.wires:
            if not is_silent and not wire.is_over:
                self.world.after(self.world.delay(), lambda other=wire.other: other.reset("reset"))  # type: ignore[misc]
            wire.vanish()

    def accept(self, wire: SimWire) -> None:
        """Take a connection at the listener."""
        self.wires.append(wire)
        wire.owner = self.links.accepted(wire)

    def _tick_later(self) -> None:
        if not self.is_dead:
            self._is_tick_due = True
            self.wake()
            self.world.after(self.world.rng.uniform(*self.sim.tick_s), self._tick_later)

    def _turn(self) -> None:
        self._is_due = False
        if self.is_dead or self._is_in_turn:
            return
        if self.frozen_until > self.world.now:
            self._is_due = True
            self.world.after(self.frozen_until - self.world.now, self._turn)
            return
        self._is_in_turn = True
        try:
            self._do_turn()
        except Crashed:
            return
        finally:
            self._is_in_turn = False
        self.sim.turn_ended(self)
        if self._inbox or any(wire.is_readable() or wire.is_ending() for wire in self.wires):
            self.wake()

    def _do_turn(self) -> None:
        self.last_active = self.world.now
        inbox, self._inbox = self._inbox, []
        work = [*inbox]
        for wire in self.wires:
            if wire.is_readable():
                work.append(wire.read)
            if wire.is_ending():
                work.append(wire.end)
        if self._is_tick_due:
            self._is_tick_due = False
            work.append(self._tick_if_due)
        if len(work) > 1:
            self.world.rng.shuffle(work)
        for action in work:
            action()
        for workload in self.workloads:
            workload.act()
        for wire in self.wires:
            wire.flush()
        self.wires = [wire for wire in self.wires if not wire.is_over]
        self.last_active = self.world.now

    def _tick_if_due(self) -> None:
        """The timer of its links, as late as the hub looks."""
        if self._ticking.at <= self.boottime():
            self._ticking.run()

    def _tick(self, now: float) -> float:
        """As `PeerLinks`."""
        self.links.tick(now)
        return min(self.on_tick(), self.links.due(), now + CLOCK_LOOK_S)

    def _connect(
        self, address: PeerAddress, owner_of: Callable[[Wire], WireOwner], failed: Callable[[str], None]
    ) -> None:
        world, target = self.world, self.sim.listening(address.address)
        is_cut = max(world.cut_for_s(self.node, address.node), world.cut_for_s(address.node, self.node)) > 0
        if is_cut or target is None:
            self.world.after(
                CONNECT_TIMEOUT_S if is_cut else world.delay(), lambda: self.later(lambda: failed("no answer"))
            )
            return
        mine = SimWire(world, self, address.address, address.node)
        theirs = SimWire(world, target, f"sim:from-{self.node}", self.node)
        mine.other, theirs.other = theirs, mine
        target.later(lambda: target.accept(theirs))

        def connected() -> None:
            self.wires.append(mine)
            mine.owner = owner_of(mine)

        self.later(connected)
