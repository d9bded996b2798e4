"""The queue port's contract, over the drivers that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.testing import queue_contract, queue_expiry_contract
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import Case
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import QueueStore
from iothub_services.queues.schema import SCHEMA
from iothub_services.queues.sqlite import SqliteQueues
from iothub_services.sqlite.database import open_database
from tests.support.hbase_queues import HBase


@pytest.fixture(params=["memory", "sqlite", "hbase"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QueueStore]:
    queues: QueueStore = MemoryQueues()
    if request.param == "sqlite":
        queues = SqliteQueues(open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail))
    elif request.param == "hbase":
        queues = HBase().store()[0]
    yield queues
    queues.close()


CASES = queue_contract.CASES + queue_expiry_contract.CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract(case: Case, store: QueueStore) -> None:
    """Every driver does what `iothub.testing.queue_contract` and `queue_expiry_contract` say."""
    case(store)
