"""An accounts database for every test, on a clock that stands still: a copy of a file that was made once, or the emptied tables of a server.

`tests/services/sql_and_redis/test_accounts_on_servers.py` runs these tests again, on servers: `SERVER_VARIABLE` says where.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from iothub.testing.clock import ManualClock
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.control_harness import Harness
from tests.support.servers.fresh_tables import SERVER_VARIABLE, FreshTables

PEPPER = b"p" * 32


@pytest.fixture(scope="session")
def fresh_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accounts") / "accounts.db"
    init_store(sqlite_url(path), pepper=PEPPER, clock=ManualClock()).close()
    return path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def fresh_tables() -> Iterator[FreshTables | None]:
    url = os.environ.get(SERVER_VARIABLE)
    if url is None:
        yield None
        return
    with closing(FreshTables(url, PEPPER)) as tables:
        yield tables


@pytest.fixture
def url(fresh_tables: FreshTables | None, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if fresh_tables is not None:
        return fresh_tables.restore()
    return sqlite_url(shutil.copy(request.getfixturevalue("fresh_database"), tmp_path / "accounts.db"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a server only what works on whatever `url` is."""
    if SERVER_VARIABLE not in os.environ:
        return
    fit = [item for item in items if "url" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in fit])
    items[:] = fit


@pytest.fixture
def store(url: str, clock: ManualClock) -> Iterator[AccountStore]:
    opened = AccountStore(url, pepper=PEPPER, clock=clock)
    if opened.engine.dialect.name == "sqlite":
        event.listen(opened.engine, "checkout", _hurry)
    yield opened
    opened.close()


def _hurry(connection: sqlite3.Connection, _entry: object, _proxy: object) -> None:
    """Nothing here survives the test: no need to wait for the disk."""
    connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture
def make_harness(tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    """A control plane over doubles; hooks and settings by name."""
    made: list[Harness] = []

    def make(**options: Any) -> Harness:
        made.append(Harness(tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def harness(make_harness: Callable[..., Harness]) -> Harness:
    return make_harness()
