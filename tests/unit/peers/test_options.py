"""A persistent session that changes its options gets each message once, whichever options its publisher's hub knows."""

from __future__ import annotations

from typing import Any

import pytest

from iothub.base.reasons import Drop
from iothub.engine.router import Subscription
from iothub.engine.state import TenantPlane
from iothub.peers.announced import EVERYTHING, QOS0
from iothub.peers.frames import FrameType
from iothub.peers.options import _MOST_UNCLEAR, _UNCLEAR_BYTES
from iothub.peers.ports import PeerId
from iothub.testing.engine import Client, publish
from tests.support.in_process.queued_hubs import QueuedHub, queued_pair
from tests.support.in_process.routed_hubs import Net, RoutedHub, payloads

ONE, TWO = PeerId(1, 1), PeerId(2, 1)
PLACE = (5,)


class Scenario:
    """Session `s` is at hub two, subscribes `a`, and is known at hub one, where is published. `read`: hub one reads the log."""

    def __init__(self, qos: int, topic_filter: bytes = b"a") -> None:
        self.net, self.one, self.two = queued_pair()
        self.subscriber = self.two.keep("s", topic_filter, qos)
        self.there = self.one.know("s", topic_filter, TWO, qos)
        self.net.settle()
        self.publisher = self.one.client("p")
        self.number = 0

    @property
    def session(self) -> Any:
        return self.subscriber.session

    def begin(self, qos: int | None, topic_filter: bytes = b"a") -> Any:
        """Announce other options, None: an UNSUBSCRIBE, and see to it that they may be in the log."""
        before = self.session.subscriptions.get((None, topic_filter))
        self.after = None if qos is None else Subscription(self.session, topic_filter, None, qos)
        change = self.two.routes.change_options(self.session, [(before, self.after)])
        assert change is not None
        is_done: list[bool] = []
        if change.await_routed(lambda: is_done.append(True)):
            self.net.settle()
            assert is_done == [True]
        return change

    def put_in_force(self, hub: QueuedHub, session: Any, topic_filter: bytes = b"a") -> None:
        if self.after is None:
            hub.plane.unsubscribe(session, None, topic_filter)
        else:
            subscription = Subscription(session, topic_filter, None, self.after.qos)
            hub.plane.subscribe(session, subscription)

    def durable(self, change: Any, topic_filter: bytes = b"a") -> None:
        self.put_in_force(self.two, self.session, topic_filter)
        change.note_durable(PLACE)
        self.net.settle()

    def read(self, topic_filter: bytes = b"a") -> None:
        self.put_in_force(self.one, self.there, topic_filter)
        self.one.places.note_applied(PLACE)

    def end(self, change: Any) -> None:
        """Hub one says that it knows the change: behind what it has sent."""
        self.net.settle()
        change.end()

    def publish(self) -> None:
        self.number += 1
        self.publisher.send(publish(b"a", b"%d" % self.number, 1, self.number))
        self.one.store.commit_all()

    def arrived(self) -> list[bytes]:
        self.net.settle()
        self.two.bench.settle()
        return payloads(self.subscriber)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (0, 0), (1, 2)])
def test_each_message_comes_once_while_the_other_hub_does_not_know_the_new_options(before: int, after: int) -> None:
    """Published before, on the way to the log, before that hub has read it, and after."""
    scenario = Scenario(before)
    scenario.publish()
    change = scenario.begin(after)
    scenario.publish()
    scenario.durable(change)
    scenario.publish()
    scenario.read()
    scenario.publish()
    scenario.end(change)
    scenario.net.settle()
    scenario.publish()

    assert sorted(scenario.arrived()) == [b"1", b"2", b"3", b"4", b"5"]
    assert scenario.two.tenant.changing is None


@pytest.mark.parametrize("is_behind", [True, False], ids=["unread", "read"])
@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0)])
def test_what_the_other_hub_may_have_read_waits_until_it_is_clear(before: int, after: int, is_behind: bool) -> None:
    """Its place has moved, and where the change is in the log is not known yet."""
    scenario = Scenario(before)
    change = scenario.begin(after)
    if is_behind:
        scenario.one.places.note_applied((4,))
    else:
        scenario.read()
    scenario.publish()
    assert scenario.arrived() == ([b"1"] if (before == 1) == is_behind else [])

    scenario.durable(change)

    assert scenario.arrived() == ([] if (before == 1) == is_behind else [b"1"])


def test_change_that_has_not_happened_leaves_all_as_it_was() -> None:
    """The log refuses it; what was unclear is delivered by the options that stay."""
    scenario = Scenario(0)
    change = scenario.begin(1)
    scenario.one.places.note_applied((9,))
    scenario.publish()
    assert scenario.arrived() == []

    for _ in range(2):
        change.end()
    scenario.publish()

    assert scenario.arrived() == [b"1", b"2"]
    interest: Any = scenario.two.tenant.interest
    assert (scenario.two.tenant.changing, interest.need(b"a")) == (None, EVERYTHING)


def test_what_both_options_need_is_announced_until_all_know_the_new_ones() -> None:
    """More before the change is in the log, less only when it is known."""
    scenario = Scenario(1)
    interest: Any = scenario.two.tenant.interest
    assert interest.need(b"a") == QOS0
    more = scenario.begin(0)
    assert interest.need(b"a") == EVERYTHING
    scenario.durable(more)
    more.end()
    assert interest.need(b"a") == EVERYTHING

    less = scenario.begin(1)
    scenario.durable(less)
    assert interest.need(b"a") == EVERYTHING
    less.end()

    assert interest.need(b"a") == QOS0


def test_another_topic_filter_changes_what_comes_by_the_queue() -> None:
    """`+` with QoS 1 comes beside `a` with QoS 0, and goes again."""
    scenario = Scenario(0)
    change = scenario.begin(1, b"+")
    scenario.durable(change, b"+")
    scenario.publish()
    scenario.read(b"+")
    scenario.publish()
    scenario.end(change)
    assert sorted(scenario.arrived()) == [b"1", b"2"]

    change = scenario.begin(None, b"+")
    scenario.put_in_force(scenario.two, scenario.session, b"+")
    scenario.publish()
    change.note_durable((6,))
    scenario.publish()
    scenario.put_in_force(scenario.one, scenario.there, b"+")
    scenario.one.places.note_applied((6,))
    scenario.publish()
    scenario.end(change)

    assert sorted(scenario.arrived()) == [b"3", b"4", b"5"]


def test_hub_that_opens_the_tenant_meanwhile_gets_what_both_options_need() -> None:
    net = Net(2, QueuedHub)
    one, two = net.hubs.values()
    two.open()
    subscriber = two.keep("s", b"a", 1)
    before = subscriber.session.subscriptions[None, b"a"]
    change = two.routes.change_options(subscriber.session, [(before, Subscription(subscriber.session, b"a", None, 0))])
    assert change is not None
    assert not change.await_routed(lambda: None)

    one.open()
    net.settle()

    interest: Any = two.tenant.interest
    assert interest.need(b"a") == EVERYTHING
    change.end()
    assert interest.need(b"a") == QOS0


def test_messages_that_wait_have_a_bound() -> None:
    scenario = Scenario(0)
    scenario.begin(1)
    scenario.one.places.note_applied((4,))
    publisher: Client = scenario.one.client("q", inbound_maximum=65_535)
    for number in range(1, _MOST_UNCLEAR + 3):
        publisher.send(publish(b"a", b"x", 1, number))
        scenario.net.settle()

    assert scenario.two.bench.observer.drops == [(Drop.QOS0_SLOW, 1)] * 2


def test_so_many_bytes_wait_for_a_change() -> None:
    """A few large messages count like a thousand small ones."""
    scenario = Scenario(0)
    scenario.begin(1)
    scenario.one.places.note_applied((4,))
    publisher: Client = scenario.one.client("q", inbound_maximum=65_535)
    payload = bytes(_UNCLEAR_BYTES // 4)
    for number in range(1, 7):
        publisher.send(publish(b"a", payload, 1, number))
        scenario.net.settle()

    assert scenario.two.bench.observer.drops == [(Drop.QOS0_SLOW, 1)] * 2


def test_messages_with_qos_0_never_wait() -> None:
    """They go through no queue in any case."""
    scenario = Scenario(1)
    scenario.begin(0)
    scenario.one.places.note_applied((4,))
    scenario.publisher.send(publish(b"a", b"x"))

    assert scenario.arrived() == [b"x"]


def test_own_message_is_not_delivered_late_to_a_subscription_without_it() -> None:
    """No Local holds as well for what had to wait."""
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a", 0)
    session = subscriber.session
    before = Subscription(session, b"a", None, 0, True)
    two.plane.subscribe(session, before)
    net.settle()
    change = two.routes.change_options(session, [(before, Subscription(session, b"a", None, 1, True))])
    assert change is not None
    one.places.note_applied((4,))
    one.client("s").send(publish(b"a", b"x", 1, 1))
    net.settle()

    change.end()

    assert payloads(subscriber) == []


def test_who_waits_for_the_changes_of_a_session_is_called_when_the_last_one_ends() -> None:
    """Another hub that has its client then knows of no change."""
    scenario = Scenario(1)
    called: list[str] = []
    routes, session = scenario.two.routes, scenario.session
    assert not routes.await_changes(session, lambda: called.append("too early"))
    first, second = scenario.begin(0), scenario.begin(1)

    assert routes.await_changes(session, lambda: called.append("settled"))
    first.end()
    assert called == []
    second.end()

    assert called == ["settled"]
    assert not routes.await_changes(session, lambda: called.append("too late"))


def test_nothing_changes_where_no_subscription_does_or_no_tenant_is_open() -> None:
    net = Net(1, RoutedHub)
    [hub] = net.hubs.values()
    client = hub.client("s", queue_id=7)
    pair = (None, Subscription(client.session, b"a", None, 0))
    assert hub.routes.change_options(client.session, [pair]) is None
    hub.open()
    assert hub.routes.change_options(client.session, []) is None
    assert hub.routes.change_options(client.session, [(None, None)]) is None
    assert hub.routes.change_options(client.session, [pair]) is not None

    hub.bench.tenant = TenantPlane(1, "acme")
    other = hub.client("s", queue_id=7)

    assert hub.routes.change_options(other.session, [pair]) is None
    assert FrameType.ROUTE not in hub.links.types()
