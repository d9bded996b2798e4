"""Deleted tenants leave the hub: connections, sessions, queues, retained messages, session states, usage; then the name is free again.

Knows the order only: first nobody can come in any more, then the stores are emptied, last the accounts forget the tenant. Every step can be
repeated, so a hub that dies in between continues at its next start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub.base.reasons import Reason
from iothub.engine.plane import Plane
from iothub_services.auth.authenticator import Authenticator
from iothub_services.auth.port import Run
from iothub_services.awaited import AwaitedQueues, AwaitedRetained, awaited
from iothub_services.quota.usage import Usage
from iothub_services.sessions.manager import SessionManager
from iothub_services.state.service import DropTenant
from iothub_tenants.accounts import streams, tenants
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


@dataclass(frozen=True, slots=True)
class TenantPlaces:
    """Where a tenant is in a running hub."""

    accounts: AccountStore
    authenticator: Authenticator
    brokers: Brokers
    plane: Plane
    sessions: SessionManager
    queue_admin: AwaitedQueues
    retained_admin: AwaitedRetained
    usage: Usage
    journal_thread: StateThread


class TenantDeletion:
    """Finishes what `tenants.delete` began. Invariant: the stores of a tenant in `_waiting` are empty while it has no broker."""

    def __init__(
        self, places: TenantPlaces, run: Run, forget: Callable[[int], None], delete_topics: DeleteTopics
    ) -> None:
        """`forget`: what was counted of a tenant in memory. `delete_topics`: of its streams; False: not yet."""
        self._places = places
        self._run = run
        self._forget = forget
        self._delete_topics = delete_topics
        self._turn = 0
        self._waiting: dict[int, int] = {}  # tenant -> the turn in which it heard "not yet" last; 0: never asked

    async def finish(self) -> None:
        """Empty the stores of every tenant in state `deleting`, then let its name go: last of those with streams.

        A tenant whose stores fail keeps its name, and holds up no other. Kafka may block for long: one "not yet" ends a turn, and who heard
        it is asked behind the others in the next.
        """
        accounts, before = self._places.accounts, self._waiting
        pending = await self._run("accounts.deletions", tenants.pending_deletions, accounts)
        owners = await self._run("accounts.streams", streams.owners, accounts) if pending else frozenset()
        self._turn, self._waiting = self._turn + 1, {}
        for deletion in pending:
            try:
                await self._leave(deletion, is_empty=deletion.tenant_id in before)
            except IotHubError as error:
                log.warning(
                    "stores of a deleted tenant not emptied, will retry", tenant=deletion.name, error=str(error)
                )
                continue
            self._waiting[deletion.tenant_id] = before.get(deletion.tenant_id, 0)
            if deletion.tenant_id not in owners:
                await self._let_go(deletion)
        rest = [each for each in pending if each.tenant_id in owners and each.tenant_id in self._waiting]
        for deletion in sorted(rest, key=lambda each: self._waiting[each.tenant_id]):
            if not await self._delete_topics(deletion.tenant_id, deletion.name):
                self._waiting[deletion.tenant_id] = self._turn
                return
            await self._let_go(deletion)

    async def _leave(self, deletion: Deletion, *, is_empty: bool) -> None:
        """`is_empty`: the stores were, at the last turn."""
        has_come = self._places.brokers.present(deletion.tenant_id) is not None
        await self._close(deletion)
        if has_come or not is_empty:
            await self._empty(deletion.tenant_id)

    async def _let_go(self, deletion: Deletion) -> None:
        """The name is free, but after a CONNECT that had begun before: its session goes at the next turn."""
        places = self._places
        if places.brokers.present(deletion.tenant_id) is not None:
            return
        self._forget(deletion.tenant_id)
        await self._run("accounts.deleted", tenants.finish_deletion, places.accounts, deletion.tenant_id)
        places.authenticator.invalidate(deletion.tenant_id)
        log.info("tenant deleted", tenant=deletion.name)

    async def _close(self, deletion: Deletion) -> None:
        """Nobody is let in from here on; who is in goes."""
        places = self._places
        places.authenticator.invalidate(deletion.tenant_id)
        places.authenticator.failures.forget_tenant(deletion.name)
        broker = places.brokers.present(deletion.tenant_id)
        if broker is None:
            return
        for session in list(broker.plane.sessions.awake.values()):
            if session.connection is not None:
                places.plane.close(session.connection, Reason.CREDENTIAL_REVOKED)
        await self._end_sessions(broker)
        places.brokers.drop(deletion.tenant_id)

    async def _end_sessions(self, broker: TenantBroker) -> None:
        for client_id in list(broker.plane.sessions):
            await self._places.sessions.discard(broker, client_id, "tenant_deleted")

    async def _empty(self, tenant_id: int) -> None:
        """Remove everything that carries the tenant's number."""
        places = self._places
        await places.queue_admin.drop_tenant(tenant_id)
        await places.retained_admin.drop_tenant(tenant_id)
        await awaited(
            lambda done, failed: places.journal_thread.submit(
                DropTenant(tenant_id), lambda answer: failed(answer) if isinstance(answer, Exception) else done(answer)
            )
        )
        await places.usage.drop_tenant(tenant_id, self._run)
