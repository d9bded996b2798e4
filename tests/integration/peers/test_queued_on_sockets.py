"""A persistent subscriber at one hub and a publisher at another one, over real sockets: how long a message takes, and what a broken link costs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iothub.engine.router import Subscription
from iothub.engine.state import Place
from iothub.net.backend import Backend
from iothub.peers.queued import QUEUED_TYPES, QueuedPeers
from iothub.testing.engine import Bench, Client, ManualStore, QueueRows, ack, packets, publish
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.sessions.port import HERE
from tests.integration.peers.test_routes_on_sockets import Hub

MESSAGES = 300
BURST = 400
QUEUE = 7


class PromptStore(ManualStore):
    """Commits in the next turn of the reactor. `rows`: of all hubs."""

    def __init__(self, reactor: Any, rows: dict[int, QueueRows]) -> None:
        super().__init__()
        self.rows = rows
        self._reactor = reactor
        self._is_due = False

    def append(self, publish: Any) -> None:
        super().append(publish)
        self._commit_soon()

    def read(self, *args: Any) -> None:
        super().read(*args)
        self._commit_soon()

    def reserve(self, *args: Any) -> None:
        super().reserve(*args)
        self._commit_soon()

    def ack(self, *args: Any) -> None:
        super().ack(*args)
        self._commit_soon()

    def _commit_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._reactor.callLater(0, self._commit)

    def _commit(self) -> None:
        self._is_due = False
        plane = self.plane
        assert plane is not None
        plane.turn.begin()
        self.commit()
        plane.end_batch()


class QueuedHub(Hub):
    """A hub with a part in the shared store. Each session of another hub is told by the test."""

    def __init__(
        self, twin: Backend, thread: ReactorThread, number: int, path: Path, rows: dict[int, QueueRows]
    ) -> None:
        super().__init__(twin, thread, number, path, Bench(store=PromptStore(thread.reactor, rows)))
        self.queued = QueuedPeers(self.routes, self.bench.plane, partial(thread.reactor.callLater, 0))
        self.links.register(QUEUED_TYPES, self.queued)

    def keep(self, topic_filter: bytes) -> Client:
        """Connect a persistent session and subscribe."""

        def connect() -> Client:
            client = self.bench.client("s", queue_id=QUEUE, receive_maximum=1_000)
            client.session.control = SimpleNamespace(place=Place(HERE, 1), is_online_elsewhere=False)
            client.subscribe(topic_filter, 1)
            return client

        client: Client = self.thread.call(connect)
        self.thread.until(lambda: not client.session.is_behind)
        return client

    def know(self, topic_filter: bytes, holder: int) -> None:
        def know() -> None:
            plane, tenant = self.bench.plane, self.bench.tenant
            session = plane.create_session(tenant, "s", "s", is_persistent=True, queue_id=QUEUE)
            place = Place(holder, 1, is_online=True)
            session.control = SimpleNamespace(place=place, is_online_elsewhere=True)
            plane.subscribe(session, Subscription(session, topic_filter, None, 1))

        self.thread.call(know)


@pytest.fixture
def queued_pair(twin: Backend, tmp_path: Path) -> Iterator[tuple[QueuedHub, QueuedHub]]:
    """Two linked hubs on one store with the tenant open."""
    rows: dict[int, QueueRows] = {}
    with ReactorThread() as thread, contextlib.ExitStack() as closing:
        one, two = (QueuedHub(twin, thread, number, tmp_path, rows) for number in (1, 2))
        for hub in (one, two):
            closing.callback(hub.close)
        hub_rows = [hub.begin() for hub in (one, two)]
        for hub, row in ((one, hub_rows[1]), (two, hub_rows[0])):
            thread.call(partial(hub.links.members, [row], serves=True))
        for hub in (one, two):
            hub.open()
        yield one, two


def latencies(publisher: Client, subscriber: Client, thread: ReactorThread, count: int) -> list[float]:
    """Publish one message after the other, each when the one before has arrived; return how long each took, in seconds."""
    found: list[float] = []
    sent_at = 0.0
    wake: Callable[[], None] = subscriber.transport.wake

    def send() -> None:
        nonlocal sent_at
        number = len(found)
        sent_at = time.perf_counter()
        publisher.send(publish(b"a", b"x", 1, number % 60_000 + 1))

    def arrived() -> None:
        wake()
        for _, body in packets(subscriber.transport.take()):
            found.append(time.perf_counter() - sent_at)
            identifier = int.from_bytes(body[3:5], "big")
            thread.reactor.callLater(0, subscriber.send, ack(0x40, identifier))
            if len(found) < count:
                thread.reactor.callLater(0.001, send)

    subscriber.transport.wake = arrived  # type: ignore[method-assign]
    thread.call(send)
    thread.until(lambda: len(found) >= count)
    subscriber.transport.wake = wake  # type: ignore[method-assign]
    return sorted(found)


def test_message_of_another_hub_needs_no_look_at_the_tail(queued_pair: tuple[QueuedHub, QueuedHub]) -> None:
    """What the links say is enough: nobody looks at tails here. How long it takes is printed; `make bench` measures it."""
    one, two = queued_pair
    subscriber = two.keep(b"a")
    one.know(b"a", 2)
    publishers = [hub.thread.call(partial(hub.bench.client, "p")) for hub in (two, one)]

    same, other = (latencies(publisher, subscriber, one.thread, MESSAGES) for publisher in publishers)

    print(f"p50: {same[MESSAGES // 2] * 1e3:.3f} ms on one hub, {other[MESSAGES // 2] * 1e3:.3f} ms from the other one")
    assert len(same) == len(other) == MESSAGES
    assert two.bench.store.rows[QUEUE].tail == 2 * MESSAGES


def test_much_traffic_arrives_in_order_and_once(queued_pair: tuple[QueuedHub, QueuedHub]) -> None:
    """Pipelined: from memory, and from the queue where messages are ahead of what was told."""
    one, two = queued_pair
    subscriber = two.keep(b"a")
    one.know(b"a", 2)
    publisher = one.thread.call(partial(one.bench.client, "p", inbound_maximum=65_535))
    found: list[bytes] = []

    for first in range(0, BURST, 20):
        data = b"".join(publish(b"a", b"%d" % each, 1, each + 1) for each in range(first, first + 20))
        one.thread.call(partial(publisher.send, data))

    def read() -> bool:
        for _, body in packets(subscriber.take()):
            found.append(body[5:])
            subscriber.connection.feed(ack(0x40, int.from_bytes(body[3:5], "big")))
        two.bench.plane.end_batch()
        return len(found) >= BURST

    one.thread.until(read)

    assert found == [b"%d" % number for number in range(BURST)]
