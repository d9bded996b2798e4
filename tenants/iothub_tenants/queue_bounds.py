"""Brings the limits of a tenant's virtual queues to the queues that are there already, whether their sessions are connected or not.

Knows no plan and no layer: the broker says what each device's queues may hold. What is stored above a lowered limit stays; nothing more
comes in until it fits.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, gatherResults

from iothub_services.awaited import AwaitedQueues
from iothub_tenants.broker import TenantBroker

SLICE = 200  # queues changed in one go: they share a commit


class QueueBounds:
    """Invariant: a queue whose limits cannot be written now is looked at again with the next change, or at the next start."""

    def __init__(self, queues: AwaitedQueues) -> None:
        self._queues = queues

    async def obey(self, broker: TenantBroker) -> int:
        """Change what differs; returns how many queues did."""
        limits = broker.limits
        await self._queues.set_tenant_limits(broker.tenant_id, limits.queued_messages, limits.queued_bytes)
        facts = (limits.session_queued_messages, limits.session_queued_bytes, tuple(broker.allowance.own.items()))
        if facts == broker.bounded:
            return 0
        known = {queue.queue_id: queue.limits for queue in await self._queues.list_queues(broker.tenant_id)}
        wanted = {
            session.queue_id: broker.queue_limits(session.device)
            for session in broker.plane.sessions.values()
            if session.is_persistent
        }
        changed = [queue_id for queue_id, now in wanted.items() if known.get(queue_id, now) != now]
        for start in range(0, len(changed), SLICE):
            calls = [
                Deferred.fromCoroutine(self._queues.set_limits(queue_id, wanted[queue_id]))
                for queue_id in changed[start : start + SLICE]
            ]
            await gatherResults(calls, consumeErrors=True)
        broker.bounded = facts
        return len(changed)
