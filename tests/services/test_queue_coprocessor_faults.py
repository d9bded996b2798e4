"""The queue coprocessor while regions move: positions stay dense, nothing acknowledged is lost, nothing is there twice.

While HBase is killed: `tests/nightly/test_queue_coprocessor_kills.py`; the driver by day in `test_queues_hbase_faults.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services.services import Services
from tests.support.hbase import queue_bytes
from tests.support.hbase.coprocessor_writers import MANY_QUEUES, check_stored, written_through
from tests.support.hbase.queue_bytes import record
from tests.support.hbase.queue_table import QueueTable, queue_tables
from tests.support.hubs.strace import SYNCING, Tracer
from tests.support.night import by_day

ROUNDS = by_day(1, 3)  # of all regions that are closed and opened
REGIONS = 4
TABLES = 2


@pytest.fixture(scope="module")
def _tables(_servers: Services) -> Iterator[Iterator[QueueTable]]:
    """One for each test, made together."""
    _servers.up()
    with queue_tables(_servers, REGIONS, TABLES) as made:
        yield iter(made)


@pytest.fixture
def table(_tables: Iterator[QueueTable], services: Services) -> QueueTable:
    assert services
    return next(_tables)


def test_eight_writers_while_regions_close_and_open(table: QueueTable) -> None:
    """A region that is closed for a moment refuses; the gateway or the writer tries again with the same bytes."""
    writers = written_through(table, lambda: table.reopen(ROUNDS))
    check_stored(table, writers)


def test_call_is_synced_before_it_is_answered(services: Services, table: QueueTable, tmp_path: Path) -> None:
    """One call for sixteen queues is one sync of the write-ahead log, and not less."""
    pid = next(report.pid for report in services.reports() if report.name == "hbase")
    assert pid is not None
    with table.caller() as caller:
        table.do(caller, MANY_QUEUES[0], *[queue_bytes.create(each) for each in MANY_QUEUES])
        tracer = Tracer(pid, tmp_path / "trace")
        try:
            for sequence in range(1, 6):
                steps = [queue_bytes.append(each, 9, sequence, [record(b"a")]) for each in MANY_QUEUES]
                table.do(caller, MANY_QUEUES[0], *steps)
        finally:
            found = tracer.stop()
    syncs = [call for call in found if call.name in SYNCING and "/WALs/" in call.file and call.result == 0]

    assert 5 <= len(syncs) < 5 * len(MANY_QUEUES)
