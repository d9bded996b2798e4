"""Persistent sessions whose messages other hubs store: they change their QoS, go from hub to hub, and get each message once and at once.

Knows no fault of the network. All hubs have one store and one log; each follows the log at its own pace. Nobody looks at the tail of a queue,
but when a hub has come or is gone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from iothub.engine.router import Subscription
from iothub.engine.state import Place
from iothub.peers.frames import FrameType
from iothub.peers.known import PLACE_TYPES, OwnPlace, PeerPlaces
from iothub.peers.places import Offsets
from iothub.peers.ports import PeerId
from iothub.peers.queued import QUEUED_TYPES, QueuedPeers
from iothub.peers.routed_peer import ROUTE_TYPES
from iothub.peers.routes import MESSAGE_TYPES, Routes
from iothub.testing.engine import Bench, Client, QueueRows, ack, packets
from iothub_services.sessions.port import HERE
from tests.simulation.routed import SETTINGS, Clients, Publication, Routing
from tests.simulation.simulation import Simulation, ViolationError

if TYPE_CHECKING:
    from tests.simulation.hub import SimHub

PARTITIONS = 2
TOPICS = (b"a", b"of/1", b"of/2", b"of/3", b"of/4")
"""One of all hubs, and one of each: what a hub leaves unsaid there nobody makes good by his next message."""
MOST_SESSIONS = 3  # that begin at one hub


@dataclass(eq=False)
class StoredSession:
    """A persistent session with one subscription, which changes its QoS. `moves`: from hub to hub, too.

    `acknowledged`: which event of the run its first SUBACK was. `got`: by connection and publication. `is_changing`: no SUBACK yet;
    `is_recording`: its hub does not know yet that the log has the change.
    `queued`: from which event to which all that is sent and answered came through its queue: of one that moves, the rest may be lost on the way.
    """

    number: int
    topic: bytes
    hub: PeerId
    moves: bool
    client: Client | None = None
    connections: int = 1
    acknowledged: int = 0
    is_changing: bool = False
    is_recording: bool = False
    is_moving: bool = False
    queued: list[tuple[int, float]] = field(default_factory=list)
    got: Counter[tuple[int, int]] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"k{self.number}"

    @property
    def queue_id(self) -> int:
        return self.number + 100


Entry = tuple[StoredSession, PeerId, int]
"""What a hub writes: QoS of its subscription from now on; below 0: the epoch of the connection that the client has there, with a minus."""


class Storing(Routing):
    """A message that is acknowledged, and was sent after the SUBACK of a session, reaches it, and once in a connection.

    Whatever was stored for a session whose client is connected is read without a look at the tail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[list[Entry]] = [[] for _ in range(PARTITIONS)]
        self.rows: dict[int, QueueRows] = {}
        self.sessions: list[StoredSession] = []
        self.answered: dict[int, int] = {}  # by publication: which event its PUBACK was
        self.changes = self.moves = 0

    def append(self, session: StoredSession, hub: PeerId, value: int) -> Offsets:
        at = session.number % PARTITIONS
        self.log[at].append((session, hub, value))
        return (*[0] * at, len(self.log[at]))

    def end(self) -> Offsets:
        return tuple(map(len, self.log))

    def note_arrival(self, session: StoredSession, number: int) -> None:
        key = (session.connections, number)
        publication = self.publications[number]
        if session.got[key]:
            raise ViolationError(f"{session.hub} delivers publication {number} of {publication.hub} twice")
        session.got[key] += 1
        session.seen.add(number)

    def remaining(self, sim: Simulation) -> list[str]:
        found = super().remaining(sim)
        living = {hub.id for hub in sim.living_members()}
        for each in self.sessions:
            if each.hub not in living:
                continue
            if each.is_changing:
                found.append(f"{each.hub} has not acknowledged session {each.number}")
            if each.client is None:
                continue
            rows = self.rows[each.queue_id]
            if rows.head != rows.tail:
                found.append(f"{each.hub} has read {rows.head} of {rows.tail} messages of session {each.number}")
            found += [
                f"publication {missed.number} of {missed.hub} has not reached session {each.number} at {each.hub}"
                for missed in self._lost(each, living)
            ]
        return found

    def _lost(self, session: StoredSession, living: set[PeerId]) -> list[Publication]:
        return [
            publication
            for publication in self.publications
            if publication.hub in living
            and publication.is_acknowledged
            and publication.topic == session.topic
            and 0 < session.acknowledged < publication.sent
            and publication.number not in session.seen
            and (not session.moves or self._was_queued(session, publication))
        ]

    def _was_queued(self, session: StoredSession, publication: Publication) -> bool:
        answered = self.answered[publication.number]
        return any(begin < publication.sent and answered < end for begin, end in session.queued)


class Control:
    """The part of a session's control that the engine asks."""

    def __init__(self, holder: int, *, is_online: bool) -> None:
        self.place = Place(holder, 1, is_online=is_online)

    @property
    def is_online_elsewhere(self) -> bool:
        return self.place.holder != HERE and self.place.is_online


class StoredClients(Clients):
    """The persistent sessions of one hub, and its publishers."""

    def __init__(self, hub: SimHub, storing: Storing) -> None:
        self.topics = (b"a", b"of/%d" % hub.node)
        self._storing = storing
        self._sim = hub.sim
        self._away_until = 0.0  # the log cannot be reached from here
        self._is_reading = False
        self._ends: list[tuple[Offsets, Callable[[], None]]] = []
        self._state: dict[StoredSession, tuple[int, PeerId, int]] = {}  # QoS, hub and epoch, as far as the log is read
        bench = Bench()
        bench.store.rows = storing.rows
        super().__init__(hub, storing, bench)
        self.receivers = [
            (ROUTE_TYPES, self, True),
            (MESSAGE_TYPES, self, False),
            (PLACE_TYPES, self, False),
            (QUEUED_TYPES, self, False),
        ]
        self._leave_unsaid(hub)
        self._read_upto = storing.end()
        for entry in chain(*storing.log):
            self._note(entry)
        self._places.note_applied(self._read_upto)

    def _leave_unsaid(self, hub: SimHub) -> None:
        """A hub that is killed may have stored what nobody has heard of, itself included."""
        kill = hub.kill

        def kill_it(*, is_silent: bool) -> None:
            if self._sim.is_member(self.id):  # else only a look at the tail finds it
                self._publish_some()
                self._bench.store.crash(hub.world.rng.randint(0, 6))
            kill(is_silent=is_silent)

        hub.kill = kill_it  # type: ignore[method-assign]

    def _make_routes(self) -> Routes:
        self._own = OwnPlace(self._read_on, self._read_to_end)
        routes = Routes(self._hub.links, self._bench.plane, self._soon.append, self._own)
        self._places = PeerPlaces(self._own, routes, self._soon.append, self._later)
        routes.watch(self._places.tenant_closed_at, self._places.tenant_closed)
        routes.follow(self._places.place_of)
        self._queued = QueuedPeers(routes, self._bench.plane, self._soon.append)
        self._queued.watch(lambda: self._later(0.05, self._look_at_tails))
        return routes

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._hub.world.after(seconds, lambda: self._hub.later(call))

    def _soon_or_later(self, call: Callable[[], None]) -> None:
        self._later(self._hub.world.rng.random() * 0.05, call)

    def _look_at_tails(self) -> None:
        for each in self._storing.sessions:
            if each.hub == self.id and each.client is not None and not each.client.session.is_behind:
                self._bench.plane.announce(each.client.session, self._storing.rows[each.queue_id].tail)

    # --- links

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        if frame_type not in (*PLACE_TYPES, *QUEUED_TYPES):
            return super().frame(peer, frame_type, body)
        self._hub.pause_here()
        (self._places if frame_type in PLACE_TYPES else self._queued).frame(peer, frame_type, body)
        self._hub.pause_here()
        return None

    def peer_up(self, peer: PeerId) -> None:
        super().peer_up(peer)
        self._places.peer_up(peer)
        self._queued.peer_up(peer)

    def peer_gone(self, peer: PeerId) -> None:
        super().peer_gone(peer)
        self._places.peer_gone(peer)
        self._queued.peer_gone(peer)

    # --- the log

    def _read_on(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            now, rng = self._hub.world.now, self._hub.world.rng
            self._later(max(self._away_until - now, 0.0) + rng.random() * 0.05, self._read_page)

    def _read_to_end(self, on_done: Callable[[], None]) -> None:
        def ask() -> None:
            self._ends.append((self._storing.end(), on_done))
            self._read_on()

        self._later(max(self._away_until - self._hub.world.now, 0.0) + self._hub.world.rng.random() * 0.05, ask)

    def _read_page(self) -> None:
        self._is_reading = False
        log, rng = self._storing.log, self._hub.world.rng
        if self._hub.world.now < self._away_until:
            return self._read_on()
        place = list(self._read_upto)
        for at, partition in enumerate(log):
            for entry in partition[place[at] : place[at] + rng.randint(0, 5)]:
                self._note(entry)
                self._apply(entry)
                place[at] += 1
        self._read_upto = tuple(place)
        self._places.note_applied(self._read_upto)
        self._hub.pause_here()
        ends, self._ends = self._ends, []
        for end, on_done in ends:
            if all(map(int.__ge__, self._read_upto, end)):
                on_done()
            else:
                self._ends.append((end, on_done))
        if self._ends or any(map(int.__lt__, self._read_upto, self._storing.end())):
            self._read_on()
        return None

    def _note(self, entry: Entry) -> None:
        session, hub, value = entry
        qos, known, epoch = self._state.get(session, (-1, hub, 0))
        if value >= 0:
            self._state[session] = (value, known, epoch)
        elif -value > epoch:
            self._state[session] = (qos, hub, -value)

    def _apply(self, entry: Entry) -> None:
        session, hub, value = entry
        if not self._is_open or hub == self.id:
            return
        known = self._known(session, hub)
        if value >= 0:
            self._bench.plane.subscribe(known, Subscription(known, session.topic, None, value))
        elif known.connection is None and self._state[session][2] == -value:
            known.control.place.holder, known.control.place.is_online = hub.node, hub.node != self.id.node
            self._queued.connected(known)

    def _known(self, session: StoredSession, hub: PeerId) -> Any:
        """Return the session here, which is made if the log has told of it first."""
        found = self._bench.tenant.sessions.get(session.name)
        if found is None:
            found = self._bench.plane.create_session(
                self._bench.tenant, session.name, session.name, is_persistent=True, queue_id=session.queue_id
            )
            found.control = Control(hub.node, is_online=hub.node != self.id.node)
        return found

    def _open(self) -> None:
        super()._open()
        for session, (qos, hub, _) in self._state.items():
            known = self._known(session, hub)
            if qos >= 0:
                self._bench.plane.subscribe(known, Subscription(known, session.topic, None, qos))

    # --- what clients do

    def act(self) -> None:
        rng = self._hub.world.rng
        if self._sim.is_member(
            self.id
        ):  # else it holds its publishers, and what is stored all the same is found at the tail
            self._bench.plane.turn.begin()
            self._bench.store.commit(rng.randint(0, 6) if not self._sim.is_healing else 1_000)
            self._bench.plane.end_batch()
        super().act()

    def _do_something(self, chance: float) -> None:
        rng, now = self._hub.world.rng, self._hub.world.now
        if rng.random() < 0.05 and not self._sim.is_healing:
            self._away_until = now + rng.choice((0.2, 1.0, 3.0))
        if rng.random() < 0.3:
            self._read_on()  # as a hub does from time to time
        if not self._is_open:
            return self._open()
        if not self._is_served or self._sim.is_healing or not self._sim.is_member(self.id):
            return None
        mine = [each for each in self._storing.sessions if each.hub == self.id and each.client is not None]
        if now >= self._away_until:
            if chance < 0.3 and len(mine) < MOST_SESSIONS:
                self._begin(rng.choice(TOPICS), moves=rng.random() < 0.5)
            changers = [each for each in mine if not each.is_moving and not each.is_changing]
            if changers and rng.random() < 0.5:
                self._change(rng.choice(changers), rng.randint(0, 1))
            movers = [each for each in self._storing.sessions if each.moves and each.hub != self.id]
            movers = [each for each in movers if each.acknowledged and not each.is_moving]
            if movers and rng.random() < 0.3:
                self._take(rng.choice(movers))
        self._publish_soon()
        return None

    def _publish_some(self) -> None:
        if self._is_served and not self._sim.is_healing:
            for _ in range(self._hub.world.rng.randint(1, 3)):
                self._publish(b"")

    def _take_answers(self, publisher: Client) -> None:
        waiting = list(self._unanswered)
        super()._take_answers(publisher)
        for each in waiting[: len(waiting) - len(self._unanswered)]:
            self._storing.answered[each.number] = self._storing.next_event()

    def _begin(self, topic: bytes, *, moves: bool) -> None:
        """A new session connects and subscribes."""
        storing = self._storing
        session = StoredSession(len(storing.sessions), topic, self.id, moves)
        storing.sessions.append(session)
        self._connect(session)
        self._change(session, 1)

    def _connect(self, session: StoredSession) -> None:
        session.client = self._bench.client(session.name, queue_id=session.queue_id, settings=SETTINGS, is_kept=True)
        session.client.session.control = Control(HERE, is_online=False)
        epoch = session.client.session.epoch
        self._soon_or_later(lambda: self._storing.append(session, self.id, -epoch))

    def _change(self, session: StoredSession, qos: int) -> None:
        """As the control plane does it: announced, durable, in force, known."""
        assert session.client is not None
        here = session.client.session
        after = Subscription(here, session.topic, None, qos)
        before = here.subscriptions.get((None, session.topic))
        change = self._routes.change_options(here, [(before, after)])
        assert change is not None
        session.is_changing = True
        if session.queued:
            begin, end = session.queued[-1]
            session.queued[-1] = begin, min(end, self._storing.next_event())

        def record() -> None:
            def append() -> None:
                if session.client is None or session.client.session is not here:
                    session.is_changing = False
                    change.end()  # its client has gone
                    return
                place = self._storing.append(session, self.id, qos)
                session.is_recording = True
                self._soon_or_later(lambda: durable(place))

            self._soon_or_later(append)

        def durable(place: Offsets) -> None:
            session.is_recording = False
            self._bench.plane.subscribe(here, after)
            change.note_durable(place)
            left = [self._places.await_known(1, place, done)]
            left.append(self._routes.await_routed(self._bench.tenant, [session.topic], done))
            waiting[0] += sum(left)
            done()

        waiting = [1]

        def done() -> None:
            waiting[0] -= 1
            if not waiting[0]:
                session.is_changing = False
                change.end()
                if not self.may_acknowledge():
                    return
                self._storing.changes += 1
                if qos:
                    session.queued.append((self._storing.next_event(), math.inf))
                session.acknowledged = session.acknowledged or self._storing.next_event()

        if not change.await_routed(record):
            record()

    def may_acknowledge(self) -> bool:
        """A hub that the others do not count sends no SUBACK, and closes its clients."""
        return self._sim.is_member(self.id)

    def _take(self, session: StoredSession) -> None:
        """The client of another hub comes here: it is closed there first, and this hub reads what that one has written."""
        home = next(hub for hub in self._storing.hubs if hub.id == session.hub)
        assert isinstance(home, StoredClients)
        session.is_moving = True

        def claim() -> None:
            if not self._is_served or session.name not in self._bench.tenant.sessions:
                session.is_moving = False
                return
            session.connections += 1
            session.hub = self.id
            session.is_moving = False
            self._storing.moves += 1
            self._connect(session)

        if home._hub.is_dead:
            session.is_moving = not session.is_changing  # one whose hub dies in the middle of a change stays away
            if session.is_moving:
                self._read_to_end(claim)
        else:
            home._hub.later(lambda: home._lose(session, lambda: self._hub.later(lambda: self._read_to_end(claim))))

    def _lose(self, session: StoredSession, on_done: Callable[[], None]) -> None:
        """Close the client; what it has changed is known to all hubs when another one has it."""
        if session.client is not None:
            self._bench.plane.detach(session.client.session)
            session.client = None
        self._when_settled(session, on_done)

    def _when_settled(self, session: StoredSession, on_done: Callable[[], None]) -> None:
        """As the directory does it: what was written can be read, and all hubs know it."""
        known = self._bench.tenant.sessions[session.name]
        if session.is_recording:
            self._later(0.01, lambda: self._when_settled(session, on_done))
        elif not self._routes.await_changes(known, on_done):
            on_done()

    def _read(self) -> None:
        super()._read()
        for each in self._storing.sessions:
            if each.hub == self.id and each.client is not None:
                self._read_session(each, each.client)

    def _read_session(self, session: StoredSession, client: Client) -> None:
        for header, body in packets(client.take()):
            if header >> 4 != 3:
                continue  # CONNACK
            begins = 2 + int.from_bytes(body[:2], "big")
            qos = header >> 1 & 3
            self._storing.note_arrival(session, int(body[begins + 2 * qos :].split(b" ")[0]))
            if qos:
                client.connection.feed(ack(0x40, int.from_bytes(body[begins : begins + 2], "big")))

    def remaining(self) -> list[str]:
        found = super().remaining()
        if self._own.applied != self._storing.end():
            self._read_on()
            found.append(f"{self.id} has not read the log to its end")
        return found
