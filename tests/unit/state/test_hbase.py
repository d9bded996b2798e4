"""What the contract does not ask of the states on HBase: cells, several hubs, lost answers, records of others."""

from __future__ import annotations

from collections import deque

import pytest

from iothub.base.errors import BackendError
from iothub.records import events, keys
from iothub.records.events import Event, Subject
from iothub.records.layout import STATE_COLUMN, decode_applied, encode_applied
from iothub_services.hbase.pages import change_rows
from iothub_services.hbase.tables import Tables
from iothub_services.state.hbase.store import HBaseStates, _put
from iothub_services.state.port import StateWrite, StoredState
from tests.support.hbase.timed_gateway import TimedTable

TABLES = Tables("t")
KEY = keys.state_key(1, "a")


class Harness(TimedTable):
    """A table, and hubs that share it."""

    def __init__(self) -> None:
        super().__init__(TABLES.state)
        self.one, self.other = HBaseStates(self.caller, TABLES), HBaseStates(self.caller, TABLES)


def created(epoch: int) -> Event:
    """An event of session a of tenant 7."""
    subject = Subject(7, "a", epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_row_holds_the_record_at_the_place_of_its_partition(harness: Harness) -> None:
    """Golden: what one sees with HBase's own tools. Its own offset is in the cell, the place up to which it is folded is the timestamp."""
    harness.one.apply(((1 << 40) + 5, 2), [StateWrite(1, "a", (1 << 40) + 3, b'{"v":1}')])

    assert harness.rows == {
        b"\0": {b"s:o": (bytes.fromhex("01" + "0002" + "0000010000000005" + "0000000000000002"), 1_790_000_000_002)},
        b"\0\0\0\1a": {b"s:r": (bytes.fromhex("01" + "0000010000000003") + b'{"v":1}', (1 << 40) + 5)},
    }


def test_older_write_never_resurrects_what_is_gone(harness: Harness) -> None:
    """Not even after a major compaction, which forgets deletes."""
    harness.one.apply((5,), [StateWrite(1, "a", 5, b"r")])
    harness.one.apply((7,), [StateWrite(1, "a", 7, None)])
    harness.gateway.compact()

    change_rows(
        harness.caller, TABLES.state, {6: [_put(StateWrite(1, "a", 6, b"late"))]}
    )  # it looked before the others were done
    harness.other.apply((8,), [StateWrite(1, "b", 8, b"r")])

    assert harness.other.get(1, "a") is None
    assert [row.client_id for row in harness.one.load()] == ["b"]
    assert harness.one.drop_tenant(1) == 1
    assert list(harness.rows) == [b"\0"]


def test_rows_are_durable_before_the_log_counts_as_applied(harness: Harness) -> None:
    """After a crash in between the same rows are written again, which changes nothing."""
    harness.fates.extend([("mutateRowTs", "done"), ("mutateRowTs", "refused")])
    writes = [StateWrite(1, "a", 1, b"1"), StateWrite(1, "d", 2, b"2")]

    with pytest.raises(BackendError) as caught:
        harness.one.apply((1, 2), writes)

    assert (caught.value.retryable, caught.value.is_written) == (True, True)
    assert harness.one.applied_offsets() == ()
    assert harness.one.apply((1, 2), writes)
    assert len(list(harness.one.load())) == 2


def test_rows_of_a_partition_are_written_together(harness: Harness) -> None:
    """A call for each row would be a sync of HBase's log for each."""
    writes = [StateWrite(1, f"client-{number}", number + 1, b"r") for number in range(500)]

    harness.one.apply((600, 700), writes)

    assert [verb for verb, _ in harness.gateway.seen].count("mutateRowsTs") == 2
    assert {cells[STATE_COLUMN][1] for key, cells in harness.rows.items() if key != b"\0"} == {600, 700}
    assert [row.offset for row in sorted(harness.one.load(), key=lambda row: row.offset)] == list(range(1, 501))


@pytest.mark.parametrize("verb", ["mutateRowTs", "checkAndPut"])
def test_lost_answer_is_repeated_without_harm(harness: Harness, verb: str) -> None:
    """It was done, and nobody said so."""
    harness.fates.append((verb, "lost"))
    writes = [StateWrite(1, "a", 1, b"1")]

    with pytest.raises(BackendError, match="silent"):
        harness.one.apply((1,), writes)
    harness.one.apply((1,), writes)

    assert harness.one.applied_offsets() == (1,)
    assert harness.one.get(1, "a") == StoredState(1, "a", 1, b"1")


def test_hubs_move_the_applied_offsets_together(harness: Harness) -> None:
    """Each is ahead in a partition; between look and swap the other one comes."""
    look = harness.one._applied
    others = deque([(1, 9), (2, 9)])

    def interrupted() -> tuple[bytes | None, tuple[int, ...]]:
        found = look()
        if others and len(others) < 3:
            harness.other.apply(others.popleft(), [])
        return found

    harness.one._applied = interrupted  # type: ignore[method-assign]
    harness.one._advance((5, 3))

    assert harness.other.applied_offsets() == (5, 9)


def test_swap_that_never_succeeds_is_given_up(harness: Harness) -> None:
    harness.gateway.verbs["checkAndPut"] = lambda _: (2, b"\0")

    with pytest.raises(BackendError, match="concurrent updates of the applied offsets; gave up after") as caught:
        harness.one.apply((1,), [])
    assert caught.value.retryable


def test_damaged_row_holds_up_no_other(harness: Harness) -> None:
    """Whoever reads its record hears that it is damaged."""
    harness.one.apply((1,), [StateWrite(1, "b", 1, b"r")])
    harness.rows[KEY] = {STATE_COLUMN: (b"\2new", 3)}

    damaged, whole = harness.one.load(1)

    assert harness.one.get(1, "a") == damaged == StoredState(1, "a", 0, b"\2new")
    assert harness.one.get_many([(1, "b")]) == [whole] == [StoredState(1, "b", 1, b"r")]


def test_damaged_rows_go_with_their_tenant(harness: Harness) -> None:
    harness.rows[KEY] = {STATE_COLUMN: (b"\2new", 3)}

    assert harness.one.drop_tenant(1) == 1
    assert list(harness.one.load()) == []


def test_applied_offsets_come_back() -> None:
    assert decode_applied(encode_applied(()), "") == ()
    assert decode_applied(encode_applied((1, (3 << 40) + 1)), "") == (1, (3 << 40) + 1)
