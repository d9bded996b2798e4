"""A deleted device's sessions end: connections, subscriptions, queues and reservations go, and its Wills are not published.

Knows no SQL: it is given the lines of the change log. A successor of the same name finds nothing, and loses nothing of its own: the sessions
that end are those that are there when the deletion is heard of, however long a failing store keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred, DeferredList

from iothub import log as logging
from iothub.engine.session import Session
from iothub.errors import IotHubError
from iothub.reasons import Reason
from iothub_services.sessions.port import SessionControl
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub

AT_ONCE = 100  # sessions whose ends share a commit
PER_TURN = 2_000  # sessions ended before other changes are obeyed

log = logging.get(__name__)


@dataclass(slots=True)
class _Leaving:
    """A deletion, and the sessions of its device that were there."""

    change: int
    tenant_id: int
    device: str
    broker: TenantBroker | None
    sessions: list[Session] = field(default_factory=list)

    def left(self) -> list[Session]:
        """Return those that have not ended."""
        if self.broker is None:
            return []
        present = self.broker.plane.sessions
        return [session for session in self.sessions if present.get(session.client_id) is session]


class Departures:
    """Invariants: a deletion that was noted is kept until none of its sessions is left; `settled`: the last change before all kept."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._leaving: dict[int, _Leaving] = {}  # by the change that deleted the device
        self._noted = 0
        self.settled = 0

    def note(self, changes: Iterable[Change]) -> None:
        """Take in what was deleted; `turn` ends the sessions. From now on nobody begins another one by what was remembered of the device.

        O(sessions of these tenants).
        """
        deleted: dict[int, dict[str, _Leaving]] = {}  # by tenant and device
        for change in changes:
            if change.kind is ChangeKind.DEVICE_DELETED:
                self._hub.authenticator.invalidate(change.tenant_id, change.subject)
                broker = self._hub.brokers.present(change.tenant_id)
                leaving = _Leaving(change.id, change.tenant_id, change.subject, broker)
                deleted.setdefault(change.tenant_id, {}).setdefault(change.subject, leaving)
                self._noted = max(self._noted, change.id)
        for tenant_id, devices in deleted.items():
            broker = self._hub.brokers.present(tenant_id)
            for session in () if broker is None else broker.plane.sessions.values():
                if session.device in devices:
                    devices[session.device].sessions.append(session)
            self._leaving |= {leaving.change: leaving for leaving in devices.values()}

    @property
    def is_pending(self) -> bool:
        return bool(self._leaving)

    async def turn(self) -> None:
        """End sessions of deleted devices, a bounded number of them; what a failing store refuses is tried again in the next turn."""
        left = PER_TURN
        for leaving in list(self._leaving.values()):
            sessions = leaving.left()
            if leaving.broker is not None and sessions:
                await self._end(leaving.broker, sessions[:left])
                left -= len(sessions)
            if not leaving.left():
                del self._leaving[leaving.change]
                count = len(leaving.sessions)
                log.info(
                    "sessions of a deleted device ended", tenant=leaving.tenant_id, device=leaving.device, count=count
                )
            if left <= 0:
                break
        self.settled = min(self._leaving, default=self._noted + 1) - 1

    async def _end(self, broker: TenantBroker, sessions: list[Session]) -> None:
        for start in range(0, len(sessions), AT_ONCE):
            ends = [self._end_one(broker, session) for session in sessions[start : start + AT_ONCE]]
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
                "a session of a deleted device could not be ended yet", tenant=broker.record.name, error=str(error)
            )
