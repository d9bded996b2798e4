"""Events as webhooks get them, with and without subscribers. iothub_tenants.broker.event_topics."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub.base.units import Rate
from iothub.records.tenant_events import EventKind
from tests.support.in_process.event_hub import ACME, BETA, Hub, Sink, refused_client


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
