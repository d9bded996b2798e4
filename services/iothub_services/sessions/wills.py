"""The Wills of sessions: how one is fired, named and told to the log.

Knows no deadlines and no topics: others say when a Will is due, and the session's home publishes it.
"""

from __future__ import annotations

import hashlib
from functools import partial

from iothub.base.clock import Clock
from iothub.engine.state import Session
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub_services.sessions.firing import Firing
from iothub_services.sessions.port import Journal, SessionControl, SessionHome, Will
from iothub_services.sessions.subjects import subject_of


class Wills:
    """Fires the Wills of all sessions of this worker. On the reactor thread."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._firing = Firing()

    @property
    def under_way(self) -> int:
        """How many have fired and are not stored yet: their rights are being read, or they wait for a rate or the store."""
        return len(self._firing)

    def fire(self, home: SessionHome, session: Session) -> None:
        """Publish the Will of a persistent session, if it has one; the log forgets it once it is stored."""
        control: SessionControl = session.control
        will, control.will, control.will_at = control.will, None, 0.0
        if will is None:
            return

        def done() -> None:  # not earlier: if the hub dies before, the next one sends it
            if control.will is None:  # else the next connection's has taken its place in the log
                self._journal.note([events.will_cleared(subject_of(session, self._clock))])
            self._firing.done(session)

        self._firing.begin(session)
        home.publish_will(session, will, _will_id(session), done)

    def fire_transient(self, home: SessionHome, session: Session, will: Will) -> None:
        """Publish the Will of a transient session, which no log knows."""
        self._firing.begin(session)
        home.publish_will(session, will, _will_id(session), partial(self._firing.done, session))

    async def settled(self, session: Session) -> None:
        """Return when none of the session's Wills is under way."""
        await self._firing.settled(session)


def will_events(subject: Subject, will: Will | None) -> list[Event]:
    """What tells the log of the Will that a CONNECT brought."""
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


def _will_id(session: Session) -> bytes:
    """One id per session and connection: whoever publishes this Will again is de-duplicated by the queues."""
    name = f"will\0{session.tenant.tenant_id}\0{session.client_id}\0{session.epoch or id(session)}"
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
