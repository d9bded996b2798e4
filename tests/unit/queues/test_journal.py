"""The queues with a journal: what is where, what damage does, and what a start finds.

`iothub_services.queues.journal.young`, `iothub_services.queues.journal.flush` and `iothub_services.queues.journal.redo` are tested through them.
"""

from __future__ import annotations

import os
import random
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from iothub.base.errors import BackendError
from iothub.config.datadir import DataDir
from iothub.hub.stores.embedded import OwnFiles
from iothub.testing.clock import ManualClock
from iothub_services.queues.journal import segments, tables
from iothub_services.queues.journal.records import Scan
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import (
    Append,
    Delivery,
    DueRecord,
    Move,
    MoveKind,
    Place,
    QueueLimits,
    QueueStore,
    TenantUsage,
)
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite import request_table
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import Database, Schema, open_database
from iothub_services.sqlite.salvage import SALVAGED
from tests.support.servers.losing_disk import LosingDisk, abandon

TENANT = 3
MANY = 1_000_000

Open = Callable[..., JournaledQueues]


@pytest.fixture
def disk() -> LosingDisk:
    return LosingDisk(random.Random(1))


@pytest.fixture
def alarms() -> list[str]:
    return []


@pytest.fixture
def opened(tmp_path: Path, disk: LosingDisk, alarms: list[str]) -> Open:
    def on_alarm(word: str, text: str) -> None:
        alarms.append(f"{word}: {text}")

    def open_queues(*args: object, commits: CommitLock | None = None, **kwargs: object) -> JournaledQueues:
        database = open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), on_alarm, commits)
        options = {"disk": disk, "segment_bytes": 65_536, **kwargs}
        return JournaledQueues(database, on_alarm, *args, **options)  # type: ignore[arg-type]

    return open_queues


def append(store: QueueStore, *bodies: bytes, queue_ids: tuple[int, ...] = (1,), qos: int = 1) -> None:
    deliveries = tuple(Delivery(queue_id, qos) for queue_id in queue_ids)
    store.append([Append(b"", body, 0, deliveries) for body in bodies])


def made(store: QueueStore, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        store.create(TENANT, queue_id, QueueLimits())
        store.claim(queue_id, b"reader")


def bodies(store: QueueStore, queue_id: int = 1, epoch: int = 1, after: int = 0, count: int = MANY) -> list[bytes]:
    return [record.body for record in store.read(queue_id, epoch, after, count, MANY).records]


def rows(tmp_path: Path, table: str) -> int:
    """Count what is committed."""
    with closing(sqlite3.connect(tmp_path / "queues.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_message_that_is_acknowledged_soon_never_reaches_the_tables(opened: Open, tmp_path: Path) -> None:
    store = opened()
    made(store, 1)
    before = store._bodies.next_id

    append(store, b"a", b"b", b"c")
    store.apply([Move(MoveKind.ACK, 1, 1, 2)])
    store.put_into_tables()

    assert (store._bodies.next_id - before, rows(tmp_path, "body"), bodies(store)) == (1, 1, [b"c"])
    store.close()


def test_body_of_several_queues_is_stored_once(opened: Open, tmp_path: Path) -> None:
    store = opened()
    made(store, 1, 2, 3)
    append(store, b"to all", queue_ids=(1, 2, 3))
    store.apply([Move(MoveKind.ACK, 2, 1, 1)])

    store.put_into_tables()

    assert (rows(tmp_path, "body"), rows(tmp_path, "ref")) == (1, 2)
    store.apply([Move(MoveKind.ACK, queue_id, 1, 1) for queue_id in (1, 3)])
    store.close()
    assert rows(tmp_path, "body") == 0


def test_page_begins_in_the_tables_and_ends_in_the_journal(opened: Open) -> None:
    store = opened()
    made(store, 1)
    append(store, b"1", b"2", b"3")
    store.put_into_tables()
    append(store, b"4", b"5", b"6")

    assert bodies(store) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert bodies(store, after=1, count=3) == [b"2", b"3", b"4"]
    assert bodies(store, after=4) == [b"5", b"6"]
    page = store.read(1, 1, 2, MANY, 2)
    assert ([record.body for record in page.records], page.upto, page.is_short) == ([b"3", b"4"], 4, False)
    store.close()


def test_nobody_reads_what_is_not_durable(opened: Open, disk: LosingDisk) -> None:
    """The page that is read while the group is being written ends before it."""
    store = opened()
    made(store, 1)
    append(store, b"durable")
    seen: list[object] = []

    def look(descriptor: int) -> None:
        del descriptor
        seen.append((bodies(store), store.tails([1])))

    disk.sync = look  # type: ignore[method-assign]
    append(store, b"not yet")

    assert seen == [([b"durable"], {1: 1})]
    del disk.sync  # type: ignore[method-assign]
    assert bodies(store) == [b"durable", b"not yet"]
    store.close()


def test_full_segment_is_put_into_the_tables_and_deleted(opened: Open, disk: LosingDisk) -> None:
    """The oldest, when there are as many as there may be."""
    store = opened(segment_bytes=16_384, journal_bytes=4 * 16_384)
    made(store, 1)

    most = 0
    for number in range(100):
        append(store, number.to_bytes(2) * 500)
        most = max(most, len(disk.names(Path())))

    assert most == 5
    assert bodies(store) == [number.to_bytes(2) * 500 for number in range(100)]
    assert store.stats(1).bytes == 100_000
    assert 0 < store._table.count < 60
    store.close()


def test_many_young_messages_are_put_into_the_tables_before_the_segment_is_full(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "YOUNG_MESSAGES", 9)
    store = opened()
    made(store, 1)
    append(store, *[b"x"] * 10)
    store.probe()

    append(store, b"y")

    assert rows(tmp_path, "ref") == 10
    store.close()


def test_data_directory_without_a_journal_gets_one_and_loses_it_again(tmp_path: Path) -> None:
    """A file of release 0.1.0; then the setting is turned on and off, and the hub is killed between."""
    later = ("TABLE journal", "COLUMN moved")
    statements = tuple(each for each in SCHEMA.statements if not any(word in each for word in later))
    old = Schema("queues", 1, SCHEMA.tables, statements)
    with closing(open_database(tmp_path / "queues.db", old, ManualClock(), pytest.fail)) as database:
        database.writer.execute("INSERT INTO queue VALUES (1, 3, 7, 6, 1, 0, 1, 3, 0, 0, 0, 0, x'')")
        database.writer.execute("INSERT INTO body VALUES (1, x'6f6c64')")
        database.writer.execute("INSERT INTO ref VALUES (1, 7, 1, 3, 1, 0, 0, NULL, NULL, 0)")
    data_dir = DataDir(tmp_path)

    def queues(*, has_journal: bool) -> QueueStore:
        def open_file(path: Path, schema: Schema) -> Database:
            return open_database(path, schema, ManualClock(), pytest.fail)

        return OwnFiles(data_dir, open_file, pytest.fail, journal_bytes=has_journal << 30).queues()

    journaled = queues(has_journal=True)
    append(journaled, b"new")
    assert isinstance(journaled, JournaledQueues)
    abandon(journaled)

    plain = queues(has_journal=False)

    assert type(plain) is SqliteQueues
    assert bodies(plain) == [b"old", b"new"]
    assert not list((tmp_path / "queues.journal").iterdir())
    plain.close()


def test_hold_finds_everything_in_the_tables(opened: Open, tmp_path: Path) -> None:
    """A backup reads the file alone."""
    commits = CommitLock()
    store = opened(commits=commits)
    made(store, 1)
    append(store, b"a", b"b")
    assert rows(tmp_path, "ref") == 0

    hold = commits.hold(1.0, 1.0)

    assert rows(tmp_path, "ref") == 2
    assert commits.release(hold)
    append(store, b"c")
    assert rows(tmp_path, "ref") == 2
    store.close()


def test_damage_in_the_middle_keeps_what_is_whole(opened: Open, disk: LosingDisk, alarms: list[str]) -> None:
    """What the lost records may have done is not done by others: positions and epochs go on above."""
    store = opened()
    made(store, 1)
    for body in (b"first", b"second", b"third"):
        append(store, body)
    abandon(store)
    (name,) = disk.names(Path())
    disk.damage(name, disk.read(Path(name)).index(b"second"))

    store = opened()

    assert [alarm.partition(":")[0] for alarm in alarms] == ["queues_corrupt"]
    assert f"{name.partition('.')[0]}.damaged" in disk.names(Path())
    assert store.needs_rebuild
    store.rebuild([Place(TENANT, 1, 1), Place(TENANT, 9, 1)], 5_000_000)
    claim = store.claim(1, b"reader")
    assert bodies(store, epoch=claim.epoch) == [b"first", b"third"]
    assert claim.epoch > 100
    assert claim.tail > 100_000
    assert claim.reserved == claim.tail
    assert store.existing([1, 9]) == {1, 9}
    store.close()
    alarms.clear()
    opened().close()
    assert alarms == []


def test_damage_of_a_segment_leaves_the_others_whole(opened: Open, disk: LosingDisk, alarms: list[str]) -> None:
    """The one in the middle is put aside."""
    store = opened()
    made(store, 1, 2)
    for body in (b"first", b"second", b"third"):
        append(store, body, queue_ids=(1, 2))
        append(store, body + b" too", queue_ids=(2,))
        store.probe()
    abandon(store)
    names = sorted(disk.names(Path()))
    disk.damage(names[1], disk.read(Path(names[1])).index(b"second"))

    store = opened()

    assert [alarm.partition(" of the")[0] for alarm in alarms] == ["queues_corrupt: segment 2"]
    assert "00000000000000000002.damaged" in disk.names(Path())
    store.rebuild([Place(TENANT, 1, 1), Place(TENANT, 2, 1)], 5_000_000)
    epochs = [store.claim(queue_id, b"reader").epoch for queue_id in (1, 2)]
    assert bodies(store, 1, epochs[0]) == [b"first", b"third"]
    assert bodies(store, 2, epochs[1]) == [b"first", b"first too", b"second too", b"third", b"third too"]
    assert [(each.messages, each.bytes) for each in store.list_queues(TENANT)] == [(2, 10), (5, 38)]
    store.close()


def test_newest_segment_that_is_not_there_is_told(opened: Open, disk: LosingDisk, alarms: list[str]) -> None:
    """No later one names it: the tables do."""
    store = opened()
    made(store, 1)
    append(store, b"kept")
    store.probe()
    append(store, b"lost")
    abandon(store)
    disk.remove(Path(max(disk.names(Path()))))

    store = opened()

    assert alarms == ["queues_corrupt: segment 2 of the queues' journal is missing: what only it had is lost"]
    store.rebuild([Place(TENANT, 1, 1)], 5_000_000)
    assert bodies(store, epoch=store.claim(1, b"reader").epoch) == [b"kept"]
    store.close()
    alarms.clear()
    opened().close()
    assert alarms == []


def test_record_that_breaks_while_the_hub_runs_leaves_the_others_whole(
    opened: Open, disk: LosingDisk, alarms: list[str]
) -> None:
    """What the flush cannot read goes into the tables as it is: a body has a checksum of its own."""
    store = opened()
    made(store, 1)
    append(store, b"first", b"second", b"third")
    (name,) = disk.names(Path())
    disk.damage(name, disk.read(Path(name)).index(b"second") - 50)

    store.put_into_tables()

    assert bodies(store) == [b"first", b"second", b"third"]
    assert store._table.count == 0
    assert [alarm.partition(" of the")[0] for alarm in alarms] == ["queues_corrupt: segment 1"]
    assert "00000000000000000001.damaged" in disk.names(Path())
    store.close()


def test_many_messages_of_many_sizes_are_read_from_their_segments(opened: Open) -> None:
    """Alone and in runs, with subscription identifiers and expiry, and larger than what is read at once."""
    store = opened(segment_bytes=1 << 20, journal_bytes=1 << 30)
    made(store, 1, 2)
    chance = random.Random(3)
    expected = []
    for number in range(300):
        body = chance.randbytes(chance.choice((0, 1, 30, 5_000, 70_000)))
        identifiers = tuple(range(chance.choice((0, 0, 2, 1_500))))
        queue_ids = chance.choice(((1,), (2,), (1, 2)))
        store.append([Append(b"", body, number, tuple(Delivery(each, 1, 3, identifiers) for each in queue_ids))])
        if 1 in queue_ids:
            expected.append((number, identifiers, body))
    after, found = 0, []
    while page := store.read(1, 1, after, 7, 200_000).records:
        found += page
        after = page[-1].position

    assert [(each.expires_at_ms, each.subscription_ids, each.body) for each in found] == expected
    assert {(each.qos, each.flags) for each in found} == {(1, 3)}
    store.put_into_tables()
    assert store.read(1, 1, 0, MANY, 1 << 30).records == found
    abandon(store)
    store = opened(segment_bytes=1 << 20)
    assert store.read(1, 1, 0, MANY, 1 << 30).records == found
    store.close()


def test_cut_tail_is_no_damage(opened: Open, disk: LosingDisk) -> None:
    store = opened()
    made(store, 1)
    append(store, b"kept")
    end = store._journal._at
    abandon(store)
    (file,) = disk._files.values()
    for content in (file.seen, file.durable):
        content[end : end + 3] = b"\x01\x02\x03"

    store = opened()

    assert bodies(store) == [b"kept"]
    store.close()


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


def test_answers_to_other_processes_are_of_the_group_that_gave_them(opened: Open) -> None:
    store = opened()
    made(store, 1)
    store.put_into_tables()
    store._database.writer.execute(request_table.CREATE)  # goes with the transaction, as with a damaged file
    with store.group():
        append(store, b"a")
        store.keep_answers([(b"client", 7, b"answer", 5)])
    abandon(store)
    again = opened()
    assert again._database.writer.execute("SELECT * FROM request").fetchall() == [(b"client", 7, b"answer", 5)]
    again.close()


def test_positions_of_a_queue_that_was_moved_out_go_on_in_the_journal(opened: Open, tmp_path: Path) -> None:
    """`Table` has a run without gaps: what is taken behind a gap begins a new one. A start finds one behind a lost record."""
    store = opened()
    made(store, 1)
    append(store, b"a")
    row = store._rows.touch(1)
    assert row is not None
    row.tail = 4
    append(store, b"b")

    assert bodies(store) == [b"a", b"b"]
    assert (row.young_messages, store._table.count) == (1, 1)
    store.put_into_tables()
    assert bodies(store) == [b"a", b"b"]
    store.close()


def test_messages_of_the_group_itself_are_moved_into_the_tables(opened: Open) -> None:
    """They are not in the segment yet; those beside them are."""
    store = opened()
    made(store, 1)
    append(store, b"written")
    with store.group():
        append(store, b"about to be")
        store.expire_unsent(1, [DueRecord(TENANT, 1, 2)])

    assert store._table.count == 0
    assert bodies(store) == [b"written", b"about to be"]
    store.close()


def test_missing_segment_is_told_and_its_queues_are_looked_for(
    opened: Open, disk: LosingDisk, alarms: list[str]
) -> None:
    store = opened()
    made(store, 1)
    (name,) = disk.names(Path())
    store._journal.next_segment()  # a checkpoint that does not come to its commit
    abandon(store)
    disk.remove(Path(name))

    store = opened()

    assert alarms == ["queues_corrupt: segment 1 of the queues' journal is missing: what only it had is lost"]
    assert store.needs_rebuild
    store.rebuild([Place(TENANT, 1, 1)], 5_000_000)
    assert store.existing([1]) == {1}
    store.close()


def test_journal_has_messages_of_queues_whose_row_was_lost_in_the_tables(
    opened: Open, tmp_path: Path, alarms: list[str]
) -> None:
    """The tables are what a salvage leaves of a damaged page: they keep the messages until the sessions are known."""
    store = opened()
    made(store, 1, 2, 3)
    append(store, b"old", queue_ids=(1, 2, 3))
    store.put_into_tables()
    append(store, b"new", b"newest", queue_ids=(1, 2, 3))
    store.apply([Move(MoveKind.ACK, 1, 1, 2), Move(MoveKind.RELEASE, 1, 1, 3)])
    store.purge(2)
    append(store, b"after", queue_ids=(2,))
    store.drop(3)
    abandon(store)
    with closing(sqlite3.connect(tmp_path / "queues.db")) as connection, connection:
        connection.execute("DELETE FROM queue")
        connection.execute(f"PRAGMA application_id={SALVAGED}")

    store = opened()
    rebuilt = store.rebuild([Place(TENANT, queue_id, 1) for queue_id in (1, 2, 3)], 5_000_000)

    assert tuple(rebuilt) == (3, 2, 1)
    claims = [store.claim(queue_id, b"reader") for queue_id in (1, 2, 3)]
    assert [bodies(store, queue_id, claim.epoch) for queue_id, claim in zip((1, 2, 3), claims, strict=True)] == [
        [b"newest"],
        [b"after"],
        [],
    ]
    assert claims[0].released == (3,)
    assert alarms == []
    store.close()


def test_rebuild_is_of_its_group(opened: Open, tmp_path: Path) -> None:
    """Other verbs are in it; killed behind it, the hub has both."""
    store = opened()
    made(store, 1, 2)
    append(store, b"kept", queue_ids=(2,))
    store.close()
    with closing(sqlite3.connect(tmp_path / "queues.db")) as connection, connection:
        connection.execute("DELETE FROM queue WHERE id = 2")
        connection.execute(f"PRAGMA application_id={SALVAGED}")
    told: list[tuple[int, TenantUsage]] = []
    store = opened(lambda tenant_id, usage: told.append((tenant_id, usage)))
    append(store, b"first")
    with store.group():
        append(store, b"before")
        store.rebuild([Place(TENANT, 2, 1)], 5_000_000)
        append(store, b"behind", queue_ids=(1, 2))
    assert told[-1] == (TENANT, TenantUsage(5, 27))
    assert not store.needs_rebuild
    abandon(store)

    store = opened()

    assert not store.needs_rebuild
    epoch = store.claim(2, b"reader").epoch
    assert (bodies(store), bodies(store, 2, epoch)) == ([b"first", b"before", b"behind"], [b"kept", b"behind"])
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


def test_many_records_are_put_into_the_tables_before_the_segment_is_full(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start does each of them again."""
    monkeypatch.setattr(tables, "SEGMENT_RECORDS", 20)
    store = opened()
    made(store, 1)
    append(store, b"x")
    before = store._journal.segment

    store.apply([Move(MoveKind.RESERVE, 1, 1, 1)] * 20)
    append(store, b"y")

    assert store._journal.segment == before + 1
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


def test_damaged_segment_is_kept_whenever_the_process_ends(
    opened: Open, tmp_path: Path, disk: LosingDisk, alarms: list[str]
) -> None:
    """The next start deletes what is in the tables."""
    store = opened()
    made(store, 1)
    for body in (b"first", b"second", b"third"):
        append(store, body)
    abandon(store)
    (name,) = disk.names(Path())
    content = disk.read(Path(name))
    disk.damage(name, content.index(b"second"))
    damaged = disk.read(Path(name))
    database = open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail)

    def kill() -> None:
        raise KeyboardInterrupt

    database.after_commit.append(kill)
    with pytest.raises(KeyboardInterrupt):
        JournaledQueues(database, lambda word, _text: alarms.append(word), disk=disk, segment_bytes=65_536)
    database.close()
    disk.crash()

    store = opened()
    for _ in range(3):
        append(store, b"later")
        store.put_into_tables()

    assert alarms == ["queues_corrupt"]
    assert disk.read(Path(f"{name.partition('.')[0]}.damaged")) == damaged
    store.close()


def test_figures_say_what_is_on_the_disk_and_what_is_in_no_table(opened: Open) -> None:
    store = opened()
    made(store, 1)
    append(store, b"a", b"b")

    before = store.journal_figures
    store.put_into_tables()
    after = store.journal_figures

    assert (before.size_bytes, before.messages) == (65_536, 2)
    assert (after.size_bytes, after.messages) == (2 * 65_536, 0)
    assert after.checkpoint_us > 0
    store.close()
    assert store.journal_figures.size_bytes == 0


def test_deleted_tenant_is_in_no_table_when_its_group_is_done(opened: Open, tmp_path: Path) -> None:
    """And its messages when they are swept: nothing is left behind for as long as nobody writes."""
    store = opened()
    made(store, 1)
    append(store, b"a")
    store.probe()

    with store.group():
        store.drop_tenant(TENANT)

    assert rows(tmp_path, "queue") == 0
    while store.idle():
        pass
    assert (rows(tmp_path, "ref"), rows(tmp_path, "body")) == (0, 0)
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
