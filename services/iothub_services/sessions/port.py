"""What the session manager asks of others, and the values it is asked with.

Knows no packets: the control plane has decoded and checked them. The session directory is a Protocol because a hub among others asks its
peers (`iothub.hub.cluster.session_directory`); for one that is alone `iothub.hub.cluster.session_locks` answers from memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from twisted.internet.defer import Deferred

from iothub.base.reasons import Reason
from iothub.base.values import value
from iothub.engine.state import Connection, Place, Session, TenantPlane
from iothub.records.events import Event
from iothub_services.events.port import Offsets
from iothub_services.queues.port import Claim, QueueLimits, QueueStats
from iothub_services.queues.threads import LoadedPage

NEVER_EXPIRES = 0xFFFFFFFF  # §3.1.2.11.2: the session does not expire


class Purpose(Enum):
    """What a session is wanted for, and so what becomes of its client at another hub."""

    CONNECT = 1  # it is closed first [MQTT-3.1.4-3]
    EXPIRY = 2  # it is not disturbed: the session does not expire
    DISCARD = 3  # nobody is asked: the store refuses its epoch, and the log says that the session is over


Key = tuple[int, str]
"""Whose session: tenant and Client Identifier."""


class SessionDirectory(Protocol):
    """Who may change a session right now: one at a time, first come first served."""

    def holding(
        self, tenant_id: int, client_id: str, purpose: Purpose = Purpose.CONNECT
    ) -> AbstractAsyncContextManager[float]:
        """Enter when it may be changed; the answer: seconds since another hub may last have written about it to the log.

        Entering raises UnavailableError: the other hubs did not answer in time, or one of them has the client and must not be disturbed.
        """

    def acquire(self, key: Key) -> Awaitable[float] | None:
        """Do what entering `holding` for a CONNECT does. None: nobody has to be waited for, and the caller has it; see to `give`."""

    def give(self, key: Key) -> None:
        """The work with the session is done."""

    def left(self, tenant_id: int, client_id: str) -> None:
        """The session has no connection here any more. It is there still: whether it is persistent says whether something was written about it."""


@dataclass(frozen=True, slots=True)
class Will:
    """A Will Message as it will be published: topic and payload in bytes, properties encoded, times in seconds.

    `epoch`: the reader epoch of the connection that set it, as the log says; of a transient session any number of its own. It identifies the Will.
    """

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    properties: bytes = b""
    delay_s: int = 0
    expiry_s: int | None = None
    epoch: int = field(default=0, compare=False)


@value
class SessionRequest:
    """What a CONNECT asks of the session manager, after authentication, authorisation and quota."""

    client_id: str
    device: str
    version: int
    is_clean_start: bool
    expiry_s: int  # 0: ends with the connection; NEVER_EXPIRES
    will: Will | None = None
    device_id: int = 0  # `DeviceRecord.id`


@dataclass(frozen=True, slots=True)
class Terms:
    """What the latest CONNECT of a session said, and the deadlines that ran when the next one came."""

    version: int
    expiry_s: int
    will: Will | None
    expires_at: float
    will_at: float


HERE = -1  # as `Place.holder`: this hub
ENDED = 1 << 62  # as `Place.logged_epoch`: the log says that the session is over


class Cluster(Protocol):
    """The other hubs that use the same stores now."""

    @property
    def is_alone(self) -> bool:
        """Whether there are none."""

    def place(self, epoch: int) -> Place | None:
        """Return the place of a session that begins here; None: no other hub can use these stores."""

    async def catch_up(self, ago_s: float = 0.0) -> None:
        """Return when everything has been applied that was durable in the log so many seconds ago. Raises UnavailableError."""

    def settle(self, tenant_id: int, place: Offsets | None) -> Deferred[None] | None:
        """Return what fires when no hub publishes for this tenant without knowing the log up to a place; None: they all know it.

        `place`: as `Journal.record` returns it.
        """


class SingleHub:
    """Fulfils `Cluster` where no store is shared."""

    is_alone = True

    def place(self, epoch: int) -> Place | None:
        del epoch
        return None

    async def catch_up(self, ago_s: float = 0.0) -> None:
        del ago_s

    def settle(self, tenant_id: int, place: Offsets | None) -> Deferred[None] | None:
        del tenant_id, place
        return None


class SessionControl:
    """The control plane's half of one session; the engine's half points at it by `session.control`.

    Invariants: `expires_at` and `will_at` are monotonic deadlines, 0.0 when not running; both run only while the session is offline, and held
    here. `queued_at` belongs to `sessions.deadlines`. `device_id`: of the device that began the session, 0: it has none. `place`: only where
    stores are shared.
    """

    __slots__ = (
        "device_id",
        "expires_at",
        "expiry_s",
        "place",
        "queued_at",
        "version",
        "will",
        "will_at",
    )

    def __init__(self, version: int, expiry_s: int, will: Will | None, device_id: int = 0) -> None:
        self.device_id = device_id
        self.version = version
        self.expiry_s = expiry_s
        self.will = will
        self.expires_at = 0.0
        self.will_at = 0.0
        self.queued_at = 0.0
        self.place: Place | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Another hub has the session."""
        return self.place is not None and self.place.holder != HERE

    @property
    def is_online_elsewhere(self) -> bool:
        """Another hub has the session and its client."""
        return self.place is not None and self.place.holder != HERE and self.place.is_online

    @property
    def has_ended(self) -> bool:
        """The log says so."""
        return self.place is not None and self.place.logged_epoch == ENDED

    def is_of_predecessor(self, device_id: int) -> bool:
        """Say whether the session is of another device than this one, which has its name now."""
        return self.device_id not in (0, device_id)

    def terms(self) -> Terms:
        return Terms(self.version, self.expiry_s, self.will, self.expires_at, self.will_at)

    def put_back(self, terms: Terms) -> None:
        self.version, self.expiry_s, self.will = terms.version, terms.expiry_s, terms.will
        self.expires_at, self.will_at = terms.expires_at, terms.will_at


class WillKeeper(Protocol):
    """Keeps Wills of transient sessions where they outlive this hub: no log has them."""

    def keep(self, session: Session, will: Will, message_id: bytes) -> None:
        """The client has connected."""

    def drop(self, session: Session, message_id: bytes) -> None:
        """The Will is published, or must not be."""


class NoWillKeeper:
    """Fulfils `WillKeeper` where there is no other hub."""

    def keep(self, session: Session, will: Will, message_id: bytes) -> None:
        """There is nobody to keep it."""

    def drop(self, session: Session, message_id: bytes) -> None:
        """Nobody has it."""


class QueueAdmin(Protocol):
    """The rare verbs of the virtual queues, awaitable (each one durable when it is done)."""

    async def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int) -> None: ...

    async def claim(self, queue_id: int, owner: bytes) -> Claim: ...

    async def stats(self, queue_id: int) -> QueueStats:
        """Raises NotFoundError: there is no such queue."""

    async def existing(self, queue_ids: list[int]) -> set[int]:
        """Return which of these queues are there."""

    async def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None: ...

    async def load(self, queue_id: int, epoch: int, after: int) -> LoadedPage:
        """Read the next records after a position, decoded."""

    async def drop(self, queue_id: int) -> int:
        """Return how many records it had."""


class Journal(Protocol):
    """The session-event log as the session manager sees it. Events are kept in the order of the calls."""

    async def record(self, events: list[Event]) -> Offsets | None:
        """Return when they are durable, with their place in the log; None: the log could not say where. Raises BackendError."""

    def note(self, events: list[Event]) -> None:
        """Durable soon; the loss of one is counted."""


class SessionHome(Protocol):
    """One tenant, as its sessions see it: fulfilled by the tenant's broker."""

    @property
    def tenant_id(self) -> int: ...

    @property
    def plane(self) -> TenantPlane: ...

    def queue_limits(self, device: str) -> QueueLimits: ...

    async def next_queue_id(self) -> int: ...

    def vacate(self, connection: Connection, reason: Reason) -> None:
        """Take the session away from a connection that is about to be closed: `close_connection` is called from here."""

    def session_ended(self, session: Session) -> None:
        """Give back what the session holds of the tenant's quota; called before the plane forgets its subscriptions."""

    def publish_will(self, session: Session, will: Will, message_id: bytes, on_done: Callable[[], None]) -> None:
        """Publish it if the device may (still) publish there; `on_done` when it is stored, or will never be."""
