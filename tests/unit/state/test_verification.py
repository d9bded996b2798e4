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
from tests.unit.state.conftest import House, created, resumed


@pytest.fixture
def house() -> House:
    """Five events, of which the states have four and a checkpoint three."""
    house = House()
    house.log.append([created("a"), created("b"), resumed("a", 2)])
    house.make_checkpoint()
    house.log.append([resumed("b", 2)])
    house.apply((4,))
    house.log.append([created("c")])
    return house


def spoil(house: House, client_id: str) -> None:
    """Store another epoch than the log says."""
    row = house.store._rows[7, client_id]
    house.store._rows[7, client_id] = row._replace(record=row.record.replace(b'"epoch":', b'"epoch":9'))


def test_states_that_lag_are_no_difference(house: House) -> None:
    """The next start folds what they lack."""
    seen: list[tuple[int, int]] = []

    found = verify(house.log, house.store, on_progress=lambda *each: seen.append(each))

    assert (found.checkpoint, found.events, found.compared, found.differences) == (None, 5, 3, [])
    assert seen == [(number, 5) for number in range(1, 6)]


def test_checkpoint_saves_reading_the_log(house: House) -> None:
    """Also when its beginning is gone."""
    house.log.trim((3,))

    found = verify(house.log, house.store, house.checkpoints)

    assert (found.checkpoint, found.events, found.compared, found.unreachable) == (1, 2, 3, 0)
    assert found.differences == []


def test_every_difference_is_named_with_its_fields(house: House) -> None:
    """Whatever the sessions are rebuilt from."""
    spoil(house, "a")
    del house.store._rows[7, "b"]
    house.store._rows[7, "z"] = house.store._rows[7, "a"]._replace(client_id="z")

    expected = [
        Difference(7, "a", "stored otherwise than the log says (epoch)"),
        Difference(7, "b", "in the log, but not stored"),
        Difference(7, "z", "stored, but not in the log"),
    ]
    assert verify(house.log, house.store).differences == expected
    assert verify(house.log, house.store, house.checkpoints).differences == expected
    assert str(expected[1]) == "7/b: in the log, but not stored"


def test_damaged_record_is_a_difference(house: House) -> None:
    """Named once."""
    house.store._rows[7, "a"] = house.store._rows[7, "a"]._replace(record=b"damaged")

    found = verify(house.log, house.store)

    assert found.differences == [Difference(7, "a", "damaged session state (it is not JSON)")]
    assert found.compared == 3


def test_hub_that_writes_meanwhile_makes_no_difference(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows may know more than was applied when the comparison began, and the log goes on behind its end."""
    load, end = house.store.load, house.log.end

    def busy_load(tenant_id: int | None = None) -> Iterator[StoredState]:
        house.log.append([resumed("a", 3), created("d")])
        house.apply(end())
        return load(tenant_id)

    def busy_end() -> Offsets:
        captured = end()
        house.log.append([resumed("a", 4), resumed("d", 2), created("e")])
        return captured

    monkeypatch.setattr(house.store, "load", busy_load)
    monkeypatch.setattr(house.log, "end", busy_end)

    found = verify(house.log, house.store, house.checkpoints)

    assert (found.differences, found.compared) == ([], 4)


def test_sessions_older_than_the_log_are_not_compared(house: House) -> None:
    """Without a checkpoint nobody knows them."""
    house.log.trim((4,))

    found = verify(house.log, house.store)

    assert (found.compared, found.unreachable, found.differences) == (1, 2, [])


def test_checkpoint_that_cannot_be_used_is_said(house: House) -> None:
    """The whole log is read instead."""
    house.checkpoints._rows.clear()

    found = verify(house.log, house.store, house.checkpoints)

    assert (found.checkpoint, found.events, found.differences) == (None, 5, [])
    assert "checkpoint 1 has 0 rows" in found.unusable[0]


def test_ended_session_may_be_missing_on_either_side(house: House) -> None:
    """Tombstones go when the log is trimmed, rows with their tenant."""
    house.log.append([events.session_expired(Subject(7, "b", 2, 100)), created("x")])
    house.log.append([events.session_expired(Subject(7, "x", 1, 100))])
    house.apply(house.log.end())
    del house.store._rows[7, "b"]

    assert verify(house.log, house.store).differences == []

    tombstone = house.folded(house.log.end())[-1]._replace(client_id="forgotten")
    house.store._rows[7, "forgotten"] = tombstone
    assert verify(house.log, house.store).differences == []


def test_gap_between_states_and_log_is_refused(house: House) -> None:
    """There is nothing to compare."""
    house.log.append([created("e")])
    house.log.trim((5,))
    with pytest.raises(
        ConflictError, match="begins at 6, the session states end at 4: events between them are missing"
    ):
        verify(house.log, house.store)

    house.log = MemoryEvents(3)
    with pytest.raises(ConflictError, match="of a log with 1 partitions, this one has 3"):
        verify(house.log, house.store)


def test_damaged_events_are_left_out_on_both_sides(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every hub does, and they are counted."""
    read = house.log.read

    def damaged(after: Offsets, count: int, topic: object = None) -> list[LoggedEvent | DamagedEvent]:
        why = "event log, offset 3: damaged"
        return [DamagedEvent(0, 3, why) if logged.offset == 3 else logged for logged in read(after, count)]

    row = house.store._rows[7, "a"]
    state = next(each for each in house.folded((1,)) if each.client_id == "a")
    house.store._rows[7, "a"] = row._replace(record=state.record)
    monkeypatch.setattr(house.log, "read", damaged)

    found = verify(house.log, house.store)

    assert found.damaged == ["event log, offset 3: damaged"]
    assert found.differences == []
