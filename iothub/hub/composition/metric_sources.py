"""Where the hub's metrics come from: each function registers, once, how one part's numbers are read.

Knows the parts by reference and changes none of them; numbers are read when somebody asks, never pushed.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from iothub.base import log
from iothub.hub.cluster.peer_links import PeerLinks
from iothub.hub.monitoring.metering import Metering
from iothub.hub.monitoring.tenant_metrics import TenantMetrics, by_qos, sessions_here
from iothub.hub.parts import Monitoring, Process
from iothub.hub.streaming import Streaming, of_direction
from iothub.hub.workers import api_process
from iothub.jobs.watch import JobWatch
from iothub.net.descriptors import Descriptors
from iothub.net.http import HttpFactory
from iothub.net.listeners import Listeners
from iothub.peers.ports import LinkStatus
from iothub_services.auth.authenticator import Authenticator
from iothub_services.auth.shared import SharedRecords
from iothub_services.damaged import DamagedRecords
from iothub_services.events.journal import ThreadJournal
from iothub_services.metrics import metrics
from iothub_services.metrics.alarms import Alarms
from iothub_services.metrics.exposition import Registry
from iothub_services.metrics.metrics import Metric
from iothub_services.metrics.watch import Watch
from iothub_services.queues.port import JournalFigures, QueueStore
from iothub_services.queues.writer import QueueWriter
from iothub_services.quota.names import Quota
from iothub_services.streams.port import Direction
from iothub_services.webhooks.deliverer import Deliverer

if TYPE_CHECKING:
    from iothub.engine.plane import Plane
    from iothub_tenants.broker.broker import TenantBroker
    from iothub_tenants.broker.brokers import Brokers
    from iothub_tenants.broker.event_topics import EventTopics
    from iothub_tenants.broker.hub import Hub


def feed_process(registry: Registry, process: Process, monitoring: Monitoring) -> None:
    """What the process is, and how it does."""
    feed, telemetry, connections = registry.feed, monitoring.telemetry, monitoring.connection_log
    build: dict[tuple[str, ...], int] = {(process.version, platform.python_version(), process.twin): 1}
    feed(metrics.BUILD_INFO, lambda: build)
    feed(metrics.START_TIME, lambda: process.started_at)
    feed(metrics.DRAINING, lambda: int(process.phase.is_draining))
    feed(metrics.REACTOR_LAG, lambda: telemetry.lag_s)
    feed(metrics.LAST_RELOAD_GOOD, lambda: int(telemetry.is_reload_good))
    feed(metrics.LAST_RELOAD, lambda: telemetry.reloaded_at or process.started_at)
    feed(metrics.STORE_COMMITS, telemetry.commits)
    feed(metrics.API_RESTARTS, lambda: api_process.restarts(process.data_dir))
    feed(metrics.LOG_SUPPRESSED, lambda: log.suppressed() + connections.left_out)


def feed_plane(registry: Registry, plane: Plane, watch: Watch) -> None:
    """What the message plane counts."""
    counters, feed = plane.counters, registry.feed
    feed(metrics.ENGINE_TURNS, lambda: counters.turns)
    feed(metrics.PACKETS_RECEIVED, counters.packets_received)
    feed(metrics.PACKETS_SENT, counters.packets_sent)
    feed(metrics.BYTES_RECEIVED, lambda: counters.bytes_received)
    feed(metrics.BYTES_SENT, lambda: counters.bytes_sent)
    feed(metrics.MESSAGES_RECEIVED, lambda: by_qos(counters.messages_received()))
    feed(metrics.MESSAGES_DELIVERED, lambda: by_qos(counters.messages_delivered()))
    feed(metrics.MESSAGES_DROPPED, counters.drops)
    feed(metrics.BUFFERED_BYTES, lambda: plane.turn.buffered_bytes)
    feed(metrics.OVERLOAD_LEVEL, lambda: 3 if watch.is_overloaded else plane.overload_level())


def feed_sockets(
    registry: Registry, listeners: Listeners, descriptors: Descriptors, http: HttpFactory | None, brokers: Brokers
) -> None:
    """Listeners and what comes in through them."""
    gates, feed = listeners.gates, registry.feed

    def unauthenticated() -> int:
        accepted = sum(gate.connections for gate in gates().values())
        return max(accepted - _connected(brokers), 0)

    def limits() -> Mapping[str, int]:
        return {name: min(gate.listener.max_connections, descriptors.servable) for name, gate in gates().items()}

    def refused() -> Mapping[tuple[str, ...], int]:
        return {(name, reason.word): count for name, gate in gates().items() for reason, count in gate.refused.items()}

    def requests() -> Mapping[tuple[str, ...], int]:
        return {} if http is None else {(route, status): count for (route, status), count in http.requests.items()}

    feed(metrics.CONNECTIONS, lambda: {name: gate.connections for name, gate in gates().items()})
    feed(metrics.CONNECTIONS_LIMIT, limits)
    feed(metrics.ACCEPTS_REFUSED, refused)
    feed(metrics.FILE_DESCRIPTORS, lambda: descriptors.open)
    feed(metrics.FILE_DESCRIPTORS_LIMIT, lambda: descriptors.limit)
    feed(metrics.ENGINE_EVENTS, lambda: listeners.transports.counters()["events"])
    feed(metrics.CONNECTIONS_PRE_AUTH, unauthenticated)
    feed(metrics.HTTP_REQUESTS, requests)


def feed_control(
    registry: Registry, hub: Hub, tenants: TenantMetrics, shared_records: SharedRecords | None, part: str
) -> None:
    """Tenants, their sessions and what is remembered of their accounts. `part`: names this hub where several are added up."""
    feed, brokers, directory = registry.feed, hub.brokers, hub.authenticator.directory

    def sessions() -> dict[str, int]:
        total, connected = sum(len(broker.plane.sessions) for broker in brokers), _connected(brokers)
        return {"connected": connected, "offline": total - connected}

    def subscriptions() -> dict[str, int]:
        groups = sum(broker.plane.router.group_count for broker in brokers)
        return {"plain": _used(brokers, Quota.SUBSCRIPTIONS), "shared": groups}

    def sessions_in_parts() -> dict[tuple[str, ...], int]:
        here, connected = sum(map(sessions_here, brokers)), _connected(brokers)
        return {("connected", part): connected, ("offline", part): max(here - connected, 0)}

    def subscriptions_in_parts() -> dict[tuple[str, ...], int]:
        plain = sum(broker.allowance.ledger.part(Quota.SUBSCRIPTIONS) for broker in brokers)
        groups = _by_tenant(brokers, lambda broker: broker.plane.router.group_count)
        return {("plain", part): plain, **{("shared", tenant): count for (tenant,), count in groups.items()}}

    feed(metrics.TENANTS, lambda: len(brokers), lambda: _by_tenant(brokers, lambda _broker: 1))
    feed(metrics.SESSIONS, sessions, sessions_in_parts)
    feed(metrics.SUBSCRIPTIONS, subscriptions, subscriptions_in_parts)
    feed(metrics.AUTH_CACHE, lambda: {"hit": directory.hits, "miss": directory.misses})
    if shared_records is not None:
        feed(metrics.REDIS_RECORDS, shared_records.results)
    feed(metrics.AWAITING_PEERS, lambda: hub.awaiting_peers)
    feed(metrics.WILLS_OVERTAKEN, lambda: hub.sessions.wills_overtaken)
    feed(metrics.HOOK_FAILURES, lambda: hub.hooks.failures)
    feed(metrics.SERIES_DROPPED, lambda: tenants.dropped)


def feed_streams(registry: Registry, streaming: Streaming) -> None:
    """Streams out and in."""
    feed, out, inward, streams = registry.feed, streaming.sink_store, streaming.sources, streaming.registry
    feed(metrics.STREAM_MESSAGES, lambda: {"out": out.messages, "in": inward.messages})
    feed(metrics.STREAM_BYTES, lambda: {"out": out.bytes, "in": inward.bytes})
    feed(metrics.STREAM_REFUSED, lambda: {"out": out.refused, "in": inward.refused})
    feed(metrics.STREAM_GIVEN_UP, lambda: out.given_up)
    feed(metrics.STREAM_PENDING, lambda: out.pending[1])
    feed(metrics.STREAMS, lambda: {each.value: of_direction(list(streams), each) for each in Direction})


def feed_events(registry: Registry, journal: ThreadJournal, damaged: DamagedRecords, metering: Metering) -> None:
    """The session-event log and the one for statistics."""
    feed = registry.feed
    feed(metrics.SESSION_EVENTS_LOST, lambda: journal.lost)
    feed(metrics.DAMAGED_RECORDS, damaged.counts)
    feed(metrics.ANALYTICS_EVENTS, lambda: metering.written)
    feed(metrics.ANALYTICS_EVENTS_LOST, lambda: metering.lost)


def feed_tenant_events(registry: Registry, events: EventTopics, deliverer: Deliverer) -> None:
    """What is published below `$events`, and to webhooks."""
    registry.feed(metrics.TENANT_EVENTS, lambda: events.published)
    registry.feed(metrics.TENANT_EVENTS_LEFT_OUT, lambda: dict(events.lost))
    registry.feed(metrics.WEBHOOK_EVENTS, lambda: dict(deliverer.counts))
    registry.feed(metrics.WEBHOOK_WAITING_BYTES, deliverer.waiting_bytes)


def feed_messages(registry: Registry, writer: QueueWriter, queues: QueueStore, brokers: Brokers) -> None:
    """Virtual queues and retained messages."""
    feed, usage = registry.feed, queues.tenant_usage
    feed(metrics.STORE_PENDING_BYTES, lambda: writer.waiting[1])
    feed(metrics.REPEATABLE_DELIVERIES, lambda: writer.repeatable_deliveries)

    def feed_tenants(metric: Metric, figure: Callable[[TenantBroker], int]) -> None:
        feed(metric, lambda: sum(map(figure, brokers)), lambda: _by_tenant(brokers, figure))

    feed_tenants(metrics.QUEUED_MESSAGES, lambda broker: usage(broker.tenant_id).messages)
    feed_tenants(metrics.QUEUED_BYTES, lambda broker: usage(broker.tenant_id).bytes)
    feed_tenants(metrics.RETAINED_MESSAGES, lambda broker: broker.allowance.ledger.used(Quota.RETAINED_MESSAGES))
    feed_tenants(metrics.RETAINED_BYTES, lambda broker: broker.allowance.ledger.used(Quota.RETAINED_BYTES))


def feed_journal(registry: Registry, figures: Callable[[], JournalFigures]) -> None:
    """The journal of the embedded queues."""
    registry.feed(metrics.JOURNAL_BYTES, lambda: figures().size_bytes)
    registry.feed(metrics.JOURNAL_MESSAGES, lambda: figures().messages)
    registry.feed(metrics.JOURNAL_CHECKPOINT, lambda: figures().checkpoint_us / 1_000_000)


def feed_operations(
    registry: Registry,
    alarms: Alarms,
    watch: Watch,
    jobs: JobWatch,
    authenticator: Authenticator,
    bans: Callable[[], Mapping[str, int]],
) -> None:
    """What an operator looks after. `bans`: in force, by kind, without those for failed logins."""
    feed = registry.feed

    def active() -> dict[tuple[str, ...], int]:
        return {(alarm.name.severity, f"{alarm.name.word} {alarm.subject}"): 1 for alarm in alarms.active()}

    feed(metrics.ALARMS_ACTIVE, alarms.counts, active)
    feed(metrics.BANS, lambda: {**bans(), "failures": authenticator.failures.banned()})
    feed(metrics.CERTIFICATE_EXPIRY, lambda: watch.certificate_ends)
    feed(metrics.DISK_FREE, lambda: watch.disk_free_bytes)
    feed(metrics.JOB_LAST_SUCCESS, jobs.last_success)
    feed(metrics.JOB_DURATION, jobs.duration_s)
    feed(metrics.JOB_LAST_RESULT, jobs.last_result)
    feed(metrics.JOB_RUNNING, jobs.running)


def feed_links(registry: Registry, links: PeerLinks) -> None:
    """Links to other hubs."""
    feed = registry.feed

    def per_peer(value: Callable[[LinkStatus], float | None]) -> Mapping[str, float]:
        found = ((str(status.peer.node), value(status)) for status in links.status())
        return {node: number for node, number in found if number is not None}

    def moved() -> Mapping[tuple[str, ...], int]:
        found: dict[tuple[str, ...], int] = {}
        for status in links.status():
            node = str(status.peer.node)
            found[node, "out"], found[node, "in"] = status.sent_bytes, status.received_bytes
        return found

    feed(metrics.CLUSTER_PEERS, lambda: len(links.up()))
    feed(metrics.CLOCK_OFFSET, lambda: links.cluster_clock.offset_s)
    feed(metrics.CLUSTER_EVENTS, lambda: links.events.counts)
    feed(metrics.LINK_BYTES, moved)
    feed(metrics.LINK_UNACKNOWLEDGED, lambda: per_peer(lambda status: status.unacknowledged_bytes))
    feed(metrics.LINK_RECONNECTS, lambda: per_peer(lambda status: status.reconnects))
    feed(metrics.LINK_ROUND_TRIP, lambda: per_peer(lambda status: status.round_trip_s))


def _connected(brokers: Iterable[TenantBroker]) -> int:
    return sum(broker.plane.connections for broker in brokers)


def _by_tenant(brokers: Iterable[TenantBroker], figure: Callable[[TenantBroker], int]) -> dict[tuple[str, ...], int]:
    """Return what is not 0, for hubs that know the same of a tenant."""
    figures = ((broker.tenant_id, figure(broker)) for broker in brokers)
    return {(str(tenant_id),): count for tenant_id, count in figures if count}


def _used(brokers: Iterable[TenantBroker], quota: Quota) -> int:
    return sum(broker.allowance.ledger.used(quota) for broker in brokers)
