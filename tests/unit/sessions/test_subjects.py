"""Of whom an event of a session speaks."""

from __future__ import annotations

from iothub.records.events import Subject
from iothub_services.sessions.subjects import now_ms, subject_of
from tests.support.in_process.control_harness import Harness
from tests.support.in_process.kept_sessions import keep


def test_subject_is_the_session_in_its_present_incarnation(harness: Harness) -> None:
    """Tenant, Client Identifier, epoch and the milliseconds of now."""
    keep(harness)
    session = harness.acme.plane.sessions["c"]

    assert subject_of(session, harness.clock) == Subject(
        harness.acme.tenant_id, "c", session.epoch, int(harness.clock.wall() * 1000)
    )
    assert now_ms(harness.clock) == int(harness.clock.wall() * 1000)
