"""Clients with few Client Identifiers at every hub, over real session directories, and what must be true of them.

Knows no session and no packet: a CONNECT takes a few turns once it has its key, and so does the closing of a client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from iothub.peers.directory import DIRECTORY_TYPES, Directory
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerAddress, PeerId
from iothub.peers.view import Key, View
from tests.simulation.schedule import Schedule
from tests.simulation.simulation import Check, Simulation, Suite, ViolationError

if TYPE_CHECKING:
    from tests.simulation.hub import SimHub

KEYS: tuple[Key, ...] = tuple((1, f"client-{number}") for number in range(6))
GIVE_UP_S = 3.0
TURN_KEYS = 1  # the most turns to note clients, and for an owner to get its entries
NEXT_TURN = (0.02, 0.2)  # in each turn of a hub, one of these: views change before the last entries, or do not
TAIL_S = 2.0  # of clients after the faults
CHANGES = 0.1  # of the version, at each look
_BURST = 60


class DirectorySimulation(Simulation):
    """Hubs join: others know one by its row and link it, and the directory counts it when it is up.

    Who there is changes without a change of whom the directory counts, too, as when a hub is declared gone and is still awaited.
    """

    def __init__(self, schedule: Schedule, suite: Suite, log: Callable[[str], None] | None = None) -> None:
        super().__init__(schedule, suite, log)
        self.joined: set[PeerId] = set()

    def join(self, hub: SimHub) -> None:
        """A hub is linked to all members that it knows, and is one from now on, if those are all."""
        if hub.id not in self.joined and self.is_member(hub.id) and hub.view_version == self.version:
            self.note(hub, "is up")
            self.joined.add(hub.id)
            self.version += 1

    def _look(self, hub: SimHub) -> None:
        self.version += self.world.rng.random() < CHANGES
        hub.joined = frozenset(self.joined)
        super()._look(hub)


class Holding(Check):
    """At most one hub has a key, nobody waits for ever, and in the end the owners know who has what, and nothing else.

    What a hub is told of the session log is no later than what was written.
    """

    def __init__(self) -> None:
        self.having: dict[Key, set[Devices]] = defaultdict(set)
        self.written: dict[Key, tuple[PeerId, float]] = {}

    def note_have(self, devices: Devices, key: Key, written_s: float) -> None:
        hub = devices.hub
        for other in self.having[key] - {devices}:
            if not other.hub.is_dead and hub.sim.is_member(other.hub.id) and hub.sim.is_member(hub.id):
                raise ViolationError(f"{hub.id} has {key[1]}, and so has {other.hub.id}")
        had_it = devices in self.having[key]
        self.having[key].add(devices)
        by, at = self.written.get(key, (hub.id, 0.0))
        if not had_it and by != hub.id and hub.world.now - written_s < at - 1e-6 and hub.sim.is_member(hub.id):
            raise ViolationError(f"{hub.id} knows {key[1]} from {written_s:.3f} s ago, {by} has written later")

    def note_gone(self, devices: Devices, key: Key) -> None:
        self.having[key].discard(devices)

    def remaining(self, sim: Simulation) -> list[str]:
        living = [hub.workloads[0] for hub in sim.living_members()]
        found = []
        expected: dict[PeerId, set[tuple[Key, PeerId]]] = defaultdict(set)
        for devices in living:
            assert isinstance(devices, Devices)
            if devices.waiting or devices.closing or devices.working:
                found.append(f"{devices.hub.id} waits for {devices.waiting} {devices.closing} {devices.working}")
            if devices.view is not None and len(devices.view.members) > 1:
                for key in devices.connected:
                    expected[devices.view.owner(key)].add((key, devices.hub.id))
        for devices in living:
            owned = devices.directory.owned
            known = {(key, holder[0]) for key, holder in owned._holders.items()}
            if known != expected[devices.hub.id] or owned._contests:
                found.append(f"{devices.hub.id} owns {known}, expected {expected[devices.hub.id]}; {owned._contests}")
        return found


class Devices:
    """The clients of one hub; fulfils `Workload`, `Clients`, and `Receiver` around `Directory`."""

    def __init__(self, hub: SimHub, holding: Holding) -> None:
        self.receivers = ((DIRECTORY_TYPES, self, False),)
        self.hub = hub
        self.view: View | None = None
        self.is_joined = False
        self.soon: list[Callable[[], None]] = []
        self._next_turn = hub.world.rng.choice(NEXT_TURN)
        self.directory = Directory(hub.id, hub.links, self, hub, self.soon.append, TURN_KEYS, lambda: hub.world.now)
        self.connected: set[Key] = set()
        self.waiting: dict[Key, float] = {}  # since when
        self.working: dict[Key, int] = {}  # CONNECTs: turns that are left
        self.closing: list[tuple[int, Callable[[], None]]] = []
        self._holding = holding
        self._due = 0.0
        members = hub.links.members

        def note_members(rows: Sequence[PeerAddress]) -> None:
            """As the hub does at each look: links first."""
            members(rows)
            listed = (PeerId(row.node, row.incarnation) for row in rows)
            peers = [peer for peer in listed if peer.node != hub.node and peer in hub.joined]
            self.view = View(hub.view_version, [hub.id, *peers])
            self.directory.set_view(self.view)
            assert isinstance(hub.sim, DirectorySimulation)
            if set(peers) <= set(hub.links.up()):
                hub.sim.join(hub)
            self.is_joined = hub.id in hub.sim.joined

        hub.links.members = note_members  # type: ignore[method-assign]

    # --- the links' side

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        self.hub.pause_here()
        self.directory.frame(peer, frame_type, body)
        self.hub.pause_here()

    def peer_up(self, peer: PeerId) -> None:
        self.directory.peer_up(peer)

    def peer_gone(self, peer: PeerId) -> None:
        self.directory.peer_gone(peer)

    # --- Clients

    def is_connected(self, key: Key) -> bool:
        return key in self.connected

    def connected_at_ms(self, key: Key) -> int:
        return 0

    def connected_keys(self) -> Iterable[Key]:
        return (key for key in sorted(self.connected) if key in self.connected)

    def keys_in_use(self) -> Iterable[Key]:
        return list(self.working)

    def leave(self, key: Key, on_left: Callable[[bool], None]) -> None:
        turns, has_written = self.hub.world.rng.choice((0, 0, 1, 4)), self.hub.world.rng.random() < 0.7

        def left() -> None:
            self.connected.discard(key)
            self._holding.note_gone(self, key)
            if has_written and self.hub.sim.is_member(self.hub.id):
                self._holding.written[key] = self.hub.id, self.hub.world.now
            on_left(has_written)

        if turns:
            self.closing.append((turns, left))
        else:
            left()

    def hurry(self, key: Key) -> None:
        """It goes at its own pace."""

    # --- a turn

    def act(self) -> None:
        rng, now = self.hub.world.rng, self.hub.world.now
        if self.soon and (self.hub.sim.is_healing or rng.random() < self._next_turn):
            self.soon.pop(0)()
        is_over = self.hub.sim.is_healing and now > self._due + TAIL_S
        if self.is_joined and now >= self._due and not is_over:
            self._due = now + rng.random() * 0.1 if not self.hub.sim.is_healing else now + TAIL_S
            self._do_something(rng.choice(KEYS), rng.random())
        for key, since in list(self.waiting.items()):
            if now - since > GIVE_UP_S and not self.hub.sim.is_healing:
                del self.waiting[key]
                self.directory.give_up(key)
        closing, self.closing = self.closing, []
        for turns, left in closing:
            if turns > 1:
                self.closing.append((turns - 1, left))
            else:
                left()
        for key, turns in list(self.working.items()):
            self.working[key] = turns - 1
            if turns <= 1:
                self._finish(key)

    def burst(self) -> None:
        """Many clients come and go."""
        for _ in range(_BURST):
            if self.is_joined:
                self._do_something(self.hub.world.rng.choice(KEYS), self.hub.world.rng.random())

    def _do_something(self, key: Key, chance: float) -> None:
        if key in self.waiting or key in self.working:
            if chance < 0.1 and key in self.waiting:
                del self.waiting[key]
                self.directory.give_up(key)
        elif chance < 0.3:
            self._disconnect(key)
        else:
            self.waiting[key] = self.hub.world.now
            self.directory.hold(key, lambda written_s: self._take(key, written_s), takes=chance < 0.8)

    def _take(self, key: Key, written_s: float | None) -> None:
        del self.waiting[key]
        if written_s is not None:
            self._holding.note_have(self, key, written_s)
            self.connected.discard(key)  # a client that was there already is closed now
            self.working[key] = self.hub.world.rng.choice((0, 0, 1, 5))
            if not self.working[key]:
                self._finish(key)

    def _finish(self, key: Key) -> None:
        del self.working[key]
        if self.hub.world.rng.random() < 0.8:
            self.connected.add(key)
        else:
            self._holding.note_gone(self, key)
        self.directory.let_go(key)

    def _disconnect(self, key: Key) -> None:
        if key in self.connected:
            self.connected.remove(key)
            self._holding.note_gone(self, key)
            self.directory.left(key)
