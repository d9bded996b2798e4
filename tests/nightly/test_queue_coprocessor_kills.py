"""The queue coprocessor while HBase is killed: positions stay dense, nothing acknowledged is lost or doubled, what was consumed stays away.

The long form of `tests/services/test_queues_hbase_faults.py`, which kills HBase under the driver.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ops.services.services import Services
from tests.support.hbase import queue_bytes
from tests.support.hbase.coprocessor_writers import WideWriter, check_stored, written_through
from tests.support.hbase.queue_bytes import Code, record, step
from tests.support.hbase.queue_eviction import ALMOST_EMPTY_BYTES, BATCH, BODY, fill, hfile_bytes
from tests.support.hbase.queue_table import QueueTable, queue_tables

ROUNDS = 2
REGIONS = 4
MESSAGES = 100_000


@pytest.fixture
def tables(services: Services) -> Iterator[list[QueueTable]]:
    """One for each round."""
    with queue_tables(services, REGIONS, ROUNDS) as made:
        yield made


@pytest.fixture
def narrow(services: Services) -> Iterator[QueueTable]:
    """A table of one region."""
    with queue_tables(services, 1, 1) as (made,):
        yield made


def test_eight_writers_and_a_call_for_many_queues_while_hbase_is_killed(
    services: Services, tables: list[QueueTable]
) -> None:
    """Kill -9 under load: calls that were written and not answered are answered, repeated, with the positions they got."""
    for table in tables:
        wide = WideWriter(table)

        def kill(wide: WideWriter = wide) -> None:
            wide.start()
            threading.Event().wait(1.0)  # let the writers be in full flight
            services.kill("hbase")
            services.up()
            wide.is_over.set()

        writers = written_through(table, kill)
        wide.join()

        assert wide.failure is None
        assert wide.kinds <= {frozenset((False,)), frozenset((True,))}
        check_stored(table, writers)


def test_head_is_known_again_when_the_region_has_been_opened(services: Services, narrow: QueueTable) -> None:
    """Kill -9 after the acknowledgements: what the log brings back is flushed while the region opens, without what was consumed."""
    fill(narrow, 1, MESSAGES, is_read=True)
    with narrow.caller() as caller:
        narrow.do(caller, 1, queue_bytes.create(2), queue_bytes.append(2, 9, 1, [record(BODY)] * BATCH))
        narrow.do(caller, 1, step(Code.DROP, 2))
    services.kill("hbase")
    services.up()

    narrow.flush()

    assert hfile_bytes(narrow) < ALMOST_EMPTY_BYTES
