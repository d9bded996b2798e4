"""One other hub: its place in a router, what its link takes, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable

from iothub.base.errors import LocalProtocolError, UnavailableError
from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.state import TenantPlane
from iothub.peers.announced import EVERYTHING
from iothub.peers.frames import FrameType
from iothub.peers.groups import Groups
from iothub.peers.ports import PeerId
from iothub.peers.routed_peer import RoutedPeer
from iothub.testing.engine import Bench

PEER = PeerId(2, 1)


class Link:
    """Takes frames, or raises `fault`."""

    batch_bytes = 1000

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.sent: list[tuple[FrameType, bytes]] = []
        self.has_room = True
        self.flush: Callable[[], None] = lambda: None

    def announce(self, frame_type: FrameType, body: bytes) -> int:
        self.flush()
        self.sent.append((frame_type, body))
        return 10 * len(self.sent)

    def send(self, frame_type: FrameType, body: bytes) -> int:
        if self.fault is not None:
            raise self.fault
        self.sent.append((frame_type, body))
        return 10 * len(self.sent)

    def is_full(self) -> bool:
        return not self.has_room

    def is_half_full(self) -> bool:
        return self.is_full()


class Scenario:
    def __init__(self) -> None:
        self.link = Link()
        self.bench = Bench()
        groups = Groups(self.bench.plane, lambda call: call())
        self.peer = RoutedPeer(PEER, self.link, self.bench.plane.turn, groups)
        self.tenant = self.bench.tenant

    def send(self, tenant: TenantPlane, *messages: Message) -> None:
        """Give it messages, and end the batch."""
        for message in messages:
            self.peer.send(tenant, message)
        self.bench.plane.end_batch()


def test_a_peer_is_one_session_of_each_router_that_it_has_routes_in() -> None:
    """No client's: the tenant has no session by a name."""
    scenario = Scenario()
    peer, tenant = scenario.peer, scenario.tenant

    for topic_filter in (b"a", b"+"):
        peer.subscribe(tenant, topic_filter, EVERYTHING)
    [target] = tenant.router.match(b"a").targets
    assert (target.session.control, target.session.is_peer, tenant.sessions) == (peer, True, {})
    peer.unsubscribe(tenant, b"+")
    peer.unsubscribe(TenantPlane(2, "beta"), b"a")
    assert tenant.router.subscription_count == 1
    peer.leave(1)
    peer.leave(1)

    assert (tenant.router.subscription_count, peer.sessions) == (0, {})


def test_a_message_that_a_link_does_not_take_is_dropped_by_name() -> None:
    """Twice `link_bytes` wait, or the frame is larger than a frame may be."""
    scenario = Scenario()
    scenario.peer.subscribe(scenario.tenant, b"#", EVERYTHING)

    for fault in (UnavailableError("full"), LocalProtocolError("too large")):
        scenario.link.fault = fault
        scenario.send(scenario.tenant, Message(b"a", b"", 1), Message(b"b", b"", 1))

    assert scenario.bench.observer.drops == [(Drop.LINK_FULL, 1)] * 2 + [(Drop.TOO_LARGE, 1)] * 2


def test_messages_go_before_what_is_announced_after_them() -> None:
    """By whomever: a tenant is not closed before them, and the copy of a Will is not dropped before it."""
    scenario = Scenario()

    scenario.peer.send(scenario.tenant, Message(b"a", b""))
    scenario.peer.announce(FrameType.CLOSE, b"1")
    scenario.peer.send(scenario.tenant, Message(b"a", b""))
    scenario.link.announce(FrameType.WILL, b"2")
    scenario.bench.plane.end_batch()

    sent = [frame_type for frame_type, _ in scenario.link.sent]
    assert sent == [FrameType.PUBLISH, FrameType.CLOSE, FrameType.PUBLISH, FrameType.WILL]


def test_what_waits_for_the_end_of_a_batch_is_dropped_by_name_when_the_hub_goes() -> None:
    scenario = Scenario()
    scenario.peer.subscribe(scenario.tenant, b"#", EVERYTHING)
    scenario.link.fault = UnavailableError("gone")

    scenario.peer.send(scenario.tenant, Message(b"a", b"", 1))
    scenario.peer.end()
    scenario.bench.plane.end_batch()

    assert scenario.bench.observer.drops == [(Drop.LINK_FULL, 1)]


def test_a_tenant_that_gets_routes_while_the_link_is_full_is_held_back_too() -> None:
    """And every one is let go when it drains; one that left before is not counted any more."""
    scenario = Scenario()
    tenants = [TenantPlane(number, "t") for number in range(3)]
    scenario.peer.subscribe(tenants[0], b"a", EVERYTHING)
    scenario.link.has_room = False

    scenario.send(tenants[0], Message(b"a", b"", 1))
    for tenant in tenants[1:]:
        scenario.peer.subscribe(tenant, b"a", EVERYTHING)
    full = [tenant.sinks for tenant in tenants]
    scenario.peer.leave(2)
    scenario.link.has_room = True
    scenario.peer.acknowledged(0, 0)

    assert (full, [tenant.sinks for tenant in tenants]) == ([1, 1, 1], [0, 0, 0])


def test_who_waits_is_called_when_all_that_was_announced_before_is_applied() -> None:
    """Numbers of the link are not its own: messages are between them."""
    scenario = Scenario()
    peer = scenario.peer
    called: list[str] = []
    assert not peer.await_applied(lambda: called.append("never"))
    peer.announce(FrameType.CLOSE, b"1")
    assert peer.await_applied(lambda: called.append("first"))
    peer.send(scenario.tenant, Message(b"a", b""))
    peer.announce(FrameType.CLOSE, b"2")
    assert peer.await_applied(lambda: called.append("second"))

    peer.acknowledged(20, 20)
    assert called == ["first"]
    peer.acknowledged(30, 30)

    assert called == ["first", "second"]
    assert not peer.await_applied(lambda: called.append("never"))


def test_nobody_waits_for_what_is_acknowledged_later_than_routes() -> None:
    """A hub acknowledges it with the next tick only, and a SUBACK needs the routes."""
    scenario = Scenario()
    peer = scenario.peer
    peer.announce(FrameType.ROUTE, b"1")
    peer.announce(FrameType.SYNC, b"2")
    assert peer.offer(FrameType.RETAINED, b"3")

    peer.acknowledged(10, 10)

    assert not peer.await_applied(lambda: None)
    assert not peer.await_arrived(lambda: None)


def test_nobody_waits_for_a_peer_that_is_gone() -> None:
    scenario = Scenario()
    called: list[str] = []
    scenario.peer.subscribe(scenario.tenant, b"a", EVERYTHING)
    scenario.peer.announce(FrameType.CLOSE, b"1")
    scenario.peer.await_applied(lambda: called.append("gone"))

    scenario.peer.end()

    assert (called, scenario.tenant.router.subscription_count) == (["gone"], 0)
