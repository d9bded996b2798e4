"""The router against a list of subscriptions that is searched from the beginning for every topic."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iothub.engine.filters import topic_matches
from iothub.engine.router import Group, Router, Subscription
from tests.support.night import by_day


class Session:
    """Opaque."""


SESSIONS = [Session() for _ in range(5)]

levels = st.sampled_from([b"", b"a", b"b", b"$s"])
topics = st.lists(levels, min_size=1, max_size=4).map(b"/".join).filter(bool)
filter_levels = st.sampled_from([b"", b"a", b"b", b"$s", b"+", b"+"])
filters = st.builds(
    lambda parts, tail: b"/".join([*parts, *tail]),
    st.lists(filter_levels, max_size=4),
    st.sampled_from([[], [], [b"#"]]),
).filter(bool)
sessions = st.sampled_from(SESSIONS)
groups = st.sampled_from([None, None, b"g", b"h"])

Key = tuple[Session, bytes, bytes | None]


class RouterMachine(RuleBasedStateMachine):
    """Subscribes, unsubscribes and matches in any order; a small cache makes every path of it run."""

    def __init__(self) -> None:
        super().__init__()
        self.router = Router(cache_entries=4, cache_bytes=5000)
        self.model: dict[Key, Subscription] = {}
        self.alive: dict[tuple[bytes | None, bytes], Group] = {}

    @rule(
        session=sessions,
        filter=filters,
        group=groups,
        qos=st.integers(0, 2),
        flags=st.tuples(st.booleans(), st.booleans()),
        identifier=st.integers(0, 3),
    )
    def subscribe(
        self, session: Session, filter: bytes, group: bytes | None, qos: int, flags: tuple[bool, bool], identifier: int
    ) -> None:
        subscription = Subscription(session, filter, group, qos, flags[0], flags[1], 0, identifier)

        assert self.router.subscribe(subscription) is self.model.get((session, filter, group))
        self.model[session, filter, group] = subscription

    @rule(session=sessions, filter=filters, group=groups)
    def unsubscribe(self, session: Session, filter: bytes, group: bytes | None) -> None:
        assert self.router.unsubscribe(session, filter, group) is self.model.pop((session, filter, group), None)

    @rule(data=st.data())
    def unsubscribe_something(self, data: st.DataObject) -> None:
        if self.model:
            session, filter, group = data.draw(st.sampled_from(list(self.model)))
            self.unsubscribe(session, filter, group)

    @rule(topic=topics)
    def match(self, topic: bytes) -> None:
        route = self.router.match(topic)
        wanted = [subscription for subscription in self.model.values() if topic_matches(subscription.filter, topic)]
        plain = [subscription for subscription in wanted if subscription.group is None]

        assert len(route.targets) == len({target.session for target in route.targets})
        assert {target.session for target in route.targets} == {subscription.session for subscription in plain}
        for target in route.targets:
            own = [subscription for subscription in plain if subscription.session is target.session]
            assert set(target.subscriptions) == set(own)
            assert len(target.subscriptions) == len(own)
            assert target.qos == max(subscription.qos for subscription in own)
            assert target.retain_as_published is any(subscription.retain_as_published for subscription in own)
            assert target.has_no_local is any(subscription.no_local for subscription in own)
            assert target.identifiers == tuple(one.identifier for one in target.subscriptions if one.identifier)
        shared = {
            (subscription.group, subscription.filter) for subscription in wanted if subscription.group is not None
        }
        assert {(group.name, group.filter) for group in route.groups} == shared
        assert len(route.groups) == len(shared)
        self.check_groups(route.groups)

    def check_groups(self, found: list[Group]) -> None:
        """Members as in the model, and the same object as long as there were members."""
        for group in found:
            key = (group.name, group.filter)
            members = [one for (_, filter, name), one in self.model.items() if (name, filter) == key]
            assert set(group.members) == set(members)
            assert len(group.members) == len(members)
            assert self.alive.setdefault(key, group) is group

    @invariant()
    def counts_are_exact(self) -> None:
        keys = {(group, filter) for _, filter, group in self.model if group is not None}
        self.alive = {key: group for key, group in self.alive.items() if key in keys}
        assert self.router.subscription_count == len(self.model)
        assert self.router.group_count == len(keys)

    @invariant()
    def every_subscription_is_listed_once(self) -> None:
        listed = list(self.router.filters())
        assert len(listed) == len(self.model)
        assert set(listed) == set(self.model.values())

    def teardown(self) -> None:
        for session, filter, group in list(self.model):
            self.unsubscribe(session, filter, group)
        assert list(self.router.filters()) == []
        for route in (*self.router.cache.young.values(), *self.router.cache.old.values()):
            assert (route.targets, route.groups) == ([], [])


RouterMachine.TestCase.settings = settings(max_examples=by_day(40, 60), stateful_step_count=40, deadline=None)
test_router_equals_the_reference = RouterMachine.TestCase
