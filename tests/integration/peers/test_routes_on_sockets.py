"""Two message planes with routes between them over real sockets, composed as a hub does it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from iothub.base.clock import SystemClock
from iothub.config.sections import Cluster, Config, Node
from iothub.engine.filters import join_share
from iothub.hub.cluster.peer_links import LinkParts, PeerLinks
from iothub.net.backend import Backend
from iothub.net.descriptors import UNLIMITED, Descriptors
from iothub.net.listeners import Listeners
from iothub.net.transports import make_transports
from iothub.peers.routed_peer import ROUTE_TYPES
from iothub.peers.routes import MESSAGE_TYPES, Routes
from iothub.testing.engine import Bench, Client, ack, packets, publish
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.metrics.alarms import Alarms
from iothub_tenants.accounts.hubs import HubRow

INSTALLATION = "a" * 32
RACES = 100


class Hub:
    """A plane with its links. Its clients are the test's; its links are sockets that the plane's transports serve."""

    def __init__(
        self, twin: Backend, thread: ReactorThread, number: int, path: Path, bench: Bench | None = None
    ) -> None:
        self.thread, self.number, self.bench = thread, number, bench or Bench()
        clock, plane = SystemClock(), self.bench.plane
        transports = make_transports(twin, plane, clock, thread.reactor)
        self.listeners = Listeners(
            [], plane, clock, transports, thread.reactor, Descriptors(UNLIMITED), lambda *_: None
        )
        parts = LinkParts(
            settings=Config(
                node=Node(number=number, name=f"hub-{number}"), cluster=Cluster(listen=f"unix:{path}/{number}.sock")
            ),
            files=None,
            version="1.0",
            installation=lambda: INSTALLATION,
            listeners=lambda: self.listeners,
            reactor=thread.reactor,
            run=self._run,
            alarms=Alarms(clock),
        )
        self.links = PeerLinks(parts)
        self.routes = Routes(self.links, plane, partial(thread.reactor.callLater, 0))
        self.links.register(ROUTE_TYPES, self.routes, is_waited_for=True)
        self.links.register(MESSAGE_TYPES, self.routes)
        self.links.watch(self.routes.acknowledged)
        self.links.watch_members(self.routes.members)

    def begin(self) -> HubRow:
        address = self.thread.call(self.links.open)
        self.thread.call(lambda: self.links.begin(1))
        return HubRow(self.number, 1, f"hub-{self.number}", 0, 1, address=address, version="1.0")

    def open(self) -> None:
        """Open the tenant, and wait until the other hub has answered."""
        done: list[bool] = []
        tenant = self.bench.tenant

        def open_tenant() -> None:
            self.routes.open_tenant(tenant)
            if not self.routes.await_opened(tenant, lambda: done.append(True)):
                done.append(True)

        self.thread.call(open_tenant)
        self.thread.until(lambda: done)

    def subscribe(self, client: Client, topic_filter: bytes) -> None:
        """Subscribe, and wait until SUBACK would leave."""
        done: list[bool] = []

        def subscribe() -> None:
            client.subscribe(topic_filter, 1)
            if not self.routes.await_routed(self.bench.tenant, [topic_filter], lambda: done.append(True)):
                done.append(True)

        self.thread.call(subscribe)
        self.thread.until(lambda: done)

    def join(self, client: Client, group: bytes, topic_filter: bytes, qos: int) -> None:
        """Subscribe as a member of a shared group, and wait until SUBACK would leave."""
        done: list[bool] = []

        def subscribe() -> None:
            client.subscribe(topic_filter, qos, group=group)
            shared = join_share(group, topic_filter)
            if not self.routes.await_routed(self.bench.tenant, [shared], lambda: done.append(True)):
                done.append(True)

        self.thread.call(subscribe)
        self.thread.until(lambda: done)

    def close(self) -> None:
        self.thread.call(self.links.close)
        self.thread.call(self.listeners.close)

    async def _run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)


@pytest.fixture
def pair(twin: Backend, tmp_path: Path) -> Iterator[tuple[Hub, Hub]]:
    """Two linked hubs with the tenant open."""
    with ReactorThread() as thread, contextlib.ExitStack() as closing:
        one, two = (Hub(twin, thread, number, tmp_path) for number in (1, 2))
        for hub in (one, two):
            closing.callback(hub.close)
        rows = [hub.begin() for hub in (one, two)]
        for hub, row in ((one, rows[1]), (two, rows[0])):
            thread.call(partial(hub.links.members, [row], serves=True))
        for hub in (one, two):
            hub.open()
        yield one, two


def test_races_between_hubs_miss_nothing(pair: tuple[Hub, Hub]) -> None:
    """A client subscribes at one hub; when its SUBACK leaves, another publishes at the other one."""
    one, two = pair
    subscriber, publisher = two.bench.client("s"), one.bench.client("p")
    missed = 0
    for number in range(RACES):
        topic = b"race/%d" % number
        two.subscribe(subscriber, topic)
        answer = one.thread.call(partial(publisher.send, publish(topic, b"x", 1, 1)))
        assert answer == ack(0x40, 1)
        found: list[tuple[int, bytes]] = []

        def read(found: list[tuple[int, bytes]] = found) -> bool:
            found += packets(subscriber.take())
            return bool(found)

        one.thread.until(read)
        missed += [body[-1:] for _, body in found] != [b"x"]
        topic_end = 2 + len(topic)
        packet_id = int.from_bytes(found[0][1][topic_end : topic_end + 2], "big")
        two.thread.call(partial(subscriber.send, ack(0x40, packet_id)))

    assert missed == 0


def test_much_traffic_arrives_in_order_and_is_acknowledged(pair: tuple[Hub, Hub]) -> None:
    """More than a window of the link; nothing waits in the end."""
    one, two = pair
    subscriber, publisher = two.bench.client("s", receive_maximum=65_535), one.bench.client("p")
    two.subscribe(subscriber, b"t")
    found: list[bytes] = []

    for first in range(0, 4_000, 20):
        data = b"".join(publish(b"t", b"%d " % each + bytes(1_000), 1, each + 1) for each in range(first, first + 20))
        one.thread.call(partial(publisher.send, data))

    def read() -> bool:
        found.extend(body[5:].split(b" ")[0] for _, body in packets(subscriber.take()))
        return len(found) == 4_000

    one.thread.until(read)
    one.thread.until(lambda: not any(each.unacknowledged_bytes for each in one.links.status()))

    assert found == [b"%d" % number for number in range(4_000)]


JOBS = 100


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_shared_group_with_its_member_at_the_other_hub_gets_everything(pair: tuple[Hub, Hub], qos: int) -> None:
    """All of a hundred, each once."""
    one, two = pair
    member = two.bench.client("m", receive_maximum=1_000)
    publisher = one.bench.client("p", inbound_maximum=1_000)
    two.join(member, b"workers", b"job/+", 2)
    found: list[bytes] = []

    for number in range(1, JOBS + 1):
        one.thread.call(partial(publisher.send, publish(b"job/1", b"%d" % number, qos, number)))

    def read() -> bool:
        found.extend(body[7 + 2 * (qos > 0) :] for _, body in packets(member.take()))
        return len(found) >= JOBS

    one.thread.until(read)
    assert found == [b"%d" % number for number in range(1, JOBS + 1)]


def test_what_a_client_has_not_acknowledged_goes_to_another_hubs_member_when_its_hub_goes(
    pair: tuple[Hub, Hub],
) -> None:
    """None of what was acknowledged to the publisher is lost."""
    one, two = pair
    first = two.bench.client("m", receive_maximum=1_000)
    publisher = one.bench.client("p")
    two.join(first, b"workers", b"job/+", 1)
    for number in range(1, JOBS + 1):
        one.thread.call(partial(publisher.send, publish(b"job/1", b"%d" % number, 1, number)))
    one.thread.until(lambda: two.bench.tenant.counters.delivered_1 == JOBS)
    second = one.bench.client("n", receive_maximum=1_000)
    one.join(second, b"workers", b"job/+", 1)

    one.thread.call(partial(one.links.members, [], serves=True))
    one.thread.call(partial(one.links.members, [], serves=True))

    found: list[bytes] = []

    def read() -> bool:
        found.extend(body[9:] for _, body in packets(second.take()))
        return len(found) >= JOBS

    one.thread.until(read)
    assert sorted(found) == sorted(b"%d" % number for number in range(1, JOBS + 1))
    assert one.bench.tenant.buffered_bytes <= JOBS * 200  # only what its own client has not acknowledged
