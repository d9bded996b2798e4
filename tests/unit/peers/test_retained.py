"""What hubs tell each other of retained messages, and what they ask before a replay, over real routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.retained import RETAINED_TYPES, RetainedPeers
from iothub.peers.retained_frames import Retained, Synced
from iothub.peers.route_frames import TenantQuestion
from iothub.testing.engine import publish
from tests.support.in_process.routed_hubs import Net, RoutedHub

ONE, TWO, THREE = PeerId(1, 1), PeerId(2, 1), PeerId(3, 1)


class Tenant:
    """Fulfils `TenantRetained`. `is_writing`: its store answers when the test says so."""

    def __init__(self) -> None:
        self.changes: list[tuple[bytes, int, int, int]] = []
        self.arrivals: list[tuple[PeerId, bytes]] = []
        self.unannounced = 0
        self.is_writing = False
        self.settling: list[Callable[[], None]] = []

    def take_change(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        self.changes.append((topic, version, expires_at_ms, size))

    def note_arrival(self, source: PeerId, topic: bytes) -> None:
        self.arrivals.append((source, topic))

    def note_unannounced(self) -> None:
        self.unannounced += 1

    def await_settled(self, on_done: Callable[[], None]) -> None:
        if self.is_writing:
            self.settling.append(on_done)
        else:
            on_done()

    def settle(self) -> None:
        self.is_writing = False
        settling, self.settling = self.settling, []
        for on_done in settling:
            on_done()


class RetainingHub(RoutedHub):
    """A hub whose tenant has retained messages."""

    def __init__(self, net: Net[Any], peer: PeerId) -> None:
        super().__init__(net, peer)
        self.peers = RetainedPeers(self.routes)
        self.links.register(RETAINED_TYPES, self.peers)
        self.here = Tenant()

    def open_retained(self) -> None:
        self.peers.open_tenant(1, self.here)
        self.open()

    def close(self) -> None:
        self.peers.close_tenant(1)
        super().close()

    def ask(self) -> list[object]:
        """Ask the other hubs as a replay does; the list gets the ids of those that were asked, and True when all have answered."""
        found: list[object] = []
        if not self.peers.await_synced(1, found.append, lambda: found.append(True)):
            found.append(False)
        return found

    def tell(self, topic: bytes, version: int, size: int = 1) -> None:
        self.peers.announce_change(1, topic, version, 0, size)


def opened(count: int = 2) -> tuple[Net[RetainingHub], list[RetainingHub]]:
    """Hubs with the tenant open at all of them; nobody has asked yet, and all were told everything."""
    net: Net[RetainingHub] = Net(count, RetainingHub)
    hubs = list(net.hubs.values())
    for hub in hubs:
        hub.open_retained()
        net.settle()
    for hub in hubs:
        hub.ask()
        net.settle()
        hub.here.unannounced = 0
    for hub in hubs:
        hub.links.sent.clear()
    return net, hubs


def test_a_hub_that_is_alone_tells_and_asks_nobody() -> None:
    net: Net[RetainingHub] = Net(1, RetainingHub)
    [hub] = net.hubs.values()
    hub.open_retained()

    hub.tell(b"t", 1)

    assert hub.ask() == [False]
    assert (hub.peers.has_open(1), hub.links.sent) == (False, [])


def test_a_write_is_told_to_the_hubs_that_have_the_tenant_open() -> None:
    """Encoded once; a hub without the tenant gets nothing."""
    net, (one, two, three) = opened(3)
    three.close()
    net.settle()
    one.links.sent.clear()

    one.tell(b"t", 7, 3)
    one.tell(b"t", 8, 0)
    net.settle()

    assert two.here.changes == [(b"t", 7, 0, 3), (b"t", 8, 0, 0)]
    assert three.here.changes == []
    assert [to for to, _, _ in one.links.sent] == [TWO, TWO]


def test_a_tenant_that_is_closed_here_is_not_spoken_of() -> None:
    """A deletion that goes on after its tenant's end has nobody to tell: the others would close the link, again and again."""
    net, (one, two) = opened()
    one.close()
    net.settle()
    one.links.sent.clear()

    one.tell(b"t", 7)
    assert (one.ask(), one.peers.has_open(1)) == ([False], False)
    net.settle()

    assert (one.links.sent, two.here.changes) == ([], [])


def test_each_hub_is_asked_before_every_replay_and_answers_when_its_writes_are_told() -> None:
    """At once, where it parts the messages, and when what it had routed by then is durable."""
    net, (one, two, _three) = opened(3)
    two.here.is_writing = True

    found = one.ask()
    net.settle()
    assert found == [TWO, THREE]

    two.tell(b"t", 7)
    two.here.settle()
    net.settle()
    assert found == [TWO, THREE, True]
    assert one.here.changes == [(b"t", 7, 0, 1)]
    assert two.links.types(ONE) == [FrameType.SYNCED, FrameType.RETAINED, FrameType.SYNCED]
    assert one.ask() == []


def test_one_question_is_on_its_way_and_those_that_come_meanwhile_share_the_next_one() -> None:
    """The answer under way may part the messages too early for them."""
    net, (one, two) = opened()
    two.here.is_writing = True
    first = one.ask()
    net.settle()

    second, third = one.ask(), one.ask()
    net.settle()
    assert (first, second, third) == ([TWO], [], [])
    assert one.links.types() == [FrameType.SYNC]

    two.here.settle()
    net.settle()
    assert (first, second, third) == ([TWO, True], [TWO, True], [TWO, True])
    assert one.links.types() == [FrameType.SYNC]


def test_a_hub_that_opens_the_tenant_reads_the_store_after_its_first_question() -> None:
    """What was written before it had the tenant open was not told to it."""
    net: Net[RetainingHub] = Net(2, RetainingHub)
    one, two = net.hubs.values()
    one.open_retained()
    net.settle()
    one.tell(b"before", 1)
    two.open_retained()
    net.settle()

    for _ in range(2):
        two.ask()
        net.settle()
    one.ask()
    net.settle()

    assert (two.here.changes, two.here.unannounced, one.here.unannounced) == ([], 1, 0)


def test_a_write_that_the_link_does_not_take_is_read_from_the_store() -> None:
    """Nothing waits for the link; the next answer says that something is missing, and only that one."""
    net, (one, two) = opened()
    one.links.closed.add(TWO)
    for version in range(1, 4):
        one.tell(b"t", version)
    one.links.closed.clear()
    one.tell(b"t", 4)

    for expected in (1, 1):
        two.ask()
        net.settle()
        assert two.here.unannounced == expected
    assert [version for _, version, _, _ in two.here.changes] == [4]


def test_an_answer_is_sent_although_the_link_takes_no_message() -> None:
    net, (one, two) = opened()
    two.links.closed.add(ONE)

    found = one.ask()
    net.settle()

    assert found == [TWO, True]


@pytest.mark.parametrize("way", ["gone", "closed"])
def test_a_hub_that_leaves_is_not_waited_for(way: str) -> None:
    """One that is gone may have written what it could not tell: the store is read. One that has closed the tenant has told all."""
    net, (one, two) = opened()
    two.here.is_writing = True
    first = one.ask()
    net.settle()
    second = one.ask()

    if way == "gone":
        net.kill(two)
    else:
        two.close()
        net.settle()

    assert (first, second) == ([TWO, TWO, True], [TWO, True])
    assert one.here.unannounced == (way == "gone")
    assert one.ask() == [False]
    two.here.settle()
    net.settle()
    assert first == [TWO, TWO, True]


def test_a_hub_that_goes_before_it_has_said_whether_it_has_the_tenant_open_may_have_written() -> None:
    """It was there by the accounts, and never linked."""
    net: Net[RetainingHub] = Net(1, RetainingHub)
    [one] = net.hubs.values()
    one.routes.members([TWO])
    one.open_retained()

    one.routes.members([])

    assert one.here.unannounced == 1


def test_a_tenant_that_is_closed_here_keeps_nobody_waiting() -> None:
    """A late answer is for nobody."""
    net, (one, two) = opened()
    two.here.is_writing = True
    found = one.ask()
    net.settle()

    one.close()
    two.here.settle()
    net.settle()

    assert found == [TWO, TWO, True]
    assert net.faults == []


def test_a_hub_without_the_tenant_answers_at_once() -> None:
    """Its CLOSE was on its way when it was asked."""
    net, (one, two) = opened()
    net.cut.add((TWO, ONE))
    two.close()
    found = one.ask()
    net.settle()
    net.cut.clear()
    net.settle()

    assert found == [TWO, True]
    assert net.faults == []


def test_a_message_with_retain_is_noted_where_it_arrives() -> None:
    """Between the two answers, as it was routed."""
    net, (one, two) = opened()
    one.subscribe(one.client("s"), b"#", qos=1)
    net.settle()
    publisher = two.client("p")

    publisher.send(publish(b"plain", b"x", 1, 1))
    publisher.send(publish(b"kept", b"x", 1, 2, retain=True))
    net.settle()

    assert one.here.arrivals == [(TWO, b"kept")]


@pytest.mark.parametrize(
    ("frame_type", "body"),
    [
        (FrameType.RETAINED, Retained(9, b"t", 1, 0, 1).encode()),
        (FrameType.SYNC, TenantQuestion(9, 1).encode()),
        (FrameType.SYNCED, b"\xc1"),
    ],
)
def test_a_frame_of_a_tenant_that_the_sender_has_not_open_closes_its_link(frame_type: FrameType, body: bytes) -> None:
    net, (_one, two) = opened()

    two.links.send(ONE, frame_type, body)
    net.settle()

    assert len(net.faults) == 1


def test_an_answer_to_another_question_is_passed_over() -> None:
    """It was asked before the tenant was closed and opened again."""
    net, (one, two) = opened()
    two.here.is_writing = True
    found = one.ask()
    net.settle()

    two.links.send(ONE, FrameType.SYNCED, Synced(1, 99_999, is_settled=True, is_complete=False).encode())
    two.links.send(ONE, FrameType.SYNCED, Synced(9, 1, is_settled=True, is_complete=False).encode())
    net.settle()

    assert (found, one.here.unannounced, net.faults) == ([TWO], 0, [])
