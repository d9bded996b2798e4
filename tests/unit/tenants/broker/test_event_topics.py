"""What happens to a tenant's clients, below $events: for those who have subscribed, bounded, and nothing for nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from iothub.base.reasons import Reason
from iothub.records import events as log_events
from iothub.records.events import Subject
from iothub.records.tenant_events import EventKind, TenantEvent
from iothub_services.connections.rejected import NO_TENANT
from iothub_services.queues.port import TenantUsage
from iothub_tenants.broker.traffic import Traffic
from tests.support.in_process.event_hub import ACME, BETA, Hub, broker, refused_client


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
