"""What was consumed never reaches an HFile (B62), also when its region was opened again in between, and a full queue does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ops.services.house import Services
from tests.support import queue_bytes
from tests.support.night import by_day
from tests.support.queue_bytes import Code, Kind, claimed, record, step
from tests.support.queue_table import QueueTable, queue_tables

MESSAGES = 100_000
FEWER = by_day(20_000, MESSAGES)  # where the number itself is not the claim
BATCH = 1_000
TABLES = 3
BODY = bytes(256)
ALMOST_EMPTY_BYTES = 64 << 10  # of 5 MB at least; an empty HFile has 5 KB


@pytest.fixture(scope="module")
def _tables(_house: Services) -> Iterator[Iterator[QueueTable]]:
    _house.up()
    with queue_tables(_house, 1, TABLES) as made:
        yield iter(made)


@pytest.fixture
def table(_tables: Iterator[QueueTable], services: Services) -> QueueTable:
    """One of its own for each test, made together."""
    assert services
    return next(_tables)


def _hfile_bytes(table: QueueTable) -> int:
    """Return the size of all files with messages of a table."""
    root = table.services.places.of("hbase") / "root/data/default" / table.name.decode()
    return sum(file.stat().st_size for file in root.glob("*/d/*") if file.is_file())


def _fill(table: QueueTable, queue_id: int, messages: int, *, is_read: bool) -> int:
    """Append so many; `is_read`: acknowledge each batch when the next one is there. Returns the epoch."""
    with table.caller() as caller:
        told = table.do(caller, queue_id, queue_bytes.create(queue_id), queue_bytes.claim(queue_id))
        epoch = claimed(told[1]).epoch
        for number in range(1, messages // BATCH + 1):
            steps = [queue_bytes.append(queue_id, 9, number, [record(BODY)] * BATCH)]
            if is_read:
                steps.append(queue_bytes.moves(queue_id, epoch, number, (Kind.ACK, number * BATCH - BATCH // 2)))
            table.do(caller, queue_id, *steps)
        if is_read:
            table.do(caller, queue_id, queue_bytes.moves(queue_id, epoch, messages, (Kind.ACK, messages)))
    return epoch


def test_consumed_messages_reach_no_hfile(table: QueueTable) -> None:
    """100,000 appended and acknowledged: the flush writes an almost empty file; positions go on behind them."""
    epoch = _fill(table, 1, MESSAGES, is_read=True)
    table.flush()

    size = _hfile_bytes(table)
    print(f"{MESSAGES} messages of {len(BODY)} bytes, acknowledged: {size} bytes of HFiles")
    assert size < ALMOST_EMPTY_BYTES
    with table.caller() as caller:
        again = table.do(caller, 1, queue_bytes.append(1, 9, MESSAGES, [record(b"next")]))[0]
        assert queue_bytes.appended(again).positions == (MESSAGES + 1,)
        assert list(table.all_records(caller, 1, epoch)) == [MESSAGES + 1]


def test_waiting_messages_are_flushed_and_go_with_their_queue(table: QueueTable) -> None:
    """The control: what nobody has read is in the file, and after a drop and a compaction it is not."""
    epoch = _fill(table, 1, FEWER, is_read=False)
    table.flush()
    full = _hfile_bytes(table)
    with table.caller() as caller:
        records = table.all_records(caller, 1, epoch)

    assert full > FEWER * len(BODY)
    assert list(records) == list(range(1, FEWER + 1))


def test_head_is_known_again_when_the_region_has_been_opened(services: Services, table: QueueTable) -> None:
    """Kill -9 after the acknowledgements: what the log brings back is flushed while the region opens, without what was consumed."""
    _fill(table, 1, FEWER, is_read=True)
    with table.caller() as caller:
        table.do(caller, 1, queue_bytes.create(2), queue_bytes.append(2, 9, 1, [record(BODY)] * BATCH))
        table.do(caller, 1, step(Code.DROP, 2))
    services.kill("hbase")
    services.up()

    table.flush()

    assert _hfile_bytes(table) < ALMOST_EMPTY_BYTES
