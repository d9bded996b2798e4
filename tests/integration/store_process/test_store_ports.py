"""What a worker sees of files that others write, or that are damaged, and of a store process that stops."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records.events import Subject, session_discarded
from iothub.records.state import decode_state
from iothub.testing.checkpoint_contract import pointer_to, rows_of
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import TENANT, made, one
from iothub_services.events.port import NOWHERE, DamagedEvent
from iothub_services.queues.port import Appended, JournalFigures, TenantUsage
from iothub_services.sqlite.database import open_database
from iothub_services.state.port import StateWrite, StoredState
from iothub_services.state.sqlite.checkpoints import SCHEMA, SqliteCheckpoints
from iothub_services.store_process.checkpoints import RemoteCheckpoints
from iothub_services.store_process.events import RemoteEvents
from iothub_services.store_process.queues import RemoteQueues, UsageChanges
from iothub_services.store_process.states import RemoteStates
from tests.support.hubs.store_processes import StoreProcess, store_process
from tests.support.waiting import until


def refuse(word: str, text: str) -> None:
    """Raise no alarm."""
    raise AssertionError(f"{word}: {text}")


def changed(file: Path, statement: str) -> None:
    """Change a file behind everybody's back."""
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def test_checkpoints_are_seen_as_soon_as_a_job_has_made_the_file(tmp_path: Path) -> None:
    """Nobody makes it by reading."""
    with store_process(tmp_path) as process:
        checkpoints = RemoteCheckpoints(process.path)
        assert (checkpoints.pointer(), list(checkpoints.rows(1)), checkpoints.versions()) == (None, [], [])
        assert not (tmp_path / "checkpoints.db").exists()
        job = SqliteCheckpoints(open_database(tmp_path / "checkpoints.db", SCHEMA, ManualClock(), refuse))
        job.write(1, rows_of(3))
        job.move(None, pointer_to(1, rows_of(3)))
        job.close()

        assert list(checkpoints.rows(1)) == rows_of(3)
        assert checkpoints.pointer() == pointer_to(1, rows_of(3))
        changed(tmp_path / "checkpoints.db", "UPDATE pointer SET value = x'ff'")
        with pytest.raises(CorruptRecordError):
            checkpoints.pointer()
        checkpoints.close()


def test_damaged_event_is_found_in_the_worker_that_reads_it(tmp_path: Path) -> None:
    """Where it is counted; the events beside it are read."""
    with store_process(tmp_path) as process:
        log = RemoteEvents(process.path)
        log.append([session_discarded(Subject(TENANT, "client", 3, number), reason="x") for number in range(3)])
        changed(tmp_path / "events.db", "UPDATE session_event SET value = x'ff' WHERE offset = 2")

        page = log.read(NOWHERE, 10)

        assert [isinstance(entry, DamagedEvent) for entry in page] == [False, True, False]
        log.close()


@pytest.mark.parametrize("damage", ["record = 'text'", "record = 7", "offset = 'x'"])
def test_damaged_state_is_a_record_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    """Whatever of its row is damaged; the others are read."""
    with store_process(tmp_path) as process:
        states = RemoteStates(process.path)
        states.apply((5,), [StateWrite(1, "a", 5, b"1"), StateWrite(1, "b", 5, b"2")])
        changed(tmp_path / "state.db", f"UPDATE session SET {damage} WHERE client_id = 'a'")

        first, second = states.load()

        assert (first.client_id, second) == ("a", StoredState(1, "b", 5, b"2"))
        with pytest.raises(CorruptRecordError):
            decode_state(first.record)
        assert states.get(1, "a") == first
        states.close()


def test_what_was_accepted_is_committed_and_answered_before_the_store_process_stops(tmp_path: Path) -> None:
    """What comes after it is refused as a store that is away."""
    process = StoreProcess(tmp_path)
    queues, answers = RemoteQueues(process.path), []
    made(queues, 1)
    hold = process.commits.hold(5.0, 60.0)
    appending = threading.Thread(target=lambda: answers.extend(queues.append([one(1, 1)])))
    appending.start()
    process.wait_for(1)
    closing = threading.Thread(target=process.close)
    closing.start()
    process.commits.release(hold)
    closing.join()
    appending.join()

    assert answers == [Appended((1,))]
    with pytest.raises(BackendError, match="is not reached") as raised:
        queues.append([one(1, 2)])
    assert not raised.value.is_written
    queues.close()


def test_each_connection_hears_of_a_tenants_sums_once_for_each_change() -> None:
    """However many tenants there are, only those that have changed are said."""
    usage = UsageChanges()
    for tenant_id in (1, 2, 3):
        usage.changed(tenant_id, made_usage(tenant_id))
    seen, everything = usage.since(0)
    usage.changed(1, made_usage(9))
    seen, changes = usage.since(seen)

    assert sorted(everything) == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    assert changes == [(1, 9, 9)]
    assert usage.since(seen) == (seen, [])


def made_usage(count: int) -> TenantUsage:
    return TenantUsage(count, count)


def test_worker_hears_what_the_journal_is_doing(tmp_path: Path) -> None:
    """With the sums of tenants: a metric of the machine, whichever worker is asked."""
    with store_process(tmp_path, has_journal=True) as process:
        queues = RemoteQueues(process.path)
        assert queues.journal_figures == JournalFigures()
        made(queues, 1)

        queues.append([one(1, 1)])

        assert queues.journal_figures == JournalFigures(1 << 20, 1, 0)
        queues.close()


def test_worker_that_writes_nothing_hears_that_the_file_has_room(tmp_path: Path) -> None:
    """Its publishers may wait for that: any answer says so, also one that changes no sum."""
    with store_process(tmp_path) as process:
        reader, writer = RemoteQueues(process.path), RemoteQueues(process.path)
        made(writer, 1)
        writer.append([one(1, number, body=b"x" * 20_000) for number in range(1, 101)])
        assert reader.tails([1]) == {1: 100}
        assert reader.journal_figures.reusable_bytes == 0

        writer.purge(1)
        until(lambda: reader.tails([1]) and reader.journal_figures.reusable_bytes > 1_000_000, "what is empty")
        reader.close()
        writer.close()
