"""Ends sessions when they expire, on request, or when another takes their place; runs the deadlines until then.

Knows no new connections: the session manager does. The end of a persistent session is an event, durable before its queue is dropped.
"""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError, IotHubError
from iothub.base.reasons import Drop, Reason
from iothub.engine.plane import Plane
from iothub.engine.state import Session
from iothub.records import events
from iothub_services.queues.port import Claim
from iothub_services.sessions.deadlines import Deadlines
from iothub_services.sessions.orphaned_messages import OrphanedMessages
from iothub_services.sessions.port import (
    NEVER_EXPIRES,
    Cluster,
    Journal,
    Purpose,
    SessionControl,
    SessionDirectory,
    SessionHome,
)
from iothub_services.sessions.subjects import subject_of
from iothub_services.sessions.wills import Wills

log = logging.get(__name__)

ENDING = 500  # sessions that expire at a time: their events share a few commits
WILL_RETRY_S = 1.0  # until the next attempt to publish a delayed Will whose session another hub works with
RETRY_S = 10.0  # until the next attempt to end an expired session; a store that fails in the middle of each lets some messages arrive again and again


class Endings:
    """Runs the deadlines of offline sessions and ends sessions. On the reactor thread."""

    def __init__(
        self,
        plane: Plane,
        directory: SessionDirectory,
        journal: Journal,
        clock: Clock,
        cluster: Cluster,
        orphaned: OrphanedMessages,
        wills: Wills,
    ) -> None:
        self._plane = plane
        self._directory = directory
        self._journal = journal
        self._clock = clock
        self._cluster = cluster
        self._orphaned = orphaned
        self._wills = wills
        self._deadlines = Deadlines()
        self._ending = 0  # sessions that are just expiring
        self._asking: set[Session] = set()  # those whose delayed Will waits for the directory

    def start_deadlines(self, home: SessionHome, session: Session, offline_s: float = 0.0) -> None:
        """The session is offline, for `offline_s` already: its expiry and its Will Delay run."""
        control: SessionControl = session.control
        began = self._clock.monotonic() - offline_s
        if control.expiry_s != NEVER_EXPIRES:
            control.expires_at = began + control.expiry_s
        if control.will is not None:
            control.will_at = began + min(control.will.delay_s, control.expiry_s)
        self.queue(home, session)

    def stop_deadlines(self, session: Session) -> None:
        """Its client has come, here or elsewhere, or another hub has ended it."""
        session.control.expires_at = session.control.will_at = 0.0
        self._orphaned.keep(session)

    def fire_if_due(self, home: SessionHome, session: Session) -> None:
        """Its client comes, and the deadlines have not been looked at since its Will came due."""
        if session.connection is None and 0.0 < session.control.will_at <= self._clock.monotonic():
            self._wills.fire(home, session)

    def queue(self, home: SessionHome, session: Session) -> None:
        """Look at the session when the first of its deadlines comes."""
        control: SessionControl = session.control
        coming = [deadline for deadline in (control.will_at, control.expires_at) if deadline]
        if coming:
            self._deadlines.add(min(coming), home, session)

    async def evict(self, home: SessionHome, session: Session, reason: str, code: Reason) -> None:
        """End a session whether its client is connected or not. The directory's lock is held."""
        connection = session.connection
        if connection is not None:
            home.vacate(connection, code)
            self._plane.close(connection, code)
        if home.plane.sessions.get(session.client_id) is session:
            await self.end(home, session, reason, Drop.PURGED)

    async def end(self, home: SessionHome, session: Session, reason: str, drop: Drop = Drop.SESSION_ENDED) -> None:
        """End a session whose connection is gone: its Will, its orphaned messages, its event, its queue. Raises IotHubError: it has not ended."""
        control: SessionControl = session.control
        expires_at = control.expires_at
        control.expires_at = control.queued_at = 0.0
        if control.will is not None:
            self._wills.fire(home, session)  # the session's end does not wait for the Will Delay (§3.1.3.2.2)
        is_alone, is_expiry = self._cluster.is_alone, reason == "expired"
        try:
            await self._settle_wills(session, is_expiry=is_expiry)
            self._orphaned.leave_groups(session)
            claim = None if is_alone else await self._fence(session, is_expiry=is_expiry)
            # before the first wait: an epoch that another hub claims meanwhile must not be ended
            subject = subject_of(session, self._clock)
            redistributed = await self._orphaned.redistribute(session, claim)
            if is_expiry:
                _require_here(session)  # again: its client may have come to another hub while its queue was read
            ended = events.session_expired(subject) if is_expiry else events.session_discarded(subject, reason=reason)
            await self._journal.record([ended])
            if not is_alone:
                await self._cluster.catch_up()
        except Exception:
            if control.is_elsewhere:
                self._orphaned.keep(session)
            else:  # it lives on, and its time comes
                control.expires_at = self._clock.monotonic() + RETRY_S if is_expiry else expires_at
            self.queue(home, session)
            raise
        if session.is_discarded or session.epoch > subject.epoch:
            self._orphaned.keep(session)
            return  # another hub has ended or resumed it before, and the log has that first
        if reason == "queue_lost":
            log.error(
                "session ended because its queue is lost",
                tenant=session.tenant.name,
                client_id=session.client_id,
                queue=session.queue_id,
            )
        home.session_ended(session)
        self._plane.discard(session)
        await self._orphaned.drop(session.queue_id, partial(self._count_lost, home, session, drop, redistributed))

    async def _settle_wills(self, session: Session, *, is_expiry: bool) -> None:
        """A session that has ended in the log has no Will any more [MQTT-3.1.2-8]. Raises BackendError: an expiry has time, nobody waits for it."""
        if not is_expiry:
            await self._wills.settled_or_overtaken(session)
        elif not await self._wills.settled(session):
            raise BackendError("the Will of the session is not stored yet", retryable=True)

    async def _fence(self, session: Session, *, is_expiry: bool) -> Claim | None:
        """Look who has an expired session; claim the queue of one that is to end in any case, so that the store refuses its reader at another hub.

        None: nothing was claimed, or the queue is lost. Raises BackendError: the session must not end now.
        """
        if is_expiry:
            await self._require_unclaimed(session)
            return None
        claim = await self._orphaned.claim(session.queue_id)
        if claim is not None:
            session.epoch = max(session.epoch, claim.epoch)
        return claim

    async def _require_unclaimed(self, session: Session) -> None:
        """Look who has a session that has expired. Raises BackendError: another hub, or one has claimed its queue and has not logged that yet.

        Invariant: an expiry claims no queue that another hub reads. The client of that hub would be disconnected. Whatever comes after this look
        is decided by the log: of the end and of an event with a higher epoch, the first counts.
        """
        await self._cluster.catch_up()
        _require_here(session)
        control: SessionControl = session.control
        epoch = await self._orphaned.epoch(session.queue_id)
        if control.place is not None and epoch > max(session.epoch, control.place.claimed):
            control.place.claimed = epoch  # if that is all until the next attempt, whoever claimed it has died
            raise BackendError("another hub has claimed the session", retryable=True)

    def _count_lost(self, home: SessionHome, session: Session, drop: Drop, redistributed: int, records: int) -> None:
        if records > redistributed:
            self._plane.turn.drop(home.plane, session, drop, records - redistributed)

    def run_due(self) -> None:
        """Fire the Wills and end the sessions whose time has come; sessions that end do so in tasks of their own."""
        now = self._clock.monotonic()
        for home, session in self._deadlines.due(now):
            control: SessionControl = session.control
            if session.connection is not None or control.is_elsewhere:
                continue
            if 0.0 < control.will_at <= now and session not in self._asking:
                Deferred.fromCoroutine(self._fire_or_wait(home, session))
            if 0.0 < control.expires_at <= now and self._ending < ENDING:
                Deferred.fromCoroutine(self._expire_or_wait(home, session))  # a log that fails holds up no Will
            elif 0.0 < control.will_at <= now:  # it waits for the directory
                self._deadlines.add(now + WILL_RETRY_S, home, session)
            else:
                self.queue(home, session)

    async def _fire_or_wait(self, home: SessionHome, session: Session) -> None:
        """Fire a delayed Will, unless its client comes to another hub.

        Invariant: only the hub that has the session in the directory fires its Will, and it keeps the session there until the Will is stored and
        the log says so. Whoever has the session next finds no Will in the log that another hub has sent, but one that a lost hub has.
        """
        control: SessionControl = session.control
        self._asking.add(session)
        try:
            async with self._directory.holding(home.tenant_id, session.client_id, Purpose.EXPIRY):
                if not self._cluster.is_alone:
                    await self._cluster.catch_up()
                if session.connection is None and not session.is_discarded and not control.is_elsewhere:
                    self.fire_if_due(home, session)
        except IotHubError as error:
            log.info("Will not published yet, will retry", client_id=session.client_id, cause=str(error))
        except Exception as error:  # the service loop's edge, as at an expiry
            log.error("defect at the Will of a session", client_id=session.client_id, exc_info=error)
        finally:
            self._asking.discard(session)

    async def _expire_or_wait(self, home: SessionHome, session: Session) -> None:
        self._ending += 1
        try:
            await self._expire(home, session)
        except IotHubError as error:
            log.warning("session not ended, will retry", client_id=session.client_id, error=str(error))
            self._expire_later(home, session)
        except Exception as error:  # the service loop's edge: a defect with one session must not stop the others
            log.error("defect at the end of a session", client_id=session.client_id, exc_info=error)
        finally:
            self._ending -= 1

    def _expire_later(self, home: SessionHome, session: Session) -> None:
        """Look at a session again whose end has not begun: another hub has its client, or does not answer."""
        control: SessionControl = session.control
        now = self._clock.monotonic()
        if not session.is_discarded and 0.0 < control.expires_at <= now:
            control.expires_at = now + RETRY_S
            self.queue(home, session)

    async def _expire(self, home: SessionHome, session: Session) -> None:
        async with self._directory.holding(home.tenant_id, session.client_id, Purpose.EXPIRY):
            is_same = home.plane.sessions.get(session.client_id) is session
            control: SessionControl = session.control
            if is_same and session.connection is None and 0.0 < control.expires_at <= self._clock.monotonic():
                await self.end(home, session, "expired")


def _require_here(session: Session) -> None:
    """Raise BackendError: another hub has the session, or has ended it."""
    if session.is_discarded or session.control.is_elsewhere:
        raise BackendError("another hub has the session now", retryable=True)
