"""Health and metrics of one running hub, as the HTTP face asks for them: read when asked, never pushed.

Knows the node's parts by reference and changes none of them.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from iothub.base import log
from iothub.hub.streaming import of_direction
from iothub_services.hbase.administration import ADVICE
from iothub_services.metrics import metrics
from iothub_services.metrics.alarms import AlarmName
from iothub_services.metrics.exposition import TenantPages, TenantSample
from iothub_services.quota.names import Quota, Scope
from iothub_services.streams.port import Direction

if TYPE_CHECKING:
    from iothub.hub.compose import Node
    from iothub.hub.periodic_tasks import Duties
    from iothub.jobs.watch import JobWatch
    from iothub_services.metrics.exposition import Values
    from iothub_services.metrics.metrics import Metric
    from iothub_services.queues.port import TenantUsage
    from iothub_tenants.broker.broker import TenantBroker
    from iothub_tenants.broker.traffic import Traffic

_NOTHING = (
    metrics.TENANT_CONNECTIONS,
    metrics.TENANT_SESSIONS,
    metrics.TENANT_SUBSCRIPTIONS,
    metrics.TENANT_RETAINED_MESSAGES,
    metrics.TENANT_RETAINED_BYTES,
    metrics.TENANT_QUEUED_MESSAGES,
    metrics.TENANT_QUEUED_BYTES,
)
"""What a tenant has nothing of when its broker is dropped."""


class NodeHealth:
    """Fulfils `iothub.net.http.Health`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._pages = TenantPages(node.settings.metrics.tenant_series_max)

    def reasons(self) -> list[str]:
        node = self._node
        reasons = []
        if node.waiting.reason:
            reasons.append(f"the hub is starting: {self._waited_for()}")
        elif not node.telemetry.is_ready:
            reasons.append("the hub is starting: sessions are being loaded, or a listener is not open yet")
        if node.is_stopping:
            reasons.append("the hub is stopping")
        if node.writer.is_failing or node.journal_thread.is_failing:
            reasons.append(f"a store refuses writes; see the alarms{self._failing_stores()}")
        if not node.waiting.reason and (silent := self._silent_gateways()):
            reasons.append(f"no gateway of HBase answers: {'; '.join(silent)}; {ADVICE}")
        if node.shared_stores is not None and (why := node.shared_stores.held_back):
            reasons.append(f"messages and persistent sessions are not taken: {why}")
        if node.watch.no_writes:
            reasons.append(node.watch.no_writes)
        if node.plane.overload_level() >= 3:
            reasons.append("new connections are refused: overload.buffered_bytes is used up")
        if node.watch.is_overloaded:
            reasons.append("new connections are refused: resident memory is above overload.memory_limit")
        return reasons

    def _failing_stores(self) -> str:
        names = {AlarmName.STORE_FAILED, AlarmName.DISK_FULL}
        found = [f"{alarm.subject}: {alarm.detail}" for alarm in self._node.alarms.active() if alarm.name in names]
        return f": {'; '.join(found)}" if found else ""

    def _waited_for(self) -> str:
        """Name gateways that do not answer before the call fails that waits for them."""
        reason = self._node.waiting.reason
        return "; ".join((reason, *(each for each in self._gateways_in_trouble() if each not in reason)))

    def _gateways_in_trouble(self) -> list[str]:
        hbase = self._node.hbase
        troubles = {} if hbase is None else hbase.gateways.troubles
        return [f"HBase's gateway {gateway} {trouble}" for gateway, trouble in troubles.items()]

    def _silent_gateways(self) -> list[str]:
        """All of them, or none: an idle hub hears that they are gone before a write fails. What is written behind, as states are, waits."""
        told, hbase, settings = self._gateways_in_trouble(), self._node.hbase, self._node.settings
        drivers = {
            settings.retained.driver,
            settings.queues.driver,
            *(choice.driver for choice in settings.queues.choices),
        }
        return told if "hbase" in drivers and hbase is not None and len(told) == len(hbase.gateways) else []

    def status(self) -> Mapping[str, object]:
        node = self._node
        turn = node.plane.turn
        return {
            "version": node.version,
            "twin": node.backend,
            "connections": {"used": node.plane.connection_count, "limit": node.plane.limits.connections},
            "buffered_bytes": {"used": turn.buffered_bytes, "limit": node.plane.limits.buffered_bytes},
            "unstored_bytes": {"used": turn.unstored_bytes, "limit": node.plane.limits.unstored_bytes},
            "tenants": len(node.brokers),
            "quota": self._quota(),
            "alarms": self._alarms(),
        }

    def _quota(self) -> str:
        """How limits hold: here alone, over all hubs, or by this hub's last share."""
        shared = self._node.shared_quota
        return "local" if shared is None else shared.mode.value

    def metrics(self) -> bytes:
        return self._node.telemetry.registry.render()

    def tenant_metrics(self, tenant: str | None, after: str, limit: int) -> Iterator[bytes]:
        """Those who are there come first on their page: if its cap leaves somebody out, then one who is away."""
        node = self._node
        here = {broker.record.name: broker for broker in node.brokers}
        away = {name: (number, past) for number, name, past in node.telemetry.past if not node.brokers.present(number)}
        chosen = sorted(name for name in here.keys() | away.keys() if tenant in (None, name) and name > after)[:limit]
        present = (self._sample(here[name]) for name in chosen if name in here)
        absent = (self._sample_away(name, *away[name]) for name in chosen if name not in here)
        return self._pages.render(chain(present, absent))

    def brief(self) -> Mapping[str, object]:
        """What the hub answers to `iothub status` through the command table."""
        node = self._node
        return {
            "version": node.version,
            "node": node.settings.node.number,
            "other_hubs": [] if node.shared_stores is None else sorted(node.shared_stores.members.living),
            "quota": self._quota(),
            "ready": not self.reasons(),
            "reasons": self.reasons(),
            "connections": node.plane.connection_count,
            "tenants": len(node.brokers),
            "alarms": self._alarms(),
        }

    def _alarms(self) -> list[dict[str, object]]:
        return [
            {
                "name": alarm.name.word,
                "severity": alarm.name.severity,
                "subject": alarm.subject,
                "detail": alarm.detail,
                "since": alarm.since,
                "advice": alarm.name.advice,
            }
            for alarm in self._node.alarms.active()
        ]

    def feed(self, duties: Duties) -> None:
        """Tell the registry where each number is; once."""
        self._feed_plane()
        self._feed_stores()
        self._feed_streams()
        self._feed_operations(duties)
        self._feed_jobs(duties.jobs)

    def _feed_plane(self) -> None:
        node, feed = self._node, self._node.telemetry.registry.feed
        counters, gates = node.plane.counters, node.listeners.gates
        build: dict[tuple[str, ...], int] = {(node.version, platform.python_version(), node.backend): 1}
        feed(metrics.BUILD_INFO, lambda: build)
        feed(metrics.START_TIME, lambda: node.started_at)
        feed(metrics.ENGINE_TURNS, lambda: counters.turns)
        feed(metrics.CONNECTIONS, lambda: {name: gate.connections for name, gate in gates().items()})
        feed(metrics.CONNECTIONS_LIMIT, lambda: {name: gate.listener.max_connections for name, gate in gates().items()})
        feed(metrics.ACCEPTS_REFUSED, lambda: {name: sum(gate.refused.values()) for name, gate in gates().items()})
        feed(metrics.PACKETS_RECEIVED, counters.packets_received)
        feed(metrics.PACKETS_SENT, counters.packets_sent)
        feed(metrics.BYTES_RECEIVED, lambda: counters.bytes_received)
        feed(metrics.BYTES_SENT, lambda: counters.bytes_sent)
        feed(metrics.MESSAGES_RECEIVED, lambda: _by_qos(counters.messages_received()))
        feed(metrics.MESSAGES_DELIVERED, lambda: _by_qos(counters.messages_delivered()))
        feed(metrics.MESSAGES_DROPPED, counters.drops)
        feed(metrics.SESSIONS, self._sessions)
        feed(metrics.BUFFERED_BYTES, lambda: node.plane.turn.buffered_bytes)
        feed(metrics.SUBSCRIPTIONS, self._subscriptions)
        feed(metrics.CONNECTIONS_PRE_AUTH, self._pre_auth)
        feed(metrics.ENGINE_EVENTS, lambda: node.listeners.transports.counters()["events"])
        feed(metrics.OVERLOAD_LEVEL, lambda: 3 if node.watch.is_overloaded else node.plane.overload_level())
        feed(metrics.TENANTS, lambda: len(node.brokers))
        directory = node.authenticator.directory
        feed(metrics.AUTH_CACHE, lambda: {"hit": directory.hits, "miss": directory.misses})
        if node.shared_records is not None:
            feed(metrics.REDIS_RECORDS, node.shared_records.results)
        feed(metrics.HOOK_FAILURES, lambda: node.hub.hooks.failures)

    def _feed_streams(self) -> None:
        streaming, feed = self._node.streaming, self._node.telemetry.registry.feed
        out, inward, book = streaming.outlet, streaming.inlets, streaming.book
        feed(metrics.STREAM_MESSAGES, lambda: {"out": out.messages, "in": inward.messages})
        feed(metrics.STREAM_BYTES, lambda: {"out": out.bytes, "in": inward.bytes})
        feed(metrics.STREAM_REFUSED, lambda: {"out": out.refused, "in": inward.refused})
        feed(metrics.STREAM_GIVEN_UP, lambda: out.given_up)
        feed(metrics.STREAM_PENDING, lambda: out.pending[1])
        feed(metrics.STREAMS, lambda: {each.value: of_direction(list(book), each) for each in Direction})

    def _feed_stores(self) -> None:
        node, feed = self._node, self._node.telemetry.registry.feed
        feed(metrics.STORE_COMMITS, node.telemetry.commits)
        feed(metrics.SESSION_EVENTS_LOST, lambda: node.journal.lost)
        feed(metrics.DAMAGED_RECORDS, node.damaged.counts)
        feed(metrics.ANALYTICS_EVENTS, lambda: node.metering.written)
        feed(metrics.ANALYTICS_EVENTS_LOST, lambda: node.metering.lost)
        feed(metrics.STORE_PENDING_BYTES, lambda: node.writer.waiting[1])
        feed(metrics.QUEUED_MESSAGES, lambda: sum(self._queued(broker).messages for broker in node.brokers))
        feed(metrics.QUEUED_BYTES, lambda: sum(self._queued(broker).bytes for broker in node.brokers))
        feed(metrics.RETAINED_MESSAGES, lambda: self._used(Quota.RETAINED_MESSAGES))
        feed(metrics.RETAINED_BYTES, lambda: self._used(Quota.RETAINED_BYTES))

    def _feed_operations(self, duties: Duties) -> None:
        node, feed, telemetry = self._node, self._node.telemetry.registry.feed, self._node.telemetry
        feed(metrics.REACTOR_LAG, lambda: telemetry.lag_s)
        feed(metrics.LAST_RELOAD_GOOD, lambda: int(telemetry.is_reload_good))
        feed(metrics.LAST_RELOAD, lambda: telemetry.reloaded_at or node.started_at)
        feed(metrics.ALARMS_ACTIVE, node.alarms.counts)
        feed(metrics.BANS, lambda: {**duties.bans, "failures": node.authenticator.failures.banned()})
        feed(metrics.CERTIFICATE_EXPIRY, lambda: node.watch.certificate_ends)
        feed(metrics.DISK_FREE, lambda: node.watch.disk_free_bytes)
        feed(metrics.HTTP_REQUESTS, self._http_requests)
        feed(metrics.LOG_SUPPRESSED, log.suppressed)
        feed(metrics.SERIES_DROPPED, lambda: self._pages.dropped)

    def _feed_jobs(self, jobs: JobWatch) -> None:
        feed = self._node.telemetry.registry.feed
        feed(metrics.JOB_LAST_SUCCESS, jobs.last_success)
        feed(metrics.JOB_DURATION, jobs.duration_s)
        feed(metrics.JOB_LAST_RESULT, jobs.last_result)
        feed(metrics.JOB_RUNNING, jobs.running)

    def _http_requests(self) -> Mapping[tuple[str, ...], int]:
        face = self._node.http_face
        return {} if face is None else {(route, status): count for (route, status), count in face.requests.items()}

    def _queued(self, broker: TenantBroker) -> TenantUsage:
        return self._node.queues.tenant_usage(broker.tenant_id)

    def _pre_auth(self) -> int:
        accepted = sum(gate.connections for gate in self._node.listeners.gates().values())
        return max(accepted - sum(broker.plane.connections for broker in self._planes()), 0)

    def _planes(self) -> Iterator[TenantBroker]:
        return iter(self._node.brokers)

    def _used(self, quota: Quota) -> int:
        return sum(broker.allowance.ledger.used(quota) for broker in self._planes())

    def _sessions(self) -> dict[str, int]:
        total = sum(len(broker.plane.sessions) for broker in self._planes())
        connected = sum(broker.plane.connections for broker in self._planes())
        return {"connected": connected, "offline": total - connected}

    def _subscriptions(self) -> dict[str, int]:
        total = self._used(Quota.SUBSCRIPTIONS)
        return {"plain": total, "shared": sum(broker.plane.router.group_count for broker in self._planes())}

    def _sample(self, broker: TenantBroker) -> TenantSample:
        plane, ledger, queued = broker.plane, broker.allowance.ledger, self._queued(broker)
        figures = ledger.figures()
        used = {quota: count for quota, (count, _) in figures.items() if quota.scope is Scope.TENANT}
        used |= {Quota.QUEUED_MESSAGES: queued.messages, Quota.QUEUED_BYTES: queued.bytes}
        return TenantSample(
            broker.record.name,
            self._counted(broker.tenant_id, broker.traffic)
            | {
                metrics.TENANT_CONNECTIONS: plane.connections,
                metrics.TENANT_SESSIONS: len(plane.sessions),
                metrics.TENANT_SUBSCRIPTIONS: ledger.used(Quota.SUBSCRIPTIONS),
                metrics.TENANT_RETAINED_MESSAGES: ledger.used(Quota.RETAINED_MESSAGES),
                metrics.TENANT_RETAINED_BYTES: ledger.used(Quota.RETAINED_BYTES),
                metrics.TENANT_QUOTA_LIMIT: {
                    quota.value: max(limit, 0) for quota, (_, limit) in figures.items() if limit
                },
                metrics.TENANT_QUEUED_MESSAGES: queued.messages,
                metrics.TENANT_QUEUED_BYTES: queued.bytes,
                metrics.TENANT_QUOTA_USED: {quota.value: count for quota, count in used.items()},
            },
        )

    def _sample_away(self, name: str, tenant_id: int, past: Traffic) -> TenantSample:
        """A tenant whose broker was dropped has nothing, and goes on from its counters; its limits are read when it is back."""
        return TenantSample(name, self._counted(tenant_id, past) | dict.fromkeys(_NOTHING, 0))

    def _counted(self, tenant_id: int, traffic: Traffic) -> dict[Metric, Values]:
        """What only rises while the hub runs."""
        telemetry = self._node.telemetry
        return {
            metrics.TENANT_MESSAGES_RECEIVED: _by_qos(traffic.messages_received),
            metrics.TENANT_MESSAGES_DELIVERED: _by_qos(traffic.messages_delivered),
            metrics.TENANT_MESSAGES_DROPPED: traffic.dropped,
            metrics.TENANT_BYTES_RECEIVED: traffic.bytes_received,
            metrics.TENANT_BYTES_SENT: traffic.bytes_sent,
            metrics.TENANT_QUOTA_REJECTIONS: telemetry.tenant_rejections.of(tenant_id),
            metrics.TENANT_QUOTA_TRIALS: telemetry.tenant_trials.of(tenant_id),
            metrics.TENANT_DENIED: telemetry.tenant_denials.of(tenant_id),
            metrics.TENANT_AUTHENTICATIONS: telemetry.tenant_logins.of(tenant_id),
        }


def _by_qos(counts: tuple[int, int, int]) -> dict[str, int]:
    return {str(qos): count for qos, count in enumerate(counts)}
