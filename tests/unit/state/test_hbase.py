"""What the contract does not ask of the states on HBase: cells, several hubs, lost answers, records of others."""

from __future__ import annotations

from collections import deque

import pytest

from iothub.base.errors import BackendError, CorruptRecordError, FutureRecordError
from iothub.records import events, keys
from iothub.records.events import Event, Subject
from iothub.records.layout import APPLIED_COLUMN, STATE_COLUMN, decode_applied, encode_applied
from iothub.records.state import encode_state, fold
from iothub.testing.checkpoint_contract import pointer_to
from iothub_services.events.memory import MemoryEvents
from iothub_services.hbase import calls
from iothub_services.hbase.batches import change_rows
from iothub_services.hbase.tables import Tables
from iothub_services.state.hbase.store import HBaseStates, _put
from iothub_services.state.memory.checkpoints import MemoryCheckpoints
from iothub_services.state.port import StateWrite, StoredState, UnreadableState, record_in
from iothub_services.state.service import StateService
from tests.support.timed_gateway import GatewayCaller, TimedGateway

TABLES = Tables("t")
KEY = keys.state_key(1, "a")


class House:
    """A table, and hubs that share it."""

    def __init__(self) -> None:
        self.gateway = TimedGateway(TABLES.state)
        self.fates: deque[tuple[str, str]] = deque()  # (verb, fate), each for one call
        self.caller = GatewayCaller(self.gateway, self._fate)
        self.one, self.other = HBaseStates(self.caller, TABLES), HBaseStates(self.caller, TABLES)

    def _fate(self, verb: str) -> str:
        if self.fates and self.fates[0][0] == verb:
            return self.fates.popleft()[1]
        return "done"

    @property
    def rows(self) -> dict[bytes, dict[bytes, tuple[bytes, int]]]:
        return self.gateway.tables[TABLES.state]


def created(epoch: int) -> Event:
    """An event of session a of tenant 7."""
    subject = Subject(7, "a", epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


@pytest.fixture
def house() -> House:
    return House()


def test_row_holds_the_record_at_the_place_of_its_partition(house: House) -> None:
    """Golden: what one sees with HBase's own tools. Its own offset is in the cell, the place up to which it is folded is the timestamp."""
    house.one.apply(((1 << 40) + 5, 2), [StateWrite(1, "a", (1 << 40) + 3, b'{"v":1}')])

    assert house.rows == {
        b"\0": {b"s:o": (bytes.fromhex("01" + "0002" + "0000010000000005" + "0000000000000002"), 1_790_000_000_002)},
        b"\0\0\0\1a": {b"s:r": (bytes.fromhex("01" + "0000010000000003") + b'{"v":1}', (1 << 40) + 5)},
    }


def test_older_write_never_resurrects_what_is_gone(house: House) -> None:
    """Not even after a major compaction, which forgets deletes (!)."""
    house.one.apply((5,), [StateWrite(1, "a", 5, b"r")])
    house.one.apply((7,), [StateWrite(1, "a", 7, None)])
    house.gateway.compact()

    change_rows(
        house.caller, TABLES.state, {6: [_put(StateWrite(1, "a", 6, b"late"))]}
    )  # it looked before the others were done
    house.other.apply((8,), [StateWrite(1, "b", 8, b"r")])

    assert house.other.get(1, "a") is None
    assert [row.client_id for row in house.one.load()] == ["b"]
    assert house.one.drop_tenant(1) == 1
    assert list(house.rows) == [b"\0"]


def test_forget_spares_what_was_written_meanwhile(house: House) -> None:
    """A session that was created anew is not its predecessor's tombstone."""
    house.one.apply((5,), [StateWrite(1, "a", 5, b"tombstone")])
    row = house.caller.call(calls.get_row(TABLES.state, KEY, (STATE_COLUMN,)))
    assert row is not None
    house.other.apply((6,), [StateWrite(1, "a", 6, b"new")])

    house.one._delete([row])

    assert house.one.get(1, "a") == StoredState(1, "a", 6, b"new")


def test_rows_are_durable_before_the_log_counts_as_applied(house: House) -> None:
    """A hub that dies in between repeats what changes nothing (!)."""
    house.fates.extend([("mutateRowTs", "done"), ("mutateRowTs", "refused")])
    writes = [StateWrite(1, "a", 1, b"1"), StateWrite(1, "d", 2, b"2")]

    with pytest.raises(BackendError) as caught:
        house.one.apply((1, 2), writes)

    assert (caught.value.retryable, caught.value.is_written) == (True, True)
    assert house.one.applied_offsets() == ()
    assert house.one.apply((1, 2), writes)
    assert len(list(house.one.load())) == 2


def test_rows_of_a_partition_are_written_together(house: House) -> None:
    """A call for each row would be a sync of HBase's log for each."""
    writes = [StateWrite(1, f"client-{number}", number + 1, b"r") for number in range(500)]

    house.one.apply((600, 700), writes)

    assert [verb for verb, _ in house.gateway.seen].count("mutateRowsTs") == 2
    assert {cells[STATE_COLUMN][1] for key, cells in house.rows.items() if key != b"\0"} == {600, 700}
    assert [row.offset for row in sorted(house.one.load(), key=lambda row: row.offset)] == list(range(1, 501))


@pytest.mark.parametrize("verb", ["mutateRowTs", "checkAndPut"])
def test_lost_answer_is_repeated_without_harm(house: House, verb: str) -> None:
    """It was done, and nobody said so."""
    house.fates.append((verb, "lost"))
    writes = [StateWrite(1, "a", 1, b"1")]

    with pytest.raises(BackendError, match="silent"):
        house.one.apply((1,), writes)
    house.one.apply((1,), writes)

    assert house.one.applied_offsets() == (1,)
    assert house.one.get(1, "a") == StoredState(1, "a", 1, b"1")


def test_hubs_move_the_applied_offsets_together(house: House) -> None:
    """Each is ahead in a partition; between look and swap the other one comes."""
    look = house.one._applied
    others = deque([(1, 9), (2, 9)])

    def interrupted() -> tuple[bytes | None, tuple[int, ...]]:
        found = look()
        if others and len(others) < 3:
            house.other.apply(others.popleft(), [])
        return found

    house.one._applied = interrupted  # type: ignore[method-assign]
    house.one._advance((5, 3))

    assert house.other.applied_offsets() == (5, 9)


def test_swap_that_never_succeeds_is_given_up(house: House) -> None:
    house.gateway.verbs["checkAndPut"] = lambda _: (2, b"\0")

    with pytest.raises(BackendError, match="others move the applied offsets") as caught:
        house.one.apply((1,), [])
    assert caught.value.retryable


def test_records_of_a_newer_program_are_refused_by_name(house: House) -> None:
    """Skipped, the session would be lost. Who lists them all sees the others."""
    house.one.apply((1,), [StateWrite(1, "b", 1, b"r")])
    house.rows[KEY] = {STATE_COLUMN: (b"\2new", 3)}
    for look in (lambda: house.one.get(1, "a"), lambda: house.one.get_many([(1, "a"), (1, "b")])):
        with pytest.raises(
            FutureRecordError, match="table t:state, session 1/a: format version 2, this program knows 1"
        ):
            look()
    unreadable, stored = house.one.load(1)
    assert isinstance(unreadable, UnreadableState)
    assert (unreadable.tenant_id, unreadable.client_id) == (1, "a")
    assert isinstance(unreadable.error, FutureRecordError)
    assert stored == StoredState(1, "b", 1, b"r")

    house.rows[b"\0"] = {APPLIED_COLUMN: (b"\2new", 3)}
    with pytest.raises(FutureRecordError, match="table t:state, the applied offsets: format version 2"):
        house.one.applied_offsets()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (KEY, b"", "session 1/a: a damaged cell \\(empty\\)"),
        (KEY, b"\1short", "session 1/a: a damaged cell \\(0173686f7274\\)"),
        (KEY, b"\0x", "session 1/a: a damaged cell \\(0078\\)"),
        (b"\0\0\1", b"\1" + bytes(9), "a key that begins with its tenant, got 000001"),
        (b"\0\0\0\1\xff", b"\1" + bytes(9), "the row key of a session's state, got 00000001ff"),
    ],
)
def test_damaged_rows_are_refused_by_name(house: House, key: bytes, value: bytes, text: str) -> None:
    house.rows[key] = {STATE_COLUMN: (value, 3)}

    (row,) = house.one.load()
    with pytest.raises(CorruptRecordError, match=f"table t:state.*{text}"):
        record_in(row)


def test_rows_that_cannot_be_read_go_with_their_tenant(house: House) -> None:
    house.rows[KEY] = {STATE_COLUMN: (b"\2new", 3)}

    assert house.one.drop_tenant(1) == 1
    assert list(house.one.load()) == []


@pytest.mark.parametrize("value", [b"\1", b"\1\0\2" + bytes(8), encode_applied((1,)) + b"x"])
def test_damaged_applied_offsets_are_refused_by_name(value: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="here: damaged"):
        decode_applied(value, "here")


def test_applied_offsets_come_back() -> None:
    assert decode_applied(encode_applied(()), "") == ()
    assert decode_applied(encode_applied((1, (3 << 40) + 1)), "") == (1, (3 << 40) + 1)


def test_start_from_a_checkpoint_writes_a_damaged_row_anew(house: House) -> None:
    """As the alarm says: without one the start is refused, and says of which row."""
    log, checkpoints = MemoryEvents(), MemoryCheckpoints()
    first = StateService(log, house.one, lambda *_: None)
    first([[created(1)]])
    first.idle()
    key = keys.state_key(7, "a")
    value, timestamp = house.rows[key][STATE_COLUMN]
    house.rows[key][STATE_COLUMN] = (b"\0" + value[1:], timestamp)
    alarms: list[str] = []
    later = StateService(log, house.other, lambda _, text: alarms.append(text))
    assert later([[created(2)]]) == [2]
    assert "session 7/a: a damaged cell" in alarms[0]
    assert "compact_events" in alarms[0]

    start = StateService(log, house.one, lambda *alarm: pytest.fail(str(alarm)), checkpoints)
    with pytest.raises(CorruptRecordError, match="session 7/a: a damaged cell"):
        start.load()
    state = None
    for _, offset, event in log.read((), 9):
        state = fold(state, event, offset)
    assert state is not None
    rows = [StoredState(7, "a", 2, encode_state(state))]
    checkpoints.write(1, rows)
    checkpoints.move(None, pointer_to(1, rows, (2,)))

    start = StateService(log, house.one, lambda *alarm: pytest.fail(str(alarm)), checkpoints)
    assert [each.epoch for each in start.load()] == [2]
    start.idle()
    assert list(house.other.load()) == rows
