"""A sample of log and states: what would keep the next start from beginning is a failure, and nobody reads everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.doctor import stored
from iothub.doctor.findings import Finding, State
from iothub.doctor.stored import Stored
from iothub.records.checkpoint import Pointer
from iothub.records.events import Topic
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import DamagedEventError, FutureEventError, LoggedEvent, Offsets
from iothub_services.state.memory.checkpoints import MemoryCheckpoints
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.port import StateWrite, StoredState, UnreadableState
from iothub_services.state.service import StateService
from tests.unit.state.conftest import created, resumed


class Log(MemoryEvents):
    """Says of one event what is wrong with it."""

    wrong: FutureEventError | DamagedEventError | BackendError | None = None
    reads = 0

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        self.reads += 1
        if self.wrong is not None and after < (3,):
            raise self.wrong
        return super().read(after, count, topic)


@pytest.fixture
def house() -> Stored:
    """Two events that the states have, and two behind."""
    log, states = Log(), MemoryStates()
    log.append([created("a"), created("b")])
    StateService(log, states, lambda *_: None).load()
    log.append([resumed("a", 2), resumed("b", 2)])
    return Stored(log, states, None)


def look(house: Stored | None) -> Finding:
    @contextmanager
    def opened() -> Iterator[Stored | None]:
        yield house

    [found] = stored.look(opened).take()
    return found


def test_sample_says_how_much_it_is(house: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what reads the rest."""
    monkeypatch.setattr(stored, "EVENTS", 1)
    monkeypatch.setattr(stored, "STATES", 1)

    found = look(house)

    assert (found.state, found.text) == (State.OK, "1 of 2 events behind the states, 1 states can be read")
    assert "events verify" in found.advice
    assert look(None).text == "there is none yet"


def test_what_the_next_start_is_refused_for_is_a_failure(house: Stored) -> None:
    """An event of a newer program, or a state."""
    assert isinstance(house.log, Log)
    house.log.wrong = FutureEventError("event of format version 99", partition=0, offset=3)
    found = look(house)
    assert (found.state, found.text) == (State.FAIL, "event of format version 99")
    assert "upgrade this hub" in found.advice
    assert "events.left_out" in found.advice

    house.log.wrong = None
    [first, _] = house.states.load()
    newer = first.record.replace(b'"v":1', b'"v":9')
    house.states.apply((3,), [StateWrite(first.tenant_id, first.client_id, 3, newer)])
    assert look(house).state is State.FAIL


def test_damage_is_a_warning(house: Stored) -> None:
    """A start leaves it out."""
    assert isinstance(house.log, Log)
    house.log.wrong = DamagedEventError("offset 3: damaged event", partition=0, offset=3)

    found = look(house)

    assert found.state is State.WARN
    assert found.text.startswith("offset 3: damaged event (1 in ")


class Unreadable(MemoryStates):
    """Has a row that it cannot read."""

    def load(self, tenant_id: int | None = None) -> Iterator[StoredState | UnreadableState]:
        yield UnreadableState(1, "c", CorruptRecordError("table state: damaged"))
        yield from super().load(tenant_id)


def test_row_that_no_start_can_read_is_a_failure_unless_there_is_a_checkpoint(
    house: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and begins with a checkpoint where there is one."""
    damaged = house._replace(states=Unreadable())
    found = look(damaged)
    assert (found.state, found.text) == (State.FAIL, "session 1/c: table state: damaged")
    assert "iothub state verify" in found.advice

    monkeypatch.setattr(stored, "where_a_start_begins", lambda *_: (2,))
    found = look(damaged)
    assert (found.state, found.text.partition(" (")[0]) == (State.WARN, "session 1/c: table state: damaged")


class Torn(MemoryCheckpoints):
    """Has a pointer that nobody can read."""

    def pointer(self) -> Pointer | None:
        raise CorruptRecordError("damaged pointer")


def test_checkpoint_pointer_that_is_damaged_is_none(house: Stored) -> None:
    """As for a start, which goes on from the states."""
    found = look(house._replace(checkpoints=Torn()))

    assert (found.state, found.text) == (State.OK, "2 of 2 events behind the states, 2 states can be read")


def test_server_that_is_away_is_not_known(house: Stored) -> None:
    """Another line says so."""
    assert isinstance(house.log, Log)
    house.log.wrong = BackendError("Kafka does not answer", retryable=True)

    assert (look(house).state, look(house).text) == (State.WARN, "not checked: Kafka does not answer")
