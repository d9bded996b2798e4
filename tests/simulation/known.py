"""Persistent sessions at hubs that follow one log, each at its own pace or not at all, and what must be true of them.

Knows no fault of the network. A SUBACK is the moment in which `PeerPlaces` says that every hub knows; a queue is a set of publications.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from iothub.peers.frames import FrameType
from iothub.peers.known import PLACE_TYPES, OwnPlace, PeerPlaces
from iothub.peers.places import Offsets
from iothub.peers.ports import PeerId
from iothub.peers.routed_peer import ROUTE_TYPES
from iothub.peers.routes import MESSAGE_TYPES, Routes
from tests.simulation.routed import Clients, Routing
from tests.simulation.simulation import Check, Simulation, ViolationError

if TYPE_CHECKING:
    from tests.simulation.hub import SimHub

PARTITIONS = 2
TOPICS = ("a", "b", "c")


@dataclass(eq=False)
class KeptSession:
    """A session that outlives its hub, with one subscription. `is_acknowledged`: its SUBACK left; `is_ending`: it sent an UNSUBSCRIBE."""

    number: int
    topic: str
    hub: PeerId
    is_acknowledged: bool = False
    is_ending: bool = False
    is_ended: bool = False


@dataclass
class SharedLog:
    """What all hubs follow: for each partition the changes in their order, True: subscribed."""

    partitions: list[list[tuple[KeptSession, bool]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def append(self, session: KeptSession, *, is_on: bool) -> Offsets:
        at = session.number % PARTITIONS
        self.partitions[at].append((session, is_on))
        return (*[0] * at, len(self.partitions[at]))

    def end(self) -> Offsets:
        return tuple(map(len, self.partitions))


class Knowing(Check):
    """After the SUBACK of a persistent session every member that publishes stores for it; after its UNSUBACK none does.

    Nobody waits for ever.
    """

    def __init__(self) -> None:
        self.log = SharedLog()
        self.sessions: list[KeptSession] = []
        self.hubs: list[KeptSessions] = []
        self.acknowledged = self.published = self.paused = 0

    def note_publication(self, sim: Simulation, hub: PeerId, topic: str, stored: set[KeptSession]) -> None:
        self.published += 1
        if not sim.is_member(hub):
            return  # the others do not wait for it: it is held by what a hub knows of itself
        for each in self.sessions:
            if each.topic == topic:
                if each.is_acknowledged and not each.is_ending and each not in stored:
                    raise ViolationError(f"{hub} does not store for session {each.number} of {each.hub}")
                if each.is_ended and each in stored:
                    raise ViolationError(f"{hub} stores for session {each.number} of {each.hub} after its UNSUBACK")

    def remaining(self, sim: Simulation) -> list[str]:
        living = {hub.id for hub in sim.living_members()}
        found = [text for hub in self.hubs if hub.id in living for text in hub.remaining()]
        for each in self.sessions:
            if each.hub in living and not each.is_acknowledged:
                found.append(f"{each.hub} has not acknowledged session {each.number}")
            if each.hub in living and each.is_ending and not each.is_ended:
                found.append(f"{each.hub} has not acknowledged the end of session {each.number}")
        return found


class KeptSessions(Clients):
    """The sessions of one hub, and its publishers, beside the transient clients of `Clients`."""

    def __init__(self, hub: SimHub, routing: Routing, knowing: Knowing) -> None:
        self._knowing = knowing
        self._sim = hub.sim
        self._away_until = 0.0  # the log cannot be reached from here
        self._is_reading = False
        self._ends: list[tuple[Offsets, Callable[[], None]]] = []
        self._mine: list[KeptSession] = []
        super().__init__(hub, routing)
        self.receivers = (  # type: ignore[assignment]
            (ROUTE_TYPES, self, True),
            (MESSAGE_TYPES, self, False),
            (PLACE_TYPES, self, False),
        )
        knowing.hubs.append(self)
        self._read_upto = knowing.log.end()  # a start loads what the log has
        self._stored: set[KeptSession] = set()
        for session, is_on in chain(*knowing.log.partitions):
            (self._stored.add if is_on else self._stored.discard)(session)
        self._places.note_applied(self._read_upto)

    def _make_routes(self) -> Routes:
        self._own = OwnPlace(self._read_on, self._read_to_end)
        routes = Routes(self._hub.links, self._bench.plane, self._soon.append, self._own)
        self._places = PeerPlaces(self._own, routes, self._soon.append, self._later)
        routes.watch(self._places.tenant_closed_at, self._places.tenant_closed)
        return routes

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._hub.world.after(seconds, lambda: self._hub.later(call))

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        if frame_type in PLACE_TYPES:
            self._hub.pause_here()
            self._places.frame(peer, frame_type, body)
            self._hub.pause_here()
        else:
            super().frame(peer, frame_type, body)

    def peer_up(self, peer: PeerId) -> None:
        super().peer_up(peer)
        self._places.peer_up(peer)

    def peer_gone(self, peer: PeerId) -> None:
        super().peer_gone(peer)
        self._places.peer_gone(peer)

    # --- the log

    def _read_on(self) -> None:
        """Read a page soon, or when the log can be reached again."""
        if not self._is_reading:
            self._is_reading = True
            now, rng = self._hub.world.now, self._hub.world.rng
            self._later(max(self._away_until - now, 0.0) + rng.random() * 0.05, self._read_page)

    def _read_to_end(self, on_done: Callable[[], None]) -> None:
        """The end is asked when the log can be reached."""

        def ask() -> None:
            self._ends.append((self._knowing.log.end(), on_done))
            self._read_on()

        self._later(max(self._away_until - self._hub.world.now, 0.0) + self._hub.world.rng.random() * 0.05, ask)

    def _read_page(self) -> None:
        self._is_reading = False
        log, rng = self._knowing.log, self._hub.world.rng
        if self._hub.world.now < self._away_until:
            return self._read_on()
        place = list(self._read_upto)
        for at, partition in enumerate(log.partitions):
            for session, is_on in partition[place[at] : place[at] + rng.randint(0, 5)]:
                if session.hub != self.id:  # else it is in force here already
                    (self._stored.add if is_on else self._stored.discard)(session)
                place[at] += 1
        self._read_upto = tuple(place)
        self._hub.pause_here()
        self._places.note_applied(self._read_upto)
        ends, self._ends = self._ends, []
        for end, on_done in ends:
            if all(map(int.__ge__, self._read_upto, end)):
                on_done()
            else:
                self._ends.append((end, on_done))
        if self._ends or any(map(int.__lt__, self._read_upto, log.end())):
            self._read_on()
        return None

    # --- what clients do

    def _do_something(self, chance: float) -> None:
        rng, now = self._hub.world.rng, self._hub.world.now
        if rng.random() < 0.05 and not self._sim.is_healing:
            self._away_until = now + rng.choice((0.2, 1.0, 3.0))
        if rng.random() < 0.3:
            self._read_on()  # as a hub does from time to time
        super()._do_something(chance)
        if not self._is_served:
            return
        if now >= self._away_until and not self._sim.is_healing:
            if rng.random() < 0.4:
                self._keep(rng.choice(TOPICS))
            mine = [each for each in self._mine if each.is_acknowledged and not each.is_ending]
            if mine and rng.random() < 0.2:
                self._end(rng.choice(mine))
        if not self._bench.tenant.is_held:
            for topic in TOPICS:
                stored = {each for each in self._stored if each.topic == topic}
                self._knowing.note_publication(self._sim, self.id, topic, stored)
        else:
            self._knowing.paused += 1

    def _keep(self, topic: str) -> None:
        """A new session subscribes. It is durable before its hub knows that."""
        knowing = self._knowing
        session = KeptSession(len(knowing.sessions), topic, self.id)
        knowing.sessions.append(session)
        self._mine.append(session)

        def acknowledge() -> None:
            session.is_acknowledged = self._counts(session)
            knowing.acknowledged += 1

        self._change(session, acknowledge, is_on=True)

    def _end(self, session: KeptSession) -> None:
        session.is_ending = True

        def acknowledge() -> None:
            session.is_ended = self._counts(session)

        self._change(session, acknowledge, is_on=False)

    def _change(self, session: KeptSession, acknowledge: Callable[[], None], *, is_on: bool) -> None:
        place = self._knowing.log.append(session, is_on=is_on)

        def durable() -> None:
            (self._stored.add if is_on else self._stored.discard)(session)
            if not self._places.await_known(1, place, acknowledge):
                acknowledge()

        self._later(self._hub.world.rng.random() * 0.02, durable)

    def _counts(self, session: KeptSession) -> bool:
        """Nobody waits for the questions of a hub that is not a member any more."""
        if not self._sim.is_member(self.id):
            self._knowing.sessions = [each for each in self._knowing.sessions if each is not session]
            return False
        return True

    def remaining(self) -> list[str]:
        found = super().remaining()
        if self._own.applied != self._knowing.log.end():
            self._read_on()
            found.append(f"{self.id} has not read the log to its end")
        if self._is_open and self._bench.tenant.is_held:
            found.append(f"{self.id} holds its publishers")
        return found
