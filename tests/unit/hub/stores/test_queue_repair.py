"""After a damaged page: every living session is asked for its place, and the alarm says what is known and what is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred

from iothub.hub.stores.queue_repair import rebuild_queues
from iothub.records.state import SessionState
from iothub.testing.clock import ManualClock
from iothub_services.queues.port import Place, Rebuilt

STATES = [SessionState(7, "a", 5, queue_id=1), SessionState(8, "b", 9, queue_id=2)]


class Queues:
    def __init__(self, answer: Rebuilt) -> None:
        self.answer = answer
        self.asked: list[Place] = []
        self.now_us = 0

    async def rebuild(self, places: Sequence[Place], now_us: int) -> Rebuilt:
        self.asked, self.now_us = list(places), now_us
        return self.answer


@pytest.fixture
def alarms() -> list[tuple[str, str]]:
    return []


def rebuild(queues: Queues, alarms: list[tuple[str, str]], clock: ManualClock) -> None:
    done: Deferred[None] = Deferred.fromCoroutine(
        rebuild_queues(queues, STATES, clock, lambda *alarm: alarms.append(alarm))
    )
    assert done.called
    done.addErrback(lambda failure: failure.raiseException())


def test_every_living_session_says_where_its_queue_was(alarms: list[tuple[str, str]]) -> None:
    """And the time, above which no queue was ever long."""
    clock, queues = ManualClock(), Queues(Rebuilt())

    rebuild(queues, alarms, clock)

    assert queues.asked == [Place(7, 1, 5), Place(8, 2, 9)]
    assert queues.now_us == int(clock.wall() * 1_000_000)


def test_damage_that_cost_no_queue_is_no_second_alarm(alarms: list[tuple[str, str]]) -> None:
    """The store has said already what it saved."""
    rebuild(Queues(Rebuilt()), alarms, ManualClock())

    assert alarms == []


def test_alarm_says_what_is_known_and_what_is_not(alarms: list[tuple[str, str]]) -> None:
    """One text for an operator, under the name of a lost store."""
    rebuild(Queues(Rebuilt(2, 280, 1)), alarms, ManualClock())

    ((word, text),) = alarms
    assert word == "queues_gone"
    assert (
        "the queues of 2 of 2 sessions were lost with the damaged part of queues.db or of the folder queues.journal"
        in text
    )
    assert "280 saved messages are delivered" in text
    assert "not known: how many messages more there were (1 of these queues have none now)" in text
    assert "which QoS 2 messages were under way" in text
