"""The router: who gets a topic, as one copy for each session."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from iothub.engine.router import Route, Router, Subscription, Target, without_no_local


class Session:
    """Opaque to the router."""

    def __init__(self, name: str = "") -> None:
        self.name = name


def names(route: Route) -> list[str]:
    return [target.session.name for target in route.targets]


def subscribed(*subscriptions: Subscription) -> Router:
    router = Router()
    for subscription in subscriptions:
        router.subscribe(subscription)
    return router


def test_match_finds_exact_and_wildcard_filters() -> None:
    """Every matching filter counts, whichever table it is in."""
    a, b, c, d = (Session(name) for name in "abcd")
    router = subscribed(
        Subscription(a, b"x/y"), Subscription(b, b"x/+"), Subscription(c, b"x/#"), Subscription(d, b"x/z")
    )

    assert sorted(names(router.match(b"x/y"))) == ["a", "b", "c"]
    assert names(router.match(b"x")) == ["c"]
    assert names(router.match(b"y")) == []


def test_match_hides_dollar_topics_from_wildcards_at_the_first_level() -> None:
    """[MQTT-4.7.2-1] "#" and "+/x" never see "$SYS/x"; the exact filter and "$SYS/#" do."""
    a, b, c, d = (Session(name) for name in "abcd")
    router = subscribed(
        Subscription(a, b"#"), Subscription(b, b"+/x"), Subscription(c, b"$SYS/x"), Subscription(d, b"$SYS/#")
    )

    assert names(router.match(b"$SYS/x")) == ["c", "d"]


def test_overlapping_subscriptions_are_one_copy() -> None:
    """[MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4] Highest QoS, every identifier, RETAIN as published if one asks."""
    a = Session()
    router = subscribed(
        Subscription(a, b"x/#", qos=2, identifier=7),
        Subscription(a, b"x/y", qos=0, identifier=9),
        Subscription(a, b"+/y", qos=1, retain_as_published=True),
        Subscription(a, b"+/+", qos=1, identifier=7),
    )

    (target,) = router.match(b"x/y").targets

    assert target.session is a
    assert (target.qos, target.retain_as_published, target.has_no_local) == (2, True, False)
    assert target.identifiers == (9, 7, 7)
    assert [subscription.filter for subscription in target.subscriptions] == [b"x/y", b"x/#", b"+/y", b"+/+"]


def test_single_subscription_is_a_target_of_its_own_options() -> None:
    """No identifier: none is sent."""
    a = Session()
    subscription = Subscription(a, b"x", None, 1, True, True, 2, 0)

    (target,) = subscribed(subscription).match(b"x").targets

    assert (target.qos, target.retain_as_published, target.has_no_local, target.identifiers) == (1, True, True, ())
    assert target.subscriptions == (subscription,)
    assert (subscription.retain_handling, subscription.group, subscription.filter) == (2, None, b"x")


def test_publisher_gets_what_is_not_no_local() -> None:
    """[MQTT-3.8.3-3] The part of its subscriptions without No Local, merged anew; nothing when there is none."""
    a = Session()
    local = Subscription(a, b"x/#", qos=2, no_local=True, identifier=1)
    plain = Subscription(a, b"x/y", qos=1, identifier=2)
    router = subscribed(local, plain)

    (both,) = router.match(b"x/y").targets
    (one,) = router.match(b"x/z").targets
    rest = without_no_local(both)

    assert both.has_no_local
    assert rest is not None
    assert (rest.qos, rest.identifiers, rest.has_no_local) == (1, (2,), False)
    assert without_no_local(one) is None
    assert without_no_local(rest) is rest


def test_subscribing_again_replaces() -> None:
    """[MQTT-3.8.4-3] The same session and filter: one subscription, with the new options."""
    for filter in (b"x/y", b"x/+"):
        a, b = Session("a"), Session("b")
        old, new = Subscription(a, filter, qos=0), Subscription(a, filter, qos=2)
        router = subscribed(old)
        assert router.match(b"x/y").targets[0].qos == 0

        assert router.subscribe(new) is old
        assert router.match(b"x/y").targets[0].qos == 2
        assert router.subscribe(Subscription(b, filter)) is None
        assert router.subscribe(old) is new
        assert [target.qos for target in router.match(b"x/y").targets] == [0, 0]
        assert router.subscription_count == 2


def test_unsubscribing_what_is_not_there_changes_nothing() -> None:
    """[MQTT-3.10.4-1] Filters compare byte by byte; so do session and group."""
    a, b, c = Session("a"), Session("b"), Session("c")
    router = subscribed(Subscription(a, b"x/y"), Subscription(a, b"x/+"), Subscription(a, b"x/#", b"g"))
    router.subscribe(Subscription(b, b"m"))
    router.subscribe(Subscription(c, b"m"))

    missed = [
        router.unsubscribe(b, b"x/y", None),
        router.unsubscribe(a, b"x", None),
        router.unsubscribe(a, b"x/y/+", None),
        router.unsubscribe(a, b"x/#", None),
        router.unsubscribe(b, b"x/#", b"g"),
        router.unsubscribe(a, b"x/#", b"h"),
        router.unsubscribe(a, b"x/y", b"g"),
        router.unsubscribe(a, b"m", None),
    ]

    assert missed == [None] * 8
    assert router.subscription_count == 5
    assert router.group_count == 1


def test_unsubscribe_returns_what_it_removed() -> None:
    """One by one, until nobody is left; the order of the others stays."""
    sessions = [Session(str(number)) for number in range(4)]
    subscriptions = [Subscription(session, b"x") for session in sessions]
    router = subscribed(*subscriptions)

    for number in (1, 3, 0, 2):
        assert router.unsubscribe(sessions[number], b"x", None) is subscriptions[number]

    assert router.match(b"x").targets == []
    assert router.subscription_count == 0


def test_group_gets_each_topic_once_beside_plain_subscriptions() -> None:
    """§4.8.2: a session's shared and plain subscriptions are separate; every group is one receiver."""
    a, b = Session("a"), Session("b")
    router = subscribed(
        Subscription(a, b"x/+", b"g", qos=1),
        Subscription(b, b"x/+", b"g"),
        Subscription(a, b"x/y", b"g"),
        Subscription(a, b"x/y", b"h"),
        Subscription(a, b"x/y"),
    )

    route = router.match(b"x/y")

    assert names(route) == ["a"]
    assert [(group.name, group.filter, len(group.members)) for group in route.groups] == [
        (b"g", b"x/y", 1),
        (b"h", b"x/y", 1),
        (b"g", b"x/+", 2),
    ]
    assert (router.group_count, router.subscription_count) == (3, 5)


def test_group_is_one_object_while_it_has_members() -> None:
    """Who leaves is never chosen again; the cursor of the round robin lives as long as the group."""
    a, b, c = Session("a"), Session("b"), Session("c")
    router = subscribed(Subscription(a, b"x", b"g"))
    (group,) = router.match(b"x").groups
    group.turn = 5

    router.subscribe(Subscription(b, b"x", b"g"))
    router.subscribe(Subscription(c, b"x", b"g"))
    router.unsubscribe(a, b"x", b"g")

    assert router.match(b"x").groups == [group]
    assert {member.session.name for member in group.members} == {"b", "c"}
    assert group.turn == 5
    router.unsubscribe(c, b"x", b"g")
    router.unsubscribe(b, b"x", b"g")
    assert router.match(b"x").groups == []
    router.subscribe(Subscription(a, b"x", b"g"))
    assert router.match(b"x").groups != [group]


def test_groups_of_one_filter_end_one_by_one() -> None:
    """The other group of the same filter is untouched."""
    a = Session()
    router = subscribed(Subscription(a, b"x", b"g"), Subscription(a, b"x", b"h"))

    router.unsubscribe(a, b"x", b"g")

    assert [group.name for group in router.match(b"x").groups] == [b"h"]
    assert router.group_count == 1


@pytest.mark.parametrize("filter", [b"x", b"x/#"])
def test_filter_with_one_subscription_left_is_as_with_one_from_the_start(filter: bytes) -> None:
    """Whoever shared it: another session, a group of others, a group of its own."""
    a, b = Session("a"), Session("b")
    kept = Subscription(a, filter, qos=1)
    router = subscribed(kept)

    for session, group in ((b, None), (b, b"g"), (a, b"g")):
        router.subscribe(Subscription(session, filter, group))
        assert router.unsubscribe(a, filter, b"h") is None
        assert len(router.match(b"x").targets) + len(router.match(b"x").groups) == 2
        router.unsubscribe(session, filter, group)
        assert list(router.filters()) == [kept]
        assert [target.subscriptions for target in router.match(b"x").targets] == [(kept,)]
        assert router.match(b"x").groups == []

    assert router.unsubscribe(b, filter, None) is None
    assert router.unsubscribe(a, filter, None) is kept
    assert (list(router.filters()), names(router.match(b"x"))) == ([], [])


def test_crowds_of_two_filters_merge() -> None:
    """Who is in both gets one copy, the others keep their own."""
    a, b, c = Session("a"), Session("b"), Session("c")
    router = subscribed(
        Subscription(a, b"x"),
        Subscription(b, b"x", qos=1),
        Subscription(b, b"#", qos=2),
        Subscription(c, b"#"),
    )

    route = router.match(b"x")

    assert names(route) == ["a", "b", "c"]
    assert [target.qos for target in route.targets] == [0, 2, 0]


def test_group_member_that_subscribes_again_is_replaced() -> None:
    """[MQTT-3.8.4-3] In place, also in a shared group."""
    a = Session()
    old, new = Subscription(a, b"x/#", b"g", qos=0), Subscription(a, b"x/#", b"g", qos=1)
    router = subscribed(old)

    assert router.subscribe(new) is old
    assert router.match(b"x").groups[0].members == [new]
    assert router.unsubscribe(a, b"x/#", b"g") is new
    assert (router.subscription_count, router.group_count) == (0, 0)


@pytest.mark.parametrize("filter", [b"x/y", b"x/+", b"#"])
def test_cached_route_never_changes_and_is_never_stale(filter: bytes) -> None:
    """Who delivers in slices keeps the receivers of routing time; who asks again gets the new ones."""
    a, b = Session("a"), Session("b")
    router = subscribed(Subscription(a, filter))
    first = router.match(b"x/y")
    assert router.match(b"x/y") is first

    router.subscribe(Subscription(b, filter))
    second = router.match(b"x/y")
    router.unsubscribe(a, filter, None)
    third = router.match(b"x/y")

    assert [names(first), names(second), names(third)] == [["a"], ["a", "b"], ["b"]]


def test_exact_change_forgets_one_topic_only() -> None:
    """The other topics' routes stay cached; a wildcard change begins a new generation."""
    router = subscribed(Subscription(Session("a"), b"#"))
    x, y = router.match(b"x"), router.match(b"y")

    generation = router.generation
    router.subscribe(Subscription(Session("b"), b"x"))
    assert router.match(b"y") is y
    assert router.match(b"x") is not x
    assert router.generation > generation

    router.subscribe(Subscription(Session("c"), b"z/+"))
    assert router.match(b"y") is not y


def test_receivers_of_one_filter_share_one_list() -> None:
    """A thousand topics under one wildcard with many subscribers cost one list, not a thousand."""
    router = subscribed(*[Subscription(Session(), b"x/+") for _ in range(100)])

    assert router.match(b"x/1").targets is router.match(b"x/2").targets
    assert router.match(b"x/1").size < 1000


def test_cache_is_bounded_by_entries_and_by_bytes() -> None:
    """Ten thousand topics with and without subscribers."""
    few = Router(cache_entries=100)
    small = Router(cache_bytes=20_000)
    for router in (few, small):
        router.subscribe(Subscription(Session(), b"t/+"))
        for number in range(10_000):
            router.match(b"t/%d" % number)
            router.match(b"%d" % number)

    assert len(few.cache.young) + len(few.cache.old) <= 100
    assert small.cache.young_bytes + small.cache.old_bytes <= 20_000
    assert len(small.cache.young) + len(small.cache.old) > 10


def test_old_topics_are_found_in_the_old_half_of_the_cache() -> None:
    """A topic that is asked for regularly is never computed again."""
    router = Router(cache_entries=10)
    router.subscribe(Subscription(Session(), b"hot"))
    hot = router.match(b"hot")

    for number in range(100):
        router.match(b"%d" % number)
        assert router.match(b"hot") is hot


@pytest.mark.parametrize("filter", [b"x", b"x/+/#"])
def test_session_that_left_is_not_held(filter: bytes) -> None:
    """Neither the tables nor a cached route keep a session alive; the others are still served."""
    router = subscribed(Subscription(Session("stays"), b"#"))
    session: Any = Session("leaves")
    watch = weakref.ref(session)
    router.subscribe(Subscription(session, filter))
    assert len(router.match(b"x").targets) + len(router.match(b"x/1").targets) >= 3

    router.unsubscribe(session, filter, None)
    del session
    gc.collect()

    assert watch() is None
    assert names(router.match(b"x")) == ["stays"]


def test_filters_lists_every_subscription_once() -> None:
    """Plain and shared, exact and wildcard."""
    a, b = Session("a"), Session("b")
    wanted = [
        Subscription(a, b"x"),
        Subscription(b, b"x"),
        Subscription(a, b"x", b"g"),
        Subscription(a, b"+/x"),
        Subscription(a, b"#", b"g"),
        Subscription(b, b"#", b"g"),
        Subscription(b, b"a/b/#"),
    ]

    found = list(subscribed(*wanted).filters())

    assert len(found) == len(wanted)
    assert set(found) == set(wanted)


def test_crowd_of_one_filter_comes_and_goes_in_linear_time() -> None:
    """20,000 subscribers of one filter: with a linear search at each step this would take minutes."""
    sessions = [Session() for _ in range(20_000)]
    router = Router()
    for filter, group in ((b"x", None), (b"x/#", b"g")):
        for session in sessions:
            router.subscribe(Subscription(session, filter, group))
        assert len(router.match(b"x").targets) == (20_000 if group is None else 0)
        for session in sessions:
            assert router.unsubscribe(session, filter, group) is not None

    assert router.subscription_count == 0


def test_many_overlapping_filters_of_one_session_merge_in_linear_time() -> None:
    """4,096 filters of one session that all match: one Target with all identifiers."""
    a = Session()
    router = Router()
    for number in range(4096):
        levels = [b"+" if number >> bit & 1 else b"a" for bit in range(12)]
        router.subscribe(Subscription(a, b"/".join(levels), identifier=number + 1))

    (target,) = router.match(b"/".join([b"a"] * 12)).targets

    assert sorted(target.identifiers) == list(range(1, 4097))


def test_filters_for_the_hubs_own_topics_are_counted_once_each() -> None:
    """Both kinds of filter, and shared ones; a second subscriber of the same filter is none more."""
    a, b = Session(), Session()
    router = Router()
    router.subscribe(Subscription(a, b"#"))
    assert router.hub_filters == 0

    for filter, group in ((b"$SYS/#", None), (b"$events/x", None), (b"$events/x", b"g")):
        router.subscribe(Subscription(a, filter, group))
        router.subscribe(Subscription(b, filter, group))
    assert router.hub_filters == 2

    for filter, group in ((b"$SYS/#", None), (b"$events/x", None), (b"$events/x", b"g")):
        router.unsubscribe(a, filter, group)
        router.unsubscribe(b, filter, group)
    assert router.hub_filters == 0


def test_target_merges_in_the_order_given() -> None:
    """Identifiers keep the order of the subscriptions, 0 is none."""
    a = Session()
    target = Target((Subscription(a, b"x", identifier=5), Subscription(a, b"#"), Subscription(a, b"+", identifier=5)))

    assert target.identifiers == (5, 5)
