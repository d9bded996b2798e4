"""A running hub obeys what others changed in the accounts: it forgets what it remembered, and looks at every live session anew.

Knows no SQL: it is given the lines of the change log. What is refused now is closed; what may stay gets its new rights and limits.

Theory. To look at all sessions of a tenant takes as long as the accounts need to say what they know of each device, and nobody else waits for
that: tenants are looked at beside each other, each by one round at a time, and devices that are named by a change in rounds of their own. So two
rounds may meet at a session, and what was read before a change may come after what was read behind it: what is not current is asked anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from twisted.internet.defer import Deferred, DeferredList

from iothub.base import log as logging
from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.state import Session
from iothub_services.auth.authenticator import Authenticated, Refusal
from iothub_services.auth.port import TenantRecord, TenantState
from iothub_tenants.accounts.changes import Change, device_of
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.background.aside import PATIENCE_S, Aside
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.client_contexts import ClientContext
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.queue_bounds import QueueBounds

SLICE = 200  # sessions looked at before others get their turn
ROUNDS = 8  # tenants looked at beside each other

log = logging.get(__name__)

TenantsOnPlan = Callable[[str], Awaitable[list[int]]]
OwnLimits = Callable[[int], Awaitable[dict[str, str]]]
"""Tenant id -> the own limits of its devices that have any."""

Look = Callable[[int, set[str]], Awaitable[None]]


class _Rounds:
    """Tenants to look at. Invariant: one that could not be looked at (accounts down) is kept and tried again, and keeps up no other one."""

    def __init__(self, hub: Hub, look: Look) -> None:
        self._look = look
        self._asides = [Aside("obedience", hub.later, PATIENCE_S) for _ in range(ROUNDS)]
        self._waiting: dict[int, set[str]] = {}
        self._again: dict[int, set[str]] = {}  # at the next `go`
        self._looked_at: set[int] = set()

    def note(self, tenant_id: int, devices: Iterable[str] = ()) -> None:
        self._waiting.setdefault(tenant_id, set()).update(devices)

    def go(self) -> Awaitable[object]:
        """Begin; fires when all is done, or when it has taken too long for whoever asks."""
        again, self._again = self._again, {}
        for tenant_id, devices in again.items():
            self.note(tenant_id, devices)
        free = [aside for aside in self._asides if not aside.is_busy]
        return DeferredList([Deferred.fromCoroutine(aside.do(self._work)) for aside in free[: len(self._waiting)]])

    async def _work(self) -> None:
        while (tenant_id := self._next()) is not None:
            devices = self._waiting.pop(tenant_id)
            self._looked_at.add(tenant_id)
            is_done = False
            try:
                await self._look(tenant_id, devices)
                is_done = True
            except UnavailableError as error:
                log.warning("a change could not be obeyed yet", tenant_id=tenant_id, error=str(error))
            finally:
                self._looked_at.discard(tenant_id)
                if not is_done:
                    self._again.setdefault(tenant_id, set()).update(devices)

    def _next(self) -> int | None:
        return next((tenant_id for tenant_id in self._waiting if tenant_id not in self._looked_at), None)


class Obedience:
    """Applies changes. Invariants: from `note` on nobody gets in by what was remembered; what could not be applied is tried again."""

    def __init__(self, hub: Hub, bounds: QueueBounds, own_limits: OwnLimits, tenants_on_plan: TenantsOnPlan) -> None:
        self._hub = hub
        self._bounds = bounds
        self._own_limits = own_limits
        self._tenants_on_plan = tenants_on_plan
        self._tenants = _Rounds(hub, lambda tenant_id, _: self._review(tenant_id, None))
        self._devices = _Rounds(hub, self._review)
        self._plans: list[Change] = []  # of which it is not known yet whom they concern

    def note(self, changes: Iterable[Change]) -> None:
        """Take in what was changed; `obey` looks at the sessions."""
        for change in changes:
            if change.kind is ChangeKind.PLAN:
                self._plans.append(change)
            else:
                self._note(change.tenant_id, device_of(change))

    async def obey(self, changes: Iterable[Change] = ()) -> None:
        """Apply a batch, and what waits; many lines about one tenant cost one look at its sessions. What takes long is done all the same."""
        self.note(changes)
        devices = self._devices.go()
        await self._note_plans()
        await self._tenants.go()
        await devices

    def doubt_everything(self) -> None:
        """What was changed is not known: forget everything, and let `obey` look at everybody."""
        self._hub.authenticator.invalidate_all()
        for broker in self._hub.brokers:
            self._tenants.note(broker.tenant_id)

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
        if device is None:
            self._tenants.note(tenant_id)
        else:
            self._devices.note(tenant_id, (device,))

    async def _review(self, tenant_id: int, devices: set[str] | None) -> None:
        broker = self._hub.brokers.present(tenant_id)
        if broker is None:
            return
        record, own = await self._facts(tenant_id, broker.record.name)
        if record is None or record.id != tenant_id or record.state is TenantState.DELETING:
            self._close_all(broker, Reason.CREDENTIAL_REVOKED)
            return
        broker.apply_record(record, own)
        await self._apply(broker, record, devices)
        self._bounds.request_update(broker)

    async def _facts(self, tenant_id: int, name: str) -> tuple[TenantRecord | None, dict[str, str]]:
        directory = self._hub.authenticator.directory
        while True:
            stamp = directory.stamp(tenant_id)
            record, own = await directory.tenant(name, is_urgent=True), await self._own_limits(tenant_id)
            if stamp == directory.stamp(tenant_id):
                return record, own

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
        context: ClientContext = connection.control
        if context.proven is None:
            return
        authenticator, address = self._hub.authenticator, connection.peer_ip
        answer = await authenticator.review(context.proven, client_id=session.client_id, address=address)
        while isinstance(answer, Authenticated) and not authenticator.is_current(answer):
            answer = await authenticator.review(answer, client_id=session.client_id, address=address)
        if session.connection is not connection:
            return
        if isinstance(answer, Refusal):
            self._hub.plane.close(connection, answer.reason)
            return
        context.proven = answer
        policy = self._hub.policy_of(answer, session.client_id, connection)
        if policy is not session.policy:
            self._hub.plane.policy_changed(session, policy)
        broker.session_began(session, answer.device)
