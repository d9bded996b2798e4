"""The session-state service on a log of several partitions, or one that other hubs write to, too."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConflictError
from iothub.records.events import Topic
from iothub_services.events.memory import MemoryEvents
from tests.unit.state.test_service import FailingEvents, Harness, created, resumed, state_of


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_service_folds_every_partition(harness: Harness) -> None:
    """Each from its own place; what is applied is a vector."""
    harness.log = FailingEvents(3)
    service = harness.restarted()
    service.load()
    names = [f"client-{number}" for number in range(12)]
    service([[created(name)] for name in names])
    service.idle()
    service([[resumed(2, name)] for name in names[:5]])

    states = harness.restarted().load()

    assert {state.client_id: state.epoch for state in states} == {name: 2 if name in names[:5] else 1 for name in names}
    assert harness.store.applied_offsets() == harness.log.end()
    assert len(harness.log.end()) == 3


def test_service_folds_what_others_appended_in_the_order_of_the_log(harness: Harness) -> None:
    """Two hubs on one log: what came between is folded before the own event."""
    harness.service([[created()]])
    harness.log.append([resumed(2)])
    harness.service([[resumed(3)]])
    harness.log.append([created("other")])
    assert not harness.service.idle()

    found = harness.verified()
    assert (found.compared, found.differences) == (2, [])
    state = state_of(harness.service, "c")
    assert state is not None
    assert (state.epoch, state.offset) == (3, 3)


def test_service_follows_a_shared_log_in_idle_time(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it appends nothing itself."""
    monkeypatch.setattr(MemoryEvents, "is_shared", True)
    harness.log.append([created()])

    assert not harness.service.idle()

    assert harness.store.applied_offsets() == (1,)
    assert state_of(harness.service, "c") is not None


def test_service_refuses_states_of_a_log_with_other_partitions(harness: Harness) -> None:
    """Their offsets say nothing about this log."""
    harness.service([[created()]])
    harness.service.idle()
    harness.log = FailingEvents(3)
    harness.log.append([created("b")])

    with pytest.raises(ConflictError, match="a log with 1 partitions, this one has 3"):
        harness.restarted().load()


def test_service_takes_its_states_to_an_empty_log_with_other_partitions(harness: Harness) -> None:
    """A change of the driver: with an alarm, and above all that was folded."""
    harness.service([[created()], [resumed(2)]])
    harness.service.idle()
    harness.log = FailingEvents(3)

    assert [state.epoch for state in harness.restarted().load()] == [2]
    assert harness.alarms == ["event_log_lost"]
    harness.service([[resumed(3)]])
    assert [state.epoch for state in harness.restarted().load()] == [3]


def test_service_folds_what_is_left_before_it_leaves_a_log_that_lost_its_end(harness: Harness) -> None:
    """One partition was cut; the tails of the others still count."""
    harness.log = FailingEvents(3)
    service = harness.restarted()
    service.load()
    names = [f"client-{number}" for number in range(12)]
    service([[created(name)] for name in names])
    service.idle()
    service([[resumed(2, name)] for name in names])
    cut = harness.log._logs[Topic.SESSIONS][1]
    lost = {logged.event.client_id for logged in cut}
    cut.clear()
    harness.log._ends[Topic.SESSIONS][1] = 0

    states = harness.restarted().load()

    assert harness.alarms == ["event_log_lost"]
    assert {state.client_id: state.epoch for state in states} == {name: 1 if name in lost else 2 for name in names}
    assert all(end >= 8 for end in harness.log.end())
