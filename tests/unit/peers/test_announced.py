"""What is announced of a tenant's subscriptions, by counts and by what is needed."""

from __future__ import annotations

import weakref

from iothub.engine.message import Message
from iothub.engine.router import Subscription, Target
from iothub.peers.announced import EVERYTHING, NOTHING, QOS0, Announced, Announcement
from iothub.peers.ports import PeerId
from iothub.testing.engine import Bench

ONE, TWO = PeerId(1, 1), PeerId(2, 1)


def send(announced: Announced) -> Announcement:
    """The turn ends: all hubs are sent what has changed."""
    announced.take_changes()
    sent, announced.next = announced.next, None
    assert sent is not None
    sent.behind = {ONE, TWO}
    return sent


def test_it_begins_with_what_is_there() -> None:
    """Transient sessions and persistent ones that are online; offline ones get nothing but from their queues."""
    bench = Bench()
    bench.client("t").subscribe(b"a", 1)
    online, offline = bench.client("on", queue_id=1), bench.client("off", queue_id=2)
    for client in (online, offline):
        client.subscribe(b"a", 1)
        client.subscribe(client.session.client_id.encode(), 1)
        client.subscribe(b"zero")
    offline.drop()
    bench.plane.end_batch()

    announced = Announced(bench.tenant, lambda: None)

    assert sorted(announced.filters(EVERYTHING)) == [b"a", b"zero"]
    assert list(announced.filters(QOS0)) == [b"on"]
    assert [announced.need(each) for each in (b"a", b"on", b"off")] == [EVERYTHING, QOS0, NOTHING]


def test_a_change_that_is_undone_in_the_turn_is_not_announced() -> None:
    """Changes are announced once for a turn, and only the outcome."""
    bench = Bench()
    calls: list[None] = []
    announced = Announced(bench.tenant, lambda: calls.append(None))
    session = bench.client("c").session
    first, second = Subscription(session, b"a"), Subscription(session, b"b", qos=2)

    announced.replace(None, first)
    announced.replace(first, None)
    announced.replace(None, second)

    assert announced.take_changes() == ([b"b"], [], [])
    assert (announced.take_changes(), len(calls)) == (([], [], []), 1)


def test_what_is_on_its_way_is_found_by_its_filters_until_it_is_forgotten() -> None:
    bench = Bench()
    announced = Announced(bench.tenant, lambda: None)
    session = bench.client("c").session
    for topic_filter in (b"a", b"b"):
        announced.replace(None, Subscription(session, topic_filter))
    sent, announced.next = announced.next, None
    announced.take_changes()
    announced.replace(None, Subscription(session, b"c"))

    assert announced.on_their_way([b"a", b"b", b"x"]) == [sent]
    assert announced.on_their_way([b"a", b"c"]) == [sent, announced.next]
    assert sent is not None
    announced.forget(sent)
    assert announced.on_their_way([b"a", b"c"]) == [announced.next]


def test_a_hub_sends_to_a_subscription_what_it_knew_before_and_what_it_knows_now() -> None:
    """QoS 0 alone while what needs the rest is on its way; a Topic Filter that was removed between begins anew."""
    bench = Bench()
    announced = Announced(bench.tenant, lambda: None)
    session, queued = bench.client("c").session, bench.client("q", queue_id=1).session
    first, second = Subscription(queued, b"a", qos=1), Subscription(session, b"a", qos=1)
    announced.arriving(ONE)

    def known() -> list[bool]:
        return [announced.routed(Message(b"a", b"", qos), Target((second,))) is not None for qos in (0, 1)]

    announced.replace(None, first)
    found = [known()]
    sent = send(announced)
    announced.replace(None, second)
    more = send(announced)
    found.append(known())
    sent.behind = {TWO}
    found.append(known())
    more.behind = {TWO}
    found.append(known())
    announced.replace(first, None)
    announced.replace(second, None)
    send(announced)
    announced.replace(None, second)
    found.append(known())
    announced.replace(second, None)
    announced.replace(None, second)
    anew = send(announced)
    found.append(known())

    assert found == [[False] * 2, [False] * 2, [True, False], [True] * 2, [False] * 2, [False] * 2]
    assert bench.tenant.routing is announced
    for each in (sent, more, anew):
        announced.forget(each)
    assert bench.tenant.routing is None


def test_what_has_arrived_goes_though_what_is_on_its_way_began_with_it() -> None:
    """One that overlaps the next, and so on, would keep all of them."""
    bench = Bench()
    announced = Announced(bench.tenant, lambda: None)
    session, queued = bench.client("c").session, bench.client("q", queue_id=1).session
    former: list[weakref.ref[Announcement]] = []

    last = None
    for number in range(10):
        announced.replace(None, Subscription(queued, b"%d" % number, qos=1))
        announced.replace(None, Subscription(session, b"%d" % (number - 1), qos=1))
        sent = send(announced)
        if last is not None:
            last.unanswered = set()
            announced.forget(last)
        last = sent
        former.append(weakref.ref(sent))

    assert [each() is not None for each in former] == [False] * 8 + [True] * 2


def test_a_hub_that_is_frozen_costs_no_record_of_each_change() -> None:
    """However often what is needed of a Topic Filter rises and falls."""
    bench = Bench()
    announced = Announced(bench.tenant, lambda: None)
    session, queued = bench.client("c").session, bench.client("q", queue_id=1).session
    more = Subscription(session, b"a", qos=1)
    announced.replace(None, Subscription(queued, b"a", qos=1))
    send(announced)
    for _ in range(3):
        announced.replace(None, more)
        last = send(announced)
        announced.replace(more, None)
        send(announced)

    before, brought = last.filters[b"a"]

    assert brought is not None
    assert (before, brought.filters[b"a"]) == (QOS0, (NOTHING, None))


def test_a_replaced_subscription_changes_what_is_needed() -> None:
    """A persistent session's QoS decides whether queues bring the rest."""
    bench = Bench()
    announced = Announced(bench.tenant, lambda: None)
    session = bench.client("c", queue_id=1).session
    low, high = Subscription(session, b"a", qos=0), Subscription(session, b"a", qos=1)

    announced.replace(None, low)
    found = [announced.take_changes()]
    announced.replace(low, high)
    found.append(announced.take_changes())
    announced.replace(high, None)
    found.append(announced.take_changes())

    assert found == [([b"a"], [], []), ([], [b"a"], []), ([], [], [b"a"])]
