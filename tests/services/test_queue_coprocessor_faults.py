"""The queue coprocessor while regions move: positions stay dense, nothing acknowledged is lost, nothing is there twice.

While HBase is killed: `tests/nightly/test_queue_coprocessor_kills.py`; the driver by day in `test_queues_hbase_faults.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ops.services.services import Services
from tests.support.hbase.coprocessor_writers import check_stored, written_through
from tests.support.hbase.queue_table import QueueTable, queue_table
from tests.support.night import by_day

ROUNDS = by_day(1, 3)  # of all regions that are closed and opened
REGIONS = 4


@pytest.fixture
def table(services: Services) -> Iterator[QueueTable]:
    with queue_table(services, REGIONS) as made:
        yield made


def test_eight_writers_while_regions_close_and_open(table: QueueTable) -> None:
    """A region that is closed for a moment refuses; the gateway or the writer tries again with the same bytes."""
    writers = written_through(table, lambda: table.reopen(ROUNDS))
    check_stored(table, writers)
