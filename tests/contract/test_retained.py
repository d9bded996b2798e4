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
from tests.support.timed_gateway import GatewayCaller, TimedGateway

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
