"""Queues with a journal, on a disk in memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import open_database
from tests.support.journaled_queues import Open
from tests.support.servers.losing_disk import LosingDisk
from tests.support.work_beside import AtOnce


@pytest.fixture
def disk() -> LosingDisk:
    return LosingDisk(random.Random(1))


@pytest.fixture
def alarms() -> list[str]:
    return []


@pytest.fixture
def opened(tmp_path: Path, disk: LosingDisk, alarms: list[str]) -> Open:
    def on_alarm(word: str, text: str) -> None:
        alarms.append(f"{word}: {text}")

    def open_queues(*args: object, commits: CommitLock | None = None, **kwargs: object) -> JournaledQueues:
        database = open_database(tmp_path / "queues.db", SCHEMA, ManualClock(), on_alarm, commits)
        options = {"disk": disk, "beside": AtOnce, "segment_bytes": 65_536, **kwargs}
        return JournaledQueues(database, on_alarm, *args, **options)  # type: ignore[arg-type]

    return open_queues
