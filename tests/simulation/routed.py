"""Clients at every hub, over real message planes and real routes, and what must be true of them.

Knows no fault and no frame of a link. A SUBACK is the moment in which routes say that every hub knows; a client publishes with QoS 1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iothub.engine.filters import topic_matches
from iothub.engine.limits import ConnectionSettings
from iothub.engine.state import TenantPlane
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerAddress, PeerId, Receiver
from iothub.peers.routed_peer import ROUTE_TYPES
from iothub.peers.routes import MESSAGE_TYPES, Routes
from iothub.testing.engine import Bench, Client, ack, packets, publish
from tests.simulation.simulation import Check, Simulation, ViolationError

if TYPE_CHECKING:
    from tests.simulation.hub import SimHub

TOPICS = (b"a/1", b"a/2", b"b")
FILTERS = (b"a/1", b"a/+", b"a/#", b"#", b"b")
TAIL_S = 1.0  # of clients after the faults
SETTINGS = ConnectionSettings(receive_maximum=65_535, inbound_maximum=65_535)
_BURST = 300


@dataclass(eq=False)
class Subscriber:
    """One subscription of one client. `acknowledged`: which event of the run its SUBACK was; `ended`: that of its UNSUBSCRIBE."""

    number: int
    hub: PeerId
    topic_filter: bytes
    client: Client
    acknowledged: int = 0
    ended: int = 0
    got: Counter[int] = field(default_factory=Counter)
    last: dict[tuple[int, bytes], int] = field(default_factory=dict)  # of a publisher and topic
    first: dict[tuple[PeerId, bytes], int] = field(default_factory=dict)  # the same


@dataclass(eq=False)
class Publication:
    """One PUBLISH. `sent`: which event of the run it was; `is_acknowledged`: its PUBACK came; `is_lost`: its client left without one."""

    number: int
    hub: PeerId
    topic: bytes
    sent: int
    is_acknowledged: bool = False
    is_lost: bool = False


class Routing(Check):
    """A PUBLISH that is acknowledged, and was sent after a SUBACK anywhere, reaches that subscriber once, if both their hubs live on.

    Nothing comes twice, or out of the order of its publisher and topic; after the first one nothing of them is left out; and nobody waits for ever.
    """

    def __init__(self) -> None:
        self.events = 0
        self.hubs: list[Clients] = []
        self.subscribers: list[Subscriber] = []
        self.publications: list[Publication] = []

    def next_event(self) -> int:
        self.events += 1
        return self.events

    def note_delivery(self, subscriber: Subscriber, topic: bytes, number: int) -> None:
        publication = self.publications[number]
        if subscriber.got[number]:
            raise ViolationError(f"{subscriber.hub} delivers publication {number} of {publication.hub} twice")
        if not topic_matches(subscriber.topic_filter, topic):
            raise ViolationError(f"{subscriber.hub} delivers {topic!r} for {subscriber.topic_filter!r}")
        subscriber.got[number] += 1
        stream = (publication.hub.node, topic)
        if subscriber.last.get(stream, -1) > number:
            raise ViolationError(f"{subscriber.hub} delivers publication {number} of {publication.hub} too late")
        subscriber.last[stream] = number
        subscriber.first.setdefault((publication.hub, topic), number)

    def remaining(self, sim: Simulation) -> list[str]:
        living = {hub.id for hub in sim.living_members()}
        found = [text for hub in self.hubs if hub.id in living for text in hub.remaining()]
        waiting: dict[PeerId, list[Subscriber]] = defaultdict(list)
        for each in self.subscribers:
            if each.hub in living:
                waiting[each.hub].append(each)
                if not each.acknowledged and not each.ended:
                    found.append(f"{each.hub} has not acknowledged {each.topic_filter!r}")
        for publication in self.publications:
            if publication.hub in living:
                if not publication.is_acknowledged:
                    found.append(f"{publication.hub} has not acknowledged publication {publication.number}")
                found += self._missed(publication, waiting)
        return found

    def _missed(self, publication: Publication, waiting: dict[PeerId, list[Subscriber]]) -> list[str]:
        return [
            f"publication {publication.number} of {publication.hub} has not reached {each.hub}"
            for subscribers in waiting.values()
            for each in subscribers
            if _has_begun(each, publication)
            and topic_matches(each.topic_filter, publication.topic)
            and not each.got[publication.number]
        ]


def _has_begun(each: Subscriber, publication: Publication) -> bool:
    """Tell whether a subscriber was acknowledged before a PUBLISH, or has got an earlier one of its topic and hub.

    Of one that has ended, whether it has got a later one, too.
    """
    if each.ended and each.last.get((publication.hub.node, publication.topic), -1) < publication.number:
        return False
    first = each.first.get((publication.hub, publication.topic), publication.number)
    return 0 < each.acknowledged < publication.sent or first < publication.number


class Clients:
    """The clients of one hub, who come, subscribe, publish and leave; fulfils `Workload`, and `Receiver` around `Routes`."""

    topics: Sequence[bytes] = TOPICS
    filters: Sequence[bytes] = FILTERS
    pace_s = 0.2  # from one thing that they do to the next, at most
    leaves = 0.05  # how often all clients of a hub leave, of what they do

    def __init__(self, hub: SimHub, routing: Routing, bench: Bench | None = None) -> None:
        self.receivers: list[tuple[Iterable[FrameType], Receiver, bool]] = [
            (ROUTE_TYPES, self, True),
            (MESSAGE_TYPES, self, False),
        ]
        self.id = hub.id
        self._hub = hub
        self._routing = routing
        self._bench = bench or Bench()
        self._soon: list[Callable[[], None]] = []
        self._routes = self._make_routes()
        self._is_joined = self._is_open = self._is_served = False
        self._publisher: Client | None = None
        self._subscribers: list[Subscriber] = []
        self._unanswered: list[Publication] = []
        self._due = 0.0
        routing.hubs.append(self)
        hub.links.watch(self._routes.acknowledged)
        members = hub.links.members

        def note_members(rows: Sequence[PeerAddress]) -> None:
            """As the hub does at each look: links first."""
            members(rows)
            self._routes.members(PeerId(row.node, row.incarnation) for row in rows if row.node != hub.node)
            self._is_joined = True

        hub.links.members = note_members  # type: ignore[method-assign]

    def _make_routes(self) -> Routes:
        return Routes(self._hub.links, self._bench.plane, self._soon.append)

    # --- the links' side

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        self._hub.pause_here()
        self._routes.frame(peer, frame_type, body)
        self._hub.pause_here()

    def peer_up(self, peer: PeerId) -> None:
        self._routes.peer_up(peer)

    def peer_gone(self, peer: PeerId) -> None:
        self._routes.peer_gone(peer)

    # --- a turn

    def act(self) -> None:
        rng, now = self._hub.world.rng, self._hub.world.now
        is_over = self._hub.sim.is_healing and now > self._due + TAIL_S
        if self._is_joined and now >= self._due and not is_over:
            self._due = now + rng.random() * self.pace_s if not self._hub.sim.is_healing else now + TAIL_S
            self._do_something(rng.random())
        self._pass_time()
        self._bench.plane.tick()
        soon, self._soon[:] = list(self._soon), []
        for call in soon:
            call()
        self._bench.plane.end_batch()
        self._read()

    def _pass_time(self) -> None:
        self._bench.clock.advance(0.1)

    def burst(self) -> None:
        """Publish more than a link takes."""
        if self._is_served:
            for _ in range(_BURST):
                self._publish(b"#" * 300)

    def remaining(self) -> list[str]:
        return [f"{self.id} has not opened the tenant"] if self._is_open and not self._is_served else []

    def _do_something(self, chance: float) -> None:
        rng = self._hub.world.rng
        if not self._is_open:
            self._open()
        elif not self._is_served:
            if chance < 0.3:
                self._leave()
        elif chance < 0.35:
            self._subscribe(rng.choice(self.filters))
        elif chance < 0.5 and self._subscribers:
            self._unsubscribe(rng.choice(self._subscribers))
        elif chance < 0.5 + self.leaves and not self._unanswered:
            self._leave()
        else:
            self._publish_soon()

    def _open(self) -> None:
        tenant = self._bench.tenant = TenantPlane(1, "acme")
        self._is_open = True
        self._routes.open_tenant(tenant)
        if not self._routes.await_opened(tenant, lambda: self._serve(tenant)):
            self._serve(tenant)

    def _serve(self, tenant: TenantPlane) -> None:
        if tenant is not self._bench.tenant or not self._is_open:
            return  # it was closed meanwhile
        self._is_served = True
        self._publisher = self._bench.client("p", settings=SETTINGS)

    def _leave(self) -> None:
        """The last client of the tenant leaves, and its broker is dropped."""
        for each in list(self._subscribers):
            self._unsubscribe(each)
        if self._publisher is not None:
            self._bench.plane.discard(self._publisher.session)
        self._publisher = None
        self._is_open = self._is_served = False
        self._routes.close_tenant(self._bench.tenant)

    def _subscribe(self, topic_filter: bytes) -> None:
        routing = self._routing
        client = self._bench.client(f"s{len(routing.subscribers)}", settings=SETTINGS)
        each = Subscriber(len(routing.subscribers), self.id, topic_filter, client)
        routing.subscribers.append(each)
        self._subscribers.append(each)
        client.subscribe(topic_filter, 1)

        def acknowledge() -> None:
            each.acknowledged = routing.next_event()

        if not self._routes.await_routed(self._bench.tenant, [topic_filter], acknowledge):
            acknowledge()

    def _unsubscribe(self, each: Subscriber) -> None:
        self._bench.plane.unsubscribe(each.client.session, None, each.topic_filter)
        each.ended = self._routing.next_event()
        self._bench.plane.discard(each.client.session)
        self._subscribers.remove(each)

    def _publish_soon(self) -> None:
        self._hub.later(self._publish_some)

    def _publish_some(self) -> None:
        """Among what comes over links in a turn, which ends later; the last messages of a tenant may be followed by its end in the same turn."""
        rng, publisher = self._hub.world.rng, self._publisher
        if not self._is_served or publisher is None:
            return
        for _ in range(rng.randint(1, 4)):
            self._publish(b"")
        if rng.random() < 0.01 and not publisher.connection.is_paused:
            for each in self._unanswered:
                each.is_acknowledged = True  # it is routed, and nobody waits for its PUBACK any more
            self._unanswered.clear()
            self._leave()

    def _publish(self, filler: bytes) -> None:
        routing, publisher = self._routing, self._publisher
        assert publisher is not None
        number = len(routing.publications)
        publication = Publication(number, self.id, self._hub.world.rng.choice(self.topics), routing.next_event())
        routing.publications.append(publication)
        self._unanswered.append(publication)
        publisher.connection.feed(publish(publication.topic, b"%d %b" % (number, filler), 1, number % 65_535 + 1))
        self._take_answers(publisher)

    def _read(self) -> None:
        for each in self._subscribers:
            for header, body in packets(each.client.take()):
                topic_end = 2 + int.from_bytes(body[:2], "big")
                self._routing.note_delivery(each, body[2:topic_end], int(body[topic_end + 2 :].split(b" ")[0]))
                assert header >> 1 & 3 == 1
                each.client.send(ack(0x40, int.from_bytes(body[topic_end : topic_end + 2], "big")))
        if self._is_served and self._publisher is not None:
            self._take_answers(self._publisher)

    def _take_answers(self, publisher: Client) -> None:
        """PUBACKs come in the order of the PUBLISHes."""
        for _ in packets(publisher.take()):
            self._unanswered.pop(0).is_acknowledged = True
