"""The states against the log: from its beginning, from a checkpoint, and beside a hub that writes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iothub.base.errors import ConflictError
from iothub.records import events
from iothub.records.events import Subject
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import DamagedEvent, LoggedEvent, Offsets
from iothub_services.state.port import StoredState
from iothub_services.state.verification import Difference, verify
from tests.unit.state.conftest import Harness, created, resumed


@pytest.fixture
def harness() -> Harness:
    """Five events, of which the states have four and a checkpoint three."""
    harness = Harness()
    harness.log.append([created("a"), created("b"), resumed("a", 2)])
    harness.make_checkpoint()
    harness.log.append([resumed("b", 2)])
    harness.apply((4,))
    harness.log.append([created("c")])
    return harness


def spoil(harness: Harness, client_id: str) -> None:
    """Store another epoch than the log says."""
    row = harness.store._rows[7, client_id]
    harness.store._rows[7, client_id] = row._replace(record=row.record.replace(b'"epoch":', b'"epoch":9'))


def test_states_that_lag_are_no_difference(harness: Harness) -> None:
    """The next start folds what they lack."""
    seen: list[tuple[int, int]] = []

    found = verify(harness.log, harness.store, on_progress=lambda *each: seen.append(each))

    assert (found.checkpoint, found.events, found.compared, found.differences) == (None, 5, 3, [])
    assert seen == [(number, 5) for number in range(1, 6)]


def test_checkpoint_saves_reading_the_log(harness: Harness) -> None:
    """Also when its beginning is gone."""
    harness.log.trim((3,))

    found = verify(harness.log, harness.store, harness.checkpoints)

    assert (found.checkpoint, found.events, found.compared, found.unreachable) == (1, 2, 3, 0)
    assert found.differences == []


def test_every_difference_is_named_with_its_fields(harness: Harness) -> None:
    """Whatever the sessions are rebuilt from."""
    spoil(harness, "a")
    del harness.store._rows[7, "b"]
    harness.store._rows[7, "z"] = harness.store._rows[7, "a"]._replace(client_id="z")

    expected = [
        Difference(7, "a", "stored state differs from the log (epoch)"),
        Difference(7, "b", "in the log, but not stored"),
        Difference(7, "z", "stored, but not in the log"),
    ]
    assert verify(harness.log, harness.store).differences == expected
    assert verify(harness.log, harness.store, harness.checkpoints).differences == expected
    assert str(expected[1]) == "7/b: in the log, but not stored"


def test_damaged_record_is_a_difference(harness: Harness) -> None:
    """Named once."""
    harness.store._rows[7, "a"] = harness.store._rows[7, "a"]._replace(record=b"damaged")

    found = verify(harness.log, harness.store)

    assert found.differences == [Difference(7, "a", "damaged session state (it is not JSON)")]
    assert found.compared == 3


def test_hub_that_writes_meanwhile_makes_no_difference(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows may know more than was applied when the comparison began, and the log goes on behind its end."""
    load, end = harness.store.load, harness.log.end

    def busy_load(tenant_id: int | None = None) -> Iterator[StoredState]:
        harness.log.append([resumed("a", 3), created("d")])
        harness.apply(end())
        return load(tenant_id)

    def busy_end() -> Offsets:
        captured = end()
        harness.log.append([resumed("a", 4), resumed("d", 2), created("e")])
        return captured

    monkeypatch.setattr(harness.store, "load", busy_load)
    monkeypatch.setattr(harness.log, "end", busy_end)

    found = verify(harness.log, harness.store, harness.checkpoints)

    assert (found.differences, found.compared) == ([], 4)


def test_sessions_older_than_the_log_are_not_compared(harness: Harness) -> None:
    """Without a checkpoint nobody knows them."""
    harness.log.trim((4,))

    found = verify(harness.log, harness.store)

    assert (found.compared, found.unreachable, found.differences) == (1, 2, [])


def test_checkpoint_that_cannot_be_used_is_said(harness: Harness) -> None:
    """The whole log is read instead."""
    harness.checkpoints._rows.clear()

    found = verify(harness.log, harness.store, harness.checkpoints)

    assert (found.checkpoint, found.events, found.differences) == (None, 5, [])
    assert "checkpoint 1 has 0 rows" in found.unusable[0]


def test_ended_session_may_be_missing_on_either_side(harness: Harness) -> None:
    """Tombstones go when the log is trimmed, rows with their tenant."""
    harness.log.append([events.session_expired(Subject(7, "b", 2, 100)), created("x")])
    harness.log.append([events.session_expired(Subject(7, "x", 1, 100))])
    harness.apply(harness.log.end())
    del harness.store._rows[7, "b"]

    assert verify(harness.log, harness.store).differences == []

    tombstone = harness.folded(harness.log.end())[-1]._replace(client_id="forgotten")
    harness.store._rows[7, "forgotten"] = tombstone
    assert verify(harness.log, harness.store).differences == []


def test_gap_between_states_and_log_is_refused(harness: Harness) -> None:
    """There is nothing to compare."""
    harness.log.append([created("e")])
    harness.log.trim((5,))
    with pytest.raises(
        ConflictError, match="begins at 6, the session states end at 4: events between them are missing"
    ):
        verify(harness.log, harness.store)

    harness.log = MemoryEvents(3)
    with pytest.raises(ConflictError, match="to a log with 1 partitions, this one has 3"):
        verify(harness.log, harness.store)


def test_damaged_events_are_left_out_on_both_sides(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every hub does, and they are counted."""
    read = harness.log.read

    def damaged(after: Offsets, count: int, topic: object = None) -> list[LoggedEvent | DamagedEvent]:
        why = "event log, offset 3: damaged"
        return [DamagedEvent(0, 3, why) if logged.offset == 3 else logged for logged in read(after, count)]

    row = harness.store._rows[7, "a"]
    state = next(each for each in harness.folded((1,)) if each.client_id == "a")
    harness.store._rows[7, "a"] = row._replace(record=state.record)
    monkeypatch.setattr(harness.log, "read", damaged)

    found = verify(harness.log, harness.store)

    assert found.damaged == ["event log, offset 3: damaged"]
    assert found.differences == []
