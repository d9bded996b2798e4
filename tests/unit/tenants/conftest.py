"""An accounts database for every test: a copy of one that was made once, on a clock that stands still."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from iothub.testing.clock import ManualClock
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore
from tests.support.control_house import House

PEPPER = b"p" * 32


@pytest.fixture(scope="session")
def fresh_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accounts") / "accounts.db"
    init_store(sqlite_url(path), pepper=PEPPER, clock=ManualClock()).close()
    return path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(fresh_database: Path, tmp_path: Path) -> str:
    return sqlite_url(shutil.copy(fresh_database, tmp_path / "accounts.db"))


@pytest.fixture
def store(url: str, clock: ManualClock) -> Iterator[AccountStore]:
    opened = AccountStore(url, pepper=PEPPER, clock=clock)
    event.listen(opened.engine, "checkout", _hurry)
    yield opened
    opened.close()


def _hurry(connection: sqlite3.Connection, _entry: object, _proxy: object) -> None:
    """Nothing here survives the test: no need to wait for the disk."""
    connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture
def make_house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """A control plane over doubles; hooks and settings by name."""
    made: list[House] = []

    def make(**options: Any) -> House:
        made.append(House(tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def house(make_house: Callable[..., House]) -> House:
    return make_house()
