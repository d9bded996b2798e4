"""The queues with a journal: what damage does, and what a start finds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.testing.clock import ManualClock
from iothub_services.queues.journal.damage import DamageReport
from iothub_services.queues.journal.segments import BROKEN
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import (
    Move,
    MoveKind,
    Place,
    TenantUsage,
)
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.sqlite.database import open_database
from iothub_services.sqlite.salvage import SALVAGED
from tests.support.journaled_queues import TENANT, Open, append, bodies, made
from tests.support.servers.losing_disk import LosingDisk, abandon

LOST = "every whole record was used, what else they had is lost"


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

    assert [alarm.partition(":")[0] for alarm in alarms] == ["queues.journal"]
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

    assert [alarm.partition(";")[0].split(": ")[::2] for alarm in alarms] == [
        ["queues.journal", "segment 2 has broken records"]
    ]
    assert "00000000000000000002.damaged" in disk.names(Path())
    store.rebuild([Place(TENANT, 1, 1), Place(TENANT, 2, 1)], 5_000_000)
    epochs = [store.claim(queue_id, b"reader").epoch for queue_id in (1, 2)]
    assert bodies(store, 1, epochs[0]) == [b"first", b"third"]
    assert bodies(store, 2, epochs[1]) == [b"first", b"first too", b"second too", b"third", b"third too"]
    assert [(each.messages, each.bytes) for each in store.list_queues(TENANT)] == [(2, 10), (5, 38)]
    store.close()


def test_newest_segment_that_is_not_there_is_told(
    opened: Open, disk: LosingDisk, alarms: list[str], tmp_path: Path
) -> None:
    """No later one names it: the tables do."""
    store = opened()
    made(store, 1)
    append(store, b"kept")
    store.probe()
    append(store, b"lost")
    abandon(store)
    disk.remove(Path(max(disk.names(Path()))))

    store = opened()

    assert alarms == [f"queues.journal: {tmp_path / 'queues.journal'}: segment 2 is missing; {LOST}"]
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
    assert [alarm.partition(";")[0].split(": ")[::2] for alarm in alarms] == [
        ["queues.journal", "segment 1 has broken records"]
    ]
    assert "00000000000000000001.damaged" in disk.names(Path())
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


def test_missing_segment_is_told_and_its_queues_are_looked_for(
    opened: Open, disk: LosingDisk, alarms: list[str], tmp_path: Path
) -> None:
    store = opened()
    made(store, 1)
    (name,) = disk.names(Path())
    store._journal.next_segment()  # a checkpoint that does not come to its commit
    abandon(store)
    disk.remove(Path(name))

    store = opened()

    assert alarms == [f"queues.journal: {tmp_path / 'queues.journal'}: segment 1 is missing; {LOST}"]
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

    commit = database.commit

    def kill() -> None:
        commit()
        raise KeyboardInterrupt

    database.commit = kill  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        JournaledQueues(database, lambda word, _text: alarms.append(word), disk=disk, segment_bytes=65_536)
    database.close()
    disk.crash()

    store = opened()
    for _ in range(3):
        append(store, b"later")
        store.put_into_tables()

    assert alarms == ["queues.journal"]
    assert disk.read(Path(f"{name.partition('.')[0]}.damaged")) == damaged
    store.close()


def test_file_that_was_cut_within_its_last_group_is_told(
    opened: Open, disk: LosingDisk, alarms: list[str], tmp_path: Path
) -> None:
    """The group was synced and acknowledged: a crash shortens no file."""
    store = opened()
    made(store, 1)
    append(store, b"kept")
    append(store, b"first of the last", b"second of the last")
    end = store._journal.at
    abandon(store)
    (name,) = disk.names(Path())
    disk.truncate(name, end - 5)

    store = opened()

    assert alarms == [
        f"queues.journal: {tmp_path / 'queues.journal'}: segment 1 was cut to {end - 5} of 65536 bytes; {LOST}; "
        "kept there as 00000000000000000001.damaged"
    ]
    store.rebuild([Place(TENANT, 1, 1)], 5_000_000)
    epoch = store.claim(1, b"reader").epoch
    assert (
        bodies(store, epoch=epoch)
        == [b"kept", b"first of the last", b"second of the last"][: len(bodies(store, epoch=epoch))]
    )
    assert bodies(store, epoch=epoch)[0] == b"kept"
    store.close()
    alarms.clear()
    opened().close()
    assert alarms == []


@pytest.mark.parametrize("left", [0, 10, 300])
def test_file_that_was_cut_anywhere_is_told(opened: Open, disk: LosingDisk, alarms: list[str], left: int) -> None:
    """Down to nothing, behind a commit of the tables that names it."""
    store = opened()
    made(store, 1)
    store.probe()
    append(store, b"lost" * 100)
    abandon(store)
    disk.truncate(max(name for name in disk.names(Path()) if name.endswith(".segment")), left)

    store = opened()

    assert len(alarms) == 1
    assert "segment 2 " in alarms[0]
    assert store.needs_rebuild
    store.close()


def test_earlier_file_that_was_cut_is_told_and_the_store_opens(
    opened: Open, disk: LosingDisk, alarms: list[str]
) -> None:
    store = opened()
    made(store, 1)
    append(store, b"first")
    append(store, b"second")
    end = store._journal.at
    store._journal.next_segment()
    abandon(store)
    disk.truncate(min(disk.names(Path())), end - 100)

    store = opened()

    assert [f"segment 1 was cut to {end - 100} of 65536 bytes" in alarm for alarm in alarms] == [True]
    store.close()


def test_beginning_of_the_newest_segment_in_a_backup_is_no_damage(
    opened: Open, disk: LosingDisk, alarms: list[str]
) -> None:
    """That is all that a backup copies of it."""
    store = opened()
    made(store, 1)
    append(store, b"kept")
    store.probe()
    abandon(store)
    disk.truncate(max(name for name in disk.names(Path()) if name.endswith(".segment")), 256)

    store = opened()

    assert (bodies(store), alarms) == ([b"kept"], [])
    store.close()


def test_damaged_segments_are_all_named(opened: Open, disk: LosingDisk, alarms: list[str], tmp_path: Path) -> None:
    store = opened()
    made(store, 1)
    for body in (b"first", b"second", b"third", b"fourth"):
        append(store, body)
        append(store, b"behind")
        store._journal.next_segment()
    abandon(store)
    names = sorted(disk.names(Path()))
    for name, body in zip(names, (b"first", b"second", b"third"), strict=False):
        disk.damage(name, disk.read(Path(name)).index(body))
    disk.remove(Path(names[3]))

    opened().close()

    assert alarms == [
        f"queues.journal: {tmp_path / 'queues.journal'}: segment 1 has broken records, segment 2 has broken records, "
        f"segment 3 has broken records, segment 4 is missing; {LOST}; "
        "kept there as 00000000000000000001.damaged and 2 more *.damaged"
    ]


def test_many_damaged_segments_are_counted_and_what_is_not_kept_is_told(tmp_path: Path) -> None:
    """The log names each."""
    alarms: list[str] = []

    def keep(segment: int) -> str:
        raise BackendError(f"disk full at {segment}", retryable=True)

    report = DamageReport(tmp_path, keep, lambda word, text: alarms.append(f"{word}: {text}"))
    report.report(dict.fromkeys(range(1, 15), BROKEN))
    report.report({1: BROKEN})

    assert len(alarms) == 1
    assert "segment 10 has broken records, and 4 more (see the log); " in alarms[0]
    assert alarms[0].endswith("segment 1 could not be kept: disk full at 1")
