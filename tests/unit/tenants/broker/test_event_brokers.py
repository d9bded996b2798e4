"""Brokers that are made for events alone, because other hubs have the subscribers. iothub_tenants.broker.event_topics."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.records.tenant_events import EventKind, TenantEvent
from iothub_tenants.broker import event_topics
from iothub_tenants.broker.event_topics import MOST_OPENING, MOST_WAITING
from tests.support.in_process.event_hub import Hub, Sink, broker, refused_client


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


def test_what_waits_for_brokers_is_bounded_over_all_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that was made makes room."""
    monkeypatch.setattr(event_topics, "MOST_OF_ALL", 2)
    opening, sink = Slow(), Sink({5, 6})
    hub = Hub(open_tenant=opening, sink=sink)
    for tenant_id in (5, 6, 6):
        hub.events.connect_refused(refused_client(tenant_id), Reason.BAD_CREDENTIALS, "wrong_secret")
    assert hub.events.lost == {"held": 1}

    opening.opened.callback(None)
    hub.run()

    assert sorted(tenant_id for tenant_id, _, _ in sink.got) == [5, 6]
    hub.events.connect_refused(refused_client(5), Reason.BAD_CREDENTIALS, "wrong_secret")
    assert hub.events.lost == {"held": 1}
