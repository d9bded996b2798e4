"""The subject of a session's event: which session, and when.

Knows no event.
"""

from __future__ import annotations

from iothub.base.clock import Clock
from iothub.engine.state import Session
from iothub.records.events import Subject


def subject_of(session: Session, clock: Clock) -> Subject:
    """This session in its present incarnation, now."""
    return Subject(session.tenant.tenant_id, session.client_id, session.epoch, now_ms(clock))


def now_ms(clock: Clock) -> int:
    """Milliseconds since 1970."""
    return int(clock.wall() * 1000)
