"""One tenant's retained messages over a store that the test drives, and a client whose subscriptions are replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.engine.limits import PlaneLimits
from iothub.records.message import StoredMessage, encode_message
from iothub.testing.engine import Bench, packets, publish
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.resolve import resolve_texts
from iothub_services.retained.memory import MemoryRetained
from iothub_services.retained.port import RetainedBody, RetainedTopic, RetainedWrite
from iothub_tenants.broker.peer_retained import PeerRetained
from iothub_tenants.broker.retaining import Retaining

TENANT = 1


class Bodies:
    """The memory driver; the answer to a read that is not empty waits for `release`, if it `is_held`. Counts the bodies that were read.

    Writes wait in `writes` until `commit` does them, in order; `settle` is one of them, as with the store's thread.
    """

    def __init__(self) -> None:
        self.store = MemoryRetained()
        self.read = 0
        self.is_held = self.is_down = False
        self.settles_with: BackendError | None = None
        self.waiting: list[Deferred[None]] = []
        self.writes: list[Callable[[], object]] = []

    async def load(self, tenant_id: int) -> list[RetainedTopic]:
        return list(self.store.load(tenant_id))

    async def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        asked = list(topics)
        if self.is_down:
            raise BackendError("retained.db: disk I/O error", retryable=True)
        self.read += len(asked)
        bodies = self.store.fetch(tenant_id, asked)
        if asked and self.is_held:
            self.waiting.append(Deferred())
            await self.waiting[-1]
        return bodies

    async def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        return self.store.delete(tenant_id, topics)

    async def settle(self, _tenant_id: int) -> None:
        if self.settles_with is not None:
            raise self.settles_with
        if self.writes:
            settled: Deferred[None] = Deferred()
            self.writes.append(lambda: settled.callback(None))
            await settled

    def commit(self, count: int = 1_000_000) -> None:
        """Do the first writes that wait, and answer them one after the other."""
        writes, self.writes = self.writes[:count], self.writes[count:]
        for write in writes:
            write()

    def release(self) -> None:
        self.is_held = False
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)


class Harness:
    """One tenant's retained messages, a plane and a client whose socket can be stuck."""

    def __init__(self, count: int = 0, size: int = 1, peers: PeerRetained | None = None) -> None:
        self.peers = peers
        self.damaged: list[tuple[str, str, str]] = []
        self.bodies = Bodies()
        self.bench = Bench(PlaneLimits(replay_slice=10, out_soft_bytes=2000))
        self.ledger = LocalLedger(TENANT, resolve_texts(""), cast("Any", None))
        self.retaining = self.retained_by(self.ledger)
        self.publisher = self.bench.client("p")
        for number in range(count):
            self.retain(b"r/%d" % number, b"x" * size)
        self.client = self.bench.client("s")
        self.ended: list[object] = []

    def retained_by(self, ledger: LocalLedger) -> Retaining:
        bench = self.bench
        return Retaining(bench.tenant, bench.plane, self.bodies, ledger, bench.clock, self._count, self.peers)

    def _count(self, store: str, key: str, reason: str, /, *, is_rebuilt: bool = False) -> None:
        assert not is_rebuilt
        self.damaged.append((store, key, reason))

    def ask_to_retain(self, topic: bytes, payload: bytes) -> None:
        """A retained PUBLISH: those who are there get it, and the store has it with the next `commit`."""
        assert self.retaining.may_retain(topic, len(payload))
        self.publisher.send(publish(topic, payload))
        self.bodies.writes.append(lambda: self.store(topic, payload))

    def store(self, topic: bytes, payload: bytes, expires_at_ms: int = 0) -> int:
        """Write it; return the size of its body."""
        message = StoredMessage(topic, payload, 0, True, b"", expires_at_ms, b"", "p")
        body = encode_message(message) if payload else None
        (version,) = self.bodies.store.put([RetainedWrite(TENANT, topic, body)])
        self.retaining.changed(topic, version, expires_at_ms, len(body or b""))
        return len(body or b"")

    def retain(self, topic: bytes, payload: bytes) -> None:
        """A retained write that is durable, before anybody has subscribed."""
        self.ask_to_retain(topic, payload)
        self.bodies.commit()

    def subscribe(self, *topic_filters: bytes) -> None:
        """Subscribe, to `r/#` unless something else is said; the replays begin."""
        subscriptions = [self.client.subscribe(topic_filter) for topic_filter in topic_filters or (b"r/#",)]
        replays = self.retaining.begin_replays(self.client.session, subscriptions)
        if replays is not None:
            Deferred.fromCoroutine(self.retaining.send_replays(replays)).addBoth(self.ended.append)

    def unsubscribe(self, topic_filter: bytes = b"r/#") -> None:
        self.bench.plane.unsubscribe(self.client.session, None, topic_filter)

    def received(self, seconds: float) -> list[tuple[bytes, bytes, bool]]:
        """What the client gets while it reads: topics, payloads and RETAIN."""
        found = []
        for _ in range(round(seconds * 10)):
            self.client.transport.flush()
            found += [(*_message_of(body), bool(header & 1)) for header, body in packets(self.client.take())]
            self.bench.pass_time(0.1)
        return found

    def taken(self, seconds: float = 60.0) -> list[tuple[bytes, bytes]]:
        """The same without RETAIN."""
        return [(topic, payload) for topic, payload, _ in self.received(seconds)]


def _message_of(body: bytes) -> tuple[bytes, bytes]:
    end = 2 + int.from_bytes(body[:2], "big")
    return body[2:end], body[end:]
