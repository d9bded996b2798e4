"""The session-state service: events durable first, state behind them, the start, lost and damaged files, verification."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError, CorruptRecordError, IotHubError
from iothub.records import events
from iothub.records.events import Event, EventType, Subject, Topic
from iothub.records.state import SessionState, encode_state
from iothub.testing.clock import ManualClock
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import LoggedEvent, Offsets
from iothub_services.events.retention import TrimStatistics
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.sqlite.database import open_database
from iothub_services.state import service as state_service
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.port import StateWrite, StoredState
from iothub_services.state.service import DropTenant, StateService, StatesOf, journal_thread
from iothub_services.state.sqlite.store import SCHEMA as STATES
from iothub_services.state.sqlite.store import SqliteStates
from iothub_services.state.verification import Verification, verify


def created(client_id: str = "c", epoch: int = 1) -> Event:
    subject = Subject(7, client_id, epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


def resumed(epoch: int, client_id: str = "c") -> Event:
    return events.session_resumed(Subject(7, client_id, epoch, 100), protocol_version=5, session_expiry_s=60)


def ended(epoch: int = 1, client_id: str = "c") -> Event:
    return events.session_expired(Subject(7, client_id, epoch, 100))


def state_of(service: StateService, client_id: str) -> SessionState | None:
    return next(iter(service.states_of([(7, client_id)])), None)


SAMPLE = Event(EventType.USAGE_COUNTED, 7, "", 0, 1)


class FailingStates(MemoryStates):
    is_failing = False

    def apply(self, offsets: Offsets, writes: list[StateWrite]) -> bool:
        if self.is_failing:
            raise BackendError("state.db: disk full", retryable=True)
        return super().apply(offsets, writes)


class FailingEvents(MemoryEvents):
    is_failing = False

    def append(self, events: list[Event]) -> list[LoggedEvent]:
        if self.is_failing:
            raise BackendError("events.db: disk full", retryable=True)
        return super().append(events)


class Harness:
    def __init__(self) -> None:
        self.log = FailingEvents()
        self.store = FailingStates()
        self.alarms: list[str] = []
        self.damaged: list[tuple[str, str, str]] = []
        self.rebuilt: list[str] = []
        self.service = self.restarted()

    def restarted(self) -> StateService:
        self.service = StateService(self.log, self.store, self._on_alarm, on_damage=self._count)
        return self.service

    def verified(self) -> Verification:
        assert not self.service.idle()
        return verify(self.log, self.store)

    def damage(self, client_id: str) -> None:
        row = self.store._rows[7, client_id]
        self.store._rows[7, client_id] = row._replace(record=b"damaged")

    def _count(self, store: str, key: str, reason: str, /, *, is_rebuilt: bool = False) -> None:
        self.damaged.append((store, key, reason))
        if is_rebuilt:
            self.rebuilt.append(key)

    def _on_alarm(self, name: str, text: str) -> None:
        del text
        self.alarms.append(name)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_service_answers_with_the_place_of_each_list(harness: Harness) -> None:
    """One commit for all lists; analytics have no place in the session log, and do not disturb the fold."""
    assert harness.service([[created()], [SAMPLE, resumed(2)], []]) == [(1,), (2,), ()]

    state = state_of(harness.service, "c")
    assert state is not None
    assert (state.epoch, state.offset) == (2, 2)


def test_service_writes_states_in_idle_time(harness: Harness) -> None:
    """The answer waits for the log alone; the store follows, once per session however many events."""
    harness.service([[created()], [resumed(2)], [resumed(3)]])
    assert harness.store.applied_offsets() == ()

    assert not harness.service.idle()

    assert harness.store.applied_offsets() == (3,)
    assert harness.verified().differences == []


def test_service_folds_the_tail_at_the_next_start(harness: Harness) -> None:
    """A crash before idle time loses nothing: state is checkpoint + tail."""
    harness.service([[created("a")], [created("b")]])
    harness.service.idle()
    harness.service([[resumed(2, "a")], [ended(1, "b")], [created("c")]])

    states = harness.restarted().load()

    assert [(state.client_id, state.epoch) for state in states] == [("a", 2), ("c", 1)]
    assert harness.store.applied_offsets() == (5,)
    assert state_of(harness.service, "b") is None


def test_service_survives_a_state_store_that_fails(harness: Harness) -> None:
    """With an alarm; what could not be written is kept and written later."""
    harness.store.is_failing = True
    harness.service([[created()]])
    harness.service.idle()
    assert harness.alarms == ["state_failing"]

    harness.store.is_failing = False
    harness.service([[resumed(2)]])
    harness.service.idle()

    assert harness.alarms == ["state_failing"] * 2  # raised, and cleared
    assert harness.verified().compared == 1
    assert harness.verified().differences == []


def test_service_folds_nothing_that_the_log_refused(harness: Harness) -> None:
    """No event, no effect."""
    harness.log.is_failing = True
    with pytest.raises(BackendError):
        harness.service([[created()]])

    assert state_of(harness.service, "c") is None


def test_service_goes_on_above_the_states_when_the_log_was_lost(harness: Harness) -> None:
    """A new log must not begin below them: its events would be taken for folded ones, and lost."""
    harness.service([[created()], [resumed(2)]])
    harness.service.idle()
    harness.log = FailingEvents()

    states = harness.restarted().load()

    assert [state.epoch for state in states] == [2]
    assert harness.alarms == ["event_log_lost"]
    assert harness.service([[resumed(3)]]) == [(3,)]
    assert harness.restarted().load()[0].epoch == 3


def test_service_refuses_to_start_over_a_gap(harness: Harness) -> None:
    """Sessions would be missing or wrong, and nobody could tell."""
    harness.service([[created()]])
    harness.service.idle()
    harness.log.append([created("b"), created("d")])
    harness.log.trim((2,))

    with pytest.raises(ConflictError, match="begins at offset 3, the session states need it from 2"):
        harness.restarted().load()


def test_service_starts_with_an_alarm_when_the_states_were_lost_too(harness: Harness) -> None:
    """What the log still has is rebuilt."""
    harness.service([[created("a")], [created("b")]])
    harness.log.trim((1,))
    harness.store = FailingStates()

    assert [state.client_id for state in harness.restarted().load()] == ["b"]
    assert harness.alarms == ["state_incomplete"]


def test_service_passes_over_a_damaged_state(harness: Harness) -> None:
    """The other sessions are restored. Of this one the log has no longer how it began."""
    harness.service([[created("a")], [created("b")], [resumed(2, "a")]])
    harness.service.idle()
    harness.log.trim((2,))
    harness.damage("a")

    assert [state.client_id for state in harness.restarted().load()] == ["b"]
    assert harness.damaged == [("state", "tenant id 7, client 'a'", "damaged session state (it is not JSON)")]
    assert harness.rebuilt == []
    assert harness.alarms == []


def test_service_rebuilds_a_damaged_state_from_the_log(harness: Harness) -> None:
    """What the log has from the session's beginning on; its next event writes the row anew, as a later start sees."""
    harness.service([[created("a")], [created("b")], [resumed(2, "a")]])
    harness.service.idle()
    harness.damage("a")

    service = harness.restarted()
    assert {state.client_id: state.epoch for state in service.load()} == {"a": 2, "b": 1}
    assert [key for _, key, _ in harness.damaged] == harness.rebuilt == ["tenant id 7, client 'a'"]
    service([[resumed(3, "a")]])
    service.idle()
    harness.damaged.clear()

    assert {state.client_id: state.epoch for state in harness.restarted().load()} == {"a": 3, "b": 1}
    assert harness.damaged == []


def test_service_rebuilds_a_damaged_state_that_the_log_has_more_of(harness: Harness) -> None:
    """The end of the log, folded at the start, needs it before it is rebuilt."""
    harness.service([[created("a")]])
    harness.service.idle()
    harness.damage("a")
    harness.log.append([resumed(2, "a")])

    assert {state.client_id: state.epoch for state in harness.restarted().load()} == {"a": 2}
    assert [key for _, key, _ in harness.damaged] == harness.rebuilt == ["tenant id 7, client 'a'"]


def test_damaged_state_that_an_event_needs_is_no_obstacle(harness: Harness) -> None:
    """A session that begins anew takes its place; the event of one that does not is passed over like that of a session that nobody knows."""
    harness.service([[created("a")], [created("b")]])
    harness.service.idle()
    harness.damage("a")
    harness.damage("b")
    service = harness.restarted()

    assert service([[resumed(2, "a"), created("b", 9)]]) == [(4,)]
    assert not service.idle()

    assert harness.alarms == []
    assert (state_of(service, "a"), harness.store.applied_offsets()) == (None, (4,))
    assert {state.client_id: state.epoch for state in harness.restarted().load()} == {"a": 2, "b": 9}


def test_service_verify_names_every_difference(harness: Harness) -> None:
    """Stored otherwise, stored only, logged only."""
    harness.service([[created("a")], [created("b")], [created("c")]])
    harness.service.idle()
    harness.store._rows[7, "a"] = harness.store._rows[7, "a"]._replace(record=encode_state(SessionState(7, "a", 9)))
    harness.store._rows[7, "z"] = harness.store._rows[7, "c"]._replace(client_id="z")
    del harness.store._rows[7, "b"]

    found = harness.verified()

    assert found.compared == 4
    assert [str(difference) for difference in found.differences] == [
        "7/a: stored state differs from the log (epoch, device, queue_id, protocol_version, session_expiry_s, created_at_ms, "
        "disconnected_at_ms, offset)",
        "7/b: in the log, but not stored",
        "7/z: stored, but not in the log",
    ]


def test_service_says_when_the_log_cannot_say_where_an_event_is(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka has it from an earlier attempt: somebody who needs to know it has to read the log up to its end. The lists beside it have places."""
    append = harness.log.append

    def append_again(events: list[Event]) -> list[LoggedEvent]:
        return [each._replace(offset=0) if each.event.epoch == 2 else each for each in append(events)]

    monkeypatch.setattr(harness.log, "append", append_again)

    assert harness.service([[created()], [resumed(2), resumed(3)], [resumed(4)]]) == [(1,), None, (4,)]


def test_journal_thread_makes_lists_of_events_durable(harness: Harness) -> None:
    """Submit a list, be answered when the log has it; the end of the thread writes the states."""
    answers: list[object] = []
    thread = journal_thread(harness.service, lambda call: call(), ManualClock(), lambda _name, _text: None)
    thread.submit([created(), resumed(2)], answers.append)
    thread.submit([resumed(3)], answers.append)

    assert thread.close()
    harness.service.close()

    assert answers == [(2,), (3,)]
    assert harness.store.applied_offsets() == (3,)


def test_service_passes_over_damaged_events(tmp_path: Path) -> None:
    """One flipped bit in the log does not keep the hub from starting; the events around it count."""
    path = tmp_path / "events.db"
    log = SqliteEvents(open_database(path, EVENTS, ManualClock(), pytest.fail))
    log.append([created(f"c{number}") for number in range(20)])
    log.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE session_event SET value = 'damaged' WHERE offset IN (3, 11)")
    connection.commit()
    connection.close()
    damaged: list[tuple[str, str]] = []
    log = SqliteEvents(open_database(path, EVENTS, ManualClock(), pytest.fail))
    store = SqliteStates(open_database(tmp_path / "state.db", STATES, ManualClock(), pytest.fail))
    service = StateService(log, store, pytest.fail, on_damage=lambda store, key, _: damaged.append((store, key)))

    assert len(service.load()) == 18
    assert damaged == [("events", "0:3"), ("events", "0:11")]
    service.close()


def test_states_of_a_damaged_file_are_rebuilt_from_the_log(tmp_path: Path) -> None:
    """The salvage keeps what it can read and starts the fold anew; rows that are there already are not folded twice."""
    log = SqliteEvents(open_database(tmp_path / "events.db", EVENTS, ManualClock(), pytest.fail))
    path = tmp_path / "state.db"
    service = StateService(log, SqliteStates(open_database(path, STATES, ManualClock(), pytest.fail)), pytest.fail)
    service([[created(f"client-{number:04}") for number in range(200)]])
    service.idle()
    service._store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 5 : 4096 * 6] = b"\xaa" * 4096
    path.write_bytes(content)
    alarms: list[str] = []

    store = SqliteStates(open_database(path, STATES, ManualClock(), lambda name, _text: alarms.append(name)))
    states = StateService(log, store, pytest.fail).load()

    assert alarms == ["state_corrupt"]
    assert len(states) == 200
    log.close()
    store.close()


def test_service_forgets_the_states_of_a_deleted_tenant(harness: Harness) -> None:
    """Its sessions have ended; what is folded stays folded, and the log is not held against it."""
    assert harness.service([[created()], [ended()]]) == [(1,), (2,)]

    assert harness.service([DropTenant(7)]) == [1]
    assert list(harness.store.load()) == []
    assert harness.store.applied_offsets() == (2,)
    assert harness.verified().differences == []
    assert harness.restarted().load() == []


def test_service_keeps_other_tenants_when_one_is_dropped(harness: Harness) -> None:
    harness.service([[created()]])
    harness.service([DropTenant(8)])

    assert len(harness.restarted().load()) == 1


def test_service_answers_a_drop_that_failed_with_its_error(harness: Harness) -> None:
    """Whoever asked asks again; the events of the same batch are answered all the same."""
    harness.store.is_failing = True
    answers = harness.service([[created()], DropTenant(7)])

    assert answers[0] == (1,)
    assert isinstance(answers[1], BackendError)


def test_service_tells_states_between_the_events_of_its_thread(harness: Harness) -> None:
    """What was appended before is in them; what is unknown or over is left out."""
    harness.service([[created("a"), created("b"), created("c"), ended(client_id="b")]])
    keys = [(7, "c"), (7, "b"), (7, "x"), (7, "a")]

    before, answer = harness.service([[created("d")], StatesOf([*keys, (7, "d")])])
    harness.service.idle()
    restarted = harness.restarted()
    restarted.load()
    (stored,) = restarted([StatesOf(keys)])

    assert before == (5,)
    assert isinstance(answer, list)
    assert [state.client_id for state in answer] == ["c", "a", "d"]
    assert isinstance(stored, list)
    assert [state.client_id for state in stored] == ["c", "a"]


def test_service_answers_a_question_that_failed_with_its_error(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_keys: object) -> list[StoredState]:
        raise BackendError("state.db: cannot be read", retryable=True)

    monkeypatch.setattr(harness.store, "get_many", fail)
    (answer,) = harness.service([StatesOf([(7, "x")])])

    assert isinstance(answer, BackendError)


def test_service_trims_statistics_and_goes_on_with_the_batch(harness: Harness) -> None:
    """Between the events of sessions, in their thread."""
    usage = [Event(EventType.USAGE_COUNTED, 7, "", 0, at_ms) for at_ms in (1, 2, 3)]
    harness.service([usage])

    assert harness.service([[created()], TrimStatistics(3, 1 << 40)]) == [(1,), 2]

    assert harness.log.begin(Topic.ANALYTICS) == (3,)


@pytest.mark.parametrize(
    "error",
    [
        BackendError("state.db: disk I/O error", retryable=True),
        CorruptRecordError("table t:state, the applied offsets: damaged (0078)"),
    ],
    ids=["down", "damaged"],
)
def test_event_is_durable_although_the_store_does_not_say_what_was_before(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, error: IotHubError
) -> None:
    """It is in the log once, it is answered as such, and it is folded from there when the store answers again."""
    harness.service([[created()]])
    harness.service.idle()
    service = harness.restarted()

    def fail(_keys: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(harness.store, "get_many", fail)
        assert service([[resumed(2)], [created("other")]]) == [(2,), (3,)]
        assert service([[resumed(3)]]) == [(4,)]
        assert not service.idle()
    assert set(harness.alarms) == {"state_failing"}
    assert harness.log.end() == (4,)

    assert not service.idle()

    state, other = state_of(service, "c"), state_of(service, "other")
    assert state is not None
    assert other is not None
    assert (state.epoch, state.offset, other.offset) == (3, 4, 3)
    assert harness.verified().differences == []
    assert harness.store.applied_offsets() == (4,)


def test_service_asks_for_the_states_of_many_events_at_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store on a server: a storm of connects must not cost a round trip for each session, nor must a long tail at the start."""
    asked: list[int] = []
    get_many = MemoryStates.get_many

    def counted(store: MemoryStates, keys: Collection[tuple[int, str]]) -> list[StoredState]:
        asked.append(len(keys))
        return get_many(store, keys)

    monkeypatch.setattr(MemoryStates, "get_many", counted)
    names = [f"client-{number}" for number in range(1_200)]
    harness.service([[created(name), resumed(2, name)] for name in names])
    assert asked == [1_200]

    harness.service([[resumed(3, name)] for name in names[:3]])
    assert asked == [1_200]

    harness.store = FailingStates()
    assert len(harness.restarted().load()) == 1_200
    assert asked[1:] == [500, 500, 200]


def test_store_that_fails_is_not_tried_with_every_event(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt lasts until it times out, and whoever waits for the log waits for that too."""
    harness.service([[created(f"client-{number}") for number in range(1_999)]])
    harness.store.is_failing = True
    tried: list[int] = []
    apply = FailingStates.apply

    def counted(store: FailingStates, offsets: Offsets, writes: list[StateWrite]) -> bool:
        tried.append(len(writes))
        return apply(store, offsets, writes)

    monkeypatch.setattr(FailingStates, "apply", counted)
    for number in range(20):
        harness.service([[created(f"late-{number}-{each}") for each in range(200)]])
    assert len(tried) == 2

    harness.store.is_failing = False
    assert not harness.service.idle()
    assert harness.alarms[-1] == "state_failing"
    assert harness.store.applied_offsets() == (5_999,)
    assert harness.verified().differences == []


def test_states_that_cannot_be_written_do_not_fill_the_memory(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a bound they are forgotten, and folded from the log again when the store takes them."""
    monkeypatch.setattr(state_service, "_REMEMBERED", 100)
    harness.service([[created("first")]])
    harness.service.idle()
    harness.store.is_failing = True
    for number in range(10):
        harness.service([[created(f"late-{number}-{each}") for each in range(30)]])
        harness.service.idle()
        assert len(harness.service._known) <= 130
    assert harness.service.folded == (1,)

    harness.store.is_failing = False
    harness.service.idle()

    assert harness.store.applied_offsets() == (301,)
    assert harness.verified().differences == []


def test_states_are_looked_at_again_with_what_the_log_has_by_now() -> None:
    """Another hub has ended one of them since."""
    log, store = MemoryEvents(), MemoryStates()
    service = StateService(log, store, lambda _word, _text: None)
    log.append([created("a"), created("b")])
    assert {state.client_id for state in service.load()} == {"a", "b"}
    log.append([ended(client_id="a")])

    assert [state.client_id for state in service.states_of([(7, "a"), (7, "b"), (7, "nobody")])] == ["b"]
    assert not service.is_shared
