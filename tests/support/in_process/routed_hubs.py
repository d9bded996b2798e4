"""Several hubs in one process: real message planes and real routes, over links that deliver what the test lets them.

Knows no socket, no time and no store: frames stay in order and wait while a way is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from iothub.base.errors import UnavailableError
from iothub.engine.limits import PlaneLimits
from iothub.engine.plane import Plane
from iothub.engine.state import TenantPlane
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.known import PLACE_TYPES, OwnPlace, PeerPlaces
from iothub.peers.ports import LinkSettings, PeerId, Receiver
from iothub.peers.routes import Routes
from iothub.testing.engine import Bench, Client, packets

Frame = tuple[int, FrameType, bytes]
Hub = TypeVar("Hub", bound="LinkedHub")


class TestedLinks:
    """Fulfils `RouteLinks` for one hub. `full` and `half_full`: peers; `closed`: peers to which only what is announced is sent."""

    __test__ = False
    batch_bytes = LinkSettings().batch_bytes

    def __init__(self, net: Net[Any], me: PeerId) -> None:
        self._net = net
        self._me = me
        self.full: set[PeerId] = set()
        self.half_full: set[PeerId] = set()
        self.closed: set[PeerId] = set()
        self.sent: list[tuple[PeerId, FrameType, bytes]] = []
        self.receivers: dict[FrameType, Receiver] = {}
        self._links: dict[PeerId, TestedLink] = {}

    def register(self, types: Iterable[FrameType], receiver: Receiver) -> None:
        """Give frames of these types to somebody else than the routes."""
        self.receivers |= dict.fromkeys(types, receiver)

    def send(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        if peer in self.closed:
            raise UnavailableError("twice link_bytes wait")
        self.sent.append((peer, frame_type, body))
        return self._net.put(self._me, peer, frame_type, body)

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        if peer in self._links:
            self._links[peer].flush()
        self.sent.append((peer, frame_type, body))
        return self._net.put(self._me, peer, frame_type, body)

    def link_to(self, peer: PeerId) -> TestedLink:
        return self._links.setdefault(peer, TestedLink(self, peer))

    def types(self, peer: PeerId | None = None) -> list[FrameType]:
        """What was sent since the last call, to this peer or to all."""
        types = [frame_type for to, frame_type, _ in self.sent if peer in (None, to)]
        self.sent.clear()
        return types


class TestedLink:
    """Fulfils `PeerLink`: one of them."""

    __test__ = False

    def __init__(self, links: TestedLinks, peer: PeerId) -> None:
        self._links = links
        self._peer = peer
        self.batch_bytes = links.batch_bytes
        self.flush: Callable[[], None] = lambda: None

    def send(self, frame_type: FrameType, body: bytes) -> int:
        return self._links.send(self._peer, frame_type, body)

    def announce(self, frame_type: FrameType, body: bytes) -> int:
        return self._links.announce(self._peer, frame_type, body)

    def is_full(self) -> bool:
        return self._peer in self._links.full

    def is_half_full(self) -> bool:
        return self._peer in self._links.half_full or self.is_full()


class LinkedHub(Protocol):
    """A hub as its net sees it."""

    id: PeerId
    plane: Plane
    routes: Routes
    links: TestedLinks


class RoutedHub:
    """One hub with a tenant `acme` (id 1), which is not open yet. `reads`: how often it was asked to read the session log."""

    def __init__(self, net: Net[Any], peer: PeerId, limits: PlaneLimits | None = None) -> None:
        self.id = peer
        self.bench = Bench(limits)
        self.plane = self.bench.plane
        self.tenant = self.bench.tenant
        self.links = TestedLinks(net, peer)
        self.reads = 0
        self.place = OwnPlace(self._note_read)
        self.routes = Routes(self.links, self.plane, net.call_soon, self.place)
        self.places = PeerPlaces(self.place, self.routes, net.call_soon, net.later)
        self.links.register(PLACE_TYPES, self.places)
        self.routes.watch(self.places.tenant_closed_at, self.places.tenant_closed)
        self.routes.follow(self.places.place_of)

    def _note_read(self) -> None:
        self.reads += 1

    def open(self, tenant: TenantPlane | None = None) -> list[bool]:
        """Open a tenant, this hub's own or another; the list gets True once its clients may be served."""
        self.routes.open_tenant(tenant or self.tenant)
        return self.opened(tenant)

    def opened(self, tenant: TenantPlane | None = None) -> list[bool]:
        done: list[bool] = []
        if not self.routes.await_opened(tenant or self.tenant, lambda: done.append(True)):
            done.append(True)
        return done

    def close(self) -> None:
        self.routes.close_tenant(self.tenant)

    def reopen(self) -> list[bool]:
        """Close the tenant, and open it again with another broker."""
        self.close()
        self.tenant = self.bench.tenant = TenantPlane(1, "acme")
        return self.open()

    def client(self, name: str, **options: object) -> Client:
        return self.bench.client(name, **options)  # type: ignore[arg-type]

    def subscribe(self, client: Client, *filters: bytes, **options: object) -> list[bool]:
        """Subscribe; the list gets True when SUBACK would leave."""
        for topic_filter in filters:
            client.subscribe(topic_filter, **options)  # type: ignore[arg-type]
        return self.routed(*filters)

    def routed(self, *filters: bytes) -> list[bool]:
        done: list[bool] = []
        if not self.routes.await_routed(self.tenant, filters, lambda: done.append(True)):
            done.append(True)
        return done


class Net(Generic[Hub]):
    """The hubs and what is on its way between them. A hub is linked to all when it comes."""

    def __init__(self, count: int, make: Callable[[Net[Hub], PeerId], Hub]) -> None:
        self._make = make
        self.hubs: dict[PeerId, Hub] = {}
        self.cut: set[tuple[PeerId, PeerId]] = set()  # frames wait
        self.deaf: set[tuple[PeerId, PeerId]] = set()  # acknowledgements wait
        self.faults: list[BadFrameError] = []
        self._ways: dict[tuple[PeerId, PeerId], deque[Frame]] = {}
        self._numbers: dict[tuple[PeerId, PeerId], int] = {}
        self._unheard: dict[tuple[PeerId, PeerId], int] = {}
        self._overtaken: dict[tuple[PeerId, PeerId], int] = {}  # the last frame the other way that was sent before it
        self._acknowledged: dict[tuple[PeerId, PeerId], int] = {}
        self._early: dict[tuple[PeerId, PeerId], list[tuple[int, int]]] = {}  # with what they have overtaken
        self._arrived: dict[tuple[PeerId, PeerId], int] = {}  # the last one before which nothing is on its way
        self._delivered: dict[tuple[PeerId, PeerId], int] = {}
        self._soon: list[Callable[[], None]] = []
        self._timers: list[Callable[[], None]] = []
        for node in range(1, count + 1):
            self.add(PeerId(node, 1))

    def call_soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def later(self, _seconds: float, call: Callable[[], None]) -> None:
        self._timers.append(call)

    def time_out(self) -> None:
        """Every timer runs out, and what is sent then arrives."""
        timers, self._timers = self._timers, []
        for call in timers:
            call()
        self.settle()

    def add(self, peer: PeerId) -> Hub:
        """A hub comes, and is linked."""
        others = list(self.hubs.values())
        hub = self.hubs[peer] = self._make(self, peer)
        hub.routes.members(each for each in self.hubs if each != peer)
        for other in others:
            self.link(hub, other)
        return hub

    def link(self, one: Hub, other: Hub) -> None:
        for hub, peer in ((one, other.id), (other, one.id)):
            for receiver in _receivers(hub):
                receiver.peer_up(peer)

    def kill(self, hub: Hub) -> None:
        """A hub is gone: nothing of it arrives any more, and the others know that it never comes back."""
        del self.hubs[hub.id]
        for way in [way for way in self._ways if hub.id in way]:
            del self._ways[way]
        for other in self.hubs.values():
            for receiver in _receivers(other):
                receiver.peer_gone(hub.id)

    def put(self, source: PeerId, target: PeerId, frame_type: FrameType, body: bytes) -> int:
        way = (source, target)
        number = self._numbers[way] = self._numbers.get(way, 0) + 1
        if target in self.hubs:
            self._ways.setdefault(way, deque()).append((number, frame_type, body))
        return number

    def turn(self) -> None:
        """End the running turn: what was to be called soon is called."""
        soon, self._soon = self._soon, []
        for call in soon:
            call()

    def deliver(self, source: PeerId, target: PeerId) -> bool:
        """Deliver the first frame of a way, and its acknowledgement."""
        way = (source, target)
        frames = self._ways.get(way)
        if not frames or way in self.cut:
            return False
        number, frame_type, body = frames.popleft()
        receiver = self.hubs[target]
        try:
            receiver.links.receivers.get(frame_type, receiver.routes).frame(source, frame_type, body)
        except BadFrameError as error:
            self.faults.append(error)
        receiver.plane.end_batch()
        self._delivered[way] = number
        self._unheard[way] = number
        self._overtaken[way] = self._numbers.get((target, source), 0)
        self._hear_early(source, target)
        return True

    def acknowledge(self, source: PeerId, target: PeerId) -> bool:
        way = (source, target)
        number = self._unheard.get(way)
        is_early = target in self.hubs and self._delivered.get((target, source), 0) < self._overtaken.get(way, 0)
        if number is None or way in self.deaf or source not in self.hubs:
            return False
        del self._unheard[way]
        self._acknowledged[way] = number
        if is_early:
            self._early.setdefault(way, []).append((number, self._overtaken[way]))
        else:
            self._arrived[way] = number
        self.hubs[source].routes.acknowledged(target, number, self._arrived.get(way, 0))
        return True

    def _hear_early(self, source: PeerId, target: PeerId) -> None:
        """All has arrived here that an acknowledgement had overtaken: before anything newer."""
        way = (target, source)
        early = self._early.get(way, [])
        while early and early[0][1] <= self._delivered.get((source, target), 0):
            self._arrived[way] = early.pop(0)[0]
            self.hubs[target].routes.acknowledged(source, self._acknowledged[way], self._arrived[way])

    def settle(self) -> None:
        """Let everything arrive that is not cut."""
        is_moving = True
        while is_moving:
            self.turn()
            moved = [self.deliver(*way) for way in list(self._ways)]
            moved += [self.acknowledge(*way) for way in list(self._unheard)]
            is_moving = any(moved) or bool(self._soon)


def _receivers(hub: LinkedHub) -> list[Receiver]:
    return list(dict.fromkeys([hub.routes, *hub.links.receivers.values()]))


def open_pair() -> tuple[Net[RoutedHub], RoutedHub, RoutedHub]:
    """Two hubs with the tenant open at both."""
    net = Net(2, RoutedHub)
    one, two = net.hubs.values()
    for hub in (one, two):
        hub.open()
    net.settle()
    for hub in (one, two):
        hub.links.sent.clear()
    return net, one, two


def payloads(client: Client) -> list[bytes]:
    """The payloads of the PUBLISHes that came, as a 3.1.1 client reads them."""
    found = []
    for header, body in packets(client.take()):
        begins = 2 + int.from_bytes(body[:2], "big") + 2 * (header >> 1 & 3 > 0)
        found.append(body[begins:])
    return found
