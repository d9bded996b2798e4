"""An accounts database and a data directory for runs of jobs whose process is a fake."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iothub.jobs.lines import Report
from iothub.jobs.places import Places
from iothub.jobs.runner import Runner, Start, Timing
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.job_runs import Run
from iothub_tenants.accounts.store import AccountStore

FAKE = Path(__file__).parents[2] / "support" / "jobs" / "fake_job.py"


@pytest.fixture(scope="session")
def fresh_accounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accounts") / "accounts.db"
    init_store(sqlite_url(path), pepper=b"p" * 32, clock=ManualClock()).close()
    return path


@pytest.fixture
def store(fresh_accounts: Path, tmp_path: Path) -> Iterator[AccountStore]:
    opened = AccountStore(sqlite_url(shutil.copy(fresh_accounts, tmp_path / "accounts.db")))
    yield opened
    opened.close()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


@pytest.fixture
def heard() -> list[Report]:
    return []


@pytest.fixture
def make_runner(store: AccountStore, places: Places, heard: list[Report]) -> Callable[..., Runner]:
    def make(**timing: object) -> Runner:
        return Runner(store, places, heard.append, Timing(grace_s=5.0, **timing))  # type: ignore[arg-type]

    return make


@pytest.fixture
def fake() -> Callable[..., Start]:
    """A start whose process does the given steps."""

    def steps(*words: str) -> Start:
        def start(_run: Run, _folder: Path) -> tuple[list[str], dict[str, str]]:
            return [sys.executable, str(FAKE), *words], dict(os.environ)

        return start

    return steps
