"""A deleted device's sessions end: connections, subscriptions, queues and reservations go, and its Wills are not published.

Knows no SQL: it is given the lines of the change log. A successor of the same name finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred, DeferredList

from iothub import log as logging
from iothub.engine.session import Session
from iothub.errors import IotHubError
from iothub.reasons import Reason
from iothub_services.sessions.port import SessionControl
from iothub_tenants.broker import TenantBroker
from iothub_tenants.changes import Change
from iothub_tenants.hub import Hub
from iothub_tenants.store import ChangeKind

AT_ONCE = 100  # sessions whose ends share a commit
PER_TURN = 2_000  # sessions ended before other changes are obeyed

log = logging.get(__name__)

Device = tuple[int, str]


class Departures:
    """Invariants: a deletion that was noted is kept until no session of that device is left; `settled`: the last change before all kept."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._leaving: dict[Device, int] = {}  # (tenant id, device) -> the change that deleted it
        self._noted = 0
        self.settled = 0

    def note(self, changes: Iterable[Change]) -> None:
        """Take in what was deleted; `turn` ends the sessions."""
        for change in changes:
            if change.kind is ChangeKind.DEVICE_DELETED:
                self._leaving.setdefault((change.tenant_id, change.subject), change.id)
                self._noted = max(self._noted, change.id)

    @property
    def is_pending(self) -> bool:
        return bool(self._leaving)

    async def turn(self) -> None:
        """End sessions of deleted devices, a bounded number of them; what a failing store refuses is tried again in the next turn."""
        left = PER_TURN
        for leaving in list(self._leaving):
            broker = self._hub.brokers.present(leaving[0])
            sessions = [] if broker is None else _sessions_of(broker, leaving[1])
            if broker is not None and sessions:
                await self._end(broker, sessions[:left])
                left -= len(sessions)
            if broker is None or not _sessions_of(broker, leaving[1]):
                del self._leaving[leaving]
                log.info(
                    "sessions of a deleted device ended", tenant=leaving[0], device=leaving[1], count=len(sessions)
                )
            if left <= 0:
                break
        self.settled = min(self._leaving.values(), default=self._noted + 1) - 1

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
            await self._hub.sessions.discard(broker, session.client_id, "device_deleted")
        except IotHubError as error:
            log.warning(
                "a session of a deleted device could not be ended yet", tenant=broker.record.name, error=str(error)
            )


def _sessions_of(broker: TenantBroker, device: str) -> list[Session]:
    return [session for session in broker.plane.sessions.values() if session.device == device]
