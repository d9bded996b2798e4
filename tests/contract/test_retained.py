"""The contract of the retained port, over the drivers that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub.testing.retained_contract import CASES, Case
from iothub_services.hbase.tables import Tables
from iothub_services.retained.hbase.store import HBaseRetained
from iothub_services.retained.memory import MemoryRetained
from iothub_services.retained.port import RetainedStore
from iothub_services.retained.sqlite.store import SCHEMA, SqliteRetained
from iothub_services.sqlite.database import open_database
from iothub_services.store_process.retained import VERBS, RemoteRetained
from tests.support.hbase.timed_gateway import GatewayCaller, TimedGateway
from tests.support.hubs.store_processes import LOST, in_a_worker

TABLES = Tables("t")


@pytest.fixture(params=["memory", "sqlite", "hbase"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RetainedStore]:
    driver: RetainedStore = MemoryRetained()
    if request.param == "sqlite":
        driver = SqliteRetained(open_database(tmp_path / "retained.db", SCHEMA, ManualClock(), pytest.fail))
    if request.param == "hbase":
        driver = HBaseRetained(GatewayCaller(TimedGateway(TABLES.retained)), TABLES)
    yield driver
    driver.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_retained_contract(case: Case, store: RetainedStore) -> None:
    """Every driver does what `iothub.testing.retained_contract` says."""
    case(store)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_retained_contract_in_a_worker(case: Case, lost: str, tmp_path: Path) -> None:
    """The store process's looks as if it were the worker's own, whatever is lost between the two."""
    with in_a_worker(RemoteRetained, VERBS, lost, tmp_path) as store:
        case(store)
