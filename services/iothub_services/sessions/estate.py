"""What an ended session leaves behind: what it shared goes to other members of its groups, its queue is dropped, what is lost is counted.

Knows no events and no deadlines: the session manager says when. A queue that cannot be dropped now is dropped later; a start drops those
that belong to no session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import BackendError, NotFoundError
from iothub.engine.inheritance import Left
from iothub.engine.outbox import SHARED_FLAG
from iothub.engine.plane import Plane
from iothub.engine.session import Session
from iothub_services.queues.port import Claim, StaleEpochError, UnreadableQueueError
from iothub_services.queues.threads import LoadedRecord
from iothub_services.sessions.port import QueueAdmin

log = logging.get(__name__)

OnDropped = Callable[[int], None]


def _nobody(_records: int) -> None:
    """A queue that never was a session's holds nothing."""


@dataclass
class _HandedOn:
    """How far attempts to hand a queue on have come: up to which position all is offered, and how many records have an heir.

    `unplaced`: the first position, if any, of what has none yet: the next attempt begins there. `given`: positions behind it, and just before,
    that have one.
    """

    upto: int = 0
    count: int = 0
    unplaced: int = 0
    given: set[int] = field(default_factory=set)

    def note(self, offered: list[LoadedRecord], unplaced: list[LoadedRecord]) -> None:
        """All of these were offered, and some have found no place."""
        missing = {record.position for record in unplaced}
        placed = {record.position for record in offered} - missing
        self.count += len(placed - self.given)
        if missing:
            self.unplaced = min(missing | {self.unplaced or min(missing)})
        self.given = self.given | placed if self.unplaced else placed


def _is_for_others(record: LoadedRecord) -> bool:
    return record.qos == 1 and bool(record.flags & SHARED_FLAG)


class Estate:
    """On the reactor thread. Invariant: a queue without a session is in `_orphans`, or being dropped, or gone.

    `_handed_on`: of queues whose sessions are ending, or could not be ended yet.
    """

    def __init__(self, plane: Plane, queues: QueueAdmin, owner: bytes) -> None:
        self._plane = plane
        self._queues = queues
        self._owner = owner
        self._orphans: dict[int, OnDropped] = {}
        self._handed_on: dict[int, _HandedOn] = {}

    async def claim(self, queue_id: int) -> Claim | None:
        """Become the queue's reader; None: it went with a damaged file. Raises BackendError."""
        try:
            return await self._queues.claim(queue_id, self._owner)
        except NotFoundError:
            return None

    async def bequeath(self, session: Session, *, is_expiry: bool) -> int:
        """What it shared and did not acknowledge is durable elsewhere before the session's end is; a crash between repeats it, §4.8.2.

        It has left its shared groups, also when this raises. Return how many records found somebody else, in all attempts. Raises BackendError,
        also where its queue or that of an heir, or a record of it, cannot be read and nobody but the clock wants its end: a newer program can,
        and what it shared belongs to the other members (!). Another attempt goes on where this one has stopped.
        """
        if not self._plane.leave_groups(session):
            return 0
        if is_expiry:
            session.is_leaving = True
        so_far = self._handed_on.setdefault(session.queue_id, _HandedOn())
        try:
            claim = await self.claim(session.queue_id)
            if claim is not None:
                await self._hand_on(session, claim, so_far)
        except UnreadableQueueError as error:
            if is_expiry:
                raise
            log.error(
                "what a session shared is lost where nobody can read a queue",
                session=session.client_id,
                error=str(error),
            )
        except StaleEpochError as error:
            raise BackendError("another hub has claimed the session meanwhile", retryable=True) from error
        return so_far.count

    async def _hand_on(self, session: Session, claim: Claim, so_far: _HandedOn) -> None:
        """Raises BackendError; UnreadableQueueError at a record that cannot be read, or when only a newer program can read what heirs have."""
        queue_id, is_through, spared = session.queue_id, False, set[int]()
        if so_far.unplaced:  # somebody may have joined since, or a store is there again
            so_far.upto, so_far.unplaced = (
                so_far.unplaced - 1 - len(session.subscriptions),
                0,
            )  # from the first copy of its message on
        so_far.upto = max(so_far.upto, claim.head)
        while not is_through:
            page = await self._queues.load(queue_id, claim.epoch, so_far.upto)
            is_through = page.is_short or page.upto <= so_far.upto
            await self._give(session, so_far, [record for record in page.records if _is_for_others(record)], spared)
            so_far.upto = page.upto
            if page.unreadable is not None:
                raise UnreadableQueueError(queue_id, page.unreadable.why, page.unreadable.position)
        if spared and so_far.unplaced:
            raise UnreadableQueueError(
                min(spared), f"queue {min(spared)}, of another member of its groups, cannot be read"
            )

    async def _give(self, session: Session, so_far: _HandedOn, records: list[LoadedRecord], spared: set[int]) -> None:
        """Raises BackendError: the store gave some of them up. `spared`: the queues of members that cannot be read; the others are asked, too."""
        given, nobody = so_far.given, list[LoadedRecord]()
        while True:
            done: Deferred[Left] = Deferred()
            self._plane.bequeath(session, records, given, spared, done.callback)
            left = await done
            nobody += left.nobody
            spared |= left.heirs
            if left.again or not left.unwilling:
                break
            given = {record.position for record in records} - {record.position for record in left.unwilling}
        so_far.note(records, [*nobody, *left.again, *left.unwilling])
        if left.again:
            raise BackendError(
                f"{len(left.again)} messages for other members of its shared groups could not be stored", retryable=True
            )

    async def offer_again(self, session: Session) -> int:
        """Its end is durable: who joined its groups while that was on its way gets what had found no place. Return as `bequeath`."""
        so_far = self._handed_on.get(session.queue_id)
        if so_far is not None and so_far.unplaced:
            try:
                await self.bequeath(session, is_expiry=False)
            except BackendError as error:
                log.error("what a session shared is lost with its end", session=session.client_id, error=str(error))
        return 0 if so_far is None else so_far.count

    def keep(self, session: Session) -> None:
        """It lives on, here or elsewhere, or has ended elsewhere: what it has in its queue is its own again."""
        session.is_leaving = False
        self._handed_on.pop(session.queue_id, None)

    async def drop(self, queue_id: int, on_dropped: OnDropped = _nobody) -> None:
        """Drop a queue, now or as soon as the store lets us; `on_dropped` hears how many records it had."""
        self._orphans.pop(queue_id, None)
        self._handed_on.pop(queue_id, None)
        try:
            records = await self._queues.drop(queue_id)
        except BackendError as error:
            self._orphans[queue_id] = on_dropped
            log.warning("a queue without a session could not be dropped yet", queue_id=queue_id, error=str(error))
        else:
            on_dropped(records)

    def drop_soon(self, queue_id: int) -> None:
        """Drop the queue of a session that did not come into being; nobody waits for it."""
        Deferred.fromCoroutine(self.drop(queue_id))

    def drop_orphans(self) -> None:
        """Try again what could not be dropped."""
        for queue_id, on_dropped in list(self._orphans.items()):
            Deferred.fromCoroutine(self.drop(queue_id, on_dropped))
