"""Of whom an event of a session speaks."""

from __future__ import annotations

from iothub.records.events import Subject
from iothub_services.sessions.subjects import now_ms, subject_of
from tests.support.control_house import House
from tests.support.kept_sessions import keep


def test_subject_is_the_session_in_its_present_incarnation(house: House) -> None:
    """Tenant, Client Identifier, epoch and the milliseconds of now."""
    keep(house)
    session = house.acme.plane.sessions["c"]

    assert subject_of(session, house.clock) == Subject(
        house.acme.tenant_id, "c", session.epoch, int(house.clock.wall() * 1000)
    )
    assert now_ms(house.clock) == int(house.clock.wall() * 1000)
