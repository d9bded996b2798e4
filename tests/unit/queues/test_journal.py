"""The queues with a journal: what is in it and what is in the tables.

`iothub_services.queues.journal.young`, `iothub_services.queues.journal.flush` and `iothub_services.queues.journal.redo` are tested through them.
"""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from iothub.config.datadir import DataDir
from iothub.hub.stores.embedded import OwnFiles
from iothub.testing.clock import ManualClock
from iothub_services.queues.journal import tables
from iothub_services.queues.journal.segments import MOST_READING
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import (
    Append,
    Delivery,
    DueRecord,
    Move,
    MoveKind,
    QueueStore,
)
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite import request_table
from iothub_services.sqlite.database import Database, Schema, open_database
from tests.support.journaled_queues import MANY, TENANT, Open, append, bodies, made, rows
from tests.support.servers.losing_disk import LosingDisk, abandon


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


def test_nobody_reads_the_first_message_of_a_queue_before_it_is_durable(opened: Open, disk: LosingDisk) -> None:
    """The queue has nothing in memory yet."""
    store = opened()
    made(store, 1)
    store.probe()
    seen: list[object] = []

    def look(descriptor: int) -> None:
        del descriptor
        seen.append((bodies(store), store.tails([1])))

    disk.sync = look  # type: ignore[method-assign]
    append(store, b"not yet")

    assert seen == [([], {1: 0})]
    del disk.sync  # type: ignore[method-assign]
    assert bodies(store) == [b"not yet"]
    store.close()


def test_deadlines_of_messages_that_are_gone_take_no_memory(opened: Open) -> None:
    """Nor do those of earlier commits, behind which the queues have nothing in memory."""
    store = opened(segment_bytes=1 << 20)
    queues = range(1, 11)
    made(store, *queues)
    for position in range(1, 301):
        deliveries = tuple(Delivery(queue_id, 1) for queue_id in queues)
        store.append([Append(b"", b"x", (1 << 40) + position, deliveries)])
        store.apply([Move(MoveKind.ACK, queue_id, 1, position) for queue_id in queues])
        if not position % 2:
            store.probe()

    assert len(store._table.deadlines) <= 1_100
    store.append([Append(b"", b"x", 1_000, (Delivery(1, 1),))])
    assert store.expire(2_000, 10).removed == (DueRecord(TENANT, 1, 301),)
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


def test_figures_say_what_is_on_the_disk_and_what_is_in_no_table(opened: Open) -> None:
    store = opened()
    made(store, 1)
    append(store, b"a", b"b")

    before = store.journal_figures
    store.probe()
    after = store.journal_figures
    store.put_into_tables()

    assert (before.size_bytes, before.messages) == (65_536, 2)
    assert (after.size_bytes, after.messages) == (2 * 65_536, 2)
    assert after.checkpoint_us > 0
    assert store.journal_figures.messages == 0
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


def test_few_segments_are_open_however_many_there_are(opened: Open) -> None:
    """Connections need descriptors as well."""
    store = opened(segment_bytes=4_096)
    made(store, 1)
    wanted = [b"%d" % number for number in range(40)]
    for body in wanted:
        append(store, body)
        store.probe()

    assert bodies(store) == wanted
    assert (len(store._journal.numbers()), len(store._journal._reading)) == (41, MOST_READING)
    abandon(store)

    again = opened(segment_bytes=4_096)
    assert bodies(again) == wanted
    assert len(again._journal._reading) == MOST_READING
    again.close()
