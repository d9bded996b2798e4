"""What the SQLite queue driver does beyond its contract: files, housekeeping, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub.records.message import StoredMessage, encode_message
from iothub.testing.clock import ManualClock
from iothub_services.queues.port import (
    EARLIEST,
    Append,
    Appended,
    Delivery,
    ExpiryMark,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
    TenantUsage,
)
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import Alarm, open_database

PAGE = SCHEMA.page_bytes


def opened(path: Path, on_alarm: Alarm = pytest.fail) -> SqliteQueues:
    return SqliteQueues(open_database(path, SCHEMA, ManualClock(), on_alarm))


def one(number: int, *queue_ids: int, body: bytes = b"body") -> Append:
    return Append(number.to_bytes(16), body, 0, tuple(Delivery(queue_id, 1) for queue_id in queue_ids))


def bodies(store: SqliteQueues) -> int:
    with store._database.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM body").fetchone()[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


def test_queues_are_there_after_a_restart(path: Path) -> None:
    """Counters, records, sums; positions go on."""
    store = opened(path)
    store.create(7, 1, QueueLimits())
    store.append([one(1, 1), one(2, 1)])
    store.close()

    store = opened(path)

    claim = store.claim(1, b"w")
    assert (claim.epoch, claim.head, claim.tail) == (1, 0, 2)
    assert [record.body for record in store.read(1, 1, 0, 9, 999).records] == [b"body", b"body"]
    assert store.tenant_usage(7) == TenantUsage(2, 8)
    assert store.append([one(3, 1)]) == [Appended((3,))]
    store.close()


def test_body_is_stored_once_and_goes_with_its_last_reference(path: Path) -> None:
    """Fan-out costs references; acknowledged bodies go with the next commits, without a sweep."""
    store = opened(path)
    for queue_id in (1, 2, 3):
        store.create(7, queue_id, QueueLimits())
        store.claim(queue_id, b"w")
    store.append([one(1, 1, 2, 3), one(2, 1)])
    assert bodies(store) == 2

    for queue_id in (1, 2):
        store.apply([Move(MoveKind.ACK, queue_id, 1, 9)])
    store.apply([])
    assert bodies(store) == 1
    store.apply([Move(MoveKind.ACK, 3, 1, 9)])
    store.apply([])
    assert bodies(store) == 0
    store.close()


def test_body_of_one_reference_goes_with_it_after_a_restart(path: Path) -> None:
    """Only shared bodies need a sweep then."""
    store = opened(path)
    store.create(7, 1, QueueLimits())
    store.append([one(1, 1)])
    store.close()
    store = opened(path)
    while store.idle():
        pass
    epoch = store.claim(1, b"w").epoch

    store.apply([Move(MoveKind.ACK, 1, epoch, 1)])
    store.apply([])

    assert bodies(store) == 0
    store.close()


@pytest.mark.parametrize("at", [0, 1], ids=["before the housekeeping", "behind it"])
def test_failed_commit_clears_nothing_away(path: Path, at: int) -> None:
    """What it acknowledged is still there with its body, and what it removed of dropped queues is removed again."""
    store = opened(path)
    for queue_id in (1, 2, 3):
        store.create(7, queue_id, QueueLimits())
    epoch = store.claim(1, b"w").epoch
    store.append([one(1, 1), one(2, 2), one(3, 3)])
    for queue_id in (2, 3):
        store.drop(queue_id)
    store._database.before_commit.insert(at, lambda _connection: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        store.apply([Move(MoveKind.ACK, 1, epoch, 1)])
    store._database.before_commit.pop(at)

    while store.idle():
        pass

    assert [record.body for record in store.read(1, epoch, 0, 9, 999).records] == [b"body"]
    for table, left in (("ref", 1), ("body", 1), ("dropped", 0)):
        assert store._database.reader.execute(f"SELECT count(*) FROM {table}").fetchone() == (left,), table
    store.close()


def test_queue_that_is_made_anew_is_not_cleared_away_with_its_predecessor(path: Path) -> None:
    """Of which there is more than a commit removes; another one is on its way out as well."""
    store = opened(path)
    for queue_id in (1, 2):
        store.create(7, queue_id, QueueLimits())
    store.append([one(number, 1, 2) for number in range(1_000)])
    for queue_id in (1, 2):
        store.drop(queue_id)
    store.create(7, 1, QueueLimits())
    epoch = store.claim(1, b"w").epoch
    store.append([one(1, 1)])

    while store.idle():
        pass

    assert [record.position for record in store.read(1, epoch, 0, 9, 999).records] == [1]
    assert bodies(store) == 1
    store.close()


def test_removal_of_bodies_keeps_up_with_what_is_stored(path: Path) -> None:
    """And it is bounded: nobody waits for a commit that removes everything at once."""
    store = opened(path)
    store.create(7, 1, QueueLimits(0, 0))
    epoch = store.claim(1, b"w").epoch
    store.append([one(number, 1) for number in range(5_000)])
    store.apply([Move(MoveKind.ACK, 1, epoch, 5_000)])
    there = bodies(store)

    store.append([one(number, 1) for number in range(1_000)])

    assert 0 < there + 1_000 - bodies(store) - 2_000 < 1_000
    there = bodies(store)
    store.apply([])
    assert 0 < there - bodies(store) < 1_000
    store.close()


def test_counters_of_a_queue_are_those_of_its_records(path: Path) -> None:
    """Whatever came and went: acknowledged, dropped for others, expired."""
    store = opened(path)
    store.create(7, 1, QueueLimits(6, 0))
    epoch = store.claim(1, b"w").epoch
    store.append([Append(bytes(16), b"x" * size, 5 * (size == 6), (Delivery(1, size % 3),)) for size in range(1, 10)])
    store.apply([Move(MoveKind.ACK, 1, epoch, 3)])
    store.expire(5, 9)
    store.append([Append(bytes(16), b"y", 0, (Delivery(1, 0),))])

    counters = store._database.reader.execute("SELECT messages, bytes, qos0 FROM queue").fetchone()

    statement = "SELECT count(*), sum(size), sum(qos = 0) FROM ref"
    assert counters == store._database.reader.execute(statement).fetchone() != (0, None, None)
    store.close()


def test_row_of_a_queue_says_who_reads_it(path: Path) -> None:
    """For whoever looks into the file."""
    store = opened(path)
    store.create(7, 1, QueueLimits())

    store.claim(1, b"worker")

    assert store._database.reader.execute("SELECT owner FROM queue").fetchone() == (b"worker",)
    store.close()


def test_message_that_no_queue_takes_leaves_no_body(path: Path) -> None:
    """Behind others of its batch that were taken."""
    store = opened(path)
    for queue_id in (1, 2):
        store.create(7, queue_id, QueueLimits(2, 0, Overflow.REJECT))

    store.append([one(1, 1, 2), one(2, 1, 2), one(3, 1, 2), one(4, 9)])

    assert bodies(store) == 2
    store.close()


def test_tenant_whose_limits_were_lowered_has_room_after_one_message(path: Path) -> None:
    """All that is too much goes from the queue that the next message is for."""
    store = opened(path)
    store.create(7, 1, QueueLimits(0, 0, Overflow.DROP_OLDEST))
    store.append([one(number, 1) for number in range(1, 7)])
    store.set_tenant_limits(7, 3, 0)

    assert store.append([one(7, 1)])[0].dropped == ((1, 1), (1, 2), (1, 3), (1, 4))
    store.set_tenant_limits(7, 0, 4)
    assert store.append([one(8, 1)])[0].dropped == ((1, 5), (1, 6), (1, 7))
    store.close()


def test_body_whose_references_went_before_a_restart_is_swept(path: Path) -> None:
    """Shared bodies from before the start are not counted: mark and sweep finds them."""
    store = opened(path)
    for queue_id in (1, 2):
        store.create(7, queue_id, QueueLimits())
        store.claim(queue_id, b"w")
    store.append([one(number, 1, 2) for number in range(2_500)])
    store.close()
    store = opened(path)
    store.apply([Move(MoveKind.ACK, 1, 1, 9_999), Move(MoveKind.ACK, 2, 1, 2_000)])
    assert bodies(store) == 2_500

    slices = 0
    while store.idle():
        slices += 1

    assert bodies(store) == 500
    assert slices > 3
    store.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_records_of_a_dropped_queue_are_removed_in_slices(path: Path, is_restarted: bool) -> None:
    """Dropping is quick however long the queue; a restart in between loses nothing of the work."""
    store = opened(path)
    for queue_id in (1, 2):
        store.create(7, queue_id, QueueLimits())
        store.append([one(number, queue_id) for number in range(1_000)])
    while store.idle():
        pass
    for queue_id in (1, 2):
        store.drop(queue_id)
    assert bodies(store) > 500
    if is_restarted:
        store.close()
        store = opened(path)

    while store.idle():
        pass

    assert not store.idle()

    with store._database.reading() as connection:
        assert connection.execute("SELECT count(*) FROM ref").fetchone()[0] == 0
        assert connection.execute("SELECT count(*) FROM dropped").fetchone()[0] == 0
    assert bodies(store) == 0
    store.close()


def test_full_disk_fails_the_batch_and_leaves_no_trace(path: Path) -> None:
    """Counters, sums and positions are those of the last commit; the same batch succeeds when there is room."""
    store = opened(path)
    store.create(7, 1, QueueLimits())
    store.append([one(1, 1)])
    batch = [one(number, 1, body=bytes(100_000)) for number in range(2, 12)]
    store._database.writer.execute("PRAGMA max_page_count=30")
    with pytest.raises(BackendError) as caught:
        store.append(batch)
    assert (caught.value.retryable, caught.value.is_written) == (True, False)
    assert store.tenant_usage(7) == TenantUsage(1, 4)
    assert store.stats(1).tail == 1

    store._database.writer.execute("PRAGMA max_page_count=10000")
    assert store.append(batch) == [Appended((position,)) for position in range(2, 12)]
    store.close()


def test_reader_and_writer_do_not_wait_for_each_other(path: Path) -> None:
    """A page is a snapshot of what is committed, also while a commit is being prepared."""
    store = opened(path)
    store.create(7, 1, QueueLimits())
    store.claim(1, b"w")
    store.append([one(1, 1)])
    with store.group():
        store.append([one(2, 1)])
        page = store.read(1, 1, 0, 9, 999)
        assert ([record.position for record in page.records], page.upto) == ([1], 1)

    assert [record.position for record in store.read(1, 1, 1, 9, 999).records] == [2]
    store.close()


def test_damaged_pages_cost_the_records_behind_them(path: Path) -> None:
    """What comes before the first of them is still there, counters agree, no position is issued again, an alarm was raised."""
    store = opened(path)
    for queue_id in range(1, 21):
        store.create(7, queue_id, QueueLimits())
    whole = encode_message(StoredMessage(b"t", bytes(1_000), 1, False, b"", 0, b"", ""))
    store.append([one(number, 1 + number % 20, body=whole) for number in range(2_000)])
    store.close()
    content = bytearray(path.read_bytes())
    size = len(content) // PAGE
    for page in (size // 3, size // 2):
        content[page * PAGE : (page + 1) * PAGE] = b"\x55" * PAGE
    path.write_bytes(content)
    alarms: list[str] = []

    store = opened(path, lambda _name, text: alarms.append(text))

    assert "queues.db was damaged" in alarms[0]
    kept = 0
    for stats in store.list_queues(7):
        claim = store.claim(stats.queue_id, b"w")
        records = store.read(stats.queue_id, claim.epoch, 0, 999, 1 << 30).records
        assert (stats.messages, stats.bytes) == (len(records), len(records) * len(whole))
        assert stats.tail >= 100
        assert {record.body for record in records} == {whole}
        kept += len(records)
    assert 600 < kept < 700
    assert len(store.list_queues(7)) == 20
    store.close()


def test_look_for_expired_records_does_not_begin_again_with_those_that_stay(path: Path) -> None:
    """One message to very many queues has one deadline; while the store spares it, a later look costs what the first has cost."""
    queue_ids = range(1, 2001)
    store = opened(path)
    with store.group():
        for queue_id in queue_ids:
            store.create(7, queue_id, QueueLimits())
    deliveries = tuple(Delivery(queue_id, 1) for queue_id in queue_ids)
    store.append([Append((1).to_bytes(16), b"body", 10, deliveries)])
    with store.group():
        store.apply([Move(MoveKind.RESERVE, queue_id, store.claim(queue_id, b"w").epoch, 1) for queue_id in queue_ids])
    steps: list[int] = []
    store._database.writer.set_progress_handler(lambda: steps.append(1), 100)
    mark: ExpiryMark | None = EARLIEST
    costs: list[int] = []

    while mark is not None:
        steps.clear()
        mark = store.expire(50, 100, mark).after
        costs.append(len(steps))

    store._database.writer.set_progress_handler(None, 0)
    assert len(costs) == 21
    assert max(costs) <= 3 * costs[1], costs
    store.close()


def test_body_of_dropped_queues_goes_though_a_restart_came_between(path: Path) -> None:
    """What is left of the queues is removed before bodies are looked for that nothing refers to: else this one would stay until the next start."""
    store = opened(path)
    for queue_id in (1, 2):
        store.create(7, queue_id, QueueLimits())
    store.append([Append((1).to_bytes(16), b"body", 0, (Delivery(1, 1), Delivery(2, 1)))])
    store.close()
    store = opened(path)
    while store.idle():
        pass
    for queue_id in (2, 1):  # of the second one nothing is removed yet
        store.drop(queue_id)
    store.close()

    store = opened(path)
    while store.idle():
        pass

    assert store._database.reader.execute("SELECT count(*) FROM body").fetchone() == (0,)
    store.close()
