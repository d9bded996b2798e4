"""What a running hub says of itself, over HTTP and to `iothub status`: read when asked, never pushed.

Knows the parts that it asks by reference and changes none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iothub.config.sections import Config
from iothub.engine.plane import Plane
from iothub.hub.cluster.cluster import HubCluster
from iothub.hub.cluster.peer_links import PeerLinks
from iothub.hub.monitoring.tenant_metrics import TenantMetrics
from iothub.hub.phase import Phase
from iothub.hub.stores.store_alarms import StoreAlarms
from iothub.hub.stores.wait_for_servers import Waiting
from iothub.net.descriptors import Descriptors
from iothub.records.admin_commands import Json, Reply, Request
from iothub_services.group_thread import GroupThread
from iothub_services.hbase.administration import ADVICE
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.exposition import Registry
from iothub_services.metrics.watch import Watch
from iothub_services.queues.writer import QueueWriter
from iothub_services.quota.shared.service import SharedQuota
from iothub_services.state.service import StateOp
from iothub_tenants.broker.brokers import Brokers

if TYPE_CHECKING:
    from iothub_services.hbase.client import HBaseClient


@dataclass(frozen=True, slots=True)
class Readiness:
    """Says why clients should go elsewhere. `hbase`: None: no store is on it."""

    settings: Config
    phase: Phase
    waiting: Waiting
    alarms: Alarms
    store_alarms: StoreAlarms
    watch: Watch
    plane: Plane
    writer: QueueWriter
    journal_thread: GroupThread[StateOp, object]
    hbase: HBaseClient | None
    cluster: HubCluster | None

    def reasons(self) -> list[str]:
        reasons = self._phase_reasons()
        if why := self.store_alarms.process_away:
            reasons.append(f"{why}; until it is back nothing is stored, and publishers wait")
        elif self.writer.is_failing or self.journal_thread.is_failing:
            reasons.append(f"a store refuses writes; see the alarms{self._failing_stores()}")
        if not self.waiting.reason and (silent := self._silent_gateways()):
            reasons.append(f"no gateway of HBase answers: {'; '.join(silent)}; {ADVICE}")
        if self.cluster is not None and (why := self.cluster.held_back):
            reasons.append(f"messages and persistent sessions are not taken: {why}")
        if self.watch.no_writes:
            reasons.append(self.watch.no_writes)
        if self.plane.overload_level() >= 3:
            reasons.append("new connections are refused: overload.buffered_bytes is used up")
        if self.watch.is_overloaded:
            reasons.append("new connections are refused: resident memory is above overload.memory_limit")
        return reasons

    def _phase_reasons(self) -> list[str]:
        reasons = []
        if self.waiting.reason:
            reasons.append(f"the hub is starting: {self._waited_for()}")
        elif not (self.phase.is_ready or self.phase.is_stopping):
            reasons.append("the hub is starting: sessions are being loaded, or a listener is not open yet")
        if self.phase.is_draining:
            reasons.append(f"the hub is draining: {self.plane.connection_count} clients are left")
        if self.phase.is_stopping:
            reasons.append("the hub is stopping")
        return reasons

    def _failing_stores(self) -> str:
        names = {AlarmName.STORE_FAILED, AlarmName.DISK_FULL}
        found = [f"{alarm.subject}: {alarm.detail}" for alarm in self.alarms.active() if alarm.name in names]
        return f": {'; '.join(found)}" if found else ""

    def _waited_for(self) -> str:
        """Name gateways that do not answer before the call fails that waits for them."""
        reason = self.waiting.reason
        return "; ".join((reason, *(each for each in self._gateways_in_trouble() if each not in reason)))

    def _gateways_in_trouble(self) -> list[str]:
        hbase = self.hbase
        troubles = {} if hbase is None else hbase.gateways.troubles
        return [f"HBase's gateway {gateway} {trouble}" for gateway, trouble in troubles.items()]

    def _silent_gateways(self) -> list[str]:
        """All of them, or none: an idle hub hears that they are gone before a write fails. What is written behind, as states are, waits."""
        silent, hbase, settings = self._gateways_in_trouble(), self.hbase, self.settings
        drivers = {
            settings.retained.driver,
            settings.queues.driver,
            *(choice.driver for choice in settings.queues.choices),
        }
        return silent if "hbase" in drivers and hbase is not None and len(silent) == len(hbase.gateways) else []


@dataclass(frozen=True, slots=True)
class Health:
    """Fulfils `iothub.net.http.Health`. `number`: of this node; `twin`: compiled or plain."""

    version: str
    twin: str
    number: int
    readiness: Readiness
    alarms: Alarms
    registry: Registry
    plane: Plane
    descriptors: Descriptors
    brokers: Brokers
    tenants: TenantMetrics
    shared_quota: SharedQuota | None
    cluster: HubCluster | None
    links: PeerLinks | None

    def reasons(self) -> list[str]:
        return self.readiness.reasons()

    def readyz(self) -> Mapping[str, object]:
        reasons = self.reasons()
        return {"ready": not reasons, "reasons": reasons}

    def status(self) -> Mapping[str, object]:
        turn = self.plane.turn
        return {
            "version": self.version,
            "twin": self.twin,
            "connections": {"used": self.plane.connection_count, "limit": self._connections_limit()},
            "buffered_bytes": {"used": turn.buffered_bytes, "limit": self.plane.limits.buffered_bytes},
            "unstored_bytes": {"used": turn.unstored_bytes, "limit": self.plane.limits.unstored_bytes},
            "tenants": len(self.brokers),
            "quota": self._quota(),
            "alarms": self._alarms(),
        }

    def _connections_limit(self) -> int:
        """How many connections can be served: file descriptors may allow fewer than the settings."""
        return min(self.plane.limits.connections, self.descriptors.servable)

    def _quota(self) -> str:
        """How limits hold: here alone, over all hubs, or by this hub's last share."""
        shared = self.shared_quota
        return "local" if shared is None else shared.mode.value

    def _links(self) -> Mapping[str, int] | None:
        """How many of the other hubs are linked; None: this hub has no links."""
        if self.links is None or self.cluster is None:
            return None
        return {"up": len(self.links.up()), "hubs": len(self.cluster.members.living)}

    def metrics(self) -> bytes:
        return self.registry.render()

    def tenant_metrics(self, tenant: str | None, after: str, limit: int) -> Iterator[bytes]:
        return self.tenants.render(tenant, after, limit)

    def brief(self) -> Mapping[str, object]:
        """What the hub answers to `iothub status`."""
        return {
            "version": self.version,
            "node": self.number,
            "other_hubs": [] if self.cluster is None else sorted(self.cluster.members.living),
            "links": self._links(),
            "quota": self._quota(),
            "ready": not self.readiness.reasons(),
            "reasons": self.readiness.reasons(),
            "connections": self.plane.connection_count,
            "connections_limit": self._connections_limit(),
            "tenants": len(self.brokers),
            "alarms": self._alarms(),
        }

    async def answer_alarms(self, _request: Request, reply: Reply) -> Json:
        """Answer `alarm.list` for this hub."""
        await reply.rows([{"node": self.number, **alarm} for alarm in self._alarms()])
        return {}

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
            for alarm in self.alarms.active()
        ]
