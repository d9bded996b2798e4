"""How a tenant's broker is made when the tenant is needed, and what is kept of it when it is dropped.

Knows the parts that a broker is composed over, and no session. The store gets the tenant's limits before anything is stored for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iothub.base.errors import BackendError
from iothub.base.ids import TenantId
from iothub.engine.state import Session, TenantPlane
from iothub.hooks import Hooks
from iothub_services.auth.port import TenantRecord
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.damaged import OnDamage
from iothub_services.quota.port import QuotaObserver
from iothub_services.quota.shared.service import SharedQuota
from iothub_services.quota.usage import Usage
from iothub_services.sessions.manager import SessionManager
from iothub_tenants.accounts.generator import BlockSource, QueueIds
from iothub_tenants.broker.allowance import Allowance
from iothub_tenants.broker.broker import Shared, TenantBroker
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.engine_hooks import plug_in
from iothub_tenants.broker.kept_messages import KeptMessages
from iothub_tenants.broker.peer_retained import NoPeerRetained, PeerRetained
from iothub_tenants.broker.retaining import Retaining
from iothub_tenants.broker.traffic import PastTraffic

DeviceLimits = Callable[[int], Awaitable[Mapping[str, str]]]
"""Tenant id -> the own limits of its devices that have any."""


def _nothing(*_: object) -> None:
    """Nobody else has to know."""


@dataclass(frozen=True, slots=True)
class BrokerFactory:
    """On the reactor thread. `backlog_bytes`: the setting as it is now. `before`, `on_made` and `on_dropped`: what else follows a tenant's broker."""

    shared: Shared
    hooks: Hooks
    observer: QuotaObserver
    usage: Usage
    past: PastTraffic
    queues: AwaitedQueues
    retained: AwaitedRetained
    queue_ids: BlockSource
    device_limits: DeviceLimits
    backlog_bytes: Callable[[], int]
    damaged: OnDamage
    shared_quota: SharedQuota | None = None
    peer_retained: PeerRetained = field(default_factory=NoPeerRetained)
    kept: KeptMessages = field(default_factory=KeptMessages)
    before: Callable[[TenantRecord], None] = _nothing
    on_made: Callable[[TenantBroker], None] = _nothing
    on_dropped: Callable[[TenantBroker], None] = _nothing

    async def make(self, record: TenantRecord) -> TenantBroker:
        """Raises BackendError: whoever asks again makes another one."""
        plane = TenantPlane(record.id, record.name)
        own = await self.device_limits(record.id)
        allowance = self._allowance(record, plane, own)
        self.before(record)
        limits = allowance.limits  # in force before anything that is stored later; a disk that fails keeps nobody out
        bounded = self.queues.set_tenant_limits(record.id, limits.queued_messages, limits.queued_bytes)
        Deferred.fromCoroutine(bounded).addErrback(_closed)
        shared = self.shared
        retaining = Retaining(
            plane,
            shared.plane,
            self.retained,
            allowance.ledger,
            shared.clock,
            self.damaged,
            self.peer_retained,
            self.kept,
        )
        try:
            await retaining.load()
        except BackendError:
            retaining.close()
            allowance.close()
            raise
        allowance.apply_backlog(self.backlog_bytes())  # last: a reload reaches those that are made
        plug_in(self.hooks, plane)
        queue_ids = QueueIds(TenantId(record.id), self.queue_ids)
        broker = TenantBroker(record, shared, plane, allowance, queue_ids, retaining, self.past.of(record.id))
        shared.routes.open_tenant(plane)
        self.on_made(broker)
        return broker

    def _allowance(self, record: TenantRecord, plane: TenantPlane, own: Mapping[str, str]) -> Allowance:
        return Allowance(record, plane, self.shared.clock, self.observer, self.usage, own, shared=self.shared_quota)

    def put_away(self, broker: TenantBroker) -> None:
        """A broker is dropped: what it has counted stays."""
        broker.allowance.close()
        broker.retained.close()
        self.shared.routes.close_tenant(broker.plane)
        self.on_dropped(broker)
        self.past.keep(broker.tenant_id, broker.record.name, broker.traffic)


class StoredRetained:
    """What the store says of retained messages, for the broker of their tenant if it is there."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    def on_stored(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        broker = self._brokers.present(tenant_id)
        if broker is not None:
            broker.retained.changed(topic, version, expires_at_ms, size)

    def on_not_stored(self, tenant_id: int, topic: bytes) -> None:
        broker = self._brokers.present(tenant_id)
        if broker is not None:
            broker.retained.failed(topic)


@dataclass(frozen=True, slots=True)
class LostQueues:
    """What the store says of queues that nobody can read."""

    brokers: Brokers
    sessions: SessionManager

    def end_session(self, session: Session) -> None:
        broker = self.brokers.present(session.tenant.tenant_id)
        if broker is not None:
            self.sessions.queue_lost(broker, session)


def _closed(failure: Failure) -> None:
    """The store has been closed; nothing will be stored any more."""
    if not isinstance(failure.value, BackendError):
        failure.raiseException()
