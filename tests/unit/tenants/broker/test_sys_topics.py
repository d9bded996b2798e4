"""A tenant's own figures under $SYS: at once for a new subscriber, then every interval, and nothing for nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iothub.engine.message import Message
from iothub.engine.router import Subscription
from iothub.engine.state import TenantPlane
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota
from iothub_tenants.broker.sys_topics import SysTopics, figures
from iothub_tenants.broker.traffic import NO_TRAFFIC


class Ledger:
    def used(self, quota: Quota) -> int:
        return 3 if quota is Quota.SUBSCRIPTIONS else 0

    def figures(self) -> dict[Quota, tuple[int, int]]:
        return {
            Quota.CONNECTIONS: (2, 100),
            Quota.SESSIONS: (1, -1),
            Quota.QUEUED_MESSAGES: (0, 50),
            Quota.QUEUED_BYTES: (0, 0),
            Quota.GROUP_MEMBERS: (0, 9),
        }


class Session:
    def __init__(self, is_online: bool) -> None:
        self.connection: object | None = object() if is_online else None
        self.subscriptions: dict[tuple[bytes | None, bytes], Subscription] = {}


class Plane:
    """Remembers what is published and replayed."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes, bytes]] = []
        self.replayed: list[tuple[bytes, bytes]] = []

    def publish(self, tenant: Any, message: Message) -> None:
        self.published.append((tenant.name, message.topic, message.payload))

    def send_retained(self, session: Any, subscription: Subscription, messages: list[Message]) -> None:
        self.replayed += [(message.topic, message.payload) for message in messages]


class Brokers:
    def __init__(self, *brokers: Any) -> None:
        self.brokers = {broker.tenant_id: broker for broker in brokers}

    def __iter__(self) -> Any:
        return iter(self.brokers.values())

    def present(self, tenant_id: int) -> Any:
        return self.brokers.get(tenant_id)


class Hub:
    """Two tenants, one of which somebody watches."""

    def __init__(self) -> None:
        self.plane = Plane()
        self.acme, self.beta = broker(1, "acme"), broker(2, "beta")
        self.brokers = Brokers(self.acme, self.beta)
        self.states = {"1/state": "up"}
        self.topics = SysTopics(
            cast("Any", self.plane), cast("Any", self.brokers), lambda _id: TenantUsage(5, 700), lambda: self.states
        )

    def subscribe(
        self, topic_filter: bytes, *, is_replayed: bool = True, is_online: bool = True, group: bytes | None = None
    ) -> Any:
        session = Session(is_online)
        subscription = Subscription(session, topic_filter, group, 0, False, False, 0, 0)
        session.subscriptions[group, topic_filter] = subscription
        self.acme.plane.router.subscribe(subscription)
        self.acme.plane.sessions[topic_filter.decode()] = session
        self.topics.subscribed(self.acme, session, subscription, is_replayed=is_replayed)
        return session


def broker(tenant_id: int, name: str) -> Any:
    plane = TenantPlane(tenant_id, name)
    allowance = SimpleNamespace(ledger=Ledger())
    return SimpleNamespace(tenant_id=tenant_id, plane=plane, allowance=allowance, traffic=NO_TRAFFIC)


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_new_subscriber_gets_the_present_figures_at_once(hub: Hub) -> None:
    hub.subscribe(b"$SYS/tenant/quota/+/limit")

    assert dict(hub.plane.replayed) == {
        b"$SYS/tenant/quota/connections/limit": b"100",
        b"$SYS/tenant/quota/sessions/limit": b"0",
        b"$SYS/tenant/quota/queued_messages/limit": b"50",
        b"$SYS/tenant/quota/queued_bytes/limit": b"unlimited",
    }


def test_subscriber_that_wants_no_retained_messages_waits_for_the_interval(hub: Hub) -> None:
    hub.subscribe(b"$SYS/#", is_replayed=False)

    assert hub.plane.replayed == []
    hub.topics.publish()
    assert ("acme", b"$SYS/tenant/messages/queued", b"5") in hub.plane.published


def test_shared_subscription_gets_no_replay(hub: Hub) -> None:
    hub.subscribe(b"$SYS/tenant/connections", group=b"g")

    assert hub.plane.replayed == []


def test_only_what_somebody_subscribed_to_is_published(hub: Hub) -> None:
    """Nothing else: a message without subscribers would count as dropped."""
    hub.subscribe(b"$SYS/tenant/connections")
    hub.topics.publish()

    assert hub.plane.published == [("acme", b"$SYS/tenant/connections", b"0")]


def test_tenant_that_nobody_watches_costs_nothing(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iothub_tenants.broker.sys_topics.figures", pytest.fail)

    hub.subscribe(b"rooms/#")
    hub.topics.publish()


def test_tenant_is_forgotten_when_its_last_subscriber_goes(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    session = hub.subscribe(b"$SYS/#")
    hub.acme.plane.router.unsubscribe(session, b"$SYS/#", None)
    hub.topics.publish()
    monkeypatch.setattr("iothub_tenants.broker.sys_topics.figures", pytest.fail)

    hub.topics.publish()
    assert hub.plane.published == []


def test_deleted_tenant_is_forgotten(hub: Hub) -> None:
    hub.subscribe(b"$SYS/#")
    del hub.brokers.brokers[1]

    hub.topics.publish()
    assert hub.plane.published == []


def test_nothing_is_published_while_all_subscribers_are_offline(hub: Hub) -> None:
    session = hub.subscribe(b"$SYS/tenant/sessions", is_online=False)
    hub.topics.publish()
    assert hub.plane.published == []

    session.connection = object()
    hub.topics.publish()
    assert hub.plane.published == [("acme", b"$SYS/tenant/sessions", b"1")]


def test_sessions_that_were_loaded_at_start_are_found(hub: Hub) -> None:
    again = SysTopics(cast("Any", hub.plane), cast("Any", hub.brokers), lambda _id: TenantUsage(0, 0))
    hub.subscribe(b"$SYS/tenant/sessions")
    again.resume()
    again.publish()

    assert hub.plane.published == [("acme", b"$SYS/tenant/sessions", b"1")]


def test_figures_have_plain_names_and_every_drop_has_one(hub: Hub) -> None:
    names = [name for name, _ in figures(hub.acme, TenantUsage(0, 0))]

    assert len(set(names)) == len(names)
    assert {"connections", "bytes/sent", "dropped/queue_full", "quota/connections/used"} <= set(names)
    assert not [name for name in names if "group_members" in name]


def test_states_of_hubs_come_with_the_figures_and_when_they_change(hub: Hub) -> None:
    """A tenant that nobody watches gets none, nor does one whose subscriptions do not match."""
    hub.subscribe(b"$SYS/broker/#")
    assert hub.plane.replayed == [(b"$SYS/broker/1/state", b"up")]
    hub.topics.publish()

    hub.topics.publish_hub_states({"1/peers/2": "unreachable"})

    assert hub.plane.published == [
        ("acme", b"$SYS/broker/1/state", b"up"),
        ("acme", b"$SYS/broker/1/peers/2", b"unreachable"),
    ]


def test_state_that_changes_while_nobody_is_there_is_passed_over(hub: Hub) -> None:
    hub.topics.publish_hub_states({"1/state": "draining"})
    hub.subscribe(b"$SYS/tenant/sessions", is_replayed=False)
    hub.topics.publish_hub_states({"1/state": "up"})
    del hub.brokers.brokers[1]
    hub.topics.publish_hub_states({"1/state": "draining"})

    assert hub.plane.published == []


def test_figures_of_the_whole_hub_are_the_operators_alone(hub: Hub) -> None:
    """Whatever another tenant subscribes to."""
    figures = {"clients/total": "7", "retained messages/count": "1"}
    topics = SysTopics(
        cast("Any", hub.plane),
        cast("Any", hub.brokers),
        lambda _id: TenantUsage(0, 0),
        broker_figures=lambda broker: figures if broker is hub.acme else {},
    )
    for each, name in ((hub.acme, "acme"), (hub.beta, "beta")):
        for topic_filter in (b"$SYS/broker/#", b"#", b"+/broker/#"):
            session = Session(is_online=True)
            subscription = Subscription(session, topic_filter, None, 0, False, False, 0, 0)
            each.plane.router.subscribe(subscription)
            topics.subscribed(each, cast("Any", session), subscription, is_replayed=name == "acme")

    topics.publish()

    assert hub.plane.replayed == [(b"$SYS/broker/clients/total", b"7"), (b"$SYS/broker/retained messages/count", b"1")]
    assert {tenant for tenant, _, _ in hub.plane.published} == {"acme"}
