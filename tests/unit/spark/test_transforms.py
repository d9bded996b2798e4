"""Transforms on small frames: the fold over tasks, checksums, differences."""

from __future__ import annotations

from pyspark.sql import SparkSession

from iothub.records import events
from iothub.records.checkpoint import add_checksums, row_checksum
from iothub.records.events import Event, Subject, encode_event, partition_of
from iothub.records.state import SessionState, decode_state, encode_state, fold
from iothub_spark.schemas.events import STORED_EVENTS
from iothub_spark.schemas.states import FOLDED, STATES
from iothub_spark.transforms.checksums import sums_of
from iothub_spark.transforms.differences import differing, first_differences, what_differs
from iothub_spark.transforms.fold import Bounds, fold_events, fold_rows
from tests.support.jobs.event_log import EventMill

EVERYTHING = Bounds((1,))

Stored = tuple[int, int, bytes, bytes]


def _stored(logged: list[Event]) -> list[Stored]:
    return [(0, offset, event.key.encode(), encode_event(event)) for offset, event in enumerate(logged, 1)]


def _row(state: SessionState) -> tuple[int, str, int, bytes]:
    return state.tenant_id, state.client_id, state.offset, encode_state(state)


def test_fold_over_many_tasks_is_the_plain_fold(spark: SparkSession) -> None:
    """However the events were spread before, one session with most of them included."""
    logged = list(EventMill(40, 3).events(1_500))
    expected: dict[str, SessionState | None] = {}
    for offset, event in enumerate(logged, 1):
        expected[event.key] = fold(expected.get(event.key), event, offset)
    frame = spark.createDataFrame(_stored(logged), STORED_EVENTS).repartition(4, "offset")

    folded = fold_events(None, frame, EVERYTHING, 3)
    assert folded.schema == FOLDED
    found = sorted((row.tenant_id, row.client_id, row.offset, bytes(row.record)) for row in folded.collect())
    assert found == sorted(_row(state) for state in expected.values() if state is not None)


def test_event_in_a_wrong_partition_is_folded_nowhere(spark: SparkSession) -> None:
    """As in the hubs: it is damaged there, and the session is what the events at home say."""
    made = events.session_created(
        Subject(7, "c", 1, 50), device="d", queue_id=1, protocol_version=5, session_expiry_s=60
    )
    astray = events.session_discarded(Subject(7, "c", 1, 60), reason="astray")
    key, home = made.key.encode(), partition_of(made.key, 3)
    rows = [(home, 1, key, encode_event(made)), ((home + 1) % 3, 2, key, encode_event(astray))]

    folded = fold_events(None, spark.createDataFrame(rows, STORED_EVENTS), Bounds((1, 1, 1)), 2).collect()

    (state,) = [decode_state(bytes(row.record)) for row in folded if row.damage is None]
    assert (state.client_id, state.is_ended, state.offset) == ("c", False, 1)
    (damage,) = [row.damage for row in folded if row.damage is not None]
    place = f"event of 7/c, partition {(home + 1) % 3}, offset 2"
    assert damage == f"{place}: damaged event (its key belongs to partition {home})"


def test_fold_goes_on_from_states_and_leaves_others_as_they_are(spark: SparkSession) -> None:
    """A state without events is handed on, byte for byte; a tombstone below the log's beginning goes."""
    subject = Subject(7, "dévice/1", 3, 50)
    known = SessionState(7, "dévice/1", 3, device="d", queue_id=1, offset=90)
    other = SessionState(8, "b", 1, offset=70)
    gone, stays = (
        SessionState(8, "gone", 2, is_ended=True, offset=99),
        SessionState(8, "z", 2, is_ended=True, offset=100),
    )
    states = spark.createDataFrame([_row(each) for each in (known, other, gone, stays)], STATES)
    event = events.session_taken_over(subject, by="x")
    again = events.session_discarded(subject, reason="in the state already")
    rows = [(0, 101, event.key.encode(), encode_event(event)), (0, 90, event.key.encode(), encode_event(again))]

    folded = fold_events(states, spark.createDataFrame(rows, STORED_EVENTS), Bounds((100,)), 2)
    found = {row.client_id: bytes(row.record) for row in folded.collect()}
    after = fold(known, event, 101)
    assert after is not None
    assert found == {"dévice/1": encode_state(after), "b": encode_state(other), "z": encode_state(stays)}


def test_damaged_live_state_is_passed_over_by_name() -> None:
    """In a checkpoint it would keep a hub from reading all others; events behind it make what they can."""
    state = SessionState(7, "c", 3, device="d", queue_id=1, offset=90)
    created = events.session_created(
        Subject(7, "b", 4, 50), device="d", queue_id=4, protocol_version=5, session_expiry_s=60, device_id=0
    )
    rows = [(b"7/a", -1, 80, b"{"), (b"7/b", -1, 81, b"{"), (b"7/b", 0, 101, encode_event(created))]
    rows += [(b"7/c", -1, 90, encode_state(state))]

    found = list(fold_rows(rows, Bounds((100,), are_states_live=True)))

    assert [each[:3] for each in found if each[4] is None] == [(7, "b", 101), (7, "c", 90)]
    assert [str(each[4]).split(":")[0] for each in found if each[4]] == ["session state of 7/a", "session state of 7/b"]


def test_checksum_is_the_sum_of_all_rows_in_any_order(spark: SparkSession) -> None:
    """And sessions are picked by it: other ones for another version."""
    rows = [_row(SessionState(1, f"c{number}", 1, offset=number)) for number in range(1, 200)]
    frame = spark.createDataFrame(rows, STATES)
    first, second = sums_of(frame.repartition(3), 5, 1), sums_of(frame.repartition(2), 5, 2)

    assert first.rows == 199
    assert first.checksum == second.checksum == add_checksums(row_checksum(*row) for row in rows)
    assert len(first.picked) == len(second.picked) == 5
    assert first.picked != second.picked
    assert sums_of(spark.createDataFrame([], STATES), 5).picked == ()


def test_differences_are_found_on_either_side_and_named(spark: SparkSession) -> None:
    """But not a session that has ended and is missing."""
    same, left, right = (SessionState(1, name, 1, offset=5) for name in ("same", "left", "right"))
    one, other = SessionState(1, "changed", 1, offset=5), SessionState(1, "changed", 2, offset=6)
    ended = [SessionState(1, name, 1, is_ended=True, offset=5) for name in ("over", "past")]
    expected = spark.createDataFrame([_row(each) for each in (same, left, one, ended[0])], STATES)
    found = spark.createDataFrame([_row(each) for each in (same, right, other, ended[1])], STATES)

    assert [str(each) for each in first_differences(differing(expected, found), 20)] == [
        "1/changed: different from the log (epoch, offset)",
        "1/left: in the log, but not stored",
        "1/right: stored, but not in the log",
    ]


def test_record_that_nobody_can_read_is_a_difference_that_says_so() -> None:
    state = SessionState(1, "a", 1)
    assert what_differs(encode_state(state), b"damaged") == "damaged session state (it is not JSON)"
    assert what_differs(encode_state(state), encode_state(state._replace(device="d"))).endswith("(device)")
