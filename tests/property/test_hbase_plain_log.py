"""The slot-claim log under everything that may go wrong: lost calls, lost answers, calls that are done late, hubs that die, owners that change.

Random schedules, each from one number: several hubs write to one queue and read it, a publisher sends QoS 2 messages through whichever hub has its
session. Afterwards everything is looked at: positions dense, none twice, nothing acknowledged lost, order kept (storage page, sections 4 and 6).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import BackendError
from iothub_services.hbase.calls import Call
from iothub_services.hbase.refusals import Effect
from iothub_services.queues.hbase_plain.store import PlainHBaseQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Claim,
    Delivery,
    Inbound,
    Move,
    MoveKind,
    QueueLimits,
    StaleEpochError,
)
from tests.support.hbase_calls import FakeCaller
from tests.support.hbase_plain import TABLES, PlainHBase

T = TypeVar("T")
TENANT, QUEUE, PUBLISHER = 7, 1, 2
MANY = 1_000_000
ATTEMPTS = 3


class LateCaller(FakeCaller):
    """A caller some of whose calls are done later than their answer was waited for, or never."""

    def __init__(self, world: World) -> None:
        super().__init__(world.hbase.gateway)
        self._world = world

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        return [self._maybe(call) for call in calls]

    def _maybe(self, call: Call[T]) -> T | BackendError:
        world = self._world
        world.do_late()
        chance = world.random.random()
        if chance >= world.trouble:
            return self._one(call)
        is_writing = call.verb.effect is not Effect.NONE
        if chance < world.trouble * 0.3:
            return BackendError("never left", retryable=True)
        if chance < world.trouble * 0.6:
            self._one(call)
        elif is_writing:
            world.late.append(call.frame(1)[4:])
        return BackendError("not answered", retryable=True, is_written=is_writing)


class Hub:
    """One incarnation: its store, what it reads, and what it was told."""

    def __init__(self, world: World, number: int) -> None:
        self.store = PlainHBaseQueues(LateCaller(world), TABLES, number, world.hbase.clock)
        self.claim: Claim | None = None
        self.taken = 0
        self.waiting: list[Append] = []
        self.attempts = 0
        self.positions: list[int] = []


class World:
    """Everything, and what must hold at its end."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trouble = 0.0
        self.late: list[bytes] = []
        self.hbase = PlainHBase()
        self.numbers = 0
        self.answered: dict[int, bytes] = {}
        self.read: dict[int, bytes] = {}
        self.bodies: set[bytes] = set()
        self.hubs = [self._hub(), self._hub()]
        self.hubs[0].store.create(TENANT, QUEUE, QueueLimits(0, 0))
        self.hubs[0].store.create(TENANT, PUBLISHER, QueueLimits(0, 0))
        self.session = Session(self)
        self.trouble = self.random.choice((0.0, 0.05, 0.2))

    def _hub(self) -> Hub:
        self.numbers += 1
        return Hub(self, self.numbers)

    def do_late(self) -> None:
        if self.late and self.random.random() < 0.1:
            self.hbase.gateway.answer(self.late.pop(self.random.randrange(len(self.late))))

    def new_body(self) -> bytes:
        self.numbers += 1
        body = b"%d" % self.numbers
        self.bodies.add(body)
        return body

    def run(self, steps: int) -> None:
        verbs = (
            self.append,
            self.append,
            self.read_page,
            self.acknowledge,
            self.take_over,
            self.die,
            self.consume,
            self.idle,
        )
        others = (self.die, self.session.move, self.read_page, self.consume)
        for _ in range(steps):
            verb = self.random.choice((*verbs, self.session.go_on, self.session.go_on, self.session.move))
            hub = self.random.choice(self.hubs)
            if verb not in others:  # what failed is repeated before anything else
                verb = self.session.go_on if self.session.is_repeating(hub) else self.append if hub.waiting else verb
            verb(hub)
        self.trouble = 0.0
        for hub in self.hubs:
            while hub.waiting:
                self.append(hub)
        self.session.end(self.hubs[0])
        while self.late:
            self.hbase.gateway.answer(self.late.pop(0))

    # --- what hubs do

    def append(self, hub: Hub) -> None:
        """A batch, tried some times; what is given up may be written or not."""
        if not hub.waiting:
            count = self.random.randint(1, 4)
            qos = self.random.randint(0, 2)
            hub.waiting = [self._message(qos) for _ in range(count)]
            hub.attempts = 0
        try:
            answers = hub.store.append(hub.waiting)
        except BackendError:
            hub.attempts += 1
            if hub.attempts >= ATTEMPTS:
                hub.waiting = []
            return
        for item, answer in zip(hub.waiting, answers, strict=True):
            self.was_answered(answer, item.body)
            hub.positions += answer.positions
        hub.waiting = []

    def _message(self, qos: int) -> Append:
        body = self.new_body()
        return Append(int(body).to_bytes(16), body, 0, (Delivery(QUEUE, qos),))

    def was_answered(self, answer: Appended, body: bytes) -> None:
        (position,) = answer.positions
        assert position > 0
        assert self.answered.setdefault(position, body) == body

    def take_over(self, hub: Hub) -> None:
        if self.random.random() < 0.5:
            try:
                hub.claim = hub.store.claim(QUEUE, b"w")
            except BackendError:
                return
            hub.taken = hub.claim.head

    def read_page(self, hub: Hub) -> None:
        if hub.claim is None:
            return
        try:
            page = hub.store.read(QUEUE, hub.claim.epoch, hub.taken, self.random.randint(1, 5), MANY)
        except (BackendError, StaleEpochError):
            return
        for record in page.records:
            assert self.read.setdefault(record.position, record.body) == record.body
        hub.taken = page.upto

    def acknowledge(self, hub: Hub) -> None:
        if hub.claim is None or not hub.taken:
            return
        move = Move(MoveKind.ACK, QUEUE, hub.claim.epoch, self.random.randint(max(hub.taken - 3, 0), hub.taken))
        try:
            hub.store.apply([move])
        except BackendError:
            return

    def consume(self, hub: Hub) -> None:
        """Another hub takes everything at once, while this one does not know what became of its calls."""
        if self.random.random() < 0.5:
            trouble, self.trouble = self.trouble, 0.0
            other = next((each for each in self.hubs if each is not hub and not each.waiting), None)
            if other is not None and not self.session.is_repeating(other):
                claim = other.claim = other.store.claim(QUEUE, b"w")
                page = other.store.read(QUEUE, claim.epoch, claim.head, MANY, MANY)
                assert page.is_short
                self.read |= {record.position: record.body for record in page.records}
                assert other.store.apply([Move(MoveKind.ACK, QUEUE, claim.epoch, page.upto)]) == [True]
                other.taken = page.upto
            self.trouble = trouble

    def idle(self, hub: Hub) -> None:
        with contextlib.suppress(BackendError):
            hub.store.idle()

    def die(self, hub: Hub) -> None:
        """What it knew is gone; its calls on the way may still be done."""
        if self.random.random() < 0.15:
            at = self.hubs.index(hub)
            assert hub.positions == sorted(hub.positions)
            self.hubs[at] = self._hub()
            self.session.lost(hub, self.hubs[at])


class Session:
    """A publisher of QoS 2: one message at a time, sent again until PUBREC."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hub = world.hubs[0]
        self.claim: Claim | None = None
        self.body = b""
        self.item: Append | None = None
        self.packet_id = 1
        self.is_received = False
        self.sent: list[bytes] = []

    def move(self, hub: Hub) -> None:
        if self.world.random.random() < 0.2:
            self.hub, self.claim, self.item = hub, None, None

    def lost(self, old: Hub, new: Hub) -> None:
        if self.hub is old:
            self.hub, self.claim, self.item = new, None, None

    def is_repeating(self, hub: Hub) -> bool:
        return self.hub is hub and self.item is not None

    def go_on(self, _: Hub) -> None:
        if self.hub.waiting:
            self.world.append(self.hub)
            return
        with contextlib.suppress(BackendError):
            self._go_on()

    def end(self, hub: Hub) -> None:
        """The client comes back when all is well, and gets its answer."""
        if not self.is_repeating(hub):
            self.hub, self.claim, self.item = hub, None, None
        while self.body:
            self._go_on()

    def _go_on(self) -> None:
        store = self.hub.store
        if self.claim is None:
            self.claim = store.claim(PUBLISHER, b"w")
            self.is_received = self.is_received or (bool(self.body) and self.packet_id in self.claim.inbound)
        elif not self.body:
            self.body, self.is_received = self.world.new_body(), False
            self.packet_id = 3 - self.packet_id
        elif not self.is_received:
            self._publish(store, self.claim)
        elif not store.apply([Move(MoveKind.FINISH_INBOUND, PUBLISHER, self.claim.epoch, self.packet_id)])[0]:
            self.claim = None
        else:
            self.sent.append(self.body)
            self.body = b""

    def _publish(self, store: PlainHBaseQueues, claim: Claim) -> None:
        if self.item is None:
            self.world.numbers += 1
            deliveries = (Delivery(QUEUE, 2),)
            message_id = self.world.numbers.to_bytes(16)
            inbound = Inbound(PUBLISHER, claim.epoch, self.packet_id)
            self.item = Append(message_id, self.body, 0, deliveries, inbound)
        answer = store.append([self.item])[0]
        self.item = None
        if answer.is_stale:
            self.claim = None
        else:
            self.is_received = True
            if not answer.is_duplicate:
                self.world.was_answered(answer, self.body)


def check(world: World) -> None:
    """Read what is left, and compare with all that was ever read and answered."""
    store, _ = world.hbase.store(incarnation=world.numbers + 1)
    claim = store.claim(QUEUE, b"judge")
    page = store.read(QUEUE, claim.epoch, claim.head, MANY, MANY)
    assert page.is_short
    for record in page.records:
        assert world.read.setdefault(record.position, record.body) == record.body
    stored = [record.position for record in page.records]
    stats = store.stats(QUEUE)

    assert list(range(claim.head + 1, stats.tail + 1)) == stored
    assert sorted(world.read) == list(range(1, stats.tail + 1))
    assert len(set(world.read.values())) == len(world.read)
    assert set(world.read.values()) <= world.bodies
    assert {position: world.read[position] for position in world.answered} == world.answered
    assert set(world.session.sent) <= set(world.read.values())
    assert (stats.messages, stats.bytes) == (len(stored), sum(len(record.body) for record in page.records))
    assert store.append([Append(b"", b"last", 0, (Delivery(QUEUE, 1),))]) == [Appended((stats.tail + 1,))]
    for hub in world.hubs:
        assert hub.positions == sorted(hub.positions)


def run(seed: int) -> None:
    world = World(seed)
    world.run(world.random.choice((20, 60, 150)))
    check(world)


@given(st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_log_is_dense_and_loses_and_doubles_nothing(seed: int) -> None:
    """Whatever is lost, late, repeated or taken over."""
    run(seed)
