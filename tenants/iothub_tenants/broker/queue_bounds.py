"""Brings the limits of a tenant's virtual queues to the queues that are there already, whether their sessions are connected or not.

Knows no plan and no layer: the broker says what each device's queues may hold. What is stored above a lowered limit stays; nothing more
comes in until it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub_services.awaited import AwaitedQueues
from iothub_services.queues.port import QueueStats
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers

RETRY_S = 5.0
SLICE = 200  # queues changed in one go: they share a commit, and nobody waits for more than these

log = logging.get(__name__)

Later = Callable[[float, Callable[[], None]], object]


class QueueBounds:
    """Invariant: limits that a failing store does not take now are tried again until it does, or their tenant has no broker any more.

    Nobody else waits with them.
    """

    def __init__(self, queues: AwaitedQueues, brokers: Brokers, later: Later) -> None:
        self._queues = queues
        self._brokers = brokers
        self._later = later
        self._wanted: dict[int, TenantBroker] = {}
        self._failed: dict[int, TenantBroker] = {}  # wanted again when their time comes
        self._is_working = False

    def want(self, broker: TenantBroker) -> None:
        """Do it soon: at once if the store can."""
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
                    await self.obey(broker)
                except IotHubError as error:
                    tenant = broker.record.name
                    log.warning(
                        "the limits of a tenant's queues could not be changed yet", tenant=tenant, error=str(error)
                    )
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
                self.want(broker)

    async def obey(self, broker: TenantBroker, queues: Collection[QueueStats] | None = None) -> int:
        """Change what differs; returns how many queues did. `queues`: all that the tenant has, if they have just been listed."""
        limits = broker.limits
        await self._queues.set_tenant_limits(broker.tenant_id, limits.queued_messages, limits.queued_bytes)
        facts = (limits.session_queued_messages, limits.session_queued_bytes, tuple(broker.allowance.own.items()))
        if facts == broker.bounded:
            return 0
        if queues is None:
            queues = await self._queues.list_queues(broker.tenant_id)
        known = {queue.queue_id: queue.limits for queue in queues}
        usual, own = broker.queue_limits(""), broker.allowance.own
        wanted = {
            session.queue_id: broker.queue_limits(session.device) if session.device in own else usual
            for session in broker.plane.sessions.values()
            if session.is_persistent
        }
        changed = [queue_id for queue_id, now in wanted.items() if known.get(queue_id, now) != now]
        for start in range(0, len(changed), SLICE):
            part = changed[start : start + SLICE]
            await self._queues.set_limits([(queue_id, wanted[queue_id]) for queue_id in part])
        broker.bounded = facts
        return len(changed)
