"""Messages orphaned by the end of a persistent session: what it shared is redistributed once, its queue is dropped, what is lost is counted.

Knows no events and no deadlines: `endings` says when. A queue that cannot be dropped now is dropped later; a start drops those that belong
to no session.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import BackendError, NotFoundError
from iothub.engine.message import Delivery
from iothub.engine.plane import Plane
from iothub.engine.state import Session
from iothub_services.queues.port import Claim, StaleEpochError
from iothub_services.sessions.port import QueueAdmin

log = logging.get(__name__)

OnDropped = Callable[[int], None]


def _ignore(_records: int) -> None:
    """A queue that never was a session's holds nothing."""


class OrphanedMessages:
    """On the reactor thread. Invariant: a queue without a session is in `_undropped`, or being dropped, or gone.

    `_redistributed`: by the queues of sessions whose end has begun, how many messages other members have; None: not all were asked for.
    Invariant: such a session is in no shared group until it is kept. So nothing comes into its queue behind what was redistributed, and
    sessions that cannot end, because the log is not available, pass nothing to each other.
    """

    def __init__(self, plane: Plane, queues: QueueAdmin, owner: bytes) -> None:
        self._plane = plane
        self._queues = queues
        self._owner = owner
        self._undropped: dict[int, OnDropped] = {}
        self._redistributed: dict[int, int | None] = {}

    def leave_groups(self, session: Session) -> bool:
        """Take a session whose end begins out of its shared groups; False: it has no shared subscription.

        Invariant: this comes before its queue is claimed. The claim waits for what publishers have appended until now, so that this is read, and
        redistributed, too; behind the claim nothing comes any more.
        """
        if not self._plane.leave_groups(session):
            return False
        self._redistributed.setdefault(session.queue_id, None)
        return True

    async def claim(self, queue_id: int) -> Claim | None:
        """Become the queue's reader; None: it is lost. Raises BackendError."""
        try:
            return await self._queues.claim(queue_id, self._owner)
        except NotFoundError:
            return None

    async def epoch(self, queue_id: int) -> int:
        """Return the epoch of the queue's last claim, 0 if it is lost. Raises BackendError."""
        try:
            return (await self._queues.stats(queue_id)).epoch
        except NotFoundError:
            return 0

    async def redistribute(self, session: Session, claim: Claim | None = None) -> int:
        """Give unacknowledged messages of its shared subscriptions to other members, §4.8.2; return how many they have.

        Durable when it returns, and done once: what finds no other member is dropped with the queue. Raises BackendError: a store failed; the
        next attempt to end the session does all of it again, so that a message may arrive twice. `claim`: if the queue was claimed just now.
        """
        if not self.leave_groups(session):
            return 0
        redistributed = self._redistributed[session.queue_id]
        if redistributed is None:
            redistributed = self._redistributed[session.queue_id] = await self._redistribute_queue(session, claim)
        return redistributed

    async def _redistribute_queue(self, session: Session, claim: Claim | None) -> int:
        redistributed = 0
        try:
            claim = claim or await self.claim(session.queue_id)
            if claim is not None and session.control.place is not None:
                session.control.place.claimed = claim.epoch
            position = None if claim is None else claim.head
            while claim is not None and position is not None:
                page = await self._queues.load(session.queue_id, claim.epoch, position)
                redistributed += await self._redistribute_page(session, page.records)
                position = None if page.is_short or page.upto <= position else page.upto
        except StaleEpochError as error:
            raise BackendError("another hub has claimed the session meanwhile", retryable=True) from error
        return redistributed

    async def _redistribute_page(self, session: Session, records: list[Delivery]) -> int:
        """Raises BackendError: a store did not take all of it."""
        done: Deferred[tuple[int, int]] = Deferred()
        self._plane.redistribute(session, records, lambda redistributed, failed: done.callback((redistributed, failed)))
        redistributed, failed = await done
        if failed:
            raise BackendError(f"{failed} messages could not be redistributed to other members", retryable=True)
        return redistributed

    def keep(self, session: Session) -> None:
        """The session goes on, here or elsewhere: it is in its shared groups again, and the messages in its queue are its own."""
        if session.queue_id in self._redistributed:
            del self._redistributed[session.queue_id]
            self._plane.join_groups(session)

    async def drop(self, queue_id: int, on_dropped: OnDropped = _ignore) -> None:
        """Drop a queue, now or as soon as the store lets us; `on_dropped` is called with how many records it had."""
        self._undropped.pop(queue_id, None)
        self._redistributed.pop(queue_id, None)
        try:
            records = await self._queues.drop(queue_id)
        except BackendError as error:
            self._undropped[queue_id] = on_dropped
            log.warning("queue without a session not dropped, will retry", queue_id=queue_id, error=str(error))
        else:
            on_dropped(records)

    def drop_soon(self, queue_id: int) -> None:
        """Drop the queue of a session that was not created. Returns at once."""
        Deferred.fromCoroutine(self.drop(queue_id))

    def drop_again(self) -> None:
        """Try again what could not be dropped."""
        for queue_id, on_dropped in list(self._undropped.items()):
            Deferred.fromCoroutine(self.drop(queue_id, on_dropped))
