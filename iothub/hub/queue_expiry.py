"""Messages whose Message Expiry Interval has passed leave the virtual queues, also when nobody comes to read them.

Knows no driver. Whoever reads a queue leaves out by itself what is too old [MQTT-3.3.2-5]; here is what waits for clients that are away: until
it is removed it holds the quota of its session and its tenant.

Theory: the store looks at a few records at a time, in the order of their deadlines; each look is one small operation among the publishes of
its thread, and what is not done within a turn is gone on with in the next. The store spares every position that may have been sent, and
it knows those in steps of a thousand. While this hub lives it knows better: what it has not sent to a session that is away cannot be sent before the
session comes back, and is too old then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from iothub.base.clock import Clock
from iothub.base.reasons import Drop
from iothub.engine.plane import Plane
from iothub.engine.state import Session
from iothub_services.queues.port import EARLIEST, DueRecord, Expired, ExpiryMark
from iothub_tenants.broker.brokers import Brokers

EXPIRY_INTERVAL_S = 2.0
LOOK_RECORDS = 256  # a few milliseconds of the store's thread
LOOKS_PER_TURN = 64


class ExpiringQueues(Protocol):
    """The awaitable verbs of the queue port that are used here."""

    async def expire(self, now_ms: int, count: int, after: ExpiryMark) -> Expired: ...

    async def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]: ...


class QueueExpiry:
    """On the reactor thread."""

    def __init__(self, queues: ExpiringQueues, brokers: Brokers, plane: Plane, clock: Clock) -> None:
        self._queues = queues
        self._brokers = brokers
        self._plane = plane
        self._clock = clock
        self._after = EARLIEST

    async def turn(self) -> None:
        """Remove what is due, in a limited number of steps. Raises BackendError."""
        sessions: dict[int, dict[int, Session]] = {}  # by tenant and queue; for this turn
        for _ in range(LOOKS_PER_TURN):
            now_ms = int(self._clock.wall() * 1000)
            found = await self._queues.expire(now_ms, LOOK_RECORDS, self._after)
            self._count(found.removed)
            unsent = [record for record in found.spared if self._is_unsent(record, sessions)]
            if unsent:
                self._count(await self._queues.expire_unsent(now_ms, unsent))
            self._after = found.after or EARLIEST
            if found.after is None:
                return

    def _is_unsent(self, record: DueRecord, sessions: dict[int, dict[int, Session]]) -> bool:
        known = sessions.get(record.tenant_id)
        if known is None:
            known = sessions[record.tenant_id] = self._persistent(record.tenant_id)
        session = known.get(record.queue_id)
        if session is None or session.connection is not None or session.window is None:
            return False
        return 0 <= session.window.sent_upto < record.position

    def _persistent(self, tenant_id: int) -> dict[int, Session]:
        broker = self._brokers.present(tenant_id)
        if broker is None:
            return {}
        return {session.queue_id: session for session in broker.plane.sessions.awake.values() if session.is_persistent}

    def _count(self, removed: Iterable[DueRecord]) -> None:
        for tenant_id, count in Counter(record.tenant_id for record in removed).items():
            broker = self._brokers.present(tenant_id)
            if broker is not None:
                self._plane.turn.drop(broker.plane, None, Drop.EXPIRED, count)
