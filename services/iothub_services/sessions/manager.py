"""The session manager: transient sessions live with their connection, persistent ones until they expire, whatever dies meanwhile.

Knows no packets, no sockets and no passwords: a request here has been authenticated and authorised. Every change of a persistent
session is an event, durable before its effect is acknowledged; a new incarnation begins with a queue of its own. What could not be made
durable has not happened: the session is as it was, with its Will and its deadlines, or there is none.

Theory: an incarnation's reader epochs are `queue_id << 24 | n`. Queue ids rise for the whole hub and are never re-used, so every epoch of a
new incarnation lies above all epochs of its predecessors, which need not be remembered.
"""

from __future__ import annotations

from typing import NamedTuple

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError, IotHubError, NotFoundError, UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.plane import Plane
from iothub.engine.state import Session
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub_services.queues.port import QueueLimits
from iothub_services.sessions.endings import Endings
from iothub_services.sessions.orphaned_messages import OrphanedMessages
from iothub_services.sessions.port import (
    HERE,
    Cluster,
    Journal,
    NoWillKeeper,
    Purpose,
    QueueAdmin,
    SessionControl,
    SessionDirectory,
    SessionHome,
    SessionRequest,
    SingleHub,
    Terms,
    Will,
    WillKeeper,
)
from iothub_services.sessions.subjects import now_ms, subject_of
from iothub_services.sessions.wills import Wills, of_epoch, of_transient, will_events

log = logging.get(__name__)

EPOCH_BITS = 24


class Opened(NamedTuple):
    """The answer to a SessionRequest. `is_present`: CONNACK's Session Present; `before`: the terms of a session that was there."""

    session: Session
    is_present: bool
    before: Terms | None = None


class SessionManager:
    """Opens, closes, expires and discards the sessions of all tenants of this worker. All calls on the reactor thread."""

    def __init__(
        self,
        plane: Plane,
        directory: SessionDirectory,
        queues: QueueAdmin,
        journal: Journal,
        clock: Clock,
        owner: bytes,
        cluster: Cluster | None = None,
        will_keeper: WillKeeper | None = None,
    ) -> None:
        self._cluster: Cluster = cluster or SingleHub()
        self._plane = plane
        self._directory = directory
        self._queues = queues
        self._journal = journal
        self._clock = clock
        self._owner = owner
        self._orphaned = OrphanedMessages(plane, queues, owner)
        self._wills = Wills(journal, clock, will_keeper or NoWillKeeper(), self._settled)
        self._losing: set[Session] = set()  # sessions whose queues may be lost, while they are looked at
        self._endings = Endings(plane, directory, journal, clock, self._cluster, self._orphaned, self._wills)

    @property
    def wills_under_way(self) -> int:
        """How many Wills have fired and are not stored yet: their rights are being read, or they wait for a rate or the store."""
        return self._wills.under_way

    @property
    def wills_overtaken(self) -> int:
        """How many clients did not wait any more until the Will of their last connection was stored."""
        return self._wills.overtaken

    @property
    def sending_wills(self) -> list[Session]:
        """Return the sessions with Wills that have fired and are not stored yet."""
        return self._wills.sending

    # --- a connection comes

    def open_at_once(self, home: SessionHome, request: SessionRequest) -> Opened | None:
        """Make a transient session where there is none; None: `open` must be awaited. The caller holds the directory's lock."""
        if request.expiry_s or request.client_id in home.plane.sessions:
            return None
        return Opened(self._create_transient(home, request), is_present=False)

    async def open(self, home: SessionHome, request: SessionRequest) -> Opened:
        """Make or resume the session. The caller holds the directory's lock for it."""
        present = home.plane.sessions.get(request.client_id)
        if present is not None and present.control.has_ended:  # its end is in the log, and was not seen through
            self.forget(home, present)
            self._orphaned.drop_soon(present.queue_id)
            present = None
        if present is not None and present.control.is_of_predecessor(request.device_id):
            present.control.will = None  # the right to publish it went with its device
            await self._endings.evict(home, present, "device_deleted", Reason.CREDENTIAL_REVOKED)
            present = None
        was_elsewhere = present is not None and present.control.is_elsewhere
        if present is not None:
            present = await self._end_connection(home, present)
        if present is not None and (request.is_clean_start or present.control.expiry_s == 0):
            reason = "clean_start" if request.is_clean_start else "ended"
            await self._endings.end(home, present, reason)  # [MQTT-3.1.2-4]
            present = None
        if present is not None:
            opened = await self._resume_unless_over(home, present, request, was_elsewhere=was_elsewhere)
            if opened is not None:
                return opened
        if request.expiry_s == 0:
            return Opened(self._create_transient(home, request), is_present=False)
        return Opened(await self._create_persistent(home, request), is_present=False)

    async def _end_connection(self, home: SessionHome, session: Session) -> Session | None:
        """End the session's connection before this one, here or elsewhere, with its Will. None: the session has ended with it.

        Invariant: the log has a Will until it is stored. A CONNECT puts its own into the log, or none, so it waits.
        """
        if session.connection is not None:
            self._take_over(home, session)
        elif session.control.is_elsewhere:
            self._fetch(home, session)
        else:
            self._endings.fire_if_due(home, session)
        if session.is_persistent:
            await self._wills.settled_or_overtaken(session)
        left: Session | None = home.plane.sessions.get(session.client_id)
        return left

    def _take_over(self, home: SessionHome, session: Session) -> None:
        connection = session.connection
        if connection is None:
            return
        if session.is_persistent:
            self._journal.note([events.session_taken_over(subject_of(session, self._clock), by="")])
        home.vacate(connection, Reason.TAKEN_OVER)
        self._plane.close(connection, Reason.TAKEN_OVER)  # [MQTT-3.1.4-3]

    def _fetch(self, home: SessionHome, session: Session) -> None:
        """Take over a session from another hub. That hub learns it from the log; from now on this hub sends the Will."""
        control: SessionControl = session.control
        place = control.place
        if place is None:
            return
        was_online, place.holder, place.is_online = place.is_online, HERE, False
        offline_s = 0.0
        if was_online:
            self._journal.note([events.session_taken_over(subject_of(session, self._clock), by="")])
        elif place.since_ms:
            offline_s = self._clock.wall() - place.since_ms / 1000
        if control.will is not None and offline_s >= min(control.will.delay_s, control.expiry_s):
            # [MQTT-3.1.4-3], or the hub that had it is gone or has just asked for it, and nobody has stored it [MQTT-3.1.2-8]
            self._wills.fire(home, session)

    def _create_transient(self, home: SessionHome, request: SessionRequest) -> Session:
        session = self._plane.create_session(home.plane, request.client_id, request.device, is_persistent=False)
        will = of_transient(request.will)
        session.control = SessionControl(request.version, request.expiry_s, will, request.device_id)
        return session

    async def _create_persistent(self, home: SessionHome, request: SessionRequest) -> Session:
        queue_id = await home.next_queue_id()
        first_epoch, has_queue = queue_id << EPOCH_BITS, False
        limits = home.queue_limits(request.device)
        try:
            await self._queues.create(home.tenant_id, queue_id, limits, first_epoch)
            has_queue = True
            claim = await self._queues.claim(queue_id, self._owner)
            await self._record_created(home, request, queue_id, claim.epoch)
            self._require_first(home, request.client_id, claim.epoch)
        except BackendError as error:
            if has_queue or error.is_written:
                self._orphaned.drop_soon(queue_id)
            raise
        session = self._plane.create_session(
            home.plane, request.client_id, request.device, is_persistent=True, queue_id=queue_id, epoch=claim.epoch
        )
        will = of_epoch(request.will, claim.epoch)
        session.control = SessionControl(request.version, request.expiry_s, will, request.device_id)
        session.control.place = self._cluster.place(claim.epoch)
        self._plane.restore(session, claim)
        if home.queue_limits(request.device) != limits:
            Deferred.fromCoroutine(self._keep_within(home, session, limits))
        return session

    def _require_first(self, home: SessionHome, client_id: str, epoch: int) -> None:
        """Another hub may have begun a session for this client at the same time: the higher epoch counts, here and there.

        Raises BackendError: it is the other's.
        """
        other = home.plane.sessions.get(client_id)
        if other is None:
            return
        if other.epoch > epoch:
            raise BackendError("another hub has begun the session at the same time", retryable=True)
        self.forget(home, other)

    async def _keep_within(self, home: SessionHome, session: Session, limits: QueueLimits) -> None:
        """Set the limits of a queue when they have changed since it was created and the session was not in the list of sessions then."""
        while (now := home.queue_limits(session.device)) != limits and not session.is_discarded:
            limits = now
            try:
                await self._queues.set_limits([(session.queue_id, limits)])
            except IotHubError as error:
                log.warning("queue limits not changed", queue_id=session.queue_id, error=str(error))

    async def _record_created(self, home: SessionHome, request: SessionRequest, queue_id: int, epoch: int) -> None:
        subject = Subject(home.tenant_id, request.client_id, epoch, now_ms(self._clock))
        created = events.session_created(
            subject,
            device=request.device,
            queue_id=queue_id,
            protocol_version=request.version,
            session_expiry_s=request.expiry_s,
            device_id=request.device_id,
        )
        try:
            await self._journal.record([created, *will_events(subject, request.will)])
        except BackendError as error:
            if error.is_written:  # perhaps: then a start must not find it
                self._journal.note([events.session_discarded(subject, reason="not_opened")])
            raise

    async def _resume_unless_over(
        self, home: SessionHome, session: Session, request: SessionRequest, *, was_elsewhere: bool
    ) -> Opened | None:
        """None: the session has ended, so CONNACK says Session Present 0."""
        try:
            return await self._resume(home, session, request, was_elsewhere=was_elsewhere)
        except NotFoundError:  # its queue is lost
            await self._endings.end(home, session, "queue_lost")
            return None

    async def _resume(
        self, home: SessionHome, session: Session, request: SessionRequest, *, was_elsewhere: bool
    ) -> Opened | None:
        """Claim the queue and set the terms. None: the hub that had the session has ended it, and the log has that first."""
        claim = await self._queues.claim(session.queue_id, self._owner)
        was_elsewhere |= claim.epoch > session.epoch + 1  # another hub has claimed it since, perhaps to end it
        control: SessionControl = session.control
        before = control.terms()
        control.expires_at = control.will_at = 0.0  # a Will that was waiting is not sent [MQTT-3.1.3-9]
        control.version, control.expiry_s = request.version, request.expiry_s
        control.will = of_epoch(request.will, claim.epoch)
        control.device_id = request.device_id or control.device_id
        session.epoch = claim.epoch
        is_written = False
        try:
            await self._journal.record(self._resumed(session, had_will=before.will is not None))
            is_written = True
            if was_elsewhere:
                await self._cluster.catch_up()  # is an end from there before this in the log?
        except UnavailableError as error:
            self._put_back(home, session, before, is_written=is_written or getattr(error, "is_written", False))
            raise
        if session.is_discarded and was_elsewhere:
            return None
        if session.is_discarded or session.epoch != claim.epoch:
            raise BackendError("another hub has taken the session meanwhile", retryable=True)
        self._orphaned.keep(session)
        self._plane.restore(session, claim)
        return Opened(session, is_present=True, before=before)

    def _resumed(self, session: Session, *, had_will: bool) -> list[Event]:
        """What makes the log say what `session.control` says."""
        control: SessionControl = session.control
        subject = subject_of(session, self._clock)
        resumed = events.session_resumed(
            subject,
            protocol_version=control.version,
            session_expiry_s=control.expiry_s,
            device_id=control.device_id,
        )
        cleared = [events.will_cleared(subject)] if had_will and control.will is None else []
        return [resumed, *cleared, *will_events(subject, control.will)]

    def _put_back(self, home: SessionHome, session: Session, before: Terms, *, is_written: bool) -> None:
        """Undo an opening that failed: the session waits for its client on its old terms."""
        control: SessionControl = session.control
        had_will = control.will is not None
        control.put_back(before)
        if is_written:
            control.will = of_epoch(control.will, session.epoch)
            self._journal.note(self._resumed(session, had_will=had_will))
        if session.is_discarded:
            return  # another hub has ended it meanwhile, and has sent its Will
        if control.place is not None and not before.expires_at:  # another hub had it, and its deadlines
            self._endings.start_deadlines(home, session)
        else:
            self._endings.queue(home, session)

    def withdraw(self, home: SessionHome, opened: Opened) -> None:
        """The CONNECT was refused while its session was being opened: it leaves nothing behind. The caller still holds the directory's lock."""
        session = opened.session
        if opened.before is not None:
            self._put_back(home, session, opened.before, is_written=True)
            return
        home.session_ended(session)
        self._plane.discard(session)
        if session.is_persistent:
            self._journal.note([events.session_discarded(subject_of(session, self._clock), reason="not_opened")])
            self._orphaned.drop_soon(session.queue_id)

    # --- a connection goes

    def close_connection(
        self,
        home: SessionHome,
        session: Session,
        reason: Reason,
        *,
        keeps_will: bool = True,
        expiry_s: int | None = None,
    ) -> None:
        """The session's connection has ended: keep the session, or end it, and see to its Will.

        `keeps_will`: False after a DISCONNECT with Reason Code 0x00 [MQTT-3.14.4-3]. `expiry_s`: a DISCONNECT changed the interval.
        """
        control: SessionControl = session.control
        if expiry_s is not None:
            control.expiry_s = expiry_s
        self._plane.detach(session)
        if not session.is_persistent:
            self._directory.left(home.tenant_id, session.client_id)
            self._forget(home, session, control.will if keeps_will else None)
            return
        ending = [
            events.session_disconnected(subject_of(session, self._clock), reason=reason.word, session_expiry_s=expiry_s)
        ]
        if control.will is not None and not keeps_will:
            control.will = None  # [MQTT-3.1.2-10]
            ending.append(events.will_cleared(subject_of(session, self._clock)))
        self._journal.note(ending)
        if control.will is not None and not min(control.will.delay_s, control.expiry_s):
            # at once, also when the next connection is here already [MQTT-3.1.2-8] [MQTT-3.1.4-3]
            self._wills.fire(home, session)
        self._endings.start_deadlines(home, session)
        self._directory.left(home.tenant_id, session.client_id)

    def connected(self, session: Session) -> None:
        """The session's client is admitted. The Will of a persistent session is in the log."""
        control: SessionControl = session.control
        if control.will is not None and not session.is_persistent:
            self._wills.keep_transient(session, control.will)

    def _forget(self, home: SessionHome, session: Session, will: Will | None) -> None:
        """A transient session ends with its connection, so its Will does not wait [MQTT-3.1.3-9]."""
        if will is not None:
            self._wills.fire_transient(home, session, will)
        elif session.control.will is not None:
            self._wills.drop_transient(session)
        home.session_ended(session)
        self._plane.discard(session)

    def _settled(self, session: Session) -> None:
        """None of the session's Wills is under way any more."""
        tenant = session.tenant
        current = tenant.sessions.awake.get(session.client_id)
        if current is None or current.connection is None:
            self._directory.left(tenant.tenant_id, session.client_id)

    # --- a session ends

    async def discard(self, home: SessionHome, client_id: str, reason: str, only: Session | None = None) -> bool:
        """End a session for an operator or its tenant's end; closes its connection. False: there is none, or not `only` this one."""
        async with self._directory.holding(home.tenant_id, client_id, Purpose.DISCARD):
            session = home.plane.sessions.get(client_id)
            if session is None or only not in (None, session):
                return False
            await self._endings.evict(home, session, reason, Reason.SESSION_DISCARDED)
            return True

    def queue_lost(self, home: SessionHome, session: Session) -> None:
        """The store says that the session's queue is missing: check whether the session has to end. Returns at once."""
        if session not in self._losing:
            self._losing.add(session)
            Deferred.fromCoroutine(self._end_lost(home, session))

    async def _end_lost(self, home: SessionHome, session: Session) -> None:
        """End the session if its queue is lost. Otherwise publishers would get acknowledgements for messages that are stored nowhere."""
        try:
            await self._cluster.catch_up()
            async with self._directory.holding(home.tenant_id, session.client_id, Purpose.DISCARD):
                if home.plane.sessions.get(session.client_id) is not session:
                    return  # it has ended already
                if await self._is_lost(session):
                    await self._endings.evict(home, session, "queue_lost", Reason.SESSION_DISCARDED)
                elif (connection := session.connection) is not None:  # it is there after all, for the next connection
                    home.vacate(connection, Reason.STORE_UNAVAILABLE)
                    self._plane.close(connection, Reason.STORE_UNAVAILABLE)
        except IotHubError as error:  # what comes for it next is refused as well, and it is looked at again
            log.warning("session without a queue not ended, will retry", client_id=session.client_id, error=str(error))
        finally:
            self._losing.discard(session)

    async def _is_lost(self, session: Session) -> bool:
        """Ask the store once more; a claim would disconnect the client of a session that another hub has. Raises BackendError."""
        if session.control.is_elsewhere:
            return session.queue_id not in await self._queues.existing([session.queue_id])
        return await self._orphaned.claim(session.queue_id) is None

    async def run_deadlines(self) -> None:
        """Fire the Wills and end the sessions whose time has come; the reactor calls this a few times a second."""
        self._orphaned.drop_again()
        self._wills.run_due()
        self._endings.run_due()

    # --- the hub starts

    def adopt(self, home: SessionHome, session: Session, control: SessionControl, offline_s: float) -> None:
        """Take over a persistent session that the log knows; it has been offline for `offline_s`."""
        session.control = control
        self._endings.start_deadlines(home, session, offline_s)

    # --- other hubs

    def leave_to(self, session: Session, holder: int) -> None:
        """Another hub has the session: it runs the deadlines, and sends the Will."""
        control: SessionControl = session.control
        self._endings.stop_deadlines(session)
        if control.place is not None:
            control.place.holder = holder
        if session.connection is None:
            session.window = session.inbound = None  # what is sent and received now, that one knows

    def hold(self, home: SessionHome, session: Session, offline_s: float = 0.0) -> None:
        """Make a session this hub's own: the hub that had it is gone."""
        control: SessionControl = session.control
        if control.place is not None:
            control.place.holder, control.place.is_online = HERE, False
        if session.connection is None:
            self._endings.start_deadlines(home, session, offline_s)

    def hand_over(self, home: SessionHome, session: Session, reason: Reason) -> None:
        """Close the connection here: the client is connected to another hub now, or the session has ended there. That hub sends the Will."""
        connection = session.connection
        if connection is not None:
            if not session.is_persistent:
                self._wills.drop_transient(session)
            session.control.will = None
            home.vacate(connection, reason)
            self._plane.close(connection, reason)

    async def give_way(self, home: SessionHome, session: Session) -> None:
        """Close the connection here, if there is one: the client connects to another hub. Return when that hub can read what was written about it.

        Its Will is stored by then, too, or no longer in the log: otherwise that hub would find it there, and publish it again.
        """
        self._take_over(home, session)
        if session.is_persistent:
            await self._journal.record(await self._wills.withdrawn(session))

    def hurry(self, session: Session) -> None:
        """Another hub's client waits until this hub has given way."""
        self._wills.hurry(session)

    def forget(self, home: SessionHome, session: Session) -> None:
        """Forget a session that has ended at another hub, which drops its queue."""
        if session.is_discarded:
            return
        self._endings.stop_deadlines(session)
        home.session_ended(session)
        self._plane.discard(session)

    def abandon_queue(self, queue_id: int) -> None:
        """Drop the queue of a session that began here and that the log does not know."""
        self._orphaned.drop_soon(queue_id)

    def note(self, session_events: list[Event]) -> None:
        self._journal.note(session_events)
