"""Retained Messages that several hubs write, over real planes, routes and replays, and what must be true of them.

Knows no frame of a link. The store is one for all hubs: it takes its time, and what a hub that dies had asked for is done or not.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred

from iothub.base.errors import UnavailableError
from iothub.engine.filters import topic_matches
from iothub.engine.limits import ConnectionSettings
from iothub.engine.outbox import StoredPublish
from iothub.engine.state import TenantPlane
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.retained import RETAINED_TYPES, RetainedPeers
from iothub.records.message import StoredMessage, encode_message
from iothub.testing.engine import Bench, Client, ManualStore, ack, packets, publish
from iothub_services.damaged import uncounted
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.resolve import resolve_texts
from iothub_services.retained.port import RetainedBody, RetainedTopic
from iothub_tenants.broker.retaining import Retaining
from tests.simulation.hub import Crashed
from tests.simulation.routed import TAIL_S, Clients, Routing
from tests.simulation.simulation import Check, Simulation, ViolationError

if TYPE_CHECKING:
    from iothub.peers.link import Link
    from tests.simulation.hub import SimHub

TENANT = 1
TOPICS = tuple(
    b"all/%d" % number for number in range(12)
)  # few writes of each: one that was not told is not made good by the next
REFUSED = 0.05  # of the changes that a link is given: it is full
FILTERS = (b"own/+", TOPICS[0], b"all/+", b"#")
BURST = 100
MANY = 10  # writes that wait
SLOW_S = 0.3  # of a store that takes longer than usual
_SETTINGS = ConnectionSettings(receive_maximum=65_535, inbound_maximum=65_535)


@dataclass(eq=False)
class Write:
    """One retained PUBLISH, of `number` or, if it `is_delete`, of nothing.

    `version`: 0 before it has one; `acknowledged`: which event of the run its PUBACK was.
    """

    number: int
    hub: PeerId
    topic: bytes
    is_delete: bool
    version: int = 0
    is_stored: bool = False
    acknowledged: int = 0
    was_member: bool = False  # when it was acknowledged


@dataclass(eq=False)
class Listener:
    """One subscription. `begun`: which event of the run it was; `got`: (topic, number or -1 for a deletion, whether with RETAIN 1)."""

    hub: PeerId
    topic_filter: bytes
    client: Client
    begun: int
    floors: dict[bytes, Write]  # the newest write of each topic that was acknowledged before
    is_replayed: bool = False
    is_ended: bool = False
    got: list[tuple[bytes, int, bool]] = field(default_factory=list)


class SharedStore:
    """What all hubs share: a version from one counter, then the write; the higher version stays, whichever comes late."""

    def __init__(self) -> None:
        self._version = 0
        self._rows: dict[bytes, RetainedBody | None] = {}
        self._versions: dict[bytes, int] = {}

    def next_version(self) -> int:
        self._version += 1
        return self._version

    def put(self, topic: bytes, version: int, body: bytes | None) -> None:
        if version > self._versions.get(topic, 0):
            self._versions[topic] = version
            self._rows[topic] = None if body is None else RetainedBody(topic, version, 0, body)

    def load(self) -> list[RetainedTopic]:
        return [RetainedTopic(each.topic, each.version, 0, len(each.body)) for each in self._rows.values() if each]

    def fetch(self, topics: Iterable[bytes]) -> list[RetainedBody]:
        return [found for topic in topics if (found := self._rows.get(topic)) is not None]


class Keeping(Check):
    """A subscription gets what was retained, and acknowledged, at any hub before it began, or something newer; nothing that was deleted before.

    Nothing older than what has come live is replayed, and where one hub writes a topic, the last that comes is what is retained.
    Nobody waits for ever.
    """

    def __init__(self) -> None:
        self.store = SharedStore()
        self.events = 0
        self.writes: list[Write] = []
        self.floors: dict[bytes, Write] = {}
        self.listeners: list[Listener] = []
        self.hubs: list[Retainers] = []

    def next_event(self) -> int:
        self.events += 1
        return self.events

    def note_acknowledged(self, write: Write, *, is_member: bool) -> None:
        write.acknowledged, write.was_member = self.next_event(), is_member
        floor = self.floors.get(write.topic)
        if is_member and (floor is None or write.version > floor.version):
            self.floors[write.topic] = write

    def note_delivery(self, listener: Listener, topic: bytes, number: int, *, is_retained: bool) -> None:
        if not topic_matches(listener.topic_filter, topic):
            raise ViolationError(f"{listener.hub} delivers {topic!r} for {listener.topic_filter!r}")
        floor = listener.floors.get(topic)
        if is_retained and floor is not None and self.writes[number].version < floor.version:
            raise ViolationError(
                f"{listener.hub} replays write {number} of {topic!r}; {floor.number} was acknowledged before"
            )
        listener.got.append((topic, number, is_retained))

    def remaining(self, sim: Simulation) -> list[str]:
        living = {hub.id for hub in sim.living_members()}
        found = [text for hub in self.hubs if hub.id in living for text in hub.remaining()]
        found += [
            f"{write.hub} has not acknowledged write {write.number}"
            for write in self.writes
            if write.hub in living and not write.acknowledged
        ]
        written = defaultdict[bytes, list[Write]](list)
        for write in self.writes:
            written[write.topic].append(write)
        for listener in self.listeners:
            if listener.hub in living and not listener.is_ended:
                if not listener.is_replayed:
                    found.append(f"{listener.hub} still replays {listener.topic_filter!r}")
                for topic, writes in written.items():
                    if topic_matches(listener.topic_filter, topic):
                        found += self._missed(listener, topic, writes, living)
        return found

    def _missed(self, listener: Listener, topic: bytes, writes: list[Write], living: set[PeerId]) -> list[str]:
        got = [(number, is_retained) for each, number, is_retained in listener.got if each == topic]
        self._check_order(listener, got, living)
        floor = listener.floors.get(topic)
        if floor is not None and not floor.is_delete:
            versions = [self.writes[number].version for number, _ in got if number >= 0]
            is_deleted = any(each.is_delete and (each.version > floor.version or not each.is_stored) for each in writes)
            if not is_deleted and not any(version == 0 or version >= floor.version for version in versions):
                return [f"{listener.hub} has not sent write {floor.number} of {topic!r} to {listener.topic_filter!r}"]
        last = max(writes, key=lambda each: each.version)
        is_settled = last.hub in living and all(each.acknowledged or not each.version for each in writes)
        if topic.startswith(b"own/") and is_settled and (got or not last.is_delete):
            number = got[-1][0] if got else -2
            if number != (-1 if last.is_delete else last.number):
                return [f"{listener.hub} ends with {number} of {topic!r}, retained is {last.number} {last.is_delete}"]
        return []

    def _check_order(self, listener: Listener, got: list[tuple[int, bool]], living: set[PeerId]) -> None:
        """One that was never acknowledged may reach the store, or not, after its hub is gone."""
        newest: Write | None = None
        for number, is_retained in got:
            write = self.writes[number]
            if number < 0:
                continue
            if is_retained and newest is not None and write.version < newest.version:
                raise ViolationError(f"{listener.hub} replays write {number} after {newest.number} of {write.topic!r}")
            is_certain = write.hub in living or (write.acknowledged and write.was_member)
            if not is_retained and is_certain and (newest is None or newest.version < write.version):
                newest = write


class SimStore(ManualStore):
    """One hub's way to the shared store: writes one after the other, reads beside them. Fulfils `RetainedReads`, too."""

    def __init__(self, hub: SimHub, keeping: Keeping) -> None:
        super().__init__()
        self.retaining: Retaining | None = None
        self.unasked: deque[Write] = deque()  # published, and not asked to be stored yet
        self._hub = hub
        self._keeping = keeping
        self._queue: deque[Callable[[], None]] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._is_busy = False

    def append(self, publish: StoredPublish) -> None:
        self._submit(partial(self._take_version, publish, self.unasked.popleft()))

    async def settle(self, _tenant_id: int) -> None:
        done: Deferred[None] = Deferred()
        self._submit(lambda: self._answer(lambda: done.callback(None)))
        await done

    async def load(self, _tenant_id: int) -> list[RetainedTopic]:
        found: list[RetainedTopic] = await self._read(self._keeping.store.load)
        await self._read(int)  # what is written meanwhile is not in it
        return found

    async def fetch(self, _tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        found: list[RetainedBody] = await self._read(partial(self._keeping.store.fetch, list(topics)))
        return found

    async def delete(self, _tenant_id: int, _topics: Iterable[bytes]) -> int:
        raise NotImplementedError

    def _read(self, read: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def look() -> None:
            found = read()
            self._hub.world.after(self._delay(), lambda: self._hub.later(lambda: done.callback(found)))

        self._after(look)
        return done

    def _submit(self, step: Callable[[], None]) -> None:
        self._queue.append(step)
        if not self._is_busy:
            self._is_busy = True
            self._after(self._queue.popleft())

    def _take_version(self, publish: StoredPublish, write: Write) -> None:
        write.version = self._keeping.store.next_version()
        self._after(partial(self._store, publish, write))

    def _store(self, publish: StoredPublish, write: Write) -> None:
        message = publish.message
        body = None
        if not write.is_delete:
            body = encode_message(StoredMessage(message.topic, message.payload, 1, True, b"", 0, b"", "p"))
        self._keeping.store.put(message.topic, write.version, body)
        write.is_stored = True
        self._answer(lambda: self._stored(publish, write.version, len(body or b"")))

    def _stored(self, publish: StoredPublish, version: int, size: int) -> None:
        """As the writer does it: the index first, then the publisher."""
        assert self.retaining is not None
        self.retaining.changed(publish.message.topic, version, 0, size)
        assert self.plane is not None
        self.plane.stored(publish, (), False)

    def _answer(self, answer: Callable[[], None]) -> None:
        self._answers.append(answer)  # of a thread: in their order, whatever else the turn does before or after
        self._hub.later(lambda: self._answers.popleft()())
        if self._queue:
            self._after(self._queue.popleft())
        else:
            self._is_busy = False

    def _after(self, step: Callable[[], None]) -> None:
        """Do it later; a process that is frozen asks when it goes on, and what a dead one has asked for is done or not."""
        hub = self._hub

        def run() -> None:
            wait_s = hub.frozen_until - hub.world.now
            if wait_s > 0:
                hub.world.after(wait_s, run)
            elif not hub.is_dead or hub.world.rng.random() < 0.5:
                step()

        hub.world.after(self._delay(), run)

    def _delay(self) -> float:
        rng = self._hub.world.rng
        if len(self._queue) > MANY:
            return 0.001  # as if they were one commit
        return rng.random() * (SLOW_S if rng.random() < 0.1 else 0.01)


class Retainers(Clients):
    """The clients of one hub, who retain, delete and subscribe."""

    def __init__(self, hub: SimHub, keeping: Keeping) -> None:
        self._store = SimStore(hub, keeping)
        link_to = hub.links.link_to

        def refusing_link_to(peer: PeerId) -> Link:
            link = link_to(peer)
            if "send" not in vars(link):
                vars(link)["send"] = partial(send_or_refuse, link.send)
            return link

        def send_or_refuse(send: Callable[[FrameType, bytes], int], frame_type: FrameType, body: bytes) -> int:
            if frame_type == FrameType.RETAINED and hub.world.rng.random() < REFUSED:
                raise UnavailableError("twice link_bytes wait")
            return send(frame_type, body)

        hub.links.link_to = refusing_link_to  # type: ignore[method-assign]
        super().__init__(hub, Routing(), Bench(store=self._store))
        self._keeping = keeping
        self._peers = RetainedPeers(self._routes)
        self._retaining: Retaining | None = None
        self._listeners: list[Listener] = []
        self._open_writes: deque[Write] = deque()
        self._last_at: float | None = None  # when its last client but the busy ones came
        self.receivers.append((RETAINED_TYPES, self, False))
        keeping.hubs.append(self)

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        if frame_type not in RETAINED_TYPES:
            return super().frame(peer, frame_type, body)
        self._hub.pause_here()
        self._peers.frame(peer, frame_type, body)
        return None

    def act(self) -> None:
        if self._hub.is_dead:
            raise Crashed
        super().act()
        if self._hub.sim.is_healing and self._is_served and self._last_at is None:
            self._last_at = self._hub.world.now
            self._subscribe(b"#")

    def burst(self) -> None:
        """Retain more than a link takes."""
        if self._is_served:
            for _ in range(BURST):
                self._publish(b"#" * 300)

    def _do_something(self, chance: float) -> None:
        rng = self._hub.world.rng
        if self._last_at is not None and self._hub.world.now > self._last_at + TAIL_S:
            return  # the store is slow: else something would always be under way
        if not self._is_open:
            self._open()
        elif not self._is_served:
            return
        elif chance < 0.4:
            self._subscribe(rng.choice(FILTERS))
        elif chance < 0.5 and self._listeners:
            self._unsubscribe_listener(rng.choice(self._listeners))
        elif chance < 0.6 and not self._open_writes and self._retaining is not None and self._retaining.is_empty:
            self._leave()
        else:
            self._hub.later(self._publish_some)

    def _publish_some(self) -> None:
        """Among what comes over links in a turn, which ends later."""
        if self._is_served:
            for _ in range(self._hub.world.rng.randint(1, 4)):
                self._publish(b"")

    def _open(self) -> None:
        """As a broker is made: the index is read, then the other hubs hear of the tenant."""
        bench = self._bench
        tenant = bench.tenant = TenantPlane(TENANT, "acme")
        ledger = LocalLedger(TENANT, resolve_texts(""), cast("Any", None))
        made = Retaining(tenant, bench.plane, self._store, ledger, bench.clock, uncounted, cast("Any", self._peers))
        self._is_open, self._retaining, self._store.retaining = True, made, made
        Deferred.fromCoroutine(made.load()).addCallback(lambda _: self._announce(tenant))

    def _announce(self, tenant: TenantPlane) -> None:
        self._routes.open_tenant(tenant)
        if not self._routes.await_opened(tenant, lambda: self._serve(tenant)):
            self._serve(tenant)

    def _leave(self) -> None:
        for each in list(self._listeners):
            self._unsubscribe_listener(each)
        assert self._retaining is not None
        self._retaining.close()
        super()._leave()

    def _subscribe(self, topic_filter: bytes) -> None:
        keeping, bench, retaining = self._keeping, self._bench, self._retaining
        assert retaining is not None
        client = bench.client(f"s{len(keeping.listeners)}", settings=_SETTINGS)
        each = Listener(self.id, topic_filter, client, keeping.next_event(), dict(keeping.floors))
        keeping.listeners.append(each)
        self._listeners.append(each)
        subscription = client.subscribe(topic_filter, 1)

        def replay() -> None:
            if each.is_ended:
                return
            if not retaining.may_have_any:
                each.is_replayed = True
                return
            replays = retaining.begin_replays(client.session, [subscription])
            assert replays is not None
            Deferred.fromCoroutine(retaining.send_replays(replays)).addCallback(
                lambda _: setattr(each, "is_replayed", True)
            )

        if not self._routes.await_routed(bench.tenant, [topic_filter], replay):
            replay()

    def _unsubscribe_listener(self, each: Listener) -> None:
        each.is_ended = True
        self._bench.plane.unsubscribe(each.client.session, None, each.topic_filter)
        self._bench.plane.discard(each.client.session)
        self._listeners.remove(each)

    def _publish(self, filler: bytes) -> None:
        keeping, publisher, rng = self._keeping, self._publisher, self._hub.world.rng
        assert publisher is not None
        topic = rng.choice((b"own/%d" % self.id.node, *TOPICS))
        number = len(keeping.writes)
        write = Write(number, self.id, topic, is_delete=rng.random() < 0.4)
        keeping.writes.append(write)
        self._open_writes.append(write)
        self._store.unasked.append(write)
        payload = b"" if write.is_delete else b"%d %b" % (number, filler)
        publisher.connection.feed(publish(topic, payload, 1, number % 65_535 + 1, retain=True))

    def _read(self) -> None:
        for each in self._listeners:
            for header, body in packets(each.client.take()):
                topic_end = 2 + int.from_bytes(body[:2], "big")
                payload = body[topic_end + 2 :]
                number = int(payload.split(b" ")[0]) if payload else -1
                self._keeping.note_delivery(each, body[2:topic_end], number, is_retained=bool(header & 1))
                assert header >> 1 & 3 == 1
                each.client.send(ack(0x40, int.from_bytes(body[topic_end : topic_end + 2], "big")))
        if self._is_served and self._publisher is not None:
            self._take_answers(self._publisher)

    def _take_answers(self, publisher: Client) -> None:
        """PUBACKs come in the order of the PUBLISHes."""
        for _ in packets(publisher.take()):
            write = self._open_writes.popleft()
            assert write.is_stored
            self._keeping.note_acknowledged(write, is_member=self._hub.sim.is_member(self.id))
