"""The contract of the events port, over the drivers that need no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub.testing.event_contract import CASES, Case
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import EventLog
from iothub_services.events.sqlite.log import SCHEMA, SqliteEvents
from iothub_services.sqlite.database import open_database


@pytest.fixture(params=["memory", "memory-3-partitions", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    driver: EventLog = MemoryEvents(3 if request.param == "memory-3-partitions" else 1)
    if request.param == "sqlite":
        driver = SqliteEvents(open_database(tmp_path / "events.db", SCHEMA, ManualClock(), pytest.fail))
    yield driver
    driver.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_events_contract(case: Case, log: EventLog) -> None:
    """Every driver does what `iothub.testing.event_contract` says."""
    case(log)
