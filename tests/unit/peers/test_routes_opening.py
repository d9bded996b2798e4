"""Routes between hubs: how a tenant is opened at one of them, and what another hub may not send."""

from __future__ import annotations

import pytest

from iothub.engine.message import Message
from iothub.engine.state import TenantPlane
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.route_frames import Opened, RouteChange, encode_close
from iothub.testing.engine import ack, publish
from tests.support.in_process.routed_hubs import Net, RoutedHub, open_pair, payloads

ONE, TWO, THREE = PeerId(1, 1), PeerId(2, 1), PeerId(3, 1)
PUBACK = ack(0x40, 1)


# --- opening


def test_a_tenant_is_open_when_every_hub_has_answered() -> None:
    """With the routes of those that have it open."""
    net = Net(3, RoutedHub)
    one, two, three = net.hubs.values()
    two.open()
    net.settle()
    two.subscribe(two.client("s"), b"a", b"b/#")
    net.cut.add((THREE, ONE))

    opened = one.open()
    net.settle()
    assert (opened, one.opened()) == ([], [])
    net.cut.clear()
    net.settle()

    assert opened == [True]
    assert [len(one.tenant.router.match(topic).targets) for topic in (b"a", b"b/c", b"c")] == [1, 1, 0]
    assert three.tenant.interest is None


def test_a_hub_that_was_never_linked_is_waited_for_as_long_as_the_accounts_have_it() -> None:
    """It may have clients whose subscriptions are acknowledged."""
    net = Net(1, RoutedHub)
    [one] = net.hubs.values()
    one.routes.members([TWO])

    opened = one.open()
    assert opened == []
    one.routes.members([])

    assert opened == [True]


def test_a_hub_that_comes_with_a_new_life_answers_for_the_earlier_one() -> None:
    """What the accounts had of it was an incarnation that nobody has met."""
    net = Net(1, RoutedHub)
    [one] = net.hubs.values()
    one.routes.members([TWO])
    opened = one.open()

    net.add(PeerId(2, 5))
    net.settle()

    assert opened == [True]


def test_two_hubs_that_open_at_once_hear_of_each_other() -> None:
    """Whatever crosses on the way."""
    net = Net(2, RoutedHub)
    one, two = net.hubs.values()
    opened = [one.open(), two.open()]
    net.settle()
    done = [hub.subscribe(hub.client("s"), b"a") for hub in (one, two)]
    net.settle()

    assert (opened, done) == ([[True]] * 2, [[True]] * 2)
    assert [len(hub.tenant.router.match(b"a").targets) for hub in (one, two)] == [2, 2]


def test_a_set_of_many_routes_comes_in_parts() -> None:
    """The tenant opens with the last one."""
    net = Net(2, RoutedHub)
    one, two = net.hubs.values()
    two.open()
    net.settle()
    client = two.client("s")
    two.subscribe(client, *(b"a/%d" % number for number in range(10_000)))
    two.links.sent.clear()

    opened = one.open()
    net.settle()

    assert opened == [True]
    assert two.links.types(ONE) == [FrameType.ROUTE] * 3 + [FrameType.OPENED]
    assert one.tenant.router.subscription_count == 10_000


def test_a_tenant_that_opens_again_has_the_routes_of_now() -> None:
    """What was on its way to the earlier opening is of no account."""
    net, one, two = open_pair()
    client = two.client("s")
    net.cut.add((TWO, ONE))
    two.subscribe(client, b"old")
    net.settle()
    opened = one.reopen()
    two.plane.unsubscribe(client.session, None, b"old")
    two.subscribe(client, b"new")
    net.settle()
    assert opened == []

    net.cut.clear()
    net.settle()

    assert opened == [True]
    assert [len(one.tenant.router.match(topic).targets) for topic in (b"old", b"new")] == [0, 1]


def test_an_answer_to_an_earlier_opening_does_not_count() -> None:
    """Between the two the other hub has acknowledged a subscription without asking this one."""
    net = Net(2, RoutedHub)
    one, two = net.hubs.values()
    two.open()
    net.settle()
    net.cut.add((TWO, ONE))
    one.open()
    net.settle()
    one.close()
    net.settle()
    assert two.subscribe(two.client("s"), b"a") == [True]

    net.cut = {(ONE, TWO)}
    opened = one.open()
    net.settle()
    assert opened == []
    net.cut.clear()
    net.settle()

    assert (opened, len(one.tenant.router.match(b"a").targets)) == ([True], 1)


def test_a_hub_that_is_linked_later_gets_the_routes_of_open_tenants() -> None:
    """It joins with the tenant open at the others, and opens it itself."""
    net, one, two = open_pair()
    one.subscribe(one.client("s"), b"a")
    net.settle()

    three = net.add(THREE)
    opened = three.open()
    net.settle()
    done = three.subscribe(three.client("s"), b"b")
    net.settle()

    assert (opened, done) == ([True], [True])
    assert len(three.tenant.router.match(b"a").targets) == 1
    assert [len(hub.tenant.router.match(b"b").targets) for hub in (one, two)] == [1, 1]


def test_an_idle_tenant_that_is_closed_costs_the_others_nothing() -> None:
    """Its last client has left: no route, nothing to announce, nobody to wait for."""
    net, one, two = open_pair()
    client = two.client("s")
    two.subscribe(client, b"a")
    net.settle()
    two.plane.discard(client.session)
    two.close()
    net.settle()

    assert one.subscribe(one.client("s"), b"b") == [True]
    assert (one.tenant.interest, one.tenant.router.match(b"a").targets, net.faults) == (None, [], [])


# --- isolation and bad frames


def test_a_tenant_gets_nothing_of_another_one() -> None:
    """The same Topic Filter in two tenants."""
    net, one, two = open_pair()
    others = [TenantPlane(2, "beta") for _ in (one, two)]
    for hub, tenant in zip((one, two), others, strict=True):
        hub.open(tenant)
    net.settle()
    subscriber = two.client("s")
    two.subscribe(subscriber, b"#")
    net.settle()

    one.plane.publish(others[0], Message(b"a", b"of beta"))
    net.settle()

    assert payloads(subscriber) == []
    assert others[0].router.match(b"a").targets == []


@pytest.mark.parametrize(
    ("frame_type", "body"),
    [
        (FrameType.ROUTE, RouteChange(9, everything=[b"a"]).encode()),
        (FrameType.PUBLISH, b"\x00" * 11 + b"\x09" + b"\x00" * 40),
        (FrameType.PUBLISH, b""),
        (FrameType.PUBLISH, b"\xff" * 40),
        (FrameType.PUBLISH, b"\x00" * 11 + b"\x01" + b"\x00" * 40),
        (FrameType.ROUTE, RouteChange(1, everything=[b"a/#/b"]).encode()),
        (FrameType.ROUTE, b"\x80"),
        (FrameType.OPEN, b"\x81\xa6tenant\xff"),
        (FrameType.OPENED, Opened(1, 1, True).encode()[:-1]),
        (FrameType.CLOSE, b"\x91\x01"),
    ],
)
def test_a_frame_that_the_sender_cannot_send_is_refused(frame_type: FrameType, body: bytes) -> None:
    """Of a tenant that it has not open, or malformed: its link closes."""
    net, one, two = open_pair()

    net.put(TWO, ONE, frame_type, body)
    net.settle()

    assert len(net.faults) == 1
    assert one.tenant.router.subscription_count == 0
    assert two.tenant.router.subscription_count == 0


def test_a_topic_name_with_a_wildcard_is_refused() -> None:
    """A peer checks like this one."""
    net, _, two = open_pair()

    two.plane.publish(two.tenant, Message(b"a", b""))
    body = b"\x00" * 7 + b"\x01" + b"\x00" * 9 + b"\x00\x00\x00\x01\x00\x00\x00\x00" + b"#"
    net.put(TWO, ONE, FrameType.PUBLISH, body)
    net.settle()

    assert len(net.faults) == 1


def test_what_comes_for_a_tenant_that_is_closed_here_is_ignored() -> None:
    """It was on its way."""
    net, one, two = open_pair()
    one.subscribe(one.client("s"), b"a")
    net.settle()
    one.close()
    two.client("p").send(publish(b"a", b"x"))
    two.subscribe(two.client("s"), b"b")
    net.settle()

    assert net.faults == []


def test_frames_of_a_hub_that_is_gone_are_ignored() -> None:
    _, one, _ = open_pair()
    one.routes.peer_gone(TWO)

    one.routes.frame(TWO, FrameType.CLOSE, encode_close(1))
    one.routes.acknowledged(TWO, 1, 1)
    one.routes.peer_gone(TWO)

    assert one.tenant.interest is None
