"""The Wills of sessions: how one is fired, identified and logged.

Knows no deadlines and no topics: the caller says when a Will is due, and the tenant's broker publishes it.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.engine.state import Session
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub_services.sessions.firing import Firing
from iothub_services.sessions.port import Journal, SessionControl, SessionHome, Will, WillKeeper
from iothub_services.sessions.subjects import subject_of

log = logging.get(__name__)


class Wills:
    """Fires the Wills of all sessions of this worker. On the reactor thread."""

    def __init__(
        self, journal: Journal, clock: Clock, keeper: WillKeeper, on_settled: Callable[[Session], None]
    ) -> None:
        """`keeper`: has copies of transient sessions' Wills at other hubs. `on_settled`: none of the session's Wills is under way any more."""
        self._journal = journal
        self._keeper = keeper
        self._clock = clock
        self._firing = Firing(clock, on_settled)
        self.overtaken = 0  # for the metric

    @property
    def under_way(self) -> int:
        """How many have fired and are not stored yet: their rights are being read, or they wait for a rate or the store."""
        return len(self._firing)

    @property
    def sending(self) -> list[Session]:
        """Return the sessions with a Will under way."""
        return self._firing.sessions

    def fire(self, home: SessionHome, session: Session) -> None:
        """Publish the Will of a persistent session, if it has one.

        Invariant: the log keeps the Will until it is stored. Otherwise a crash in between would lose it.
        """
        control: SessionControl = session.control
        will, control.will, control.will_at = control.will, None, 0.0
        if will is None:
            return

        def done() -> None:  # not earlier: if the hub dies before, its next start sends the Will
            # Else the next connection's has taken its place in the log, or another hub has the session and may be about to put one there.
            if control.will is None and not control.is_elsewhere:
                self._journal.note([events.will_cleared(subject_of(session, self._clock))])
            self._firing.done(session)

        self._firing.begin(session)
        home.publish_will(session, will, will_id(session, will), done)

    def fire_transient(self, home: SessionHome, session: Session, will: Will) -> None:
        """Publish the Will of a transient session, which no log knows. Its copies are dropped when it is stored, not before."""
        self._firing.begin(session)
        message_id = will_id(session, will)
        home.publish_will(session, will, message_id, partial(self._transient_done, session, message_id))

    def _transient_done(self, session: Session, message_id: bytes) -> None:
        self._keeper.drop(session, message_id)
        self._firing.done(session)

    def keep_transient(self, session: Session, will: Will) -> None:
        """Have the Will of a transient session published by another hub if this one is lost."""
        self._keeper.keep(session, will, will_id(session, will))

    def drop_transient(self, session: Session) -> None:
        """The Will of a transient session must not be published."""
        will: Will | None = session.control.will
        if will is not None:
            self._keeper.drop(session, will_id(session, will))

    async def settled(self, session: Session) -> bool:
        """Return when none of the session's Wills is under way. False: one still is after `firing.WAIT_S`, which the caller has to live with."""
        return await self._firing.settled(session)

    async def settled_or_overtaken(self, session: Session) -> None:
        """Return when the session's Wills are stored, or their client waits no longer: from then on only this hub's memory has them."""
        if not await self._firing.settled(session):
            self._note_overtaken(session)

    async def withdrawn(self, session: Session) -> list[Event]:
        """Return when none of the session's Wills is under way, or a client does not wait for them any more, with what the log must say then.

        Invariant: no other hub finds a Will in the log that this hub is still sending.
        """
        if await self._firing.settled(session, math.inf):
            return []
        self._note_overtaken(session)
        return [] if session.control.will is not None else [events.will_cleared(subject_of(session, self._clock))]

    def hurry(self, session: Session) -> None:
        """A client waits for what `withdrawn` waits for."""
        self._firing.hurry(session)

    def run_due(self) -> None:
        """Let go on who has waited long enough."""
        self._firing.run_due()

    def _note_overtaken(self, session: Session) -> None:
        if self._firing.overtake(session):
            self.overtaken += 1
            log.warning(
                "client does not wait until its last Will is stored",
                tenant=session.tenant.name,
                client_id=session.client_id,
            )


def will_events(subject: Subject, will: Will | None) -> list[Event]:
    """Return the event for the Will of a CONNECT."""
    if will is None:
        return []
    return [
        events.will_set(
            subject,
            topic=will.topic.decode(),
            payload=will.payload,
            qos=will.qos,
            retain=will.retain,
            properties=will.properties,
            delay_s=will.delay_s,
            expiry_s=will.expiry_s,
        )
    ]


def of_epoch(will: Will | None, epoch: int) -> Will | None:
    """Return the Will as that of the connection with this reader epoch."""
    return None if will is None else replace(will, epoch=epoch)


def of_transient(will: Will | None) -> Will | None:
    """Return the Will as that of a connection without a queue, with a number that no other connection has."""
    return None if will is None else of_epoch(will, secrets.randbits(63))


def will_id(session: Session, will: Will) -> bytes:
    """Return the message id of a Will: one per session and connection.

    Invariant: every hub that publishes this Will uses the same message id, so that the queues recognise a repeat and store it once (QoS 2). So it
    is of the epoch that has set the Will in the log, whatever the session's epoch is when it is published.
    """
    name = f"will\0{session.tenant.tenant_id}\0{session.client_id}\0{will.epoch}"
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
