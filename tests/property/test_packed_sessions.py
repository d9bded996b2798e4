"""Sessions that are packed and woken at any moment are what they would be as objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.engine.router import Subscription
from iothub.engine.state import Place, Session, TenantPlane
from iothub_services.sessions.packing import pack, pack_woken
from iothub_services.sessions.port import SessionControl
from tests.support.night import by_day

TOPICS = (b"a", b"a/b", b"b", b"c")
FILTERS = (*TOPICS, b"a/#", b"+", b"#", b"a/+")
NUMBERS = st.integers(0, (1 << 32) - 1)
OPTIONS = st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 2), st.integers(0, (1 << 28) - 1))
CLIENTS = st.sampled_from(["one", "two", "th\u00e9\u20ac"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), CLIENTS, st.tuples(NUMBERS, NUMBERS, st.integers(0, 1 << 47), st.booleans())),
        st.tuples(st.just("subscribe"), CLIENTS, st.tuples(st.sampled_from(FILTERS), OPTIONS)),
        st.tuples(st.just("unsubscribe"), CLIENTS, st.sampled_from(FILTERS)),
        st.tuples(st.just("pack"), CLIENTS, st.none()),
        st.tuples(st.just("pack"), CLIENTS, st.none()),
        st.tuples(st.just("pack woken"), CLIENTS, st.none()),
        st.tuples(st.just("publish"), CLIENTS, st.sampled_from(TOPICS)),
        st.tuples(st.just("forget routes"), CLIENTS, st.none()),
        st.tuples(st.just("end"), CLIENTS, st.none()),
    ),
    max_size=40,
)


class Tenant:
    """The sessions of one tenant, and a model of them: facts and subscriptions by Client Identifier."""

    def __init__(self) -> None:
        self.plane = TenantPlane(1, "acme")
        self.facts: dict[str, tuple[Any, ...]] = {}
        self.subscriptions: dict[str, dict[bytes, tuple[Any, ...]]] = {}

    def take(self, step: str, client_id: str, said: Any) -> None:
        if step == "begin" and client_id not in self.facts:
            self._begin(client_id, *said)
        elif step == "pack":
            pack(self.plane, [client_id])
        elif step == "pack woken":
            pack_woken(self.plane, 2)
        elif step == "publish":
            self._publish(said)
        elif step == "forget routes":
            self.plane.router.cache.clear()
        elif client_id in self.facts and step != "begin":
            self._change(step, client_id, said)

    def _begin(self, client_id: str, expiry_s: int, claimed: int, announced: int, is_online: bool) -> None:
        queue_id = announced & 0xFFFF
        session = Session(self.plane, client_id, f"device-{queue_id}", True, queue_id, (queue_id << 24) + 3)
        session.announced = announced
        session.control = control = SessionControl(5, expiry_s, None, expiry_s)
        control.place = Place(2, session.epoch, is_online=is_online, since_ms=announced)
        control.place.claimed = (queue_id << 24) + claimed % 1000
        self.plane.sessions[client_id] = session
        self.facts[client_id] = _facts(session)
        self.subscriptions[client_id] = {}

    def _change(self, step: str, client_id: str, said: Any) -> None:
        session, router = self.plane.sessions[client_id], self.plane.router
        if step == "subscribe":
            topic_filter, (qos, is_as_published, handling, identifier) = said
            subscription = Subscription(session, topic_filter, None, qos, False, is_as_published, handling, identifier)
            router.subscribe(subscription)
            session.note(subscription)
            self.subscriptions[client_id][topic_filter] = said[1]
        elif step == "unsubscribe":
            router.unsubscribe(session, said, None)
            session.forget(None, said)
            self.subscriptions[client_id].pop(said, None)
        elif step == "end":
            for subscription in list(session.subscriptions.values()):
                router.unsubscribe(session, subscription.filter, None)
            del self.plane.sessions[client_id], self.facts[client_id], self.subscriptions[client_id]

    def _publish(self, topic: bytes) -> None:
        wanted = {
            client_id: max(options[0] for each, options in subscriptions.items() if _matches(each, topic))
            for client_id, subscriptions in self.subscriptions.items()
            if any(_matches(each, topic) for each in subscriptions)
        }
        found = {target.session.client_id: target.qos for target in self.plane.router.match(topic).targets}
        assert found == wanted

    def check(self) -> None:
        sessions = self.plane.sessions
        assert sorted(sessions) == sorted(self.facts)
        assert len(sessions) == len(self.facts)
        assert not sessions.awake.keys() & sessions.packed.keys()


def _facts(session: Session) -> tuple[Any, ...]:
    place = session.control.place
    return (
        *(session.client_id, session.device, session.queue_id, session.epoch, session.announced),
        *(session.control.expiry_s, session.control.device_id, session.control.version),
        *(place.holder, place.logged_epoch, place.claimed, place.since_ms, place.is_online),
    )


def _matches(topic_filter: bytes, topic: bytes) -> bool:
    return topic in {
        b"a/#": {b"a", b"a/b"},
        b"+": {b"a", b"b", b"c"},
        b"#": set(TOPICS),
        b"a/+": {b"a/b"},
    }.get(topic_filter, {topic_filter})


@settings(max_examples=by_day(40, 80), deadline=None)
@given(STEPS)
def test_packed_sessions_are_what_they_would_be_as_objects(steps: list[tuple[str, str, Any]]) -> None:
    """Whatever is subscribed, published, packed and woken in whatever order."""
    tenant = Tenant()

    for step in steps:
        tenant.take(*step)
        tenant.check()

    for client_id, facts in tenant.facts.items():
        session = tenant.plane.sessions[client_id]
        assert _facts(session) == facts
        assert {
            each.filter: (each.qos, each.retain_as_published, each.retain_handling, each.identifier)
            for each in session.subscriptions.values()
        } == tenant.subscriptions[client_id]
