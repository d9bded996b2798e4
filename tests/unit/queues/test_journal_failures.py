"""The queues with a journal: a disk that is full or fails, and errors at any moment."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from iothub.base.errors import BackendError
from iothub.testing.clock import ManualClock
from iothub_services.queues.journal import segments, tables
from iothub_services.queues.journal.decoding import Scan
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    DueRecord,
    Inbound,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
    TenantUsage,
)
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.sqlite.database import open_database
from tests.support.journaled_queues import MANY, TENANT, Open, append, bodies, made, rows
from tests.support.servers.losing_disk import LosingDisk, abandon


def test_full_disk_refuses_before_anything_is_decided(
    opened: Open, disk: LosingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SEGMENT_RECORDS", 2)
    store = opened()
    made(store, 1)
    append(store, b"a", b"b")
    disk.free = 1 << 20

    with pytest.raises(BackendError, match="no room for another segment") as raised:
        append(store, b"c")

    assert not raised.value.is_written
    assert (bodies(store), store.tails([1])) == ([b"a", b"b"], {1: 2})
    disk.free = 2 << 20
    append(store, b"c")
    assert bodies(store) == [b"a", b"b", b"c"]
    store.close()


def test_tenants_sums_are_told_with_each_group_and_after_a_failure(opened: Open, disk: LosingDisk) -> None:
    told: list[tuple[int, TenantUsage]] = []
    store = opened(lambda tenant_id, usage: told.append((tenant_id, usage)))
    made(store, 1)
    append(store, b"abc")
    disk.failures = 1.0

    with pytest.raises(BackendError):
        append(store, b"defg")

    disk.failures = 0.0
    store.apply([Move(MoveKind.ACK, 1, 1, 1)])
    assert told[0] == (TENANT, TenantUsage(1, 3))
    assert told[-1] == (TENANT, TenantUsage(0, 0))
    assert store.tenant_usage(TENANT) == TenantUsage(0, 0)
    store.close()


def test_nobody_waits_while_a_failed_group_is_read_back(
    opened: Open, disk: LosingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    made(store, 1)
    append(store, b"a")
    seen: list[str] = []
    scan = segments.scan

    def look(data: bytes, mark: bytes) -> Scan:
        def read() -> None:
            try:
                bodies(store)
            except BackendError as error:
                seen.append(str(error))

        reader = Thread(target=read)
        reader.start()
        reader.join()
        return scan(data, mark)

    monkeypatch.setattr(segments, "scan", look)
    disk.failures = 1.0
    with pytest.raises(BackendError):
        append(store, b"b")

    assert seen == ["queues.db: queues are being read back from the journal"]
    assert bodies(store) == [b"a"]
    disk.failures = 0.0
    store.close()


def test_start_whose_commit_fails_says_why(opened: Open, tmp_path: Path, disk: LosingDisk) -> None:
    """Two segments are there: the hub was killed inside a checkpoint."""
    store = opened()
    made(store, 1)
    append(store, b"a")
    store._journal.next_segment()
    abandon(store)
    database = open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail)

    def fail(_connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    database.before_commit.append(fail)
    with pytest.raises(BackendError, match="disk is full"):
        JournaledQueues(database, pytest.fail, disk=disk, segment_bytes=65_536)
    database.close()

    store = opened()
    assert bodies(store) == [b"a"]
    store.close()


def full_while(store: JournaledQueues, read: Callable[[], object]) -> None:
    """Let a read that writes meet a full disk: SQLite ends the transaction by itself."""
    connection = store._database.writer
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(BackendError, match="full"):
        read()
    connection.execute(f"PRAGMA max_page_count={1 << 30}")


def test_read_that_meets_a_full_disk_loses_nothing(opened: Open) -> None:
    store = opened(segment_bytes=1 << 20)
    made(store, *range(1, 50))
    store.put_into_tables()
    append(store, b"acknowledged")
    store.expire_unsent(1, [DueRecord(TENANT, 1, 1)])  # it is in the transaction now, and nowhere in memory
    for queue_id in range(1, 50):
        store.claim(queue_id, b"r" * 8_000)

    full_while(store, lambda: store.list_queues(TENANT))

    with pytest.raises(BackendError, match="read back from the journal") as raised:
        bodies(store, epoch=2)  # that is the writing thread's, at the latest when it has nothing else to do
    assert raised.value.retryable
    store.idle()
    assert bodies(store, epoch=2) == [b"acknowledged"]
    append(store, b"next")
    store.put_into_tables()
    abandon(store)
    store = opened(segment_bytes=1 << 20)
    assert (bodies(store, epoch=2), store.stats(40).epoch) == ([b"acknowledged", b"next"], 2)
    store.close()


def test_read_that_fails_while_a_group_is_written_does_not_lose_the_group(opened: Open, disk: LosingDisk) -> None:
    """What is read back has the group only if it was durable then."""
    store = opened(segment_bytes=1 << 20)
    made(store, *range(1, 50))
    store.put_into_tables()
    for queue_id in range(2, 50):
        store.claim(queue_id, b"r" * 8_000)

    def sync(descriptor: int) -> None:
        del disk.sync  # type: ignore[method-assign]
        full_while(store, lambda: store.list_queues(TENANT))
        disk.sync(descriptor)

    disk.sync = sync  # type: ignore[method-assign]
    append(store, b"durable")

    assert bodies(store) == [b"durable"]
    append(store, b"next")
    assert bodies(store) == [b"durable", b"next"]
    store.close()


def test_read_that_fails_within_a_group_fails_the_group(opened: Open) -> None:
    """What the group has decided before is no longer in memory."""
    store = opened(segment_bytes=1 << 20)
    made(store, *range(1, 50))
    store.put_into_tables()
    for queue_id in range(2, 50):
        store.claim(queue_id, b"r" * 8_000)

    def group() -> None:
        with store.group():
            append(store, b"refused")
            full_while(store, lambda: store.list_queues(TENANT))

    with pytest.raises(BackendError, match="a read of this group has failed") as raised:
        group()

    assert not raised.value.is_written
    append(store, b"done")
    assert [(each.position, each.body) for each in store.read(1, 1, 0, MANY, MANY).records] == [(1, b"done")]
    store.close()


def test_error_of_any_kind_leaves_nothing_decided(
    opened: Open, disk: LosingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a record that cannot be written, before or in its group's write."""
    store = opened()
    made(store, 1)
    with pytest.raises((struct.error, OverflowError)):  # the plain and the compiled twin
        store.append([Append(b"", b"refused", -1, (Delivery(1, 1),))])

    def fail(_descriptor: int) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync", fail)
        with pytest.raises(MemoryError):
            append(store, b"refused")

    append(store, b"good")
    assert bodies(store) == [b"good"]
    abandon(store)
    store = opened()
    assert bodies(store) == [b"good"]
    store.close()


def test_folder_is_durable_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    database = open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail)
    store = JournaledQueues(database, pytest.fail, segment_bytes=65_536)

    assert synced.index(tmp_path) < synced.index(tmp_path / "queues.journal")
    store.close()


def test_deleted_tenant_leaves_the_tables_once_the_disk_has_room(
    opened: Open, disk: LosingDisk, tmp_path: Path
) -> None:
    store = opened()
    made(store, 1)
    store.probe()
    disk.free = 1
    store.drop_tenant(TENANT)
    assert rows(tmp_path, "queue") == 1

    disk.free = 1 << 40
    store.idle()

    assert rows(tmp_path, "queue") == 0
    store.close()


def test_append_whose_queue_cannot_be_read_has_done_nothing(opened: Open, disk: LosingDisk) -> None:
    """Before its first record: its repeat is no duplicate, and no queue has counted it."""
    store = opened()
    made(store, 1)
    store.create(TENANT, 2, QueueLimits(2, 0, Overflow.DROP_OLDEST))
    store.claim(2, b"reader")
    append(store, b"1", b"2", queue_ids=(2,))
    store.probe()
    message = Append(b"", b"3", 0, (Delivery(1, 1), Delivery(2, 1)), Inbound(1, 1, 7))
    disk.read_failures = 1.0
    with pytest.raises(BackendError):
        store.append([message])
    disk.read_failures = 0.0

    assert store.append([message]) == [Appended((1, 3), dropped=((2, 1),))]
    assert (bodies(store), bodies(store, 2)) == ([b"3"], [b"2", b"3"])
    assert store.tenant_usage(TENANT) == TenantUsage(3, 3)
    store.close()


def test_expired_messages_that_cannot_be_read_expire_later(opened: Open, disk: LosingDisk) -> None:
    store = opened()
    made(store, 1)
    store.append([Append(b"", b"a", 1_000, (Delivery(1, 1),))])
    store.probe()
    disk.read_failures = 1.0
    with pytest.raises(BackendError):
        store.expire(2_000, 10)
    disk.read_failures = 0.0
    append(store, b"b")

    assert store.expire(2_000, 10).removed == (DueRecord(TENANT, 1, 1),)
    assert bodies(store) == [b"b"]
    store.close()
