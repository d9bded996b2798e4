"""The API on accounts with tenants `acme` and `other`, each with a device `dev1`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event

from iothub_tenants.accounts import devices, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.rest_api import Api

PEPPER = b"p" * 32


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rest") / "accounts.db"
    with closing(init_store(sqlite_url(path), pepper=PEPPER)) as store:
        for name in ("acme", "other"):
            tenants.create(store, name)
            devices.create(store, name, "dev1")
    return path


@pytest.fixture
def api(made_once: Path, tmp_path: Path) -> Iterator[Api]:
    store = AccountStore(sqlite_url(shutil.copy(made_once, tmp_path / "accounts.db")), pepper=PEPPER)
    event.listen(store.engine, "connect", lambda connection, _entry: connection.execute("PRAGMA synchronous = OFF"))
    with closing(store):
        yield Api(store)
