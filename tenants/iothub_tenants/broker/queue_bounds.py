"""Applies changed limits of a tenant's virtual queues to its existing queues, whether their sessions are online or not.

Knows no plan and no layer: the broker says what each device's queues may hold. Messages above a lowered limit stay; the queue takes no more
until it is below the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from weakref import WeakKeyDictionary

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub_services.awaited import AwaitedQueues
from iothub_services.queues.port import QueueStats
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers

RETRY_S = 5.0
SLICE = 200  # queues changed at once: they share a commit, and other writes wait for no more than these

log = logging.get(__name__)

Later = Callable[[float, Callable[[], None]], object]


class QueueBounds:
    """Invariant: limits that a failing store refuses are tried again until it takes them or the tenant has no broker any more.

    Other tenants do not wait for them.
    """

    def __init__(self, queues: AwaitedQueues, brokers: Brokers, later: Later) -> None:
        self._queues = queues
        self._brokers = brokers
        self._later = later
        self._wanted: dict[int, TenantBroker] = {}
        self._failed: dict[int, TenantBroker] = {}  # tried again after `RETRY_S`
        self._applied: WeakKeyDictionary[TenantBroker, object] = (
            WeakKeyDictionary()
        )  # the limits that all its queues have
        self._is_working = False

    def request_update(self, broker: TenantBroker) -> None:
        """Apply the tenant's queue limits as soon as the store can."""
        self._wanted[broker.tenant_id] = broker
        if not self._is_working:
            Deferred.fromCoroutine(self._work())

    async def _work(self) -> None:
        self._is_working = True
        try:
            while self._wanted:
                tenant_id = next(iter(self._wanted))
                broker = self._wanted.pop(tenant_id)
                try:
                    await self.apply_bounds(broker)
                except IotHubError as error:
                    tenant = broker.record.name
                    log.warning("queue limits not applied, will retry", tenant=tenant, error=str(error))
                    self._want_again(broker)
        finally:
            self._is_working = False

    def _want_again(self, broker: TenantBroker) -> None:
        if not self._failed:
            self._later(RETRY_S, self._try_again)
        self._failed[broker.tenant_id] = broker

    def _try_again(self) -> None:
        failed, self._failed = self._failed, {}
        for tenant_id, broker in failed.items():
            if self._brokers.present(tenant_id) is broker:
                self.request_update(broker)

    async def apply_bounds(self, broker: TenantBroker, queues: Collection[QueueStats] | None = None) -> int:
        """Change the limits that differ; returns of how many queues. `queues`: all of the tenant, if they have just been listed."""
        limits = broker.limits
        await self._queues.set_tenant_limits(broker.tenant_id, limits.queued_messages, limits.queued_bytes)
        facts = (limits.session_queued_messages, limits.session_queued_bytes, tuple(broker.allowance.own.items()))
        if facts == self._applied.get(broker):
            return 0
        if queues is None:
            queues = await self._queues.list_queues(broker.tenant_id)
        known = {queue.queue_id: queue.limits for queue in queues}
        usual, own = broker.queue_limits(""), broker.allowance.own
        wanted = {
            session.queue_id: broker.queue_limits(session.device) if session.device in own else usual
            for _, session in broker.plane.sessions.items()
            if session.is_persistent
        }
        changed = [queue_id for queue_id, now in wanted.items() if known.get(queue_id, now) != now]
        for start in range(0, len(changed), SLICE):
            part = changed[start : start + SLICE]
            await self._queues.set_limits([(queue_id, wanted[queue_id]) for queue_id in part])
        self._applied[broker] = facts
        return len(changed)
