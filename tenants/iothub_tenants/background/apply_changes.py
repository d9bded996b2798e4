"""Applies changes of the accounts to a running hub: clears the caches and reviews every online session.

Knows no SQL: it is given the lines of the change log. A session that is refused now is closed; the others get their new rights and limits.

Theory. A review of a tenant takes as long as the accounts need for each of its devices, and no other tenant waits for it: several tenants are
reviewed at the same time, each by one task, and devices that a change names are reviewed by tasks of their own. So two reviews may reach the same
session, and an answer read before a change may arrive after one read since: an answer that is not current is read again.
The devices of a slice of sessions are read with one question, not one after the other, and their sessions are judged at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from twisted.internet.defer import Deferred, DeferredList

from iothub.base import log as logging
from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.state import Connection, Session
from iothub_services.auth.authenticator import Current, Refusal
from iothub_services.auth.port import MOST_DEVICES, TenantRecord, TenantState
from iothub_tenants.accounts.changes import Change, device_of
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.background.task_queue import PATIENCE_S, TaskQueue
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.client_contexts import ClientContext
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.queue_bounds import QueueBounds

SLICE = MOST_DEVICES  # sessions reviewed with one question to the accounts, and before the reactor runs other work
REVIEWS = 8  # tenants reviewed at the same time

log = logging.get(__name__)

TenantsOnPlan = Callable[[str], Awaitable[list[int]]]
OwnLimits = Callable[[int], Awaitable[dict[str, str]]]
"""Tenant id -> the own limits of its devices that have any."""

Review = Callable[[int, set[str]], Awaitable[None]]


class _Reviews:
    """Tenants to review. Invariant: one whose review failed (accounts down) is kept and tried again, and delays no other."""

    def __init__(self, hub: Hub, review: Review) -> None:
        self._review = review
        self._queues = [TaskQueue("account changes", hub.later, PATIENCE_S) for _ in range(REVIEWS)]
        self._waiting: dict[int, set[str]] = {}
        self._failed: dict[int, set[str]] = {}  # tried again by the next `start`
        self._in_review: set[int] = set()

    def add(self, tenant_id: int, devices: Iterable[str] = ()) -> None:
        self._waiting.setdefault(tenant_id, set()).update(devices)

    def start(self) -> Awaitable[object]:
        """Start the reviews; fires when all are done, or after `PATIENCE_S` while they go on."""
        failed, self._failed = self._failed, {}
        for tenant_id, devices in failed.items():
            self.add(tenant_id, devices)
        free = [queue for queue in self._queues if not queue.is_busy]
        tasks = [queue.run_task(self._work) for queue in free[: len(self._waiting)]]
        return DeferredList([Deferred.fromCoroutine(task) for task in tasks])

    async def _work(self) -> None:
        while (tenant_id := self._next()) is not None:
            devices = self._waiting.pop(tenant_id)
            self._in_review.add(tenant_id)
            is_done = False
            try:
                await self._review(tenant_id, devices)
                is_done = True
            except UnavailableError as error:
                log.warning("account change not applied, will retry", tenant_id=tenant_id, error=str(error))
            finally:
                self._in_review.discard(tenant_id)
                if not is_done:
                    self._failed.setdefault(tenant_id, set()).update(devices)

    def _next(self) -> int | None:
        return next((tenant_id for tenant_id in self._waiting if tenant_id not in self._in_review), None)


class AccountChangeApplier:
    """Applies account changes. Invariants: after `note_changes` no cached record admits a client; what could not be applied is tried again."""

    def __init__(self, hub: Hub, bounds: QueueBounds, own_limits: OwnLimits, tenants_on_plan: TenantsOnPlan) -> None:
        self._hub = hub
        self._bounds = bounds
        self._own_limits = own_limits
        self._tenants_on_plan = tenants_on_plan
        self._tenants = _Reviews(hub, lambda tenant_id, _: self._review_tenant(tenant_id, None))
        self._devices = _Reviews(hub, self._review_tenant)
        self._plans: list[Change] = []  # whose tenants are not known yet

    def note_changes(self, changes: Iterable[Change]) -> None:
        """Clear the caches at once; `apply_changes` reviews the sessions."""
        for change in changes:
            if change.kind is ChangeKind.PLAN:
                self._plans.append(change)
            else:
                self._note_change(change.tenant_id, device_of(change))

    async def apply_changes(self, changes: Iterable[Change] = ()) -> None:
        """Apply a batch, and what waits: many lines about one tenant cost one review. Returns after `PATIENCE_S` while long reviews go on."""
        self.note_changes(changes)
        devices = self._devices.start()
        await self._note_plans()
        await self._tenants.start()
        await devices

    def reapply_everything(self) -> None:
        """It is not known what was changed: clear all caches, and let `apply_changes` review every session."""
        self._hub.authenticator.invalidate_all()
        for broker in self._hub.brokers:
            self._tenants.add(broker.tenant_id)

    async def _note_plans(self) -> None:
        while self._plans:
            try:
                tenant_ids = await self._tenants_on_plan(self._plans[0].subject)
            except UnavailableError as error:
                log.warning("plan change not applied, will retry", plan=self._plans[0].subject, error=str(error))
                return
            del self._plans[0]
            for tenant_id in tenant_ids:
                self._note_change(tenant_id, None)

    def _note_change(self, tenant_id: int, device: str | None) -> None:
        self._hub.authenticator.invalidate(tenant_id, device)
        if device is None:
            self._tenants.add(tenant_id)
        else:
            self._devices.add(tenant_id, (device,))

    async def _review_tenant(self, tenant_id: int, devices: set[str] | None) -> None:
        broker = self._hub.brokers.present(tenant_id)
        if broker is None:
            return
        record, own = await self._current_record(tenant_id, broker.record.name)
        if record is None or record.id != tenant_id or record.state is TenantState.DELETING:
            self._close_all(broker, Reason.CREDENTIAL_REVOKED)
            return
        broker.apply_record(record, own)
        await self._review_sessions(broker, record, devices)
        self._bounds.request_update(broker)

    async def _current_record(self, tenant_id: int, name: str) -> tuple[TenantRecord | None, dict[str, str]]:
        directory = self._hub.authenticator.directory
        while True:
            stamp = directory.stamp(tenant_id)
            record, own = await directory.tenant(name, is_urgent=True), await self._own_limits(tenant_id)
            if stamp == directory.stamp(tenant_id):
                return record, own

    async def _review_sessions(self, broker: TenantBroker, record: TenantRecord, devices: set[str] | None) -> None:
        if record.state is TenantState.SUSPENDED:
            self._close_all(broker, Reason.TENANT_SUSPENDED)
            return
        sessions = list(broker.plane.sessions.awake.values())
        for start in range(0, len(sessions), SLICE):
            if start:
                await self._hub.breathe()
            part = sessions[start : start + SLICE]
            await self._review_slice(broker, [each for each in part if devices is None or each.device in devices])

    async def _review_slice(self, broker: TenantBroker, sessions: list[Session]) -> None:
        connected = [(session, session.connection) for session in sessions if session.connection is not None]
        if not connected:
            return
        devices = {session.device for session, _ in connected}
        current = await self._hub.authenticator.current(broker.record, devices)
        for session, connection in connected:
            if session.connection is connection:  # else another one has come meanwhile, and proved itself
                self._review_session(broker, session, connection, current)

    def _close_all(self, broker: TenantBroker, reason: Reason) -> None:
        for session in list(broker.plane.sessions.awake.values()):
            if session.connection is not None:
                self._hub.plane.close(session.connection, reason)

    def _review_session(self, broker: TenantBroker, session: Session, connection: Connection, current: Current) -> None:
        context: ClientContext = connection.control
        proven = context.proven()
        if proven is None:
            return
        answer = self._hub.authenticator.judge(proven, current, client_id=session.client_id, address=connection.peer_ip)
        if isinstance(answer, Refusal):
            self._hub.plane.close(connection, answer.reason)
            return
        context.prove(answer)
        policy = self._hub.policy_of(answer, session.client_id, connection)
        if policy is not session.policy:
            self._hub.plane.policy_changed(session, policy)
        broker.session_began(session, answer.device)
