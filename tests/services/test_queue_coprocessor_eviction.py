"""What was consumed never reaches an HFile (B62), also when its region was opened again in between, and a full queue does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ops.services.services import Services
from tests.support.hbase import queue_bytes
from tests.support.hbase.queue_bytes import record
from tests.support.hbase.queue_eviction import ALMOST_EMPTY_BYTES, BATCH, BODY, fill, fill_qos2, hfile_bytes, id_bytes
from tests.support.hbase.queue_table import QueueTable, queue_tables
from tests.support.night import by_day

MESSAGES = 100_000
FEWER = by_day(20_000, MESSAGES)  # where the number itself is not the claim
TABLES = 4


@pytest.fixture(scope="module")
def _tables(_servers: Services) -> Iterator[Iterator[QueueTable]]:
    _servers.up()
    with queue_tables(_servers, 1, TABLES) as made:
        yield iter(made)


@pytest.fixture
def table(_tables: Iterator[QueueTable], services: Services) -> QueueTable:
    """One of its own for each test, made together."""
    assert services
    return next(_tables)


def test_consumed_messages_reach_no_hfile(table: QueueTable) -> None:
    """100,000 appended and acknowledged: the flush writes an almost empty file; positions go on behind them."""
    epoch = fill(table, 1, MESSAGES, is_read=True)
    table.flush()

    size = hfile_bytes(table)
    print(f"{MESSAGES} messages of {len(BODY)} bytes, acknowledged: {size} bytes of HFiles")
    assert size < ALMOST_EMPTY_BYTES
    with table.caller() as caller:
        again = table.do(caller, 1, queue_bytes.append(1, 9, MESSAGES, [record(b"next")]))[0]
        assert queue_bytes.appended(again).positions == (MESSAGES + 1,)
        assert list(table.all_records(caller, 1, epoch)) == [MESSAGES + 1]


def test_waiting_messages_are_flushed_and_go_with_their_queue(table: QueueTable) -> None:
    """The control: what nobody has read is in the file, and after a drop and a compaction it is not."""
    epoch = fill(table, 1, FEWER, is_read=False)
    table.flush()
    full = hfile_bytes(table)
    with table.caller() as caller:
        records = table.all_records(caller, 1, epoch)

    assert full > FEWER * len(BODY)
    assert list(records) == list(range(1, FEWER + 1))


def test_settled_message_ids_reach_no_hfile(table: QueueTable) -> None:
    """Though their records wait in the queue: the ids of the last call alone are left."""
    fill_qos2(table, 1, FEWER, is_settled=True)
    table.flush()

    assert id_bytes(table) < ALMOST_EMPTY_BYTES + 100 * BATCH


def test_message_ids_that_are_not_settled_are_flushed(table: QueueTable) -> None:
    """The control: each has a row."""
    fill_qos2(table, 1, FEWER, is_settled=False)
    table.flush()

    assert id_bytes(table) > 30 * FEWER
