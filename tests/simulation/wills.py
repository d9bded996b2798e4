"""Clients with Wills at every hub, over real message planes, routes and copies of Wills, and what must be true of their Wills.

Knows no session, no broker and no log: these Wills are of transient sessions. A Will that is due may wait for some turns, as for a rate or a hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iothub.engine.message import Message
from iothub.engine.state import TenantPlane
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerAddress, PeerId
from iothub.peers.view import Key, View
from iothub.peers.will_copies import WILL_TYPES, WillBody, WillCopies, WillCopy
from iothub.testing.engine import ack, packets
from tests.simulation.routed import Clients, Routing, Subscriber
from tests.simulation.simulation import Simulation, ViolationError

if TYPE_CHECKING:
    from tests.simulation.hub import SimHub

KEYS: tuple[Key, ...] = tuple((1, f"client-{number}") for number in range(6))
TOPIC, FILTER = b"will/1", b"will/#"
_BODY = WillBody("dev", 1, 5, TOPIC, b"", 1, False, b"", None)
_BURST = 30


@dataclass(eq=False)
class Connection:
    """One connection with a Will. `copies`: by the hubs that have one, which hub publishes before them.

    `end`: "" while it is there; `clean`: DISCONNECT with 0x00; `lost`: its Will is due. `is_moved`: its copies have moved since; `is_replaced`: its
    client is back at the same hub, with another Will. `published`: by whom, and which event of the run that was. `dropped`: who has dropped its copy
    after the end.
    """

    number: int
    hub: PeerId
    key: Key
    end: str = ""
    is_moved: bool = False
    is_replaced: bool = False
    copies: dict[PeerId, PeerId | None] = field(default_factory=dict)
    published: dict[PeerId, int] = field(default_factory=dict)
    dropped: set[PeerId] = field(default_factory=set)

    @property
    def message_id(self) -> bytes:
        return self.number.to_bytes(16, "big")


class Watching(Routing):
    """The Will of a connection whose hub is gone is published by another hub, if both copies had arrived and one of the two hubs lives on.

    Never while its hub is a member; never by who has dropped the copy, as after a DISCONNECT; and by one hub only, unless the one that has published
    it is gone. Who drops a copy has the Will that was published before. In the end hubs keep copies of what is connected, and of nothing else.
    Of one Client Identifier at one hub there is one copy: a Will that still waits has none once its client is back with another one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.connections: list[Connection] = []
        self.watchers: list[Subscriber] = []

    def note_copy(self, keeper: PeerId, copy: WillCopy, watcher: Subscriber | None) -> None:
        connection = self.connections[int.from_bytes(copy.message_id, "big")]
        if copy.will is not None:
            connection.copies[keeper] = copy.before
            return
        connection.copies.pop(keeper, None)
        if connection.end:
            connection.dropped.add(keeper)
        event = connection.published.get(connection.hub)
        if not event or watcher is None or connection.is_moved or watcher.got[connection.number]:
            return
        if 0 < watcher.acknowledged < event:
            raise ViolationError(f"{keeper} has dropped the Will {connection.number} before it came")

    def note_published(self, sim: Simulation, by: PeerId, connection: Connection) -> None:
        if sim.is_member(by) and by != connection.hub:
            if sim.is_member(connection.hub):
                raise ViolationError(f"{by} publishes the Will {connection.number} of {connection.hub}, which is there")
            if by in connection.dropped:
                raise ViolationError(f"{by} publishes the Will {connection.number}, which it has dropped")
        for other in connection.published:
            if sim.is_member(other) and sim.is_member(by):
                raise ViolationError(f"{by} publishes the Will {connection.number}, which {other} has published")
        connection.published[by] = self.next_event()

    def remaining(self, sim: Simulation) -> list[str]:
        living = {hub.id for hub in sim.living_members()}
        found = [text for hub in self.hubs if hub.id in living for text in hub.remaining()]
        hubs = {hub.id: hub for hub in self.hubs if hub.id in living}
        for connection in self.connections:
            if connection.hub not in living and self._is_safe(connection, living) and not connection.published:
                found.append(f"nobody has published the Will {connection.number} of {connection.hub}")
            for watcher in self.watchers:
                if watcher.hub in living and self._is_for(watcher, connection, living):
                    found.append(f"the Will {connection.number} of {connection.hub} has not reached {watcher.hub}")
        for hub in hubs.values():
            assert isinstance(hub, WillClients)
            for keeper, expected in hub.expected_copies().items():
                other = hubs.get(keeper)
                if isinstance(other, WillClients) and other.copies_of(hub.id) != expected:
                    found.append(f"{keeper} keeps {other.copies_of(hub.id)} of {hub.id}, expected {expected}")
        return found

    def _is_safe(self, connection: Connection, living: set[PeerId]) -> bool:
        """Tell whether the copies say the same of each other, and one of them lives on."""
        if connection.end == "clean" or connection.is_replaced:
            return False
        first = [keeper for keeper, before in connection.copies.items() if before is None]
        second = [keeper for keeper, before in connection.copies.items() if before is not None]
        is_whole = len(first) == 1 and all(connection.copies[each] == first[0] for each in second)
        return is_whole and bool(living & connection.copies.keys())

    def _is_for(self, watcher: Subscriber, connection: Connection, living: set[PeerId]) -> bool:
        """Tell whether a watcher must have had the Will, and has not."""
        if watcher.got[connection.number] or not watcher.acknowledged:
            return False
        return any(by in living and watcher.acknowledged < event for by, event in connection.published.items())


class WillClients(Clients):
    """The clients of one hub, one of which watches the Wills of all."""

    def __init__(self, hub: SimHub, watching: Watching) -> None:
        super().__init__(hub, watching)
        self._watching = watching
        self._watcher: Subscriber | None = None
        self._connected: dict[Key, Connection] = {}
        self._firing: list[tuple[int, Connection]] = []  # turns that are left
        self._of_lost: list[Connection] = []  # to be published when the tenant is open
        self._copies = WillCopies(hub.id, hub.links, self._publish_copy, self._own_copies, hub)
        self._view: View | None = None
        self.receivers.append((WILL_TYPES, self, False))
        members = hub.links.members

        def note_members(rows: Sequence[PeerAddress]) -> None:
            members(rows)
            self._set_view(
                View(0, [hub.id, *(PeerId(row.node, row.incarnation) for row in rows if row.node != hub.node)])
            )

        hub.links.members = note_members  # type: ignore[method-assign]

    def _set_view(self, view: View) -> None:
        if view != self._view:
            for connection in (*self._connected.values(), *(each for _, each in self._firing)):
                connection.is_moved = True
        if len(view.members) > 1:
            self._view = view
        self._copies.set_view(view)

    # --- the links' side

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        if frame_type not in WILL_TYPES:
            return super().frame(peer, frame_type, body)
        self._hub.pause_here()
        self._copies.frame(peer, frame_type, body)
        self._bench.plane.end_batch()
        self._read()
        self._watching.note_copy(self.id, WillCopy.decode(body), self._watcher)
        self._hub.pause_here()
        return None

    def peer_up(self, peer: PeerId) -> None:
        super().peer_up(peer)
        self._copies.peer_up(peer)

    def peer_gone(self, peer: PeerId) -> None:
        super().peer_gone(peer)
        self._copies.peer_gone(peer)

    # --- for the checks

    def expected_copies(self) -> dict[PeerId, set[int]]:
        """Return the numbers of this hub's connections that each other hub must keep."""
        if self._view is None:
            return {}
        expected: dict[PeerId, set[int]] = {each: set() for each in self._view.members if each != self.id}
        for key, connection in self._connected.items():
            for keeper in [each for each in self._view.ranked(key) if each != self.id][:2]:
                expected[keeper].add(connection.number)
        return expected

    def copies_of(self, peer: PeerId) -> set[int]:
        kept = self._copies._kept.get(peer, {})
        return {int.from_bytes(copy.message_id, "big") for copy in kept.values()}

    def remaining(self) -> list[str]:
        found = super().remaining()
        if self._firing or self._of_lost:
            found.append(f"{self.id} has Wills to publish")
        if self._watcher is not None and not self._watcher.acknowledged:
            found.append(f"{self.id} watches nothing")
        return found

    # --- what clients do

    def act(self) -> None:
        if self._of_lost and not self._is_open:
            self._open()
        due, self._firing = self._firing, []
        for turns, connection in due:
            if turns:
                self._firing.append((turns - 1, connection))
            else:
                self._publish_will(connection, is_own=True)
        if self._is_served:
            of_lost, self._of_lost = self._of_lost, []
            for connection in of_lost:
                self._publish_will(connection, is_own=False)
        super().act()

    def burst(self) -> None:
        """Many clients come and go."""
        for _ in range(_BURST):
            if self._is_served:
                self._do_something(self._hub.world.rng.random())

    def _do_something(self, chance: float) -> None:
        rng = self._hub.world.rng
        if not self._is_open:
            self._open()
        elif not self._is_served or self._hub.sim.is_healing:
            return  # in the end nobody comes or goes, so that what is missing stays missing
        elif chance < 0.5:
            self._connect(rng.choice(KEYS))
        elif self._connected:
            self._end(rng.choice(list(self._connected.values())), "clean" if chance < 0.75 else "lost")

    def _serve(self, tenant: TenantPlane) -> None:
        super()._serve(tenant)
        client = self._bench.client("watcher")
        watcher = self._watcher = Subscriber(len(self._watching.watchers), self.id, FILTER, client)
        self._watching.watchers.append(watcher)
        client.subscribe(FILTER, 1)

        def acknowledge() -> None:
            watcher.acknowledged = self._watching.next_event()

        if not self._routes.await_routed(tenant, [FILTER], acknowledge):
            acknowledge()

    def _connect(self, key: Key) -> None:
        """A client comes; it takes over from the one that is there, here or at another hub, as the directory has it."""
        watching = self._watching
        for hub in watching.hubs:
            if isinstance(hub, WillClients) and key in hub._connected:
                hub._hub.later(lambda hub=hub, former=hub._connected[key]: hub._end(former, "lost"))  # type: ignore[misc]
        if key in self._connected:
            self._end(self._connected[key], "lost")
        for _, each in self._firing:
            each.is_replaced = each.is_replaced or each.key == key
        connection = self._connected[key] = Connection(len(watching.connections), self.id, key)
        watching.connections.append(connection)
        self._copies.keep(_copy_of(connection))

    def _end(self, connection: Connection, end: str) -> None:
        if connection.end or self._connected.get(connection.key) is not connection:
            return
        del self._connected[connection.key]
        connection.end = end
        if end == "clean":
            self._copies.drop(connection.key, connection.message_id)
        else:
            self._firing.append((self._hub.world.rng.choice((0, 0, 1, 5)), connection))

    def _publish_will(self, connection: Connection, *, is_own: bool) -> None:
        self._watching.note_published(self._hub.sim, self.id, connection)
        message = Message(TOPIC, b"%d" % connection.number, 1)

        def done(_code: int) -> None:
            if is_own:
                self._copies.drop(connection.key, connection.message_id)
            else:
                self._copies.published(_copy_of(connection))

        self._bench.plane.turn.begin()  # as what fires in a turn: the batch ends with it
        self._bench.plane.publish(self._bench.tenant, message, done)

    def _publish_copy(self, copy: WillCopy) -> None:
        self._of_lost.append(self._watching.connections[int.from_bytes(copy.message_id, "big")])
        self._hub.wake()

    def _own_copies(self) -> list[WillCopy]:
        return [_copy_of(each) for each in self._connected.values()]

    def _read(self) -> None:
        watcher = self._watcher
        for header, body in packets(watcher.client.take()) if watcher is not None else ():
            topic_end = 2 + int.from_bytes(body[:2], "big")
            assert watcher is not None
            assert header >> 1 & 3 == 1
            watcher.got[int(body[topic_end + 2 :])] += 1
            watcher.client.send(ack(0x40, int.from_bytes(body[topic_end : topic_end + 2], "big")))


def _copy_of(connection: Connection) -> WillCopy:
    return WillCopy(connection.key, connection.message_id, _BODY)
