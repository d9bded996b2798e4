"""What the contract does not ask of checkpoints: a swap whose answer is lost, rows of a newer program, a file that is read while a job writes."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records import keys
from iothub.records.checkpoint import encode_pointer
from iothub.records.layout import CHECKPOINT_COLUMN, POINTER_COLUMN
from iothub.testing.checkpoint_contract import pointer_to, rows_of
from iothub.testing.clock import ManualClock
from iothub_services.hbase.tables import Tables
from iothub_services.sqlite.database import open_database
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints
from iothub_services.state.port import StoredState
from iothub_services.state.sqlite.checkpoints import SCHEMA, SqliteCheckpoints
from tests.support.hbase.timed_gateway import GatewayCaller, TimedGateway

TABLES = Tables("t")
FIRST, SECOND = pointer_to(1, ()), pointer_to(2, ())


def hbase(*fates: str) -> tuple[HBaseCheckpoints, TimedGateway]:
    """Return a store whose calls have these fates, and then none."""
    gateway, coming = TimedGateway(TABLES.checkpoints), deque(fates)
    caller = GatewayCaller(gateway, lambda _verb: coming.popleft() if coming else "done")
    return HBaseCheckpoints(caller, TABLES), gateway


def test_pointer_and_rows_are_what_every_client_reads() -> None:
    """Golden: row `pointer`, and one row per session below its version."""
    store, gateway = hbase()
    store.write(1, [StoredState(7, "a", 9, b'{"v":1}')])
    store.move(None, FIRST)

    rows = gateway.tables[TABLES.checkpoints]
    assert rows[b"\0pointer"][POINTER_COLUMN][0] == encode_pointer(FIRST)
    assert rows[bytes.fromhex("01" + "0000000000000001" + "00000007") + b"a"][CHECKPOINT_COLUMN][0] == (
        b"\1" + (9).to_bytes(8) + b'{"v":1}'
    )


def test_swap_whose_answer_was_lost_is_known_by_the_pointer() -> None:
    """Nobody else wants the same one."""
    store, _ = hbase("lost")

    assert store.move(None, FIRST)
    assert store.pointer() == FIRST


@pytest.mark.parametrize("fates", [("refused",), ("lost", "refused")])
def test_swap_that_nobody_can_tell_of_fails(fates: tuple[str, ...]) -> None:
    """Whoever called looks again."""
    store, _ = hbase(*fates)

    with pytest.raises(BackendError):
        store.move(None, FIRST)
    assert store.pointer() == (FIRST if len(fates) > 1 else None)


def test_swap_that_came_late_is_seen_as_done() -> None:
    """The first attempt was done after all: the second one is refused, and the pointer is what was wanted."""
    store, _ = hbase("lost", "refused")
    with pytest.raises(BackendError):
        store.move(None, FIRST)

    assert not store.move(None, FIRST)
    assert store.pointer() == FIRST
    assert store.move(FIRST, SECOND)


def test_rows_of_another_version_are_damaged(tmp_path: Path) -> None:
    store, gateway = hbase()
    gateway.tables[TABLES.checkpoints][keys.checkpoint_key(1, 7, "a")] = {CHECKPOINT_COLUMN: (b"\2" + bytes(9), 1)}
    with pytest.raises(CorruptRecordError, match=r"damaged row of a checkpoint \(format version 2"):
        list(store.rows(1))

    database = open_database(tmp_path / "checkpoints.db", SCHEMA, ManualClock(), pytest.fail)
    with database.transaction() as connection:
        connection.execute("INSERT INTO checkpoint VALUES (1, 7, 'a', ?)", (b"\2" + bytes(9),))
    sqlite: CheckpointStore = SqliteCheckpoints(database)
    with pytest.raises(CorruptRecordError, match=r"damaged row of a checkpoint \(format version 2"):
        list(sqlite.rows(1))
    sqlite.close()


def test_job_writes_a_file_that_a_hub_has_open(tmp_path: Path) -> None:
    """Each in a process of its own; neither waits for the other."""
    path = tmp_path / "checkpoints.db"
    job = SqliteCheckpoints(open_database(path, SCHEMA, ManualClock(), pytest.fail))
    hub = SqliteCheckpoints(open_database(path, SCHEMA, ManualClock(), pytest.fail))
    rows = rows_of(1_200)
    job.write(1, rows)
    job.move(None, pointer_to(1, rows))
    reading = hub.rows(1)
    first = next(reading)

    job.write(2, rows)
    assert job.move(pointer_to(1, rows), pointer_to(2, rows))

    assert [first, *reading] == rows
    assert hub.pointer() == pointer_to(2, rows)
    for store in (job, hub):
        store.close()
