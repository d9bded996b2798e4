"""Every name that holds back or refuses, offered half more than it allows, all at the same time: no more passes than the rate.

At night, over ten seconds on a machine of its own, no less than it either: within 5 %.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.clients.packets import CONNACK, PUBACK, PUBLISH, SUBACK, Packet, packet, string
from tests.support.clients.raw import RawClient
from tests.support.hubs.quota_harness import Harness, Tenancy
from tests.support.night import IS_NIGHT, by_day
from tests.support.waiting import PATIENCE_S

SECONDS = by_day(4.0, 10.0)
ASKED_S = SECONDS + 1.0
BURST_S = 1.0  # a bucket holds less than half a second's worth, a budget one second's
RATE = 80
SIZE = 100  # bytes of what is counted by bytes
REFUSING_RATE = 10
VERSIONS = (4, 5)
HOLDING_BACK = (
    "publish_messages",
    "publish_bytes",
    "device_publish_messages",
    "device_publish_bytes",
    "deliver_messages",
    "deliver_bytes",
    "device_deliver_messages",
    "device_deliver_bytes",
    "persistent_fanout",
)
REFUSING = ("connects", "subscribes")


@dataclass
class Flow:
    """One client that asks for too much. `send(number)`: ask once. `has_passed`: is this the packet that says so?"""

    here: Tenancy
    rate: int
    send: Callable[[int], RawClient | None]
    has_passed: Callable[[Packet], bool]
    answers: int = 0
    sent: int = 0
    passed: list[float] = field(default_factory=list)

    begun: float = 0.0

    def within(self, seconds: float) -> int:
        """How many passed in the first seconds from the first one on."""
        return sum(moment < self.passed[0] + seconds for moment in self.passed)

    def assert_rate(self) -> None:
        """At no moment have more passed than the rate allows since the first was sent; at night, not fewer either."""
        most = [(moment - self.begun + BURST_S) * self.rate + 1 for moment in self.passed]
        assert [count for count, limit in enumerate(most, 1) if count > limit] == []
        assert is_done(self)
        if IS_NIGHT:
            assert self.within(SECONDS) == pytest.approx(self.rate * SECONDS, rel=0.05)


def offer(flows: dict[RawClient, Flow]) -> None:
    """Let every flow ask, evenly, and note what passes.

    Who is refused at once is listened to until every question is answered, who is held back until a part of what waited has passed.
    """
    chosen = selectors.DefaultSelector()
    for client, flow in flows.items():
        chosen.register(client.stream, selectors.EVENT_READ, (client, flow))
    begun = now = time.monotonic()
    for flow in flows.values():
        flow.begun = begun
    while now < begun + ASKED_S or (now < begun + PATIENCE_S and not all(map(is_done, flows.values()))):
        for flow in flows.values():
            while flow.sent < min(now - begun, ASKED_S) * flow.rate * 1.5:
                flow.sent += 1
                another = flow.send(flow.sent)
                if another is not None:
                    chosen.register(another.stream, selectors.EVENT_READ, (another, flow))
        for key, _ in chosen.select(timeout=0.01):
            client, flow = key.data
            data = client.stream.recv(65536)
            if not data:
                chosen.unregister(client.stream)
                continue
            client.buffer += data
            while (came := client._take()) is not None:
                flow.answers += 1
                if flow.has_passed(came):
                    flow.passed.append(time.monotonic())
        now = time.monotonic()
    chosen.close()


def is_done(flow: Flow) -> bool:
    """All was asked. Who is refused has every answer; of who is held back more has passed than a burst."""
    if flow.sent < flow.rate * SECONDS * 1.5:
        return False
    return flow.answers >= flow.sent if flow.rate == REFUSING_RATE else len(flow.passed) > flow.rate * (BURST_S + 1)


def publishing(here: Tenancy, version: int, quota: str) -> tuple[RawClient, Flow]:
    """QoS 0 from one device to another; what arrives is what passed."""
    publisher, subscriber = here.connect(version), here.connect(version, device="dev2")
    subscriber.subscribe(("t", 0))
    bare = len(publisher.publish_bytes("t")) if quota.count("publish") else len("t")
    frame = publisher.publish_bytes("t", b"x" * (SIZE - bare))

    def send(_number: int) -> None:
        publisher.send(frame)

    return subscriber, Flow(here, RATE, send, lambda came: came.kind == PUBLISH)


def storing(here: Tenancy, version: int) -> tuple[RawClient, Flow]:
    """QoS 1 for two sessions that are away: each message is stored twice; PUBACK says that it passed."""
    for name in ("one", "two"):
        kept = here.keep(version, name, device="dev2")
        kept.subscribe(("t", 1))
        kept.disconnect()
    publisher = here.connect(version)

    def send(number: int) -> None:
        publisher.send(publisher.publish_bytes("t", b"x", 1, number))

    return publisher, Flow(here, RATE // 2, send, lambda came: came.kind == PUBACK)


def connecting(here: Tenancy, version: int) -> tuple[RawClient, Flow]:
    idle = RawClient(here.harness.hub.ports["tcp"], version)
    here.clients.append(idle)

    def send(number: int) -> RawClient:
        client = RawClient(here.harness.hub.ports["tcp"], version)
        here.clients.append(client)
        client.send(client.connect_bytes(f"c{number}", f"{here.name}/dev1", here.secrets["dev1"]))
        return client

    return idle, Flow(here, REFUSING_RATE, send, lambda came: came.kind == CONNACK and came.code == 0)


def subscribing(here: Tenancy, version: int) -> tuple[RawClient, Flow]:
    client = here.connect(version)
    head = b"" if version == 4 else b"\0"

    def send(number: int) -> None:
        client.send(packet(0x82, number.to_bytes(2) + head + string(f"f{number}") + b"\0"))

    return client, Flow(here, REFUSING_RATE, send, lambda came: came.kind == SUBACK and came.codes == [0])


@pytest.fixture(scope="module")
def measured(harness: Harness) -> Iterator[dict[tuple[str, int], Flow]]:
    """All flows after their seconds."""
    named, flows = begin(harness)
    offer(flows)
    yield named
    harness.clear()


def begin(harness: Harness) -> tuple[dict[tuple[str, int], Flow], dict[RawClient, Flow]]:
    """A tenant and a flow for every name and version."""
    flows: dict[RawClient, Flow] = {}
    named: dict[tuple[str, int], Flow] = {}
    for version in VERSIONS:
        for quota in (*HOLDING_BACK, *REFUSING):
            limit = REFUSING_RATE if quota in REFUSING else RATE * (SIZE if quota.endswith("bytes") else 1)
            here = harness.tenant(f"{quota}={limit}/1s")
            if quota == "persistent_fanout":
                client, flow = storing(here, version)
            elif quota in REFUSING:
                client, flow = (connecting if quota == "connects" else subscribing)(here, version)
            else:
                client, flow = publishing(here, version, quota)
            flows[client] = named[quota, version] = flow
    return named, flows


@pytest.mark.parametrize("quota", HOLDING_BACK)
@pytest.mark.parametrize("version", VERSIONS, ids=("3.1.1", "5.0"))
def test_rate_that_holds_back(measured: dict[tuple[str, int], Flow], quota: str, version: int) -> None:
    """Nobody is refused or closed, what is too much waits."""
    flow = measured[quota, version]

    flow.assert_rate()
    assert flow.here.refused(quota) == 0
    assert flow.here.used("connections") >= 1


@pytest.mark.parametrize("quota", REFUSING)
@pytest.mark.parametrize("version", VERSIONS, ids=("3.1.1", "5.0"))
def test_rate_that_refuses(measured: dict[tuple[str, int], Flow], quota: str, version: int) -> None:
    """What the hub counted as refused is what the client saw."""
    flow = measured[quota, version]

    flow.assert_rate()
    assert flow.here.refused(quota) == flow.sent - len(flow.passed)
