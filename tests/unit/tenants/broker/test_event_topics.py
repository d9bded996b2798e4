"""What happens to a tenant's clients, below $events: for those who have subscribed, bounded, and nothing for nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.base.units import Rate
from iothub.engine.message import Message
from iothub.engine.router import Subscription
from iothub.engine.state import TenantPlane
from iothub.engine.turn import PAUSES_PUBLISHERS
from iothub.records import events as log_events
from iothub.records.events import Subject
from iothub.records.tenant_events import EventKind, TenantEvent
from iothub.testing.clock import ManualClock
from iothub_services.connections.rejected import NO_TENANT, Client
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota
from iothub_tenants.broker.event_topics import MOST_OPENING, MOST_WAITING, EventSettings, EventSource, EventTopics
from iothub_tenants.broker.traffic import Traffic

ACME, BETA = 1, 2


class Ledger:
    def __init__(self) -> None:
        self.connections = 0

    def figures(self) -> dict[Quota, tuple[int, int]]:
        return {
            Quota.CONNECTIONS: (self.connections, 10),
            Quota.QUEUED_MESSAGES: (0, 0),
            Quota.QUEUED_BYTES: (0, 1000),
        }


class Turn:
    def __init__(self) -> None:
        self.held: set[str] = set()
        self.is_full = False

    def read_clock(self) -> None: ...

    def is_held(self, tenant: Any) -> bool:
        return tenant.name in self.held

    def is_store_full(self) -> bool:
        return self.is_full


class Plane:
    """Remembers what is published."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.level = 0
        self.published: list[tuple[str, Message]] = []

    def overload_level(self) -> int:
        return self.level

    def publish(self, tenant: Any, message: Message) -> None:
        self.published.append((tenant.name, message))


class Brokers:
    def __init__(self, *brokers: Any) -> None:
        self.brokers = {broker.tenant_id: broker for broker in brokers}

    def __iter__(self) -> Any:
        return iter(self.brokers.values())

    def present(self, tenant_id: int) -> Any:
        return self.brokers.get(tenant_id)


def broker(tenant_id: int, name: str) -> Any:
    plane = TenantPlane(tenant_id, name)
    return SimpleNamespace(
        tenant_id=tenant_id,
        plane=plane,
        record=SimpleNamespace(name=name),
        allowance=SimpleNamespace(ledger=Ledger()),
        traffic=Traffic(),
    )


class Hub:
    """Tenants acme and beta; what is due is run by the test."""

    def __init__(self, rate: Rate | None = None, open_tenant: Any = None, operator: str = "", sink: Any = None) -> None:
        self.plane, self.clock = Plane(), ManualClock()
        self.acme, self.beta = broker(ACME, "acme"), broker(BETA, "beta")
        self.brokers = Brokers(self.acme, self.beta)
        self.refusals: dict[str, int] = {}
        self.queued = TenantUsage(0, 0)
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.events = EventTopics(
            cast("Any", self.plane),
            cast("Any", self.brokers),
            EventSource(lambda _tenant: self.refusals, lambda _tenant: self.queued),
            self.clock,
            lambda seconds, call: self.due.append((seconds, call)),
            EventSettings(3, rate, operator),
            open_tenant,
            sink,
        )

    def subscribe(self, topic_filter: bytes, group: bytes | None = None, tenant: Any = None) -> Subscription:
        subscription = Subscription(object(), topic_filter, group, 1)
        (tenant or self.acme).plane.router.subscribe(subscription)
        return subscription

    def run(self) -> list[float]:
        """Run what is due, and say when it was."""
        due, self.due = self.due, []
        for _, call in due:
            call()
        return [seconds for seconds, _ in due]

    def connect(self, client_id: str = "c1", tenant_id: int = ACME) -> None:
        subject = Subject(tenant_id, client_id, 0, 5_000)
        self.events.on_event(
            log_events.session_connected(
                subject, device="dev1", protocol_version=5, session_expiry_s=60, peer="192.0.2.1:9", keep_alive_s=30
            )
        )

    def summarise(self) -> None:
        with pytest.raises(StopIteration):
            self.events.summarise().send(None)
        self.run()

    @property
    def topics(self) -> list[tuple[str, str]]:
        return [(tenant, message.topic.decode()) for tenant, message in self.plane.published]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(message.payload) for _, message in self.plane.published]


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_a_connect_is_published_with_what_an_operator_asks(hub: Hub) -> None:
    hub.subscribe(b"$events/#")

    hub.connect()
    assert hub.run() == [0.0]

    assert hub.topics == [("acme", "$events/client/connected/c1")]
    (body,) = hub.bodies
    number = body["seq"]
    assert body == {
        "v": 1,
        "id": f"3-{number}",
        "event": "client/connected",
        "tenant": "acme",
        "client": "c1",
        "device": "dev1",
        "ip": "192.0.2.1:9",
        "session_expiry_s": 60,
        "keep_alive_s": 30,
        "seq": number,
        "ts": 5_000,
        "node": 3,
    }
    assert hub.plane.published[0][1].qos == 1
    assert not hub.plane.published[0][1].retain


def test_an_end_has_its_reason_and_the_code_of_it(hub: Hub) -> None:
    hub.subscribe(b"$events/client/disconnected/+")

    session = SimpleNamespace(tenant=hub.acme.plane, client_id="c1", device="dev1")
    hub.events.disconnected(cast("Any", session), Reason.KEEPALIVE_TIMEOUT)
    hub.run()

    assert (hub.bodies[0]["reason"], hub.bodies[0]["code"]) == ("keepalive_timeout", 0x8D)


@pytest.mark.parametrize(
    ("event", "topic"),
    [
        (log_events.session_expired(Subject(ACME, "c1", 1, 1)), "session/expired/c1"),
        (log_events.session_taken_over(Subject(ACME, "c1", 1, 1), by=""), "session/taken_over/c1"),
        (log_events.session_discarded(Subject(ACME, "c1", 1, 1), reason="clean_start"), "session/discarded/c1"),
        (
            log_events.session_unsubscribed(Subject(ACME, "c1", 1, 1), topic_filter="a/#", group=None),
            "subscription/removed/c1",
        ),
    ],
)
def test_events_of_sessions_are_events_of_the_tenant(hub: Hub, event: Any, topic: str) -> None:
    hub.subscribe(b"$events/#")

    hub.events.on_event(event)
    hub.run()

    assert hub.topics == [("acme", f"$events/{topic}")]


def test_a_will_is_nobodys_business(hub: Hub) -> None:
    hub.subscribe(b"$events/#")

    hub.events.on_event(log_events.will_cleared(Subject(ACME, "c1", 1, 1)))

    assert hub.due == []


@pytest.mark.parametrize("topic_filter", [b"#", b"+/client/connected/c1", b"$SYS/#", b"events/#", b"+/#"])
def test_only_a_filter_that_names_events_gets_them(hub: Hub, topic_filter: bytes) -> None:
    """[MQTT-4.7.2-1]: a wildcard at the first level does not match `$events`."""
    hub.subscribe(topic_filter)
    hub.subscribe(topic_filter, b"g")

    hub.connect()

    assert hub.due == []


@pytest.mark.parametrize("topic_filter", [b"$events/#", b"$events/+/connected/#", b"$events/client/connected/c1"])
@pytest.mark.parametrize("group", [None, b"g"])
def test_another_tenants_subscription_gets_nothing(hub: Hub, topic_filter: bytes, group: bytes | None) -> None:
    hub.subscribe(topic_filter, group, hub.beta)

    hub.connect()
    hub.connect(tenant_id=BETA)
    hub.run()

    assert hub.topics == [("beta", "$events/client/connected/c1")]
    assert hub.bodies[0]["tenant"] == "beta"


def test_nothing_is_made_for_nobody(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iothub_tenants.broker.event_topics._shown", pytest.fail)
    subscription = hub.subscribe(b"$events/#")
    hub.acme.plane.router.unsubscribe(subscription.session, b"$events/#", None)

    hub.connect()
    hub.summarise()

    assert hub.plane.published == []


def test_numbers_rise_over_a_clock_that_stands_still(hub: Hub) -> None:
    hub.subscribe(b"$events/#")

    hub.connect("c1")
    hub.connect("c2")
    hub.run()

    first, second = (body["seq"] for body in hub.bodies)
    assert first < second


def test_a_client_identifier_is_one_level_whatever_is_in_it(hub: Hub) -> None:
    hub.subscribe(b"$events/client/connected/+")

    hub.connect("a/b+#%\x01ü")
    hub.run()

    assert hub.topics == [("acme", "$events/client/connected/a%2Fb%2B%23%25%01ü")]
    assert hub.bodies[0]["client"] == "a/b+#%\x01ü"


# --- refused clients


def refused_client(tenant_id: int = ACME) -> Client:
    return Client(tenant_id, "acme", "dev1", "c1", "192.0.2.1:9", "tcp", 5)


def test_a_refused_login_is_published_with_the_rule(hub: Hub) -> None:
    hub.subscribe(b"$events/client/connect_failed/#")

    hub.events.connect_refused(refused_client(), Reason.BAD_CREDENTIALS, "wrong_secret")
    hub.run()

    assert hub.topics == [("acme", "$events/client/connect_failed/c1")]
    assert {name: hub.bodies[0][name] for name in ("reason", "rule", "ip", "code")} == {
        "reason": "bad_credentials",
        "rule": "wrong_secret",
        "ip": "192.0.2.1:9",
        "code": 0x87,
    }


def test_a_refused_client_of_no_tenant_or_of_one_without_clients_is_not_published(hub: Hub) -> None:
    hub.subscribe(b"$events/#")

    hub.events.connect_refused(refused_client(NO_TENANT), Reason.BAD_CREDENTIALS, "unknown_tenant")
    hub.events.connect_refused(refused_client(99), Reason.BAD_CREDENTIALS, "wrong_secret")

    assert hub.due == []


def test_where_other_hubs_are_a_refused_login_reaches_their_subscribers() -> None:
    """The tenant has no client here: its broker is made, so that the other hubs say what theirs have subscribed to."""
    opened = broker(5, "gamma")

    async def open_tenant(_tenant_id: int) -> Any:
        return opened

    hub = Hub(open_tenant=open_tenant)
    hub.subscribe(b"$events/#", tenant=opened)

    hub.events.connect_refused(refused_client(5), Reason.BAD_CREDENTIALS, "wrong_secret")
    hub.brokers.brokers[5] = opened
    hub.run()

    assert hub.topics == [("gamma", "$events/client/connect_failed/c1")]


# --- bounds


def test_events_above_the_rate_are_left_out_and_their_number_published() -> None:
    hub = Hub(Rate(2, 10.0))
    hub.subscribe(b"$events/#")

    for _ in range(5):
        hub.connect()
    hub.run()
    hub.summarise()

    assert [topic for _, topic in hub.topics] == [
        "$events/client/connected/c1",
        "$events/client/connected/c1",
        "$events/event/left_out/rate",
    ]
    assert hub.bodies[-1]["count"] == 3
    assert hub.events.lost == {"rate": 3}


def test_the_rate_is_each_tenants_own_and_begins_again() -> None:
    hub = Hub(Rate(1, 10.0))
    hub.subscribe(b"$events/#")
    hub.subscribe(b"$events/#", tenant=hub.beta)

    hub.connect()
    hub.connect(tenant_id=BETA)
    hub.clock.advance(10.0)
    hub.connect()
    hub.run()

    assert [tenant for tenant, _ in hub.topics] == ["acme", "acme", "beta"]


def test_events_wait_while_publishers_of_their_tenant_are_held(hub: Hub) -> None:
    hub.subscribe(b"$events/#")
    hub.subscribe(b"$events/#", tenant=hub.beta)
    hub.plane.turn.held = {"acme"}

    for _ in range(MOST_WAITING + 2):
        hub.connect()
    hub.connect(tenant_id=BETA)
    hub.run()
    assert [tenant for tenant, _ in hub.topics] == ["beta"]
    assert hub.events.lost == {"held": 2}

    hub.plane.turn.held = set()
    while hub.due:
        hub.run()
    assert len(hub.topics) == MOST_WAITING + 1


def test_a_hub_that_ends_publishes_what_waits_and_counts_the_rest(hub: Hub) -> None:
    hub.subscribe(b"$events/#")
    hub.subscribe(b"$events/#", tenant=hub.beta)
    hub.plane.turn.held = {"beta"}
    for _ in range(250):
        hub.connect()
    hub.connect(tenant_id=BETA)

    hub.events.finish()
    hub.connect()
    hub.run()

    assert [tenant for tenant, _ in hub.topics] == ["acme"] * 250
    assert hub.events.lost == {"stopped": 2}


@pytest.mark.parametrize("is_full", [True, False])
def test_an_overloaded_hub_counts_events_and_does_not_publish_them(hub: Hub, is_full: bool) -> None:
    hub.subscribe(b"$events/#")
    hub.plane.turn.is_full, hub.plane.level = is_full, 0 if is_full else PAUSES_PUBLISHERS

    hub.connect()
    hub.run()

    assert hub.plane.published == []
    assert hub.events.lost == {"overload": 1}


# --- summaries


def test_drops_are_published_as_counts_since_the_last_summary(hub: Hub) -> None:
    """Messages for nobody are no loss; and what was before somebody looked is not told."""
    hub.subscribe(b"$events/message/dropped/+")
    hub.acme.traffic = Traffic(dropped={"queue_full": 4, "no_subscribers": 1})
    hub.summarise()
    assert hub.plane.published == []

    hub.acme.traffic = Traffic(dropped={"queue_full": 9, "no_subscribers": 50})
    hub.clock.advance(10.0)
    hub.summarise()
    hub.summarise()

    assert hub.topics == [("acme", "$events/message/dropped/queue_full")]
    assert (hub.bodies[0]["reason"], hub.bodies[0]["count"]) == ("queue_full", 5)
    assert hub.bodies[0]["ts"] - hub.bodies[0]["from"] == 10_000


def test_refusals_are_published_by_quota(hub: Hub) -> None:
    hub.subscribe(b"$events/quota/#")
    hub.summarise()
    hub.refusals = {"connects": 7}
    hub.summarise()

    assert hub.topics == [("acme", "$events/quota/exceeded/connects")]
    assert hub.bodies[0]["count"] == 7


def test_a_quota_that_is_nearly_used_up_is_told_once_and_its_end_too(hub: Hub) -> None:
    hub.subscribe(b"$events/quota/#")
    ledger = hub.acme.allowance.ledger
    for used in (7, 8, 9, 8, 7, 7, 8):
        ledger.connections = used
        hub.summarise()

    assert [topic for _, topic in hub.topics] == [
        "$events/quota/warning/connections",
        "$events/quota/cleared/connections",
        "$events/quota/warning/connections",
    ]
    assert (hub.bodies[0]["used"], hub.bodies[0]["limit"]) == (8, 10)


def test_a_queue_that_is_nearly_full_is_told(hub: Hub) -> None:
    hub.subscribe(b"$events/quota/warning/+")
    hub.queued = TenantUsage(0, 900)
    hub.summarise()

    assert hub.topics == [("acme", "$events/quota/warning/queued_bytes")]


def test_a_dropped_event_makes_no_more_events_than_reasons(hub: Hub) -> None:
    """An event that is dropped itself is one drop more, told with the next summary: it never multiplies."""
    hub.subscribe(b"$events/#")
    hub.summarise()
    for count in range(1, 6):
        hub.acme.traffic = Traffic(dropped={"queue_full": count})
        hub.summarise()

    assert len(hub.topics) == 5


def test_a_tenant_whose_last_subscriber_has_gone_starts_anew(hub: Hub) -> None:
    subscription = hub.subscribe(b"$events/#")
    hub.summarise()
    hub.acme.plane.router.unsubscribe(subscription.session, b"$events/#", None)
    hub.refusals = {"connects": 7}
    hub.summarise()
    hub.subscribe(b"$events/#")
    hub.summarise()

    assert hub.plane.published == []


# --- the platform


def test_events_of_the_platform_are_the_operators_alone() -> None:
    hub = Hub(operator="beta")
    for each in (hub.acme, hub.beta):
        hub.subscribe(b"$events/#", tenant=each)

    hub.events.on_platform(EventKind.ALARM_RAISED, "disk_low", {"severity": "warning"})
    hub.run()

    assert hub.topics == [("beta", "$events/alarm/raised/disk_low")]
    assert hub.bodies[0]["severity"] == "warning"


def test_events_of_accounts_are_their_tenants_and_keep_their_id() -> None:
    hub = Hub(operator="beta")
    for each in (hub.acme, hub.beta):
        hub.subscribe(b"$events/#", tenant=each)
    acme = hub.acme.tenant_id

    hub.events.on_account(
        TenantEvent(EventKind.DEVICE_CREATED, acme, "acme", "dev1", 5, {"device": "dev1"}, "change-1")
    )
    hub.events.on_account(TenantEvent(EventKind.TENANT_CREATED, 0, "", "gamma", 6, {"name": "gamma"}, "change-2"))
    hub.run()

    assert hub.topics == [("acme", "$events/device/created/dev1"), ("beta", "$events/tenant/created/gamma")]
    assert [(body["id"], body["tenant"], body["ts"]) for body in hub.bodies] == [
        ("change-1", "acme", 5),
        ("change-2", "beta", 6),
    ]


def test_without_an_operator_nobody_gets_events_of_the_platform(hub: Hub) -> None:
    hub.subscribe(b"$events/#")

    hub.events.on_platform(EventKind.NODE_DOWN, "hub-2", {})

    assert hub.due == []


# --- webhooks


class Sink:
    """Fulfils `EventSink` of `iothub_tenants.broker.tenant_events`."""

    def __init__(self, tenants: set[int], kinds: set[EventKind] | None = None) -> None:
        self.tenants, self.kinds = tenants, kinds
        self.got: list[tuple[int, str, str]] = []

    def has(self, tenant_id: int) -> bool:
        return tenant_id in self.tenants

    def wants(self, tenant_id: int, kind: EventKind) -> bool:
        return tenant_id in self.tenants and (self.kinds is None or kind in self.kinds)

    def take(self, event: TenantEvent, event_id: str, body: bytes) -> None:
        assert json.loads(body)["id"] == event_id
        self.got.append((event.tenant_id, event.kind.value, json.loads(body)["tenant"]))


def test_a_webhook_gets_events_without_any_subscriber() -> None:
    """And what both get is the same event, with one id."""
    sink = Sink({ACME})
    hub = Hub(sink=sink)
    hub.subscribe(b"$events/client/connected/c2")

    hub.connect("c1")
    hub.connect("c2")
    hub.connect(tenant_id=BETA)
    hub.run()

    assert sink.got == [(ACME, "client/connected", "acme")] * 2
    assert hub.topics == [("acme", "$events/client/connected/c2")]


def test_a_webhook_gets_refused_logins_of_a_tenant_without_clients() -> None:
    sink = Sink({99})
    hub = Hub(sink=sink)

    hub.events.connect_refused(refused_client(99), Reason.BAD_CREDENTIALS, "wrong_secret")
    hub.run()

    assert sink.got == [(99, "client/connect_failed", "acme")]


def test_a_webhook_gets_summaries_and_only_what_it_wants() -> None:
    sink = Sink({ACME}, {EventKind.QUOTA_EXCEEDED})
    hub = Hub(sink=sink)
    hub.connect()
    hub.summarise()
    hub.refusals = {"connects": 1}
    hub.summarise()

    assert sink.got == [(ACME, "quota/exceeded", "acme")]


def test_events_of_the_platform_come_once_to_its_webhooks() -> None:
    """The operator's tenant has its copy as messages."""
    sink = Sink({0, ACME, BETA})
    hub = Hub(operator="beta", sink=sink)
    hub.subscribe(b"$events/#", tenant=hub.beta)

    hub.events.on_platform(EventKind.ALARM_RAISED, "disk_low", {})
    hub.run()

    assert sink.got == [(0, "alarm/raised", "")]
    assert hub.topics == [("beta", "$events/alarm/raised/disk_low")]


def test_the_rate_holds_for_webhooks_too() -> None:
    sink = Sink({ACME})
    hub = Hub(Rate(1, 10.0), sink=sink)
    for _ in range(3):
        hub.connect()
    hub.run()
    hub.summarise()

    assert [kind for _, kind, _ in sink.got] == ["client/connected", "event/left_out"]


class Slow:
    """Opens a tenant's broker when the test says so."""

    def __init__(self) -> None:
        self.opened: Deferred[Any] = Deferred()

    async def __call__(self, _tenant_id: int | str) -> Any:
        return await self.opened


def test_refused_logins_wait_while_the_broker_is_made_and_come_once() -> None:
    """To subscribers at other hubs and to a webhook."""
    opening, opened, sink = Slow(), broker(5, "acme"), Sink({5})
    hub = Hub(open_tenant=opening, sink=sink)
    hub.subscribe(b"$events/#", tenant=opened)
    for _ in range(2):
        hub.events.connect_refused(refused_client(5), Reason.BAD_CREDENTIALS, "wrong_secret")
    hub.brokers.brokers[5] = opened
    opening.opened.callback(opened)
    hub.run()

    assert sink.got == [(5, "client/connect_failed", "acme")] * 2
    assert hub.topics == [("acme", "$events/client/connect_failed/c1")] * 2


def test_a_webhook_gets_refused_logins_though_the_broker_cannot_be_made() -> None:
    opening, sink = Slow(), Sink({5})
    hub = Hub(open_tenant=opening, sink=sink)
    hub.events.connect_refused(refused_client(5), Reason.BAD_CREDENTIALS, "wrong_secret")
    opening.opened.errback(UnavailableError("no accounts"))
    hub.run()

    assert sink.got == [(5, "client/connect_failed", "acme")]


def test_too_many_refused_logins_for_a_broker_that_is_made_are_counted() -> None:
    hub = Hub(open_tenant=Slow())
    for _ in range(MOST_WAITING + 2):
        hub.events.connect_refused(refused_client(5), Reason.BAD_CREDENTIALS, "wrong_secret")
    assert hub.events.lost == {"held": 2}

    hub.events.finish()
    assert hub.events.lost == {"held": 2, "stopped": MOST_WAITING}


def test_brokers_of_many_tenants_are_made_a_few_at_a_time() -> None:
    """A command that changes a device of each tenant; clients that connect meanwhile ask the same threads."""
    asked: list[Deferred[Any]] = []
    tenants, sink = range(5, 5 + 3 * MOST_OPENING), Sink(set(range(5, 5 + 3 * MOST_OPENING)))

    async def open_tenant(_tenant_id: int | str) -> Any:
        asked.append(Deferred())
        return await asked[-1]

    hub = Hub(open_tenant=open_tenant, sink=sink)
    for tenant_id in tenants:
        hub.events.on_account(TenantEvent(EventKind.DEVICE_CREATED, tenant_id, "acme", "dev1", 5, {}, "change-1"))
    assert len(asked) == MOST_OPENING

    for number in range(len(tenants)):
        asked[number].callback(None)
        hub.run()
        assert len(asked) - (number + 1) <= MOST_OPENING

    assert sorted(tenant_id for tenant_id, _, _ in sink.got) == list(tenants)


@pytest.mark.parametrize("tenant_id", [0, 99])
def test_a_webhook_is_told_what_was_left_out_without_a_broker(tenant_id: int) -> None:
    sink = Sink({tenant_id})
    hub = Hub(Rate(1, 10.0), sink=sink)
    for _ in range(3):
        if tenant_id:
            hub.events.connect_refused(refused_client(tenant_id), Reason.BAD_CREDENTIALS, "wrong_secret")
        else:
            hub.events.on_platform(EventKind.ALARM_RAISED, "disk_low", {})
    hub.run()
    hub.summarise()

    assert [kind for _, kind, _ in sink.got][1:] == ["event/left_out"]
