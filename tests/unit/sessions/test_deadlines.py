"""The heap of deadlines: each session is due once, at its earliest time, and the heap stays small."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from iothub.engine.state import Session, TenantPlane
from iothub_services.sessions.deadlines import Deadlines
from iothub_services.sessions.port import SessionControl

HOME: Any = SimpleNamespace(tenant_id=7)
TENANT = TenantPlane(7, "acme")


def session(name: str = "c") -> Session:
    made = Session(TENANT, name, "dev1", True)
    made.control = SessionControl(5, 10, None)
    return made


def due(deadlines: Deadlines, at: float) -> list[str]:
    return [cast("Session", each).client_id for _, each in deadlines.due(at)]


def test_sessions_are_due_in_the_order_of_their_times() -> None:
    deadlines = Deadlines()
    for name, at in (("b", 2.0), ("a", 1.0), ("c", 3.0)):
        deadlines.add(at, HOME, session(name))

    assert due(deadlines, 0.9) == []
    assert due(deadlines, 2.0) == ["a", "b"]
    assert due(deadlines, 9.0) == ["c"]
    assert len(deadlines) == 0


def test_earlier_time_replaces_a_later_one() -> None:
    """The later entry is dead: the session is looked at once."""
    deadlines, one = Deadlines(), session()
    deadlines.add(5.0, HOME, one)
    deadlines.add(1.0, HOME, one)

    assert due(deadlines, 1.0) == ["c"]
    assert due(deadlines, 9.0) == []


def test_later_time_waits_for_the_earlier_look() -> None:
    deadlines, one = Deadlines(), session()
    deadlines.add(1.0, HOME, one)
    deadlines.add(5.0, HOME, one)

    assert len(deadlines) == 1
    assert due(deadlines, 1.0) == ["c"]


def test_session_that_ended_is_not_due() -> None:
    deadlines, one = Deadlines(), session()
    deadlines.add(1.0, HOME, one)
    one.control.queued_at = 0.0

    assert due(deadlines, 9.0) == []


def test_dead_entries_do_not_pile_up() -> None:
    """Ever earlier deadlines of one session leave dead entries behind."""
    deadlines, one = Deadlines(), session()
    for step in range(10_000):
        deadlines.add(20_000.0 - step, HOME, one)
        assert len(deadlines) <= 1025

    assert due(deadlines, 30_000.0) == ["c"]
