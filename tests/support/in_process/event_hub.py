"""What publishes a tenant's events, on doubles: two tenants, a plane that remembers, and what is due runs when the test says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iothub.base.units import Rate
from iothub.engine.message import Message
from iothub.engine.router import Subscription
from iothub.engine.state import TenantPlane
from iothub.records import events as log_events
from iothub.records.events import Subject
from iothub.records.tenant_events import EventKind, TenantEvent
from iothub.testing.clock import ManualClock
from iothub_services.connections.rejected import Client
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota
from iothub_tenants.broker.event_topics import EventSettings, EventSource, EventTopics
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


def refused_client(tenant_id: int = ACME) -> Client:
    return Client(tenant_id, "acme", "dev1", "c1", "192.0.2.1:9", "tcp", 5)


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
