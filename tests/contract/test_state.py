"""The contract of the state port, over the drivers that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub.testing.state_contract import CASES, Case
from iothub_services.hbase.tables import Tables
from iothub_services.sqlite.database import open_database
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.port import StateStore
from iothub_services.state.sqlite.store import SCHEMA, SqliteStates
from iothub_services.store_process.states import VERBS, RemoteStates
from tests.support.hbase.timed_gateway import GatewayCaller, TimedGateway
from tests.support.hubs.store_processes import LOST, in_a_worker

TABLES = Tables("t")


@pytest.fixture(params=["memory", "sqlite", "hbase"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    driver: StateStore = MemoryStates()
    if request.param == "sqlite":
        driver = SqliteStates(open_database(tmp_path / "state.db", SCHEMA, ManualClock(), pytest.fail))
    if request.param == "hbase":
        driver = HBaseStates(GatewayCaller(TimedGateway(TABLES.state)), TABLES)
    yield driver
    driver.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_state_contract(case: Case, store: StateStore) -> None:
    """Every driver does what `iothub.testing.state_contract` says."""
    case(store)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_state_contract_in_a_worker(case: Case, lost: str, tmp_path: Path) -> None:
    """The store process's looks as if it were the worker's own, whatever is lost between the two."""
    with in_a_worker(RemoteStates, VERBS, lost, tmp_path) as store:
        case(store)
