"""A deleted device's sessions end: connections, subscriptions, queues and reservations go, and its Wills are not published.

Knows no SQL: it is given the lines of the change log. A successor of the same name finds nothing: neither sessions nor bans for its
predecessor's wrong credentials nor what that had used of its rates. And it loses nothing of its own: the sessions that end are those that
are there when the deletion is heard of, however long a failing store keeps them, but for those of the device that has the name now. So a
deletion may be heard of again, at the next start, by a hub that could not note that it has obeyed.
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

AT_ONCE = 100  # sessions whose ends share a commit
PER_TURN = 2_000  # sessions ended before other changes are obeyed

log = logging.get(__name__)

Forget = Callable[[int, Collection[str]], Awaitable[None]]
"""Tenant id, names of deleted devices: forget what was remembered of them outside sessions. May raise IotHubError."""


@dataclass(slots=True)
class _Leaving:
    """A deletion, and the sessions of its device that were there."""

    change: int
    tenant_id: int
    device: str
    broker: TenantBroker | None
    sessions: list[Session] = field(default_factory=list)
    successor: int = 0  # the number of the device that has the name now; 0: none

    def left(self) -> list[Session]:
        """Return those that have not ended, and have to."""
        if self.broker is None:
            return []
        present = self.broker.plane.sessions
        there = [session for session in self.sessions if present.get(session.client_id) is session]
        return [
            session for session in there if session.control.is_of_predecessor(self.successor) or not _number(session)
        ]


class Departures:
    """Invariants: a deletion that was noted is kept until none of its sessions is left; `settled`: the last change before all kept."""

    def __init__(self, hub: Hub, forget: Forget) -> None:
        self._hub = hub
        self._forget = forget
        self._gone: dict[int, set[str]] = {}  # by tenant: whose sessions have ended, but are remembered otherwise
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

    def forget_place(self) -> None:
        """The log's lines are other ones from now on: those that were noted say nothing of how far they are settled."""
        self._noted = self.settled = 0

    @property
    def is_pending(self) -> bool:
        return bool(self._leaving)

    async def turn(self) -> None:
        """End sessions of deleted devices, a bounded number of them; what a failing store refuses is tried again in a later turn."""
        left = PER_TURN
        for leaving in list(self._leaving.values()):
            try:
                await self._look_for_successor(leaving)
            except UnavailableError as error:
                log.warning("a deleted device may have a successor", device=leaving.device, error=str(error))
                continue
            sessions = leaving.left()
            if leaving.broker is not None and sessions:
                await self._end(leaving.broker, sessions[:left])
                left -= len(sessions)
            if not leaving.left():
                self._done(leaving, len(sessions))
            else:  # behind the others: they are not held up by one whose store fails
                self._leaving[leaving.change] = self._leaving.pop(leaving.change)
            if left <= 0:
                break
        self.settled = min(self._leaving, default=self._noted + 1) - 1
        await self._forget_gone()

    async def _look_for_successor(self, leaving: _Leaving) -> None:
        """Only when somebody is in doubt. Raises UnavailableError."""
        if leaving.broker is not None and any(_number(session) for session in leaving.left()):
            directory = self._hub.authenticator.directory
            device = await directory.device(leaving.broker.record, leaving.device, is_urgent=True)
            leaving.successor = 0 if device is None else device.id

    def _done(self, leaving: _Leaving, count: int) -> None:
        del self._leaving[leaving.change]
        self._gone.setdefault(leaving.tenant_id, set()).add(leaving.device)
        if count:
            log.info("sessions of a deleted device ended", tenant=leaving.tenant_id, device=leaving.device, count=count)

    async def _forget_gone(self) -> None:
        for tenant_id, names in list(self._gone.items()):
            broker = self._hub.brokers.present(tenant_id)
            if broker is not None:
                broker.allowance.forget_devices(names)
            await self._forget(tenant_id, names)
            del self._gone[tenant_id]

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


def _number(session: Session) -> int:
    """Return the number of its device, 0 for one that has none: then nothing tells it from a deleted one of its name."""
    control: SessionControl = session.control
    return control.device_id
