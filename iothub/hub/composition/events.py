"""What publishes events to tenants and the whole hub's figures to the operator, made for a hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from iothub.engine.plane import Plane
from iothub.hub.cluster.member_events import MemberEvent, MemberEventName
from iothub.hub.monitoring.broker_figures import AllFigures, BrokerFigures, Named
from iothub.records.tenant_events import EventKind, Fact
from iothub_services.metrics.alarms import Alarm
from iothub_services.metrics.exposition import Registry
from iothub_services.metrics.merging import Figures
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.event_topics import EventSettings, EventSource, EventTopics
from iothub_tenants.broker.peer_routes import PeerRoutes, until_opened

if TYPE_CHECKING:
    from iothub.hub.composition.foundation import Foundation


def make_events(foundation: Foundation, plane: Plane, routes: PeerRoutes) -> EventTopics:
    """Make what publishes below `$events`, over the message plane."""
    process, stores, brokers = foundation.process, foundation.stores, foundation.brokers
    settings, telemetry = process.settings, foundation.monitoring.telemetry

    async def open_tenant(tenant: int | str) -> TenantBroker | None:
        registry = foundation.registry
        record = (
            await process.threads.run("accounts.tenant", registry.find_tenant, tenant)
            if isinstance(tenant, str)
            else await process.threads.run("accounts.tenant", registry.tenant_by_id, tenant)
        )
        if record is None:
            return None
        broker = await brokers.broker(record)
        await until_opened(routes, broker.plane)
        return broker

    made = EventTopics(
        plane,
        brokers,
        EventSource(telemetry.tenant_rejections.of, stores.queues.tenant_usage),
        process.clock,
        process.reactor.callLater,
        EventSettings(settings.node.number, settings.mqtt.events_rate, settings.tenancy.operator),
        None if foundation.links is None else open_tenant,
        foundation.webhooks,
    )
    _watch_platform(foundation, made)
    foundation.event_listeners.append(made.on_event)
    return foundation.events.bind(made)


def _watch_platform(foundation: Foundation, events: EventTopics) -> None:
    """Let the operator's tenant hear of alarms, and of other hubs."""

    def on_alarm(alarm: Alarm, is_raised: bool) -> None:
        name = alarm.name
        facts: dict[str, Fact] = {"alarm": name.word, "severity": name.severity, "subject": alarm.subject}
        kind = EventKind.ALARM_RAISED if is_raised else EventKind.ALARM_CLEARED
        events.on_platform(kind, name.word, {**facts, "detail": alarm.detail, "since": alarm.since})

    def on_member(event: MemberEvent) -> None:
        kind = _OF_MEMBERS.get(event.name)
        if kind is not None:
            facts: dict[str, Fact] = {"hub": event.hub, "number": event.node, "reason": event.reason}
            events.on_platform(kind, event.hub, facts)

    foundation.monitoring.alarms.listen(on_alarm)
    if foundation.links is not None:
        foundation.links.events.watch(on_member)


_OF_MEMBERS = {
    MemberEventName.UP: EventKind.NODE_UP,
    MemberEventName.UNREACHABLE: EventKind.NODE_UNREACHABLE,
    MemberEventName.EXPELLED: EventKind.NODE_EXPELLED,
    MemberEventName.DOWN: EventKind.NODE_DOWN,
}


def figures_of(operator: str, found: BrokerFigures | None) -> Callable[[TenantBroker], Named]:
    """Return what says what a tenant gets of them."""
    return lambda broker: found.named if found is not None and broker.record.name == operator else {}


def figures_of_registry(registry: Registry) -> AllFigures:
    async def read() -> Figures:
        return registry.figures()

    return read
