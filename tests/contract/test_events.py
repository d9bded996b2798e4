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
from iothub_services.store_process.events import VERBS, RemoteEvents
from tests.support.hubs.store_processes import LOST, in_a_worker


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


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_events_contract_in_a_worker(case: Case, lost: str, tmp_path: Path) -> None:
    """The store process's looks as if it were the worker's own, whatever is lost between the two."""
    with in_a_worker(RemoteEvents, VERBS, lost, tmp_path) as store:
        case(store)
