"""Retained messages are replayed page by page, as fast as the client takes them; none is missed, none comes after a newer one."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.base.reasons import Drop
from iothub.engine.limits import PlaneLimits
from iothub.engine.router import Subscription
from iothub.records.message import StoredMessage, encode_message
from iothub.testing.engine import Bench, packets, publish
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.resolve import resolve_texts
from iothub_services.retained.memory import MemoryRetained
from iothub_services.retained.port import RetainedBody, RetainedTopic, RetainedWrite
from iothub_tenants.broker.retaining import PAGE_BYTES, SLICE, Retaining

TENANT = 1


class Bodies:
    """The memory driver; a read that is not empty waits for `release`, if it `is_held`. Counts the bodies that were read."""

    def __init__(self) -> None:
        self.store = MemoryRetained()
        self.read = 0
        self.is_held = self.is_down = False
        self.waiting: list[Deferred[None]] = []

    async def load(self, tenant_id: int) -> list[RetainedTopic]:
        return list(self.store.load(tenant_id))

    async def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        asked = list(topics)
        if asked and self.is_held:
            self.waiting.append(Deferred())
            await self.waiting[-1]
        if self.is_down:
            raise BackendError("retained.db: disk I/O error", retryable=True)
        self.read += len(asked)
        return self.store.fetch(tenant_id, asked)

    async def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        return self.store.delete(tenant_id, topics)

    async def settle(self, _tenant_id: int) -> None:
        return

    def release(self) -> None:
        self.is_held = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)


class Desk:
    """One tenant's retained messages, a plane and a client whose socket can be stuck."""

    def __init__(self, count: int = 0, size: int = 1) -> None:
        self.damaged: list[tuple[str, str, str]] = []
        self.bodies = Bodies()
        self.bench = Bench(PlaneLimits(replay_slice=10, out_soft_bytes=2000))
        self.ledger = LocalLedger(TENANT, resolve_texts(""), cast("Any", None))
        self.retaining = self.retained_by(self.ledger)
        for number in range(count):
            self.retain(b"r/%d" % number, b"x" * size)
        self.client = self.bench.client("s")
        self.ended: list[object] = []

    def retained_by(self, ledger: LocalLedger) -> Retaining:
        bench = self.bench
        return Retaining(bench.tenant, bench.plane, self.bodies, ledger, bench.clock, self._count)

    def _count(self, store: str, key: str, reason: str) -> None:
        self.damaged.append((store, key, reason))

    def retain(self, topic: bytes, payload: bytes) -> None:
        """A retained write that is durable."""
        body = encode_message(StoredMessage(topic, payload, 0, True, b"", 0, b"", "p")) if payload else None
        (version,) = self.bodies.store.put([RetainedWrite(TENANT, topic, body)])
        self.retaining.changed(topic, version, 0, len(body or b""))

    def subscribe(self, topic_filter: bytes = b"r/#") -> Subscription:
        """Subscribe; the replay begins."""
        subscription = self.client.subscribe(topic_filter)
        self.bench.plane.expect_replay(self.client.session)
        self.replay(subscription)
        return subscription

    def replay(self, subscription: Subscription) -> None:
        steps: Coroutine[Any, Any, None] = self.retaining.replay(self.client.session, subscription)
        Deferred.fromCoroutine(steps).addBoth(self.ended.append)

    def taken(self, seconds: float = 60.0) -> list[tuple[bytes, bytes]]:
        """What the client gets while it reads: topics and payloads."""
        found = []
        for _ in range(round(seconds * 10)):
            self.client.transport.flush()
            found += [_message_of(body) for _, body in packets(self.client.take())]
            self.bench.pass_time(0.1)
        return found


def _message_of(body: bytes) -> tuple[bytes, bytes]:
    end = 2 + int.from_bytes(body[:2], "big")
    return body[2:end], body[end:]


def topics(found: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [topic for topic, _ in found]


def test_client_gets_everything_once() -> None:
    """Across pages and stretches of the index."""
    desk = Desk(3000)
    desk.subscribe()

    found = topics(desk.taken())

    assert sorted(found) == sorted(b"r/%d" % number for number in range(3000))
    assert desk.ended == [None]
    assert desk.bench.plane.replays.expected == {}


def test_client_that_does_not_read_costs_a_page() -> None:
    """And the next one is read when it goes on."""
    desk = Desk(3000)
    desk.client.transport.is_stuck = True
    desk.subscribe()
    desk.bench.pass_time(10.0)
    assert desk.bodies.read == SLICE

    desk.client.transport.is_stuck = False
    assert len(desk.taken()) == 3000


def test_page_of_great_messages_is_short() -> None:
    """Bounded by bytes; one that is greater than a page comes alone: here the first is on the wire, and the second waits."""
    desk = Desk(100, PAGE_BYTES // 4)
    desk.client.transport.is_stuck = True
    desk.subscribe()
    desk.bench.pass_time(1.0)
    assert desk.bodies.read == 3

    desk = Desk(3, 2 * PAGE_BYTES)
    desk.client.transport.is_stuck = True
    desk.subscribe()
    desk.bench.pass_time(1.0)
    assert desk.bodies.read == 2


def test_what_came_live_meanwhile_is_not_replayed() -> None:
    """The replay sends neither the new message again, nor the old one after it."""
    desk = Desk(1000)
    desk.client.transport.is_stuck = True
    desk.subscribe()
    desk.client.transport.is_stuck = False
    publisher = desk.bench.client("p")
    for number in range(1000):
        topic = b"r/%d" % number
        desk.retain(topic, b"new")
        publisher.send(publish(topic, b"new"))

    found = desk.taken()

    last = dict(found)
    assert last == {b"r/%d" % number: b"new" for number in range(1000)}
    assert [payload for _, payload in found].count(b"new") == 1000


def test_message_newer_than_the_snapshot_comes_live_only() -> None:
    """Its version says so, also when nobody remembers any more what came live."""
    desk = Desk(600)
    desk.client.transport.is_stuck = True
    desk.subscribe()
    desk.retain(b"r/new", b"new")
    for number in range(600):
        desk.retain(b"r/%d" % number, b"")
    desk.client.transport.is_stuck = False

    assert len(desk.taken()) == SLICE


def test_unsubscribed_replay_stops() -> None:
    """[MQTT-3.10.4-1]; and what was live is forgotten."""
    desk = Desk(3000)
    desk.client.transport.is_stuck = True
    desk.subscribe()
    desk.bench.plane.unsubscribe(desk.client.session, None, b"r/#")
    desk.client.transport.is_stuck = False

    assert len(desk.taken()) < SLICE
    assert desk.ended == [None]
    assert desk.client.session.replay_topics is None


def test_filter_that_is_subscribed_again_is_replayed_from_the_beginning() -> None:
    """The first replay ends: two pages at once are nobody's wish."""
    desk = Desk(1000)
    desk.client.transport.is_stuck = True
    desk.subscribe()
    desk.subscribe()
    desk.client.transport.is_stuck = False

    found = topics(desk.taken())

    assert set(found) == {b"r/%d" % number for number in range(1000)}
    assert len(found) < 1000 + SLICE
    assert desk.ended == [None, None]
    assert desk.bench.plane.replays.expected == {}


@pytest.mark.parametrize("is_held", [True, False])
def test_client_that_leaves_ends_its_replay(is_held: bool) -> None:
    """While a page is being read, and while one waits for its socket."""
    desk = Desk(3000)
    desk.bodies.is_held = is_held
    desk.client.transport.is_stuck = True
    desk.subscribe()

    desk.client.drop()
    desk.bench.pass_time(1.0)
    desk.bodies.release()

    assert desk.ended == [None]
    assert desk.bodies.read <= SLICE
    assert desk.bench.plane.replays.running == []


def test_store_that_fails_ends_the_replay() -> None:
    """Whoever asked hears of it; nothing is remembered for ever."""
    desk = Desk(10)
    desk.bodies.is_down = True
    desk.subscribe()

    assert len(desk.ended) == 1
    assert desk.ended != [None]
    assert desk.bench.plane.replays.expected == {}
    assert desk.bench.plane.replays.running == []


def test_filter_that_matches_little_in_a_great_index_finds_it() -> None:
    """Stretches without a match are no end."""
    desk = Desk(3000)
    desk.retain(b"s/1", b"x")
    desk.subscribe(b"+/2999")

    assert topics(desk.taken(2.0)) == [b"r/2999"]


def test_great_index_is_loaded_in_stretches() -> None:
    """Counted as before."""
    desk = Desk(2500)
    ledger = LocalLedger(TENANT, resolve_texts(""), cast("Any", None))
    again = desk.retained_by(ledger)
    Deferred.fromCoroutine(again.load())

    desk.retaining = again
    desk.subscribe()

    assert len(desk.taken()) == 2500


def test_damaged_message_is_counted_and_the_others_come() -> None:
    """It is dropped by name for who should get it, until its topic gets another one."""
    desk = Desk(3)
    bodies = desk.bodies.store._bodies
    bodies[TENANT, b"r/1"] = bodies[TENANT, b"r/1"]._replace(body=b"\x01" * 60)

    desk.subscribe()

    assert topics(desk.taken(2.0)) == [b"r/2", b"r/0"]
    assert desk.damaged == [("retained", "tenant acme, topic 'r/1'", "damaged message: the checksum differs")]
    assert desk.bench.tenant.counters.dropped == {Drop.STORE_FAILED: 1}

    desk.retain(b"r/1", b"new")
    desk.subscribe(b"r/1")

    assert desk.taken(2.0) == [(b"r/1", b"new")]


def test_damaged_message_can_be_deleted() -> None:
    """As any other one."""
    desk = Desk(1)
    bodies = desk.bodies.store._bodies
    bodies[TENANT, b"r/0"] = bodies[TENANT, b"r/0"]._replace(body=b"")

    Deferred.fromCoroutine(desk.retaining.delete(b"r/#")).addErrback(desk.ended.append)

    assert (bodies, desk.retaining.is_empty, desk.ended) == ({}, True, [])
