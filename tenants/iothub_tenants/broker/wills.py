"""Publishes one tenant's Wills: a Will that fires is a PUBLISH by its session's device, with the same rights and meters.

Knows no session's life: the session manager says when a Will fires. There is no connection to pause or to send a Reason Code to: above a rate
a Will waits here, as long as a publisher may be paused; one that still does not fit, or exceeds a day's allowance, is dropped and counted like
a refused PUBLISH. While publishers of the tenant are held, Wills wait too, for as long as that takes; while the accounts cannot be read, those
whose rights are not known here, as `until_read` says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred

from iothub.base import log
from iothub.base.clock import Clock
from iothub.base.errors import IotHubError, UnavailableError
from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.ports import Policy
from iothub.engine.state import Session, TenantPlane
from iothub.engine.storage import GAVE_UP
from iothub_tenants.broker.until_read import Later, UntilRead

WAITING_BYTES = 16 << 20  # of one tenant's Wills that wait
WILL_BYTES = 512  # that one takes beside its message, about
HELD_S = 0.1  # between two looks whether the tenant is still held
RETRY_S = 1.0  # between two attempts to read them, with one Will for all that wait

RightsOf = Callable[[Session], Awaitable[Policy | None]]
"""What a session's device may do now; None: nothing. Raises UnavailableError."""
Gauge = tuple[Any, int, str]  # meter or None, units, the plane's name of the limit


@dataclass(slots=True)
class _Firing:
    """One Will. `passed`: how many meters have let it through."""

    session: Session
    message: Message
    on_done: Callable[[], None]
    device: tuple[Gauge, ...]  # taken now: a session that ends releases its meters
    deadline: float  # of a clock that stands still while the tenant is held
    passed: int = 0

    @property
    def size_bytes(self) -> int:
        return self.message.size + WILL_BYTES


class Wills:
    """On the reactor thread. Invariants: Wills leave in the order in which they fired; each one is reported to its `on_done` once."""

    def __init__(self, plane: Plane, tenant: TenantPlane, clock: Clock, later: Later, rights: RightsOf) -> None:
        self._plane = plane
        self._tenant = tenant
        self._clock = clock
        self._later = later
        self._rights = rights
        self._log = log.get(__name__)
        self._waiting: deque[_Firing] = deque()
        self._waiting_bytes = 0
        self._looked_at = 0.0
        self._was_held = False  # when looked last
        self._held_s = 0.0  # altogether
        self._unknown = Session(tenant, "", "", False).policy  # of a session that has had no connection here
        self._checking = 0  # Wills whose rights are being read
        self._unread = UntilRead(self._check_again, self._give_up, clock.monotonic, later, RETRY_S)
        self._unread_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting) + self._checking + len(self._unread)

    def fire(self, session: Session, message: Message, on_done: Callable[[], None]) -> None:
        """Publish a Will as soon as its meters allow; `on_done` when it is stored, or dropped."""
        self._is_held()
        deadline = self._clock.monotonic() - self._held_s + self._tenant.limits.max_pause_s
        own = session.meters
        device: tuple[Gauge, ...] = ()
        if own is not None:
            device = (
                (own.inbound_messages, 1, "device_inbound_messages"),
                (own.inbound_bytes, _size(message), "device_inbound_bytes"),
            )
        firing = _Firing(session, message, on_done, device, deadline)
        if session.is_persistent:
            Deferred.fromCoroutine(self._check(firing))
        else:  # its connection has only just closed: the rights are current
            self._admit_will(firing, session.policy)

    async def _check(self, firing: _Firing) -> None:
        """Read the device's rights: they may have changed since it was connected, and a recovered session has none."""
        session = firing.session
        self._checking += 1
        try:
            policy = await self._rights(session)
        except UnavailableError as error:
            policy = session.policy
            if policy is self._unknown:
                self._wait_for_accounts(firing, error)
                return
        finally:
            self._checking -= 1
        self._admit_will(firing, policy)

    def _wait_for_accounts(self, firing: _Firing, error: UnavailableError) -> None:
        """Nobody knows yet whether it may be published."""
        self._unread_bytes += firing.size_bytes
        if self._unread_bytes - firing.size_bytes >= WAITING_BYTES:
            self._give_up(firing, error)
        else:
            self._unread.add(firing, has_failed=True)

    async def _check_again(self, firing: _Firing) -> None:
        policy = await self._rights(firing.session)
        self._unread_bytes -= firing.size_bytes
        self._admit_will(firing, policy)

    def _give_up(self, firing: _Firing, error: IotHubError) -> None:
        self._unread_bytes -= firing.size_bytes
        self._log.warning(
            "Will not published: the accounts could not be read", client_id=firing.session.client_id, cause=str(error)
        )
        self._drop(firing, Drop.ACCOUNTS_FAILED)

    def _admit_will(self, firing: _Firing, policy: Policy | None) -> None:
        if policy is None or not policy.may_publish(firing.message.topic):
            self._drop(firing, Drop.DENIED)
            return
        if not self._waiting:
            wait_s = self._try_publish(firing)
            if not wait_s:
                return
            self._later(wait_s, self._publish_waiting)
        elif self._waiting_bytes >= WAITING_BYTES:
            self._refuse(firing, "inbound_messages")
            return
        self._waiting.append(firing)
        self._waiting_bytes += firing.size_bytes

    def _publish_waiting(self) -> None:
        while self._waiting:
            firing = self._waiting[0]
            wait_s = self._try_publish(firing)
            if wait_s:
                self._later(wait_s, self._publish_waiting)
                return
            self._waiting.popleft()
            self._waiting_bytes -= firing.size_bytes

    def _try_publish(self, firing: _Firing) -> float:
        """Publish or drop a Will and return 0, or return how many seconds it has to wait."""
        if self._is_held():
            return HELD_S
        tenant, now, size_bytes = self._tenant, self._clock.monotonic(), _size(firing.message)
        gauges: tuple[Gauge, ...] = (
            *firing.device,
            (tenant.inbound_messages, 1, "inbound_messages"),
            (tenant.inbound_bytes, size_bytes, "inbound_bytes"),
            (tenant.day_messages, 1, "day_messages"),  # last: what a rate refuses must not count for the day
            (tenant.day_bytes, size_bytes, "day_bytes"),
        )
        for meter, units, name in gauges[firing.passed :]:
            wait_s: float = 0.0 if meter is None else meter.take(units, now)
            if wait_s > 0.0 and now - self._held_s + wait_s <= firing.deadline:
                return wait_s
            if wait_s:
                self._refuse(firing, name)
                return 0.0
            firing.passed += 1
        self._plane.publish(tenant, firing.message, lambda code: self._done(firing, code))
        return 0.0

    def _is_held(self) -> bool:
        """Tell whether nothing of the tenant may be routed now, and count for how long that has been so."""
        turn, now = self._plane.turn, self._clock.monotonic()
        turn.read_clock()
        if self._was_held:
            self._held_s += now - self._looked_at
        self._looked_at, self._was_held = now, turn.is_held(self._tenant)
        return self._was_held

    def _done(self, firing: _Firing, code: int) -> None:
        if code == GAVE_UP:
            self._drop(firing, Drop.STORE_FAILED)
        else:
            firing.on_done()

    def _refuse(self, firing: _Firing, limit: str) -> None:
        self._plane.turn.observer.limited(self._tenant, firing.session, limit, 1)
        self._drop(firing, Drop.QUOTA)

    def _drop(self, firing: _Firing, reason: Drop) -> None:
        self._plane.turn.drop(self._tenant, firing.session, reason, 1)
        firing.on_done()


def _size(message: Message) -> int:
    return len(message.topic) + len(message.payload) + len(message.properties)
