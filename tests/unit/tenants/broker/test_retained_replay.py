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


class Harness:
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
    harness = Harness(3000)
    harness.subscribe()

    found = topics(harness.taken())

    assert sorted(found) == sorted(b"r/%d" % number for number in range(3000))
    assert harness.ended == [None]
    assert harness.bench.plane.replays.expected == {}


def test_client_that_does_not_read_costs_a_page() -> None:
    """And the next one is read when it goes on."""
    harness = Harness(3000)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.bench.pass_time(10.0)
    assert harness.bodies.read == SLICE

    harness.client.transport.is_stuck = False
    assert len(harness.taken()) == 3000


def test_page_of_great_messages_is_short() -> None:
    """Bounded by bytes; one that is greater than a page comes alone: here the first is on the wire, and the second waits."""
    harness = Harness(100, PAGE_BYTES // 4)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.bench.pass_time(1.0)
    assert harness.bodies.read == 3

    harness = Harness(3, 2 * PAGE_BYTES)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.bench.pass_time(1.0)
    assert harness.bodies.read == 2


def test_what_came_live_meanwhile_is_not_replayed() -> None:
    """The replay sends neither the new message again, nor the old one after it."""
    harness = Harness(1000)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.client.transport.is_stuck = False
    publisher = harness.bench.client("p")
    for number in range(1000):
        topic = b"r/%d" % number
        harness.retain(topic, b"new")
        publisher.send(publish(topic, b"new"))

    found = harness.taken()

    last = dict(found)
    assert last == {b"r/%d" % number: b"new" for number in range(1000)}
    assert [payload for _, payload in found].count(b"new") == 1000


def test_message_newer_than_the_snapshot_comes_live_only() -> None:
    """Its version says so, also when nobody remembers any more what came live."""
    harness = Harness(600)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.retain(b"r/new", b"new")
    for number in range(600):
        harness.retain(b"r/%d" % number, b"")
    harness.client.transport.is_stuck = False

    assert len(harness.taken()) == SLICE


def test_unsubscribed_replay_stops() -> None:
    """[MQTT-3.10.4-1]; and what was live is forgotten."""
    harness = Harness(3000)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.bench.plane.unsubscribe(harness.client.session, None, b"r/#")
    harness.client.transport.is_stuck = False

    assert len(harness.taken()) < SLICE
    assert harness.ended == [None]
    assert harness.client.session.replay_topics is None


def test_filter_that_is_subscribed_again_is_replayed_from_the_beginning() -> None:
    """The first replay ends: two pages at once are nobody's wish."""
    harness = Harness(1000)
    harness.client.transport.is_stuck = True
    harness.subscribe()
    harness.subscribe()
    harness.client.transport.is_stuck = False

    found = topics(harness.taken())

    assert set(found) == {b"r/%d" % number for number in range(1000)}
    assert len(found) < 1000 + SLICE
    assert harness.ended == [None, None]
    assert harness.bench.plane.replays.expected == {}


@pytest.mark.parametrize("is_held", [True, False])
def test_client_that_leaves_ends_its_replay(is_held: bool) -> None:
    """While a page is being read, and while one waits for its socket."""
    harness = Harness(3000)
    harness.bodies.is_held = is_held
    harness.client.transport.is_stuck = True
    harness.subscribe()

    harness.client.drop()
    harness.bench.pass_time(1.0)
    harness.bodies.release()

    assert harness.ended == [None]
    assert harness.bodies.read <= SLICE
    assert harness.bench.plane.replays.running == []


def test_store_that_fails_ends_the_replay() -> None:
    """Whoever asked hears of it; nothing is remembered for ever."""
    harness = Harness(10)
    harness.bodies.is_down = True
    harness.subscribe()

    assert len(harness.ended) == 1
    assert harness.ended != [None]
    assert harness.bench.plane.replays.expected == {}
    assert harness.bench.plane.replays.running == []


def test_filter_that_matches_little_in_a_great_index_finds_it() -> None:
    """Stretches without a match are no end."""
    harness = Harness(3000)
    harness.retain(b"s/1", b"x")
    harness.subscribe(b"+/2999")

    assert topics(harness.taken(2.0)) == [b"r/2999"]


def test_great_index_is_loaded_in_stretches() -> None:
    """Counted as before."""
    harness = Harness(2500)
    ledger = LocalLedger(TENANT, resolve_texts(""), cast("Any", None))
    again = harness.retained_by(ledger)
    Deferred.fromCoroutine(again.load())

    harness.retaining = again
    harness.subscribe()

    assert len(harness.taken()) == 2500


def test_damaged_message_is_counted_and_the_others_come() -> None:
    """It is dropped by name for who should get it, until its topic gets another one."""
    harness = Harness(3)
    bodies = harness.bodies.store._bodies
    bodies[TENANT, b"r/1"] = bodies[TENANT, b"r/1"]._replace(body=b"\x01" * 60)

    harness.subscribe()

    assert topics(harness.taken(2.0)) == [b"r/2", b"r/0"]
    assert harness.damaged == [("retained", "tenant acme, topic 'r/1'", "damaged message: the checksum differs")]
    assert harness.bench.tenant.counters.dropped == {Drop.STORE_FAILED: 1}

    harness.retain(b"r/1", b"new")
    harness.subscribe(b"r/1")

    assert harness.taken(2.0) == [(b"r/1", b"new")]


def test_damaged_message_can_be_deleted() -> None:
    """As any other one."""
    harness = Harness(1)
    bodies = harness.bodies.store._bodies
    bodies[TENANT, b"r/0"] = bodies[TENANT, b"r/0"]._replace(body=b"")

    Deferred.fromCoroutine(harness.retaining.delete(b"r/#")).addErrback(harness.ended.append)

    assert (bodies, harness.retaining.is_empty, harness.ended) == ({}, True, [])
