"""Queues that stand still: their readers have come to a record that this program cannot read, or nothing of them can be read.

Knows alarms by the stores' words, and no driver.

Theory: a record of a newer program is not damaged, and going past it would lose it, so its session gets what is before it, and no more until
the hub is upgraded or somebody purges the queue. Nothing is lost meanwhile: what comes is stored behind it and acknowledged. A queue
of which nothing can be read (position 0) takes nothing, and what is for it, too, is not acknowledged; other queues go on. It is told
once for each queue. Whoever asks for what is behind it is answered from here, and the store is asked again every `AGAIN_S`: another
hub may have purged the queue. A store that fails for good stops readers, too, but its records may be whole: then nobody shall purge.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from iothub.base.clock import Clock
from iothub.engine.state import Session
from iothub_services.queues.listeners import Alarm
from iothub_services.queues.port import Unreadable

AGAIN_S = 30.0
MOST_NAMED = 32  # queues with an alarm of their own: a hub that was downgraded has thousands

_SHOWN = 100  # characters of a Client Identifier


class _Still(NamedTuple):
    """Where a queue stands still. `word`: its alarm's, empty if it is not named."""

    tenant_id: int
    position: int
    is_store_failing: bool
    again_at: float
    word: str


class StandingStill:
    """On the reactor thread. Invariant: an alarm is raised for each queue here, or, for those that are too many, one for all of them."""

    def __init__(self, clock: Clock, on_alarm: Alarm) -> None:
        self._clock = clock
        self._on_alarm = on_alarm
        self._queues: dict[int, _Still] = {}
        self._unnamed = 0

    def __len__(self) -> int:
        return len(self._queues)

    def holds(self, queue_id: int, after: int) -> bool:
        """Is what is behind `after` known to be unreadable, and not to be asked for again yet?"""
        still = self._queues.get(queue_id) if self._queues else None
        return still is not None and after >= still.position - 1 and self._clock.monotonic() < still.again_at

    def stop(self, session: Session, found: Unreadable, *, is_store_failing: bool = False) -> None:
        """A reader has come to such a record. `is_store_failing`: the store refuses, or its file is damaged; the record may be whole."""
        queue_id = session.queue_id
        still = self._queues.get(queue_id)
        again_at = self._clock.monotonic() + AGAIN_S
        if still is not None and (still.position, still.is_store_failing) == (found.position, is_store_failing):
            self._queues[queue_id] = still._replace(again_at=again_at)
            return
        self.forget(queue_id)
        word = f"queue_{queue_id}_unreadable" if len(self._queues) - self._unnamed < MOST_NAMED else ""
        self._queues[queue_id] = _Still(session.tenant.tenant_id, found.position, is_store_failing, again_at, word)
        text = _told(session, found, is_store_failing=is_store_failing)
        if word:
            self._on_alarm(word, text)
            return
        self._unnamed += 1
        if self._unnamed == 1:
            self._on_alarm("queues_unreadable", f"more than {MOST_NAMED} queues: {text}")

    def refused(self, session: Session, found: Unreadable) -> None:
        """It took nothing of what came for it."""
        still = self._queues.get(session.queue_id)
        if still is None or bool(still.position) != bool(found.position):
            self.stop(session, found)

    def unread(self, most: int) -> list[int]:
        """Return some queues of which nothing can be read, those first that were returned longest ago."""
        found = list(islice((queue_id for queue_id, still in self._queues.items() if not still.position), most))
        for queue_id in found:
            self._queues[queue_id] = self._queues.pop(queue_id)
        return found

    def passed(self, queue_id: int, upto: int, *, is_short: bool) -> None:
        """A reader was told how far it has come, and whether that was the tail."""
        still = self._queues.get(queue_id) if self._queues else None
        if still is not None and (is_short or upto >= still.position):
            self.forget(queue_id)

    def forget(self, queue_id: int) -> None:
        """The queue was purged or dropped, its record can be read, or somebody else reads it now."""
        still = self._queues.pop(queue_id, None)
        if still is None:
            return
        if still.word:
            self._on_alarm(still.word, "")
            return
        self._unnamed -= 1
        if not self._unnamed:
            self._on_alarm("queues_unreadable", "")

    def forget_tenant(self, tenant_id: int) -> None:
        for queue_id in [queue_id for queue_id, still in self._queues.items() if still.tenant_id == tenant_id]:
            self.forget(queue_id)


def _told(session: Session, found: Unreadable, *, is_store_failing: bool) -> str:
    tenant, client_id = session.tenant.name, session.client_id[:_SHOWN]
    if not found.position and not is_store_failing:
        return (
            f"session {client_id!r} of tenant {tenant} stands still: queue {session.queue_id} cannot be read: {found.why}; it is kept, "
            "and what comes for it is not acknowledged. Upgrade this hub if a newer one has written it; "
            f"`iothub session discard {tenant} CLIENT_ID` ends the session and removes it with all that waits"
        )
    where = f"session {client_id!r} of tenant {tenant} stands still before position {found.position} of queue {session.queue_id}"
    if is_store_failing:
        return (
            f"{where}: {found.why}. The store fails, its records may be whole: purge nothing, look at the store; "
            "of a damaged file the next start of the hub saves what can be read"
        )
    return (
        f"{where}: {found.why}; what comes is kept behind it, or not acknowledged. Upgrade this hub if a newer one has written it; "
        f"`iothub queue purge {tenant} CLIENT_ID` removes it with all that waits, "
        f"`iothub session discard {tenant} CLIENT_ID` where that does not help"
    )
