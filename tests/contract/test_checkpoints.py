"""The contract of the checkpoint port, over the drivers that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.testing.checkpoint_contract import CASES, Case
from iothub.testing.clock import ManualClock
from iothub_services.hbase.tables import Tables
from iothub_services.sqlite.database import open_database
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints
from iothub_services.state.memory.checkpoints import MemoryCheckpoints
from iothub_services.state.sqlite.checkpoints import SCHEMA, SqliteCheckpoints
from iothub_services.store_process.checkpoints import VERBS, RemoteCheckpoints
from tests.support.hbase.timed_gateway import GatewayCaller, TimedGateway
from tests.support.hubs.store_processes import LOST, in_a_worker

TABLES = Tables("t")


@pytest.fixture(params=["memory", "sqlite", "hbase"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckpointStore]:
    driver: CheckpointStore = MemoryCheckpoints()
    if request.param == "sqlite":
        driver = SqliteCheckpoints(open_database(tmp_path / "checkpoints.db", SCHEMA, ManualClock(), pytest.fail))
    if request.param == "hbase":
        driver = HBaseCheckpoints(GatewayCaller(TimedGateway(TABLES.checkpoints)), TABLES)
    yield driver
    driver.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_checkpoint_contract(case: Case, store: CheckpointStore) -> None:
    """Every driver does what `iothub.testing.checkpoint_contract` says."""
    case(store)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_checkpoint_contract_in_a_worker(case: Case, lost: str, tmp_path: Path) -> None:
    """The store process's looks as if it were the worker's own, whatever is lost between the two."""
    with in_a_worker(RemoteCheckpoints, VERBS, lost, tmp_path) as store:
        case(store)
