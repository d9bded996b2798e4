"""Retained messages of two hubs over real sockets: their writers' threads, one store, either twin; and hints of account changes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.clock import SystemClock
from iothub.net.backend import Backend
from iothub.peers.account_hints import HINT_TYPES, AccountHints
from iothub.peers.retained import RETAINED_TYPES, RetainedPeers
from iothub.testing.engine import Bench, Client, packets, publish
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.awaited import AwaitedRetained
from iothub_services.damaged import uncounted
from iothub_services.queues.listeners import StoreListeners
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.writer import QueueWriter
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.resolve import resolve_texts
from iothub_services.retained.memory import MemoryRetained
from iothub_tenants.broker.retaining import Retaining
from tests.integration.peers.test_routes_on_sockets import Hub as RoutedHub

RACES = 50


class Writer(QueueWriter):
    """A bench says to its store what its plane is."""

    plane: Any = None


class Hub(RoutedHub):
    """A plane over a writer of its own, whose retained store is shared."""

    def __init__(self, twin: Backend, thread: ReactorThread, number: int, path: Path, store: MemoryRetained) -> None:
        self.writer: Any = Writer(
            MemoryQueues(),
            store,
            thread.reactor.callFromThread,
            SystemClock(),
            plane=lambda: self.writer.plane,
            on_alarm=lambda *_: None,
            listeners=StoreListeners(
                on_retained=lambda _tenant, topic, version, at_ms, size: self.retaining.changed(
                    topic, version, at_ms, size
                ),
                on_not_retained=lambda _tenant, topic: self.retaining.failed(topic),
            ),
        )
        super().__init__(twin, thread, number, path, Bench(store=self.writer))
        self.peers = RetainedPeers(self.routes)
        self.links.register(RETAINED_TYPES, self.peers)
        ledger = LocalLedger(1, resolve_texts(""), cast("Any", None))
        bench, reads = self.bench, AwaitedRetained(self.writer)
        self.retaining = Retaining(
            bench.tenant, bench.plane, reads, ledger, bench.clock, uncounted, cast("Any", self.peers)
        )
        self.looks: list[float] = []
        self.hints = AccountHints(self.links, lambda: self.looks.append(time.monotonic()))
        self.links.register(HINT_TYPES, self.hints)
        self.writer.start()

    def open(self) -> None:
        done: list[object] = []
        self.thread.call(lambda: Deferred.fromCoroutine(self.retaining.load()).addCallback(done.append))
        self.thread.until(lambda: done)
        super().open()

    def retain(self, client: Client, topic: bytes, payload: bytes) -> None:
        """Publish, and wait for the PUBACK."""
        self.thread.call(lambda: client.send(publish(topic, payload, 1, 1, retain=True)))
        self.thread.until(lambda: packets(client.take()))

    def replayed(self, client: Client, topic_filter: bytes) -> list[tuple[bytes, bool]]:
        """Subscribe, and return the payloads that come until the replay has ended, and whether with RETAIN 1."""
        ended: list[object] = []

        def subscribe() -> None:
            subscription = client.subscribe(topic_filter)
            queue = self.retaining.begin_replays(client.session, [subscription])
            assert queue is not None
            Deferred.fromCoroutine(self.retaining.send_replays(queue)).addBoth(ended.append)

        self.thread.call(subscribe)
        self.thread.until(lambda: ended)
        assert ended == [None]
        found = self.thread.call(lambda: packets(client.take()))
        return [(body[2 + int.from_bytes(body[:2], "big") :], bool(header & 1)) for header, body in found]

    def close(self) -> None:
        super().close()
        self.writer.close()


@pytest.fixture
def pair(twin: Backend, tmp_path: Path) -> Iterator[tuple[Hub, Hub]]:
    """Two linked hubs with the tenant open."""
    store = MemoryRetained()
    with ReactorThread() as thread, contextlib.ExitStack() as closing:
        one, two = (Hub(twin, thread, number, tmp_path, store) for number in (1, 2))
        for hub in (one, two):
            closing.callback(hub.close)
        rows = [hub.begin() for hub in (one, two)]
        for hub, row in ((one, rows[1]), (two, rows[0])):
            thread.call(partial(hub.links.members, [row], serves=True))
        for hub in (one, two):
            hub.open()
        yield one, two


def test_a_subscribe_after_a_puback_at_the_other_hub_gets_the_message(pair: tuple[Hub, Hub]) -> None:
    """Whichever hub wrote it, at once after the PUBACK; a message that was replaced or deleted does not come."""
    one, two = pair
    publishers = [hub.bench.client("p") for hub in pair]
    missed = 0

    for number in range(RACES):
        topic = b"r/%d" % number
        here, there = (one, two) if number % 2 else (two, one)
        writers = dict(zip(pair, publishers, strict=True))
        here.retain(writers[here], topic, b"first")
        missed += there.replayed(there.bench.client(f"a{number}"), topic) != [(b"first", True)]
        there.retain(writers[there], topic, b"second")
        missed += here.replayed(here.bench.client(f"b{number}"), topic) != [(b"second", True)]
        here.retain(writers[here], topic, b"")
        missed += there.replayed(there.bench.client(f"c{number}"), topic) != []

    assert missed == 0


def test_a_change_of_accounts_that_one_hub_has_read_is_looked_at_by_the_other(pair: tuple[Hub, Hub]) -> None:
    """So a right that was revoked ends at every hub."""
    one, two = pair
    for hub in pair:
        one.thread.call(partial(hub.hints.note_read, None))

    for change in range(1, 21):
        one.thread.call(partial(one.hints.note_read, change))
        one.thread.until(partial(_has_looked, two, change))

    assert one.looks == []


def _has_looked(hub: Hub, times: int) -> bool:
    return len(hub.looks) == times
