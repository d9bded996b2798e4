"""Compaction over what nobody can read: refused with places and the way out, on both logs alike; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError, CorruptRecordError
from iothub.records import events
from iothub.records.events import Subject, encode_event
from iothub.records.state import SessionState, decode_state, encode_state
from iothub_spark import damage
from iothub_spark.failures import kind_of
from iothub_spark.stores import marks
from iothub_spark.stores.marks import Written
from iothub_spark.stores.rows import StateRow
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from iothub_spark.transforms.fold import Bounds, fold_rows
from tests.support.spark import sqlite_spec

LACKING = Written(1, 0, 2, ("event of 1/a, offset 5: damaged event (x)", "event of 1/b, offset 77: damaged event (x)"))


@pytest.fixture
def checkpoints(tmp_path: Path) -> Iterator[SqliteCheckpoints]:
    """A version 7 that tasks have written, and that does not count."""
    with closing(SqliteCheckpoints(tmp_path / "checkpoints.db")) as store:
        store.write(7, [StateRow(1, "c", 3, encode_state(SessionState(1, "c", 1, offset=3)))])
        marks.set_written(store, 7, LACKING)
        yield store


def test_version_that_lacks_damaged_events_never_counts(tmp_path: Path, checkpoints: SqliteCheckpoints) -> None:
    """It is dropped at once, the places are named, and so is the command that begins with the live states."""
    with pytest.raises(CorruptRecordError) as caught:
        damage.require_readable(sqlite_spec(tmp_path), checkpoints, 7, LACKING)

    text = str(caught.value)
    assert "2 damaged events (event of 1/a, offset 5: damaged event (x); event of 1/b, offset 77: " in text
    assert "no checkpoint was made and nothing trimmed" in text
    assert "`iothub job run compact_events --option from_state=true`" in text
    assert kind_of(caught.value) == "corrupt"
    assert (checkpoints.versions(), checkpoints.marks()) == ([], {})


def test_what_the_live_states_lack_too_is_left_out_by_word_alone(
    tmp_path: Path, checkpoints: SqliteCheckpoints
) -> None:
    """Refused as well at first; with the option it is a note."""
    with pytest.raises(CorruptRecordError, match=r"from_state=true --option leave_out_damaged=true` goes without it"):
        damage.require_readable(sqlite_spec(tmp_path, from_state=True), checkpoints, 7, LACKING)

    spec = sqlite_spec(tmp_path, from_state=True, leave_out_damaged=True)
    damage.require_readable(spec, checkpoints, 7, LACKING)
    assert damage.told(spec, LACKING).startswith("2 damaged session states and events were left out, such as: event of")


def test_version_that_lacks_nothing_stays(tmp_path: Path, checkpoints: SqliteCheckpoints) -> None:
    damage.require_readable(sqlite_spec(tmp_path), checkpoints, 7, Written(1, 0))

    assert checkpoints.versions() == [7]


def test_many_places_are_named_in_part_and_counted(tmp_path: Path, checkpoints: SqliteCheckpoints) -> None:
    """One line stays one that a person can read, and that the history keeps whole."""
    examples = tuple(f"event of 1/{'x' * 200}, offset {number}: damaged" for number in range(20))
    with pytest.raises(CorruptRecordError, match=r"offset 4: damaged; and 95 more\)") as caught:
        damage.require_readable(sqlite_spec(tmp_path), checkpoints, 7, Written(1, 0, 100, examples))

    assert len(str(caught.value)) < 2_000


def test_leaving_out_without_the_live_states_is_refused(tmp_path: Path) -> None:
    """The log alone has lost what these may have."""
    with pytest.raises(ConfigError, match="leave_out_damaged=true wants from_state=true, too"):
        damage.require_consistent(sqlite_spec(tmp_path, leave_out_damaged=True))

    damage.require_consistent(sqlite_spec(tmp_path, from_state=True, leave_out_damaged=True))
    damage.require_consistent(sqlite_spec(tmp_path))


def test_live_states_keep_the_session_whose_event_was_damaged_behind_them() -> None:
    """The event that made the session was folded while it was whole: from the log the session is lost, from the states it is not."""
    created = events.session_created(
        Subject(1, "a", 1, 50), device="a", queue_id=1, protocol_version=5, session_expiry_s=60, device_id=0
    )
    resumed = events.session_resumed(Subject(1, "a", 2, 60), protocol_version=5, session_expiry_s=60, device_id=0)
    live = SessionState(1, "a", 1, device="a", queue_id=1, offset=5)
    damaged, behind = encode_event(created)[:-1], (b"1/a", 1, 9, encode_event(resumed))

    from_log = list(fold_rows([(b"1/a", 1, 5, damaged), behind], Bounds((1,))))
    from_states = list(fold_rows([(b"1/a", 0, 5, encode_state(live)), behind], Bounds((1,), are_states_live=True)))

    assert [each[3] for each in from_log] == [None]
    assert "offset 5: " in str(from_log[0][4])
    (found,) = from_states
    assert found[3] is not None
    assert (decode_state(found[3]).epoch, found[4]) == (2, None)
