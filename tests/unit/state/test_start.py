"""A start from a checkpoint: its rows, the tail behind it, and what happens when it cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iothub.base.errors import BackendError, ConflictError, CorruptRecordError
from iothub.records import events
from iothub.records.checkpoint import Pointer
from iothub.records.events import Subject
from iothub.records.state import SessionState, decode_state, encode_state
from iothub.testing.checkpoint_contract import pointer_to
from iothub.testing.clock import ManualClock
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import LoggedEvent, Offsets
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.sqlite.database import open_database
from iothub_services.state.memory.checkpoints import MemoryCheckpoints
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.port import StateWrite, StoredState
from iothub_services.state.service import DropTenant, StateService
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints
from iothub_services.state.sqlite.store import SCHEMA as STATES
from iothub_services.state.sqlite.store import SqliteStates
from iothub_services.state.start import obstacle
from iothub_services.state.verification import verify
from tests.unit.state.conftest import Harness, created, resumed


@pytest.fixture
def harness() -> Harness:
    """Five events; the checkpoint has the first three."""
    harness = Harness()
    harness.log.append([created("a"), created("b"), resumed("a", 2)])
    harness.make_checkpoint()
    harness.log.append([resumed("b", 2), created("c")])
    return harness


def test_start_folds_the_tail_over_the_checkpoint(harness: Harness) -> None:
    """The states were lost and the log is trimmed up to the checkpoint: nothing is missing, and the store has it all again."""
    harness.log.trim((3,))

    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    assert harness.alarms == []
    assert harness.store.applied_offsets() == (5,)
    assert [row.offset for row in harness.store.load()] == [3, 4, 5]


def test_start_writes_only_what_the_store_has_not_applied(harness: Harness) -> None:
    """It was ahead of the checkpoint."""
    harness.store.apply((4,), [StateWrite(*row)._replace(record=b"not touched") for row in harness.folded((4,))])

    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    assert [row.record for row in harness.store.load()][:2] == [b"not touched"] * 2
    assert harness.store.applied_offsets() == (5,)


def test_sessions_go_on_after_a_start_from_a_checkpoint(harness: Harness) -> None:
    """What is appended then is folded over it."""
    service = StateService(harness.log, harness.store, lambda *alarm: harness.alarms.append(alarm), harness.checkpoints)
    service.load()
    service([[resumed("a", 5)]])
    assert not service.idle()

    assert verify(service._log, service._store).differences == []
    assert harness.start() == {"a": 5, "b": 2, "c": 1}
    assert harness.alarms == []


def test_session_that_ended_stays_ended(harness: Harness) -> None:
    """Its tombstone is in the checkpoint, and fences late events of a dead hub."""
    harness.log.append([events.session_expired(Subject(7, "a", 9, 100))])
    harness.make_checkpoint(version=2)
    harness.log.append([created("a", 4)])

    assert harness.start() == {"b": 2, "c": 1}


def test_start_falls_back_to_the_states_when_the_log_begins_behind_the_checkpoint(harness: Harness) -> None:
    """With an alarm that says what is missing."""
    harness.apply((5,))
    harness.log.trim((4,))

    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    assert harness.alarms == [
        (
            "checkpoint_unused",
            "checkpoint 1: the log begins at 5, it is needed from 4; the start continues from the session states",
        )
    ]


def test_start_is_refused_when_neither_reaches_the_log(harness: Harness) -> None:
    """A gap in both: sessions would be missing, and nobody could tell."""
    harness.apply((2,))
    harness.log.trim((4,))

    with pytest.raises(ConflictError, match="begins at offset 5, the session states need it from 3"):
        harness.start()
    assert [name for name, _ in harness.alarms] == ["checkpoint_unused"]


def test_rows_that_are_not_those_of_the_pointer_are_not_used(harness: Harness) -> None:
    """One has gone: the log alone knows all sessions."""
    del harness.checkpoints._rows[1][7, "b"]

    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    ((name, text),) = harness.alarms
    assert name == "checkpoint_unused"
    assert "checkpoint 1 has 1 rows with checksum" in text


def test_damaged_pointer_is_not_used(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub starts nevertheless, for the log is whole."""
    error = CorruptRecordError("damaged checkpoint pointer (it has no 'at')")

    def fail() -> None:
        raise error

    monkeypatch.setattr(harness.checkpoints, "pointer", fail)

    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    assert harness.alarms == [("checkpoint_unused", f"{error}; the start continues from the session states")]


def test_damaged_record_in_a_checkpoint_makes_it_useless(harness: Harness) -> None:
    """The sum is right, so whoever made it wrote nonsense."""
    rows = [StoredState(7, "a", 3, b"nonsense")]
    harness.checkpoints.write(2, rows)
    harness.checkpoints.move(harness.checkpoints.pointer(), pointer_to(2, rows, (3,)))

    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    assert harness.alarms[0][1].startswith("damaged session state")


def test_checkpoint_that_is_replaced_while_it_is_read_is_read_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has moved the pointer and removed the old rows."""
    read = harness.checkpoints.rows

    def rows(version: int) -> Iterator[StoredState]:
        if version == 1:
            harness.make_checkpoint(version=2)
            harness.checkpoints.drop(1)
        yield from read(version)

    monkeypatch.setattr(harness.checkpoints, "rows", rows)

    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    assert (harness.alarms, harness.checkpoints.versions()) == ([], [2])


def test_states_that_have_seen_more_than_the_log_count(harness: Harness) -> None:
    """The log has lost its end: the checkpoint with its tail would lose what the states still have."""
    harness.store.apply((9,), [StateWrite(7, "z", 9, encode_state(SessionState(7, "z", 3, offset=9)))])

    assert harness.start()["z"] == 3
    assert [name for name, _ in harness.alarms] == ["checkpoint_unused", "event_log_lost"]


def test_checkpoint_of_a_lost_log_never_counts_again(harness: Harness) -> None:
    """Log and states were removed; new offsets must never reach those that the checkpoint names, or it would match again."""
    harness.log, harness.store = MemoryEvents(), MemoryStates()
    assert harness.start() == {}
    assert [name for name, _ in harness.alarms] == ["checkpoint_unused", "event_log_lost"]
    harness.log.append([created(name) for name in ("n", "o", "p", "q")])

    assert harness.start() == {"n": 1, "o": 1, "p": 1, "q": 1}


def test_log_that_lost_its_end_is_never_folded_across_the_hole(harness: Harness) -> None:
    """Between the old events and the next ones those are missing that only the states have."""
    harness.apply((5,))
    harness.log = MemoryEvents()
    harness.log.append([created("a"), created("b"), resumed("a", 2), resumed("b", 2)])  # an older copy of the file
    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    harness.log.append([resumed("a", 7)])

    assert harness.start() == {"a": 7, "b": 2, "c": 1}


def test_shared_log_without_its_beginning_is_no_start(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither states nor checkpoint are here: sessions of others would be missing, so the start is refused; a checkpoint is enough."""
    monkeypatch.setattr(MemoryEvents, "is_shared", True)
    harness.log.trim((3,))
    assert harness.start() == {"a": 2, "b": 2, "c": 1}
    harness.store, harness.checkpoints = MemoryStates(), MemoryCheckpoints()

    with pytest.raises(ConflictError, match="begins at offset 4, and neither checkpoint nor session states have"):
        harness.start()
    assert harness.alarms == []


@pytest.mark.parametrize(
    ("offsets", "begin", "end", "applied", "why"),
    [
        ((3, 4), (1, 1), (3, 4), (), ""),
        ((3, 4), (4, 5), (3, 4), (3, 9), "the session states include the log up to 3 9, which ends at 3 4"),
        ((3, 4), (4, 5), (9, 9), (), ""),
        ((3, 4), (4, 6), (9, 9), (), "the log begins at 4 6, it is needed from 4 5"),
        ((3, 4), (1, 1), (3, 3), (), "it includes the log up to 3 4, which ends at 3 3"),
        ((3,), (1, 1), (3, 3), (), "it is of a log with 1 partitions, this one has 2"),
        ((3, 4), (1, 1), (5, 5), (5,), "the session states include the log up to 5, which ends at 5 5"),
    ],
)
def test_obstacles_are_named(offsets: Offsets, begin: Offsets, end: Offsets, applied: Offsets, why: str) -> None:
    """Every partition counts."""
    assert obstacle(Pointer(1, offsets, 0, 0, 0), begin, end, applied) == why


@pytest.mark.parametrize("have_states_seen_it", [True, False])
def test_log_file_that_lost_its_newest_events(tmp_path: Path, *, have_states_seen_it: bool) -> None:
    """What the states have seen is there, and the log goes on above it; without them it goes on from its last event."""

    def opened(alarms: list[str]) -> StateService:
        def note(name: str, _text: str) -> None:
            alarms.append(name)

        files = {
            schema.name: open_database(tmp_path / f"{schema.name}.db", schema, ManualClock(), note)
            for schema in (EVENTS, STATES, CHECKPOINTS)
        }
        store, checkpoints = SqliteStates(files["state"]), SqliteCheckpoints(files["checkpoints"])
        return StateService(SqliteEvents(files["events"]), store, note, checkpoints)

    names = [f"client-{number:03}" for number in range(100)]
    service = opened([])
    service.load()
    service([[created(names[0])]])
    service.idle()
    rows = [StoredState(*row) for row in service._store.load()]
    assert service._checkpoints is not None
    service._checkpoints.write(1, rows)
    service._checkpoints.move(None, pointer_to(1, rows, (1,)))
    service([[created(name) for name in names[1:]]])
    service.close()
    if not have_states_seen_it:
        (tmp_path / "state.db").unlink()
    damage(tmp_path / "events.db", b"client-060")
    alarms: list[str] = []
    service = opened(alarms)

    found = [state.client_id for state in service.load()]

    lost = ["checkpoint_unused", "event_log_lost"] if have_states_seen_it else []
    assert alarms == ["events_corrupt", *lost]
    assert found == names if have_states_seen_it else found == names[: len(found)]
    assert len(found) > 20
    (offset,) = service([[resumed(names[0], 2)]])
    assert offset == (len(found) + 1,)
    service.close()
    alarms.clear()
    service = opened(alarms)
    assert {state.client_id: state.epoch for state in service.load()} == {**dict.fromkeys(found, 1), names[0]: 2}
    service.close()
    assert alarms == lost[:1]


def damage(path: Path, content: bytes) -> None:
    """Overwrite the page that has `content`."""
    octets, page = bytearray(path.read_bytes()), EVENTS.page_bytes
    at = octets.index(content) // page * page
    octets[at : at + page] = b"\xa5" * page
    path.write_bytes(octets)


def test_start_that_failed_in_the_middle_is_repeated_whole(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the first attempt is left: what it folded and could not write is folded, and written, by the second."""
    service = StateService(harness.log, harness.store, lambda *alarm: harness.alarms.append(alarm), None)
    fail_to_write(monkeypatch, times=2)
    for _ in range(2):
        with pytest.raises(BackendError):
            service.load()

    assert {state.client_id: state.epoch for state in service.load()} == {"a": 2, "b": 2, "c": 1}
    assert harness.store.applied_offsets() == (5,)
    assert [row.offset for row in harness.store.load()] == [3, 4, 5]
    assert verify(service._log, service._store).differences == []


def test_start_that_lost_its_log_in_the_middle_of_the_tail_is_repeated_whole(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = StateService(harness.log, harness.store, lambda *alarm: harness.alarms.append(alarm), harness.checkpoints)
    read, failures = MemoryEvents.read, [BackendError("Kafka fell silent", retryable=True)] * 2

    def fail(log: MemoryEvents, after: Offsets, count: int, *rest: Any) -> list[LoggedEvent]:
        if failures and after != (3,):
            raise failures.pop()
        return read(log, after, 1, *rest)

    monkeypatch.setattr(MemoryEvents, "read", fail)
    for _ in range(2):
        with pytest.raises(BackendError, match="Kafka fell silent"):
            service.load()

    assert {state.client_id: state.epoch for state in service.load()} == {"a": 2, "b": 2, "c": 1}
    service.idle()
    assert [row.offset for row in harness.store.load()] == [3, 4, 5]


def test_start_from_a_checkpoint_leaves_its_rows_to_be_written_behind(harness: Harness) -> None:
    """The sessions are there at once, for whoever asks the service, too."""
    harness.log.trim((3,))
    service = StateService(harness.log, harness.store, lambda *alarm: harness.alarms.append(alarm), harness.checkpoints)
    service.load()

    assert list(harness.store.load()) == []
    assert [state.epoch for state in service.states_of([(7, "a"), (7, "b"), (7, "z")])] == [2, 2]

    service([[resumed("a", 6)]])
    service.idle()
    assert {row.client_id: decode_state(row.record).epoch for row in harness.store.load()} == {"a": 6, "b": 2, "c": 1}
    assert harness.store.applied_offsets() == (6,)


def test_what_only_a_checkpoint_has_is_never_forgotten(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is trimmed up to the checkpoint and the store fails for long: a fold of the log alone would lack its sessions."""
    harness.log.trim((3,))
    service = StateService(harness.log, harness.store, lambda *alarm: harness.alarms.append(alarm), harness.checkpoints)
    service.load()
    monkeypatch.setattr("iothub_services.state.service._REMEMBERED", 0)
    fail_to_write(monkeypatch, times=3)
    service([[resumed("b", 7)]])
    for _ in range(4):
        service.idle()

    assert [alarm for alarm, _ in harness.alarms] == ["state_failing"] * 4
    assert harness.alarms[-1][1] == ""
    assert {row.client_id: decode_state(row.record).epoch for row in harness.store.load()} == {"a": 2, "b": 7, "c": 1}


def test_what_another_hub_has_written_is_let_go(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would stay in memory, be written again with the next event, and bring back the rows of a tenant that is deleted meanwhile."""
    monkeypatch.setattr(MemoryEvents, "is_shared", True)
    harness.log.trim((3,))
    one, other = (
        StateService(harness.log, harness.store, lambda *alarm: harness.alarms.append(alarm), harness.checkpoints)
        for _ in range(2)
    )
    for each in (one, other):
        each.load()
    for each in (one, other):
        each.idle()
    ended = [events.session_discarded(Subject(7, name, 9, 100), reason="tenant_deleted") for name in "abc"]
    one([ended])
    one.idle()
    other.idle()
    assert one([DropTenant(7)]) == [3]

    other([[replace(created("z"), tenant_id=8)]])
    other.idle()
    assert [(row.tenant_id, row.client_id) for row in harness.store.load()] == [(8, "z")]
    assert harness.alarms == []


def fail_to_write(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    apply, failures = MemoryStates.apply, [BackendError("HBase fell silent", retryable=True)] * times

    def fail(store: MemoryStates, offsets: Offsets, writes: list[StateWrite]) -> bool:
        if failures:
            raise failures.pop()
        return apply(store, offsets, writes)

    monkeypatch.setattr(MemoryStates, "apply", fail)
