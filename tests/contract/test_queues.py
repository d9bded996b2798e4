"""The queue port's contract, over the drivers that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from iothub.testing import queue_contract, queue_expiry_contract, queue_limits_contract
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import Case
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import QueueStore
from iothub_services.queues.routing import RoutingStore
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database
from iothub_services.store_process.queues import VERBS, RemoteQueues
from tests.support.hbase.hbase_queues import HBase
from tests.support.hubs.store_processes import LOST, in_a_worker
from tests.support.operated_queues import Operated, OperatedQueues
from tests.support.servers.redis_queues import RedisHarness


@pytest.fixture(
    params=["memory", "sqlite", "journal", "operations", "hbase", "hbase_operations", "redis", "redis_operations"]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QueueStore]:
    queues: QueueStore = MemoryQueues()
    if request.param == "sqlite":
        queues = SqliteQueues(open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail))
    elif request.param in ("journal", "operations"):
        made = JournaledQueues if request.param == "journal" else OperatedQueues
        queues = made(open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail), pytest.fail)
    elif request.param.startswith("hbase"):
        queues = HBase().store()[0]
    elif request.param.startswith("redis"):
        queues = RedisHarness().store()
    if request.param in ("hbase_operations", "redis_operations"):
        queues = cast("QueueStore", Operated(queues))
    yield queues
    queues.close()


CASES = queue_contract.CASES + queue_expiry_contract.CASES + queue_limits_contract.CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract(case: Case, store: QueueStore) -> None:
    """Every driver does what `iothub.testing.queue_contract`, `queue_expiry_contract` and `queue_limits_contract` say."""
    case(store)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract_where_there_are_several_drivers(case: Case, tmp_path: Path) -> None:
    """Queues of a tenant look as if there were its own driver alone."""
    files = SqliteQueues(open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), pytest.fail))
    queues = RoutingStore({"memory": MemoryQueues(), "sqlite": cast("QueueStore", files)}, "sqlite")
    case(queues)
    queues.close()


@pytest.mark.parametrize(("lost", "has_journal"), [*[(lost, False) for lost in LOST], (LOST[-1], True)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_queue_contract_in_a_worker(case: Case, lost: str, *, has_journal: bool, tmp_path: Path) -> None:
    """The queues of the store process look as if they were the worker's own, whatever is lost between the two."""
    with in_a_worker(RemoteQueues, VERBS, lost, tmp_path, has_journal=has_journal) as queues:
        case(queues)
