"""Who waits for Wills that are under way, and until when."""

from __future__ import annotations

import math
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub.testing.clock import ManualClock
from iothub_services.sessions.firing import WAIT_S, Firing

ONE: Any = object()
OTHER: Any = object()


class Wills:
    """Wills under way, those who wait for them, and the sessions of which none is under way any more."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.settled: list[Any] = []
        self.firing = Firing(self.clock, self.settled.append)

    def wait(self, session: Any, within_s: float = WAIT_S) -> list[bool]:
        answers: list[bool] = []
        Deferred.fromCoroutine(self.firing.settled(session, within_s)).addCallback(answers.append)
        return answers

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.firing.run_due()


@pytest.fixture
def wills() -> Wills:
    return Wills()


def test_nobody_waits_without_a_will(wills: Wills) -> None:
    """Not for another session's either."""
    assert wills.wait(ONE) == [True]

    wills.firing.begin(OTHER)

    assert wills.wait(ONE) == [True]
    assert len(wills.firing) == 1


def test_session_is_settled_when_all_its_wills_are_done(wills: Wills) -> None:
    """One connection's may wait for a rate while the next one's fires."""
    wills.firing.begin(ONE)
    wills.firing.begin(ONE)
    first, second = wills.wait(ONE), wills.wait(ONE, math.inf)

    wills.firing.done(ONE)
    assert (first, second, wills.settled, len(wills.firing)) == ([], [], [], 1)
    wills.firing.done(ONE)

    assert (first, second, wills.settled, len(wills.firing)) == ([True], [True], [ONE], 0)
    assert wills.wait(ONE) == [True]


def test_who_goes_on_may_end_the_wait_of_another(wills: Wills) -> None:
    """Whichever of them is asked first."""
    answers: list[bool] = []
    for session, other in ((ONE, OTHER), (OTHER, ONE)):
        wills.firing.begin(session)
        waiting = Deferred.fromCoroutine(wills.firing.settled(session))
        waiting.addCallback(answers.append).addCallback(lambda _, other=other: wills.firing.done(other))

    wills.pass_time(WAIT_S)

    assert (len(answers), len(wills.firing)) == (2, 0)


def test_who_has_waited_long_enough_goes_on(wills: Wills) -> None:
    """Who may wait for ever does."""
    wills.firing.begin(ONE)
    limited, patient = wills.wait(ONE), wills.wait(ONE, math.inf)

    wills.pass_time(WAIT_S)
    assert (limited, patient) == ([False], [])
    wills.pass_time(1_000)
    wills.firing.done(ONE)

    assert patient == [True]


def test_a_client_that_comes_shortens_the_wait(wills: Wills) -> None:
    """From then on as long as if nobody had waited before, and not for other sessions."""
    wills.firing.begin(ONE)
    wills.firing.begin(OTHER)
    patient, others = wills.wait(ONE, math.inf), wills.wait(OTHER, math.inf)
    wills.pass_time(100)

    wills.firing.hurry(ONE)
    wills.pass_time(WAIT_S / 2)
    assert patient == []
    wills.pass_time(WAIT_S / 2)

    assert (patient, others) == ([False], [])


def test_nobody_waits_where_a_client_has_not(wills: Wills) -> None:
    """It is counted once; the session's next Will is waited for again."""
    wills.firing.begin(ONE)

    assert (wills.firing.overtake(ONE), wills.firing.overtake(ONE)) == (True, False)
    assert wills.wait(ONE, math.inf) == [False]
    wills.firing.done(ONE)
    wills.firing.begin(ONE)

    assert wills.wait(ONE) == []
