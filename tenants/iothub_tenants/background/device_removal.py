"""Ends the sessions of deleted devices: connections, subscriptions, queues and quota units go, and their Wills are not published.

Knows no SQL: it is given the lines of the change log. A new device of the same name finds nothing of the deleted one: no sessions, no bans for
failed logins, no used rates. And it loses nothing of its own: the sessions that end are those that are there when the deletion is read, however
long a failing store delays their end, except those of the device that has the name now. So a deletion may be handled twice: at its next start by a
hub that could not save how far it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred, DeferredList

from iothub.base import log as logging
from iothub.base.errors import IotHubError, UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.state import Session
from iothub_services.sessions.port import SessionControl
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub

COMMIT_SIZE = 100  # sessions whose ends share a commit
MOST_PER_TURN = 2_000  # sessions ended before other changes are applied

log = logging.get(__name__)

Forget = Callable[[int, Collection[str]], Awaitable[None]]
"""Tenant id, names of deleted devices: forget what is kept of them outside sessions. May raise IotHubError."""


@dataclass(slots=True)
class _Deletion:
    """A deletion, and the sessions that its device had."""

    change: int
    tenant_id: int
    device: str
    broker: TenantBroker | None
    sessions: list[Session] = field(default_factory=list)
    successor: int = 0  # the id of the device that has the name now; 0: none

    def remaining(self) -> list[Session]:
        """Return the sessions that still have to end."""
        if self.broker is None:
            return []
        present = self.broker.plane.sessions
        there = [session for session in self.sessions if present.get(session.client_id) is session]
        return [
            session for session in there if session.control.is_of_predecessor(self.successor) or not _device_id(session)
        ]


class DeviceRemoval:
    """Invariants: a deletion is kept until all its sessions have ended; `done_upto`: the last change before the first kept deletion."""

    def __init__(self, hub: Hub, forget: Forget) -> None:
        self._hub = hub
        self._forget = forget
        self._gone: dict[
            int, set[str]
        ] = {}  # by tenant: devices without sessions that are still to be forgotten elsewhere
        self._deletions: dict[int, _Deletion] = {}  # by the change that deleted the device
        self._noted = 0
        self.done_upto = 0

    def note_deletions(self, changes: Iterable[Change]) -> None:
        """Note the deleted devices and clear their cached records, so that no session of theirs begins; `end_sessions` ends those there are.

        O(sessions of these tenants).
        """
        deleted: dict[int, dict[str, _Deletion]] = {}  # by tenant and device
        for change in changes:
            if change.kind is ChangeKind.DEVICE_DELETED:
                self._hub.authenticator.invalidate(change.tenant_id, change.subject)
                broker = self._hub.brokers.present(change.tenant_id)
                deletion = _Deletion(change.id, change.tenant_id, change.subject, broker)
                deleted.setdefault(change.tenant_id, {}).setdefault(change.subject, deletion)
                self._noted = max(self._noted, change.id)
        for tenant_id, devices in deleted.items():
            broker = self._hub.brokers.present(tenant_id)
            sessions = None if broker is None else broker.plane.sessions
            for client_id, each in () if sessions is None else sessions.items():
                if sessions is not None and each.device in devices:
                    devices[each.device].sessions.append(sessions[client_id])
            self._deletions |= {deletion.change: deletion for deletion in devices.values()}

    def restart_log(self) -> None:
        """The change log begins anew: the ids of the kept deletions no longer say how far it is done."""
        self._noted = self.done_upto = 0

    @property
    def is_pending(self) -> bool:
        return bool(self._deletions)

    async def end_sessions(self) -> None:
        """End sessions of deleted devices, at most `MOST_PER_TURN`; the next call tries those again that a failing store refused."""
        left = MOST_PER_TURN
        for deletion in list(self._deletions.values()):
            try:
                await self._find_successor(deletion)
            except UnavailableError as error:
                log.warning(
                    "sessions of a deleted device not ended, will retry", device=deletion.device, error=str(error)
                )
                continue
            sessions = deletion.remaining()
            if deletion.broker is not None and sessions:
                await self._end_all(deletion.broker, sessions[:left])
                left -= len(sessions)
            if not deletion.remaining():
                self._finish(deletion, len(sessions))
            else:  # after the others, which must not wait for one whose store fails
                self._deletions[deletion.change] = self._deletions.pop(deletion.change)
            if left <= 0:
                break
        self.done_upto = min(self._deletions, default=self._noted + 1) - 1
        await self._forget_gone()

    async def _find_successor(self, deletion: _Deletion) -> None:
        """Find the device that has the name now, if a session does not say whose it is. Raises UnavailableError."""
        if deletion.broker is not None and any(_device_id(session) for session in deletion.remaining()):
            directory = self._hub.authenticator.directory
            found = await directory.devices(deletion.broker.record, (deletion.device,))
            deletion.successor = found[deletion.device].id if found else 0

    def _finish(self, deletion: _Deletion, count: int) -> None:
        del self._deletions[deletion.change]
        self._gone.setdefault(deletion.tenant_id, set()).add(deletion.device)
        if count:
            log.info(
                "sessions of a deleted device ended", tenant=deletion.tenant_id, device=deletion.device, count=count
            )

    async def _forget_gone(self) -> None:
        for tenant_id, names in list(self._gone.items()):
            broker = self._hub.brokers.present(tenant_id)
            if broker is not None:
                broker.allowance.forget_devices(names)
            await self._forget(tenant_id, names)
            del self._gone[tenant_id]

    async def _end_all(self, broker: TenantBroker, sessions: list[Session]) -> None:
        for start in range(0, len(sessions), COMMIT_SIZE):
            ends = [self._end_one(broker, session) for session in sessions[start : start + COMMIT_SIZE]]
            await DeferredList([Deferred.fromCoroutine(end) for end in ends])

    async def _end_one(self, broker: TenantBroker, session: Session) -> None:
        control: SessionControl = session.control
        control.will = None  # the right to publish it went with the device
        if session.connection is not None:
            self._hub.plane.close(session.connection, Reason.CREDENTIAL_REVOKED)
        try:
            await self._hub.sessions.discard(broker, session.client_id, "device_deleted", session)
        except IotHubError as error:
            log.warning(
                "session of a deleted device not ended, will retry", tenant=broker.record.name, error=str(error)
            )


def _device_id(session: Session) -> int:
    """Return the id of the session's device; 0: unknown, so that a deleted and a new device of its name cannot be distinguished."""
    control: SessionControl = session.control
    return control.device_id
