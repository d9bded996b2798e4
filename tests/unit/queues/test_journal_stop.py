"""What a stop leaves in the journal, and what becomes of it at the next start, with a journal or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.config.datadir import DataDir
from iothub.hub.stores.embedded import OwnFiles
from iothub.testing.clock import ManualClock
from iothub_services.queues.journal import tables
from iothub_services.queues.journal.segments import is_left
from iothub_services.queues.port import QueueStore
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import Database, Schema, open_database
from tests.support.journaled_queues import append, bodies, made, rows

MESSAGES = [b"%d" % number for number in range(30)]


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """Of a hub for which thirty messages are many."""
    monkeypatch.setattr(tables, "MOVED_AT_STOP", len(MESSAGES) - 1)
    return DataDir(tmp_path)


def queues(data_dir: DataDir, *, has_journal: bool) -> QueueStore:
    def open_file(path: Path, schema: Schema) -> Database:
        return open_database(path, schema, ManualClock(), pytest.fail)

    return OwnFiles(data_dir, open_file, pytest.fail, journal_bytes=has_journal << 30).queues()


def stopped_with(data_dir: DataDir, messages: list[bytes]) -> None:
    store = queues(data_dir, has_journal=True)
    made(store, 1)
    append(store, *messages)
    store.close()


def test_few_messages_are_in_the_tables_after_a_stop(data_dir: DataDir, tmp_path: Path) -> None:
    stopped_with(data_dir, MESSAGES[1:])

    assert rows(tmp_path, "ref") == len(MESSAGES) - 1
    assert not is_left(data_dir.queues)


def test_many_messages_stay_in_the_journal_and_are_there_after_the_next_start(
    data_dir: DataDir, tmp_path: Path
) -> None:
    """A stop takes no longer than a commit; the next start reads them."""
    stopped_with(data_dir, MESSAGES)
    assert rows(tmp_path, "ref") == 0

    store = queues(data_dir, has_journal=True)

    assert bodies(store) == MESSAGES
    store.close()


def test_start_without_a_journal_moves_what_a_stop_has_left(data_dir: DataDir, tmp_path: Path) -> None:
    stopped_with(data_dir, MESSAGES)

    store = queues(data_dir, has_journal=False)

    assert type(store) is SqliteQueues
    assert bodies(store) == MESSAGES
    assert not is_left(data_dir.queues)
    store.close()


def test_start_without_a_journal_is_refused_while_the_journal_cannot_be_moved(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that stayed in the journal would be missing, and come back behind others later."""
    stopped_with(data_dir, MESSAGES)

    def fail(*_: object) -> None:
        raise BackendError("the disk is full", retryable=True)

    with monkeypatch.context() as patched:
        patched.setattr(tables.Flush, "slice", fail)
        with pytest.raises(BackendError, match="the disk is full"):
            queues(data_dir, has_journal=False)

    store = queues(data_dir, has_journal=False)
    assert bodies(store) == MESSAGES
    store.close()
