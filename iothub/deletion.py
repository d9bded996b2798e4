"""Deleted tenants leave the hub: connections, sessions, queues, retained messages, session states, usage; then the name is free again.

Knows the order only: first nobody can come in any more, then the stores are emptied, last the accounts forget the tenant. Every step can be
repeated, so a hub that dies in between goes on at its next start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iothub import log as logging
from iothub.reasons import Reason
from iothub_services.awaited import awaited
from iothub_services.state.service import DropTenant
from iothub_tenants.accounts import tenants

if TYPE_CHECKING:
    from iothub.node import Node
    from iothub_tenants.accounts.tenants import Deletion
    from iothub_tenants.broker.broker import TenantBroker

log = logging.get(__name__)


class Deletions:
    """Finishes what `tenants.delete` began."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def finish(self) -> None:
        """Empty the stores of every tenant in state `deleting`, then let its name go."""
        node = self._node
        for deletion in await node.threads.run("accounts.deletions", tenants.pending_deletions, node.accounts):
            await self._close(deletion)
            await self._empty(deletion.tenant_id)
            if node.brokers.present(deletion.tenant_id) is not None:
                continue  # a CONNECT that had begun before; its session goes at the next turn
            await node.threads.run("accounts.deleted", tenants.finish_deletion, node.accounts, deletion.tenant_id)
            node.authenticator.invalidate(deletion.tenant_id)
            log.info("tenant deleted", tenant=deletion.name)

    async def _close(self, deletion: Deletion) -> None:
        """Nobody is let in from here on; who is in goes."""
        node = self._node
        node.authenticator.invalidate(deletion.tenant_id)
        node.authenticator.failures.forget_tenant(deletion.name)
        broker = node.brokers.present(deletion.tenant_id)
        if broker is None:
            return
        for session in list(broker.plane.sessions.values()):
            if session.connection is not None:
                node.plane.close(session.connection, Reason.CREDENTIAL_REVOKED)
        await self._end_sessions(broker)
        node.brokers.drop(deletion.tenant_id)

    async def _end_sessions(self, broker: TenantBroker) -> None:
        for client_id in list(broker.plane.sessions):
            await self._node.sessions.discard(broker, client_id, "tenant_deleted")

    async def _empty(self, tenant_id: int) -> None:
        """Remove everything that carries the tenant's number."""
        node = self._node
        await node.queue_admin.drop_tenant(tenant_id)
        await node.retained_admin.drop_tenant(tenant_id)
        await awaited(
            lambda done, failed: node.journal_thread.submit(
                DropTenant(tenant_id), lambda answer: failed(answer) if isinstance(answer, Exception) else done(answer)
            )
        )
        await node.usage.drop_tenant(tenant_id, node.threads.run)
        node.telemetry.forget_tenant(tenant_id)
