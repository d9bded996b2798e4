"""Routes between hubs over real message planes: delivery, the barrier before SUBACK, and links that are full."""

from __future__ import annotations

import random

import pytest

from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.state import TenantPlane
from iothub.peers.announced import EVERYTHING
from iothub.peers.frames import FrameType
from iothub.peers.ports import PeerId
from iothub.peers.route_frames import RouteChange
from iothub.testing.engine import ack, packets, publish
from tests.support.in_process.routed_hubs import Net, RoutedHub, open_pair, payloads

ONE, TWO, THREE = PeerId(1, 1), PeerId(2, 1), PeerId(3, 1)
PUBACK = ack(0x40, 1)


# --- a hub alone


def test_a_hub_that_is_alone_waits_for_nobody_and_counts_nothing() -> None:
    """Neither for the opening nor for a subscription; the engine has nobody to notify."""
    net = Net(1, RoutedHub)
    [hub] = net.hubs.values()

    assert hub.open() == [True]
    assert hub.subscribe(hub.client("c"), b"a/#") == [True]
    assert (hub.tenant.interest, hub.tenant.sinks, hub.links.sent) == (None, 0, [])


# --- delivery


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_subscriber_at_another_hub_gets_what_is_published_here(qos: int) -> None:
    net, one, two = open_pair()
    subscriber, publisher = two.client("s"), one.client("p")
    done = two.subscribe(subscriber, b"a/+", qos=2)
    net.settle()

    publisher.send(publish(b"a/1", b"x", qos, 1))
    publisher.send(publish(b"b/1", b"y", qos, 2))
    net.settle()

    assert done == [True]
    assert [(header >> 1 & 3, body[-1:]) for header, body in packets(subscriber.take())] == [(qos, b"x")]
    assert one.links.types(TWO).count(FrameType.PUBLISH) == 1


def test_one_frame_serves_all_subscribers_of_a_hub() -> None:
    """However many sessions and filters match there."""
    net = Net(3, RoutedHub)
    one, two, three = net.hubs.values()
    for hub in (one, two, three):
        hub.open()
    net.settle()
    clients = [hub.client(f"c{number}") for hub in (two, three) for number in range(3)]
    for hub, client in zip((two, two, two, three, three, three), clients, strict=True):
        hub.subscribe(client, b"a", b"+", qos=1)
    net.settle()
    one.links.sent.clear()

    one.client("p").send(publish(b"a", b"x"))
    net.settle()

    bodies = [body for _, frame_type, body in one.links.sent if frame_type == FrameType.PUBLISH]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
    assert [payloads(client) for client in clients] == [[b"x"]] * 6


def test_messages_of_a_batch_share_frames_and_keep_their_order() -> None:
    """Of several tenants, too; what is larger than a frame of messages should be has one of its own."""
    net, one, two = open_pair()
    others = [TenantPlane(2, "beta") for _ in (one, two)]
    for hub, tenant in zip((one, two), others, strict=True):
        hub.open(tenant)
    subscriber, publisher = two.client("s"), one.client("p")
    two.subscribe(subscriber, b"a", qos=1)
    net.settle()
    one.links.sent.clear()
    large = bytes(200_000)

    publisher.send(b"".join(publish(b"a", b"%d" % number, number % 2, number) for number in range(1, 5)))
    publisher.send(publish(b"a", b"5") + publish(b"a", large) + publish(b"a", b"6"))
    net.settle()

    assert [len(body) for _, frame_type, body in one.links.sent if frame_type == FrameType.PUBLISH] == [
        128,
        32,
        200_031,
        32,
    ]
    assert payloads(subscriber) == [b"1", b"2", b"3", b"4", b"5", large, b"6"]


def test_a_message_is_never_forwarded() -> None:
    """The third hub gets it from the first, and from nobody else."""
    net = Net(3, RoutedHub)
    one, two, three = net.hubs.values()
    for hub in (one, two, three):
        hub.open()
    net.settle()
    clients = [hub.client("s") for hub in (two, three)]
    for hub, client in zip((two, three), clients, strict=True):
        hub.subscribe(client, b"a")
    net.settle()

    one.client("p").send(publish(b"a", b"x"))
    net.settle()

    assert [payloads(client) for client in clients] == [[b"x"], [b"x"]]


def test_an_unsubscribe_waits_for_nobody_and_ends_the_route() -> None:
    """What is still on its way finds no subscriber, and is no drop."""
    net, one, two = open_pair()
    subscriber, publisher = two.client("s"), one.client("p")
    two.subscribe(subscriber, b"a")
    net.settle()
    publisher.send(publish(b"a", b"1"))
    two.plane.unsubscribe(subscriber.session, None, b"a")
    net.settle()

    publisher.send(publish(b"a", b"2", 1, 1))
    net.settle()

    assert (payloads(subscriber), two.bench.observer.drops) == ([], [])
    assert one.bench.observer.drops == [(Drop.NO_SUBSCRIBERS, 1)]


def test_a_route_stays_while_anybody_here_needs_it() -> None:
    """The first subscription of a Topic Filter is announced, and the end of the last one."""
    net, one, two = open_pair()
    first, second = two.client("a"), two.client("b")

    two.subscribe(first, b"a")
    net.settle()
    sent = [two.links.types(ONE)]
    assert two.subscribe(second, b"a") == [True]
    net.settle()
    sent.append(two.links.types(ONE))
    two.plane.discard(first.session)
    net.settle()
    sent.append(two.links.types(ONE))
    two.plane.discard(second.session)
    net.settle()
    sent.append(two.links.types(ONE))

    assert sent == [[FrameType.ROUTE], [], [], [FrameType.ROUTE]]
    assert one.tenant.router.match(b"a").targets == []


def test_a_persistent_session_needs_qos_0_alone_while_it_is_online() -> None:
    """What has a QoS comes to its queue; of a subscription with QoS 0 it needs everything."""
    net, one, two = open_pair()
    client, publisher = two.client("s", queue_id=1), one.client("p")
    two.subscribe(client, b"one", qos=1)
    two.subscribe(client, b"zero", qos=0)
    net.settle()

    for topic in (b"one", b"zero"):
        publisher.send(publish(topic, topic + b"-0") + publish(topic, topic + b"-1", 1, 1))
    net.settle()
    assert payloads(client) == [b"one-0", b"zero-0", b"zero-1"]
    client.drop()
    two.plane.end_batch()
    net.settle()

    assert one.tenant.router.match(b"one").targets == one.tenant.router.match(b"zero").targets == []


def test_own_figures_are_not_routed() -> None:
    """Each hub publishes its figures to its own clients alone."""
    net, _, two = open_pair()
    client = two.client("s")

    assert two.subscribe(client, b"$SYS/#") == [True]
    assert two.subscribe(client, b"$SYS/#", group=b"g") == [True]
    net.settle()

    assert two.links.sent == []


def test_messages_of_one_publisher_keep_their_order_over_a_link() -> None:
    net, one, two = open_pair()
    subscriber, publisher = two.client("s", receive_maximum=1000), one.client("p")
    two.subscribe(subscriber, b"#", qos=1)
    net.settle()

    publisher.send(b"".join(publish(b"t", b"%d" % number, number % 2, number + 1) for number in range(100)))
    net.settle()

    assert payloads(subscriber) == [b"%d" % number for number in range(100)]


def test_expiry_goes_with_the_message() -> None:
    """[MQTT-3.3.2-6]: on the clock of the wall, as in the stores that hubs share."""
    net, one, two = open_pair()
    subscriber = two.client("s", version=5)
    two.subscribe(subscriber, b"a")
    net.settle()
    now = one.bench.clock.wall()

    one.plane.publish(one.tenant, Message(b"a", b"x", expires_at=now + 10))
    one.plane.publish(one.tenant, Message(b"a", b"y", expires_at=now - 1))
    net.settle()

    [(_, body)] = packets(subscriber.take())
    assert body.endswith(b"x")
    assert two.bench.observer.drops == [(Drop.EXPIRED, 1)]


# --- the barrier


def test_a_subscription_waits_until_the_other_hub_has_applied_it() -> None:
    """Received is not applied, and applied is not heard of."""
    net, _, two = open_pair()
    net.cut.add((TWO, ONE))
    done = two.subscribe(two.client("s"), b"a")
    net.settle()
    assert done == []
    net.cut.clear()
    net.deaf.add((TWO, ONE))
    net.settle()
    assert done == []

    net.deaf.clear()
    net.settle()

    assert done == [True]


def test_subscriptions_of_one_turn_travel_together() -> None:
    """One ROUTE for all clients of the tenant, and everybody is answered by its acknowledgement."""
    net, _, two = open_pair()
    done = [two.subscribe(two.client(f"c{number}"), b"a/%d" % number, b"b") for number in range(50)]
    net.settle()

    assert done == [[True]] * 50
    [(_, _, body)] = two.links.sent
    assert len(RouteChange.decode(body).everything) == 51


@pytest.mark.parametrize("again", [b"a", b"#"])
def test_a_subscription_gets_nothing_that_was_routed_before_it_was_known(again: bytes) -> None:
    """What deletes a retained message is not routed while nobody needs it: the message must not come after it, to somebody who subscribes anew.

    SUBACK does not wait for what is on its way, however much that is.
    """
    net, one, two = open_pair()
    former = two.client("former")
    two.subscribe(former, b"a", qos=1)
    net.settle()
    net.cut.add((ONE, TWO))
    one.client("p").send(publish(b"a", b"old", 1, 1, retain=True))
    one.plane.end_batch()
    two.plane.unsubscribe(former.session, None, b"a")
    net.settle()
    one.client("q").send(publish(b"a", b"", 1, 1, retain=True))
    one.plane.end_batch()
    client = two.client("s")
    done = two.subscribe(client, again, qos=1)
    net.settle()
    assert done == [True]

    one.client("r").send(publish(b"a", b"new", 1, 1))
    one.plane.end_batch()
    net.cut.clear()
    net.settle()

    assert payloads(client) == [b"new"]
    assert two.tenant.routing is None


def test_each_hub_s_messages_come_once_that_hub_knows_the_subscription() -> None:
    """SUBACK waits for all of them; one that is slow holds back no other's messages."""
    net = Net(3, RoutedHub)
    one, two, three = net.hubs.values()
    for hub in net.hubs.values():
        hub.open()
    net.settle()
    net.cut.add((TWO, PeerId(3, 1)))
    client = two.client("s")
    done = two.subscribe(client, b"a")
    net.settle()
    for hub, payload in ((one, b"of one"), (three, b"of three")):
        hub.client("p").send(publish(b"a", payload))
        hub.plane.end_batch()
    net.settle()

    assert (done, payloads(client)) == ([], [b"of one"])


def test_a_second_subscriber_waits_for_the_first_ones_route() -> None:
    """Announced is not applied."""
    net, _, two = open_pair()
    net.deaf.add((TWO, ONE))
    two.subscribe(two.client("a"), b"t")
    net.settle()
    second = two.subscribe(two.client("b"), b"t")
    net.settle()
    assert second == []

    net.deaf.clear()
    net.settle()

    assert second == [True]


def test_a_filter_that_comes_again_waits_again() -> None:
    """Its end clears that it was applied; in one turn, though, nothing changes for the other hub."""
    net, one, two = open_pair()
    client = two.client("s")
    two.subscribe(client, b"a")
    net.settle()
    net.cut.add((TWO, ONE))
    two.plane.unsubscribe(client.session, None, b"a")
    net.settle()
    again = two.subscribe(client, b"a")
    net.settle()
    assert again == []
    net.cut.clear()
    net.settle()
    assert again == [True]
    two.links.sent.clear()

    two.plane.unsubscribe(client.session, None, b"a")
    same_turn = two.subscribe(client, b"a")
    net.settle()

    assert (same_turn, two.links.sent) == ([True], [])
    assert len(one.tenant.router.match(b"a").targets) == 1


def test_a_filter_that_comes_again_in_the_turn_waits_for_what_is_on_its_way() -> None:
    """Nothing new is announced, but what was announced is not applied yet."""
    net, _, two = open_pair()
    client = two.client("s")
    net.cut.add((TWO, ONE))
    two.subscribe(client, b"a")
    net.turn()
    two.plane.unsubscribe(client.session, None, b"a")
    again = two.subscribe(client, b"a")
    net.settle()

    assert again == []
    net.cut.clear()
    net.settle()
    assert again == [True]


def test_a_hub_that_needs_more_of_a_filter_waits_again() -> None:
    """From QoS 0 alone, for a persistent session, to everything, for a transient one; then the other way round."""
    net, one, two = open_pair()
    persistent, transient = two.client("p", queue_id=1), two.client("t")
    two.subscribe(persistent, b"a", qos=1)
    net.settle()
    net.cut.add((TWO, ONE))
    more = two.subscribe(transient, b"a", qos=1)
    net.settle()
    assert more == []
    net.cut.clear()
    net.settle()
    assert (more, one.tenant.router.match(b"a").targets[0].qos) == ([True], EVERYTHING)

    two.plane.discard(transient.session)
    net.settle()

    assert one.tenant.router.match(b"a").targets[0].qos == 0


def test_a_subscription_waits_for_hubs_that_have_the_tenant_open_and_no_other() -> None:
    """A frozen hub on which the tenant is not stops nobody."""
    net = Net(3, RoutedHub)
    one, two, three = net.hubs.values()
    for hub in (one, two):
        hub.open()
    net.settle()
    net.cut |= {(TWO, THREE), (THREE, TWO)}
    two.links.sent.clear()

    done = two.subscribe(two.client("s"), b"a")
    net.settle()

    assert (done, two.links.types(THREE)) == ([True], [])
    assert three.tenant.router.match(b"a").targets == []


def test_a_hub_that_is_gone_is_waited_for_no_more() -> None:
    """What it needed is not routed any more either."""
    net, one, two = open_pair()
    two.subscribe(two.client("s"), b"b")
    net.settle()
    net.cut.add((ONE, TWO))
    done = one.subscribe(one.client("s"), b"a")
    net.settle()
    assert (done, len(one.tenant.router.match(b"b").targets)) == ([], 1)

    net.kill(two)

    assert (done, one.tenant.router.match(b"b").targets, one.tenant.interest) == ([True], [], None)


def test_nobody_waits_for_a_hub_that_closes_the_tenant_before_the_turn_ends() -> None:
    net, one, two = open_pair()
    two.close()
    net.turn()
    done = one.subscribe(one.client("s"), b"a")

    net.settle()

    assert (done, one.tenant.interest) == ([True], None)


def test_a_tenant_that_closes_with_a_change_to_be_announced_announces_nothing_after_it() -> None:
    """The other hub would take it for a fault."""
    net, one, two = open_pair()
    done = two.subscribe(two.client("s"), b"a")

    two.close()
    net.settle()

    assert (net.faults, done) == ([], [True])
    assert one.tenant.router.match(b"a").targets == []


# --- back-pressure


def test_qos_0_is_dropped_by_name_when_half_of_a_link_is_full() -> None:
    """From the next batch on. QoS 1 is not."""
    net, one, two = open_pair()
    subscriber, publisher = two.client("s"), one.client("p")
    two.subscribe(subscriber, b"#", qos=1)
    net.settle()
    one.links.half_full.add(TWO)
    publisher.send(publish(b"a", b"fills it"))

    publisher.send(publish(b"a", b"0") + publish(b"a", b"1", 1, 1))
    net.settle()

    assert payloads(subscriber) == [b"fills it", b"1"]
    assert one.bench.observer.drops == [(Drop.LINK_FULL, 1)]
    assert one.tenant.counters.dropped == {Drop.LINK_FULL: 1}


def test_a_full_link_stops_who_needs_it_until_it_drains() -> None:
    """One message finds it full; then publishers of what it carries wait, and nobody else does."""
    net, one, two = open_pair()
    subscriber = two.client("s")
    two.subscribe(subscriber, b"a", qos=1)
    net.settle()
    one.links.full.add(TWO)
    publisher, other = one.client("p"), one.client("q")
    publisher.send(publish(b"a", b"1", 1, 1))

    answers = [publisher.send(publish(b"a", b"2", 1, 2)), other.send(publish(b"b", b"", 1, 1))]
    assert answers == [b"", PUBACK]
    assert [publisher.transport.is_paused, other.transport.is_paused, one.tenant.sinks] == [True, False, 1]
    one.links.full.clear()
    net.settle()
    one.bench.pass_time(0.1)
    net.settle()

    assert (publisher.transport.is_paused, one.tenant.sinks) == (False, 0)
    assert payloads(subscriber) == [b"1", b"2"]


def test_a_full_link_that_goes_lets_everybody_go_on() -> None:
    net, one, two = open_pair()
    two.subscribe(two.client("s"), b"a", qos=1)
    net.settle()
    one.links.full.add(TWO)
    publisher = one.client("p")
    publisher.send(publish(b"a", b"1", 1, 1))
    publisher.send(publish(b"a", b"2", 1, 2))
    assert publisher.transport.is_paused

    net.kill(two)
    one.bench.pass_time(0.1)

    assert (publisher.transport.is_paused, one.tenant.sinks) == (False, 0)


def test_routes_are_announced_although_the_link_takes_no_message() -> None:
    """Twice `link_bytes` wait: messages are dropped by name, routes are not."""
    net, one, two = open_pair()
    one.subscribe(one.client("s"), b"x", qos=1)
    net.settle()
    two.links.closed.add(ONE)
    client = two.client("s")
    done = two.subscribe(client, b"a")
    two.client("p").send(publish(b"x", b"", 1, 1))
    net.settle()

    assert (done, two.bench.observer.drops) == ([True], [(Drop.LINK_FULL, 1)])
    assert len(one.tenant.router.match(b"a").targets) == 1


# --- races


def test_a_thousand_subscriptions_before_a_publish_elsewhere_miss_nothing() -> None:
    """A PUBLISH that comes after a SUBACK at the other hub reaches it exactly once, whatever is under way."""
    rng = random.Random(20)
    net = Net(3, RoutedHub)
    hubs = list(net.hubs.values())
    for hub in hubs:
        hub.open()
    net.settle()
    publishers = {hub.id: hub.client("p") for hub in hubs}
    missed = 0
    for number in range(1000):
        hub, other = rng.sample(hubs, 2)
        client = hub.client(f"c{number}")
        topic = b"race/%d" % number
        done = hub.subscribe(client, rng.choice((topic, b"race/%d/#" % number, b"+/%d" % number)), qos=1)
        for _ in range(rng.randint(0, 6)):  # something of what is under way arrives
            net.turn()
            way = (rng.choice(hubs).id, rng.choice(hubs).id)
            (net.deliver if rng.random() < 0.7 else net.acknowledge)(*way)
        while not done:
            net.turn()
            way = (rng.choice(hubs).id, rng.choice(hubs).id)
            (net.deliver if rng.random() < 0.7 else net.acknowledge)(*way)
        publishers[other.id].send(publish(topic, b"x", 1, 1))
        net.settle()
        missed += payloads(client) != [b"x"]
        if rng.random() < 0.8:
            hub.plane.discard(client.session)

    assert (missed, net.faults) == (0, [])
