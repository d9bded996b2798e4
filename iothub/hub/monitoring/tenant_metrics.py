"""The page of metrics by tenant: made when it is asked for, from the brokers that are there and from what is kept of those that are not.

Knows no node and no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from iothub.hub.monitoring.telemetry import Telemetry
from iothub_services.metrics import metrics
from iothub_services.metrics.exposition import TenantPages, TenantSample, TenantSeries, Values
from iothub_services.metrics.merging import Figure, Labels
from iothub_services.metrics.metrics import Metric
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota, Scope
from iothub_services.quota.shared.ledger import SHARED
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers
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


class TenantMetrics:
    """`series_max`: of one page; what is left out is counted in `dropped`."""

    def __init__(
        self, brokers: Brokers, telemetry: Telemetry, queued: Callable[[int], TenantUsage], series_max: int, part: str
    ) -> None:
        """`part`: names this hub where several add up what each has (`iothub_services.metrics.merging`)."""
        self._brokers = brokers
        self._telemetry = telemetry
        self._queued = queued
        self._pages = TenantPages(series_max)
        self._part = part

    def apply(self, series_max: int) -> None:
        """Use another cap from now on."""
        self._pages.apply(series_max)

    @property
    def dropped(self) -> int:
        return self._pages.dropped

    def render(self, tenant: str | None, after: str, limit: int) -> Iterator[bytes]:
        return self.render_samples(self.samples(tenant, after, limit))

    def render_samples(self, samples: Iterable[TenantSample | TenantSeries]) -> Iterator[bytes]:
        """Make a page of samples of this hub and of others."""
        return self._pages.render(samples)

    def samples(
        self, tenant: str | None, after: str, limit: int, *, is_in_parts: bool = False
    ) -> Iterator[TenantSample]:
        """Yield the tenants of a page. Those who are there come first: if its cap leaves somebody out, then one who is away."""
        here = {broker.record.name: broker for broker in self._brokers}
        away = {
            name: (number, past) for number, name, past in self._telemetry.past if not self._brokers.present(number)
        }
        chosen = sorted(name for name in here.keys() | away.keys() if tenant in (None, name) and name > after)[:limit]
        make = self._own_sample if is_in_parts else self._sample
        present = (make(here[name]) for name in chosen if name in here)
        absent = (self._sample_away(name, *away[name]) for name in chosen if name not in here)
        return chain(present, absent)

    def _own_sample(self, broker: TenantBroker) -> TenantSample:
        """Of what hubs share, only what this one has."""
        sample, ledger = self._sample(broker), broker.allowance.ledger
        own = {quota.value: ledger.part(quota) for quota in SHARED}
        used: dict[Labels, Figure] = {
            (name, ""): figure
            for (name,), figure in sample.series[metrics.TENANT_QUOTA_USED].items()
            if name not in own
        }
        return TenantSample(
            sample.tenant,
            {
                **sample.values,
                metrics.TENANT_SESSIONS: sessions_here(broker),
                metrics.TENANT_SUBSCRIPTIONS: ledger.part(Quota.SUBSCRIPTIONS),
                metrics.TENANT_QUOTA_USED: used | {(name, self._part): count for name, count in own.items()},
            },
        )

    def _sample(self, broker: TenantBroker) -> TenantSample:
        plane, ledger, queued = broker.plane, broker.allowance.ledger, self._queued(broker.tenant_id)
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
        telemetry = self._telemetry
        return {
            metrics.TENANT_MESSAGES_RECEIVED: by_qos(traffic.messages_received),
            metrics.TENANT_MESSAGES_DELIVERED: by_qos(traffic.messages_delivered),
            metrics.TENANT_MESSAGES_DROPPED: traffic.dropped,
            metrics.TENANT_BYTES_RECEIVED: traffic.bytes_received,
            metrics.TENANT_BYTES_SENT: traffic.bytes_sent,
            metrics.TENANT_QUOTA_REJECTIONS: telemetry.tenant_rejections.of(tenant_id),
            metrics.TENANT_QUOTA_TRIALS: telemetry.tenant_trials.of(tenant_id),
            metrics.TENANT_DENIED: telemetry.tenant_denials.of(tenant_id),
            metrics.TENANT_AUTHENTICATIONS: telemetry.tenant_logins.of(tenant_id),
        }


def sessions_here(broker: TenantBroker) -> int:
    """Count the sessions that no other hub has: the transient ones are those of its own clients."""
    elsewhere = broker.allowance.ledger.used(Quota.SESSIONS) - broker.allowance.ledger.part(Quota.SESSIONS)
    return max(len(broker.plane.sessions) - elsewhere, 0)


def by_qos(counts: tuple[int, int, int]) -> dict[str, int]:
    return {str(qos): count for qos, count in enumerate(counts)}
