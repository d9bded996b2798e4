"""A running hub obeys what others changed in the accounts: it forgets what it remembered, and looks at every live session anew.

Knows no SQL: it is given the lines of the change log. What is refused now is closed; what may stay gets its new rights and limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from iothub import log as logging
from iothub.engine.session import Session
from iothub.errors import UnavailableError
from iothub.reasons import Reason
from iothub_services.auth.authenticator import Refusal
from iothub_services.auth.port import TenantRecord, TenantState
from iothub_tenants.accounts.changes import Change, device_of
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.guests import Guest
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.queue_bounds import QueueBounds

SLICE = 200  # sessions looked at before others get their turn

log = logging.get(__name__)

TenantsOnPlan = Callable[[str], Awaitable[list[int]]]
OwnLimits = Callable[[int], Awaitable[dict[str, str]]]
"""Tenant id -> the own limits of its devices that have any."""


class Obedience:
    """Applies changes. Invariants: one that could not be applied (accounts down) is kept and tried again, and keeps up no other tenant's."""

    def __init__(self, hub: Hub, bounds: QueueBounds, own_limits: OwnLimits, tenants_on_plan: TenantsOnPlan) -> None:
        self._hub = hub
        self._bounds = bounds
        self._own_limits = own_limits
        self._tenants_on_plan = tenants_on_plan
        self._waiting: dict[int, set[str] | None] = {}  # tenant id -> devices to look at; None: all of the tenant
        self._plans: list[Change] = []  # of which it is not known yet whom they concern

    async def obey(self, changes: Iterable[Change]) -> None:
        """Apply a batch; many lines about one tenant cost one look at its sessions."""
        for change in changes:
            if change.kind is ChangeKind.PLAN:
                self._plans.append(change)
            else:
                self._note(change.tenant_id, device_of(change))
        await self._note_plans()
        for tenant_id in list(self._waiting):
            devices = self._waiting[tenant_id]
            try:
                await self._review(tenant_id, devices)
            except UnavailableError as error:
                log.warning("a change could not be obeyed yet", tenant_id=tenant_id, error=str(error))
                continue
            self._waiting.pop(tenant_id, None)

    async def _note_plans(self) -> None:
        while self._plans:
            try:
                tenant_ids = await self._tenants_on_plan(self._plans[0].subject)
            except UnavailableError as error:
                log.warning("a change of a plan could not be obeyed yet", plan=self._plans[0].subject, error=str(error))
                return
            del self._plans[0]
            for tenant_id in tenant_ids:
                self._note(tenant_id, None)

    def _note(self, tenant_id: int, device: str | None) -> None:
        self._hub.authenticator.invalidate(tenant_id, device)
        known = self._waiting.get(tenant_id, set())
        if device is None or known is None:
            self._waiting[tenant_id] = None
        else:
            known.add(device)
            self._waiting[tenant_id] = known

    async def _review(self, tenant_id: int, devices: set[str] | None) -> None:
        broker = self._hub.brokers.present(tenant_id)
        if broker is None:
            return
        record = await self._hub.authenticator.directory.tenant(broker.record.name)
        if record is None or record.id != tenant_id or record.state is TenantState.DELETING:
            self._close_all(broker, Reason.CREDENTIAL_REVOKED)
            return
        broker.obey(record, await self._own_limits(tenant_id))
        await self._apply(broker, record, devices)
        self._bounds.want(broker)

    async def _apply(self, broker: TenantBroker, record: TenantRecord, devices: set[str] | None) -> None:
        if record.state is TenantState.SUSPENDED:
            self._close_all(broker, Reason.TENANT_SUSPENDED)
            return
        for number, session in enumerate(list(broker.plane.sessions.values()), 1):
            if devices is None or session.device in devices:
                await self._look_at(broker, session)
            if number % SLICE == 0:
                await self._hub.breathe()

    def _close_all(self, broker: TenantBroker, reason: Reason) -> None:
        for session in list(broker.plane.sessions.values()):
            if session.connection is not None:
                self._hub.plane.close(session.connection, reason)

    async def _look_at(self, broker: TenantBroker, session: Session) -> None:
        connection = session.connection
        if connection is None:
            return
        guest: Guest = connection.control
        if guest.proven is None:
            return
        answer = await self._hub.authenticator.review(
            guest.proven, client_id=session.client_id, address=connection.peer_ip
        )
        if session.connection is not connection:
            return
        if isinstance(answer, Refusal):
            self._hub.plane.close(connection, answer.reason)
            return
        guest.proven = answer
        policy = self._hub.policy_of(answer, session.client_id, connection)
        if policy is not session.policy:
            self._hub.plane.policy_changed(session, policy)
        broker.session_began(session, answer.device)
