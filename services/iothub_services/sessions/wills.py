"""The Wills of sessions: how one is fired, identified and logged.

Knows no deadlines and no topics: the caller says when a Will is due, and the tenant's broker publishes it.
"""

from __future__ import annotations

import hashlib
from functools import partial

from iothub.base.clock import Clock
from iothub.engine.state import Session
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub_services.sessions.firing import Firing
from iothub_services.sessions.port import Journal, SessionControl, SessionHome, Will, WillKeeper
from iothub_services.sessions.subjects import subject_of


class Wills:
    """Fires the Wills of all sessions of this worker. On the reactor thread."""

    def __init__(self, journal: Journal, clock: Clock, keeper: WillKeeper) -> None:
        """`keeper`: has copies of transient sessions' Wills at other hubs."""
        self._journal = journal
        self._keeper = keeper
        self._clock = clock
        self._firing = Firing()

    @property
    def under_way(self) -> int:
        """How many have fired and are not stored yet: their rights are being read, or they wait for a rate or the store."""
        return len(self._firing)

    def fire(self, home: SessionHome, session: Session) -> None:
        """Publish the Will of a persistent session, if it has one.

        Invariant: the log keeps the Will until it is stored. Otherwise a crash in between would lose it.
        """
        control: SessionControl = session.control
        will, control.will, control.will_at = control.will, None, 0.0
        if will is None:
            return

        def done() -> None:  # not earlier: if the hub dies before, its next start sends the Will
            if control.will is None:  # else the next connection's has taken its place in the log
                self._journal.note([events.will_cleared(subject_of(session, self._clock))])
            self._firing.done(session)

        self._firing.begin(session)
        home.publish_will(session, will, will_id(session), done)

    def fire_transient(self, home: SessionHome, session: Session, will: Will) -> None:
        """Publish the Will of a transient session, which no log knows. Its copies are dropped when it is stored, not before."""
        self._firing.begin(session)
        home.publish_will(session, will, will_id(session), partial(self._transient_done, session))

    def _transient_done(self, session: Session) -> None:
        self._keeper.drop(session, will_id(session))
        self._firing.done(session)

    def keep_transient(self, session: Session, will: Will) -> None:
        """Have the Will of a transient session published by another hub if this one is lost."""
        self._keeper.keep(session, will, will_id(session))

    def drop_transient(self, session: Session) -> None:
        """The Will of a transient session must not be published."""
        self._keeper.drop(session, will_id(session))

    async def settled(self, session: Session) -> None:
        """Return when none of the session's Wills is under way."""
        await self._firing.settled(session)


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


def will_id(session: Session) -> bytes:
    """Return the message id of the session's Will: one per session and connection.

    Invariant: every hub that publishes this Will uses the same message id, so that the queues recognise a repeat and store it once (QoS 2).
    """
    name = f"will\0{session.tenant.tenant_id}\0{session.client_id}\0{session.epoch or id(session)}"
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
