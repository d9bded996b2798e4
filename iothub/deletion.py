"""Deleted tenants leave the hub: connections, sessions, queues, retained messages, session states, usage; then the name is free again.

Knows the order only: first nobody can come in any more, then the stores are emptied, last the accounts forget the tenant. Every step can be
repeated, so a hub that dies in between goes on at its next start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from iothub import log as logging
from iothub.engine.plane import Plane
from iothub.reasons import Reason
from iothub_services.auth.authenticator import Authenticator
from iothub_services.auth.port import Run
from iothub_services.awaited import AwaitedQueues, AwaitedRetained, awaited
from iothub_services.quota.usage import Usage
from iothub_services.sessions.manager import SessionManager
from iothub_services.state.service import DropTenant
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tenants import Deletion
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers

DeleteTopics = Callable[[int, str], Awaitable[bool]]

log = logging.get(__name__)


class StateThread(Protocol):
    """The thread of the session states."""

    def submit(self, op: DropTenant, callback: Callable[[object], None]) -> None:
        """`callback` gets an exception, or how many states there were."""


class Emptied(Protocol):
    """Where a tenant is, in a running hub: the node's parts that a deletion needs."""

    accounts: AccountStore
    authenticator: Authenticator
    brokers: Brokers
    plane: Plane
    sessions: SessionManager
    queue_admin: AwaitedQueues
    retained_admin: AwaitedRetained
    usage: Usage

    @property
    def journal_thread(self) -> StateThread: ...


class Deletions:
    """Finishes what `tenants.delete` began."""

    def __init__(
        self, hub: Emptied, run: Run, forget: Callable[[int], None], delete_topics: DeleteTopics | None = None
    ) -> None:
        """`forget`: what was counted of a tenant in memory. `delete_topics`: of its streams; False: not yet."""
        self._hub = hub
        self._run = run
        self._forget = forget
        self._delete_topics = delete_topics

    async def finish(self) -> None:
        """Empty the stores of every tenant in state `deleting`, then let its name go."""
        hub = self._hub
        for deletion in await self._run("accounts.deletions", tenants.pending_deletions, hub.accounts):
            await self._close(deletion)
            await self._empty(deletion.tenant_id)
            if hub.brokers.present(deletion.tenant_id) is not None:
                continue  # a CONNECT that had begun before; its session goes at the next turn
            if self._delete_topics is not None and not await self._delete_topics(deletion.tenant_id, deletion.name):
                continue
            await self._run("accounts.deleted", tenants.finish_deletion, hub.accounts, deletion.tenant_id)
            hub.authenticator.invalidate(deletion.tenant_id)
            log.info("tenant deleted", tenant=deletion.name)

    async def _close(self, deletion: Deletion) -> None:
        """Nobody is let in from here on; who is in goes."""
        hub = self._hub
        hub.authenticator.invalidate(deletion.tenant_id)
        hub.authenticator.failures.forget_tenant(deletion.name)
        broker = hub.brokers.present(deletion.tenant_id)
        if broker is None:
            return
        for session in list(broker.plane.sessions.values()):
            if session.connection is not None:
                hub.plane.close(session.connection, Reason.CREDENTIAL_REVOKED)
        await self._end_sessions(broker)
        hub.brokers.drop(deletion.tenant_id)

    async def _end_sessions(self, broker: TenantBroker) -> None:
        for client_id in list(broker.plane.sessions):
            await self._hub.sessions.discard(broker, client_id, "tenant_deleted")

    async def _empty(self, tenant_id: int) -> None:
        """Remove everything that carries the tenant's number."""
        hub = self._hub
        await hub.queue_admin.drop_tenant(tenant_id)
        await hub.retained_admin.drop_tenant(tenant_id)
        await awaited(
            lambda done, failed: hub.journal_thread.submit(
                DropTenant(tenant_id), lambda answer: failed(answer) if isinstance(answer, Exception) else done(answer)
            )
        )
        await hub.usage.drop_tenant(tenant_id, self._run)
        self._forget(tenant_id)
