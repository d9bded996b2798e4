"""The store: what it refuses to open, what a transaction leaves behind, and how the database's errors read."""

from __future__ import annotations

import re
import sqlite3
import threading
from pathlib import Path
from unittest.mock import Mock

import pymysql
import pytest
from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import OperationalError

from iothub.base.errors import BackendError, ConfigError, ConflictError
from iothub.testing.clock import ManualClock
from iothub_migrations.schema import SchemaState
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.database import open_engine, sqlite_url
from iothub_tenants.accounts.store import AccountStore, ChangeKind, create_schema, errors_translated, has_schema
from iothub_tenants.accounts.tables import change_log, tenant


def test_missing_database_names_the_remedy(tmp_path: Path) -> None:
    """And the look at it does not create the file."""
    path = tmp_path / "accounts.db"

    with pytest.raises(ConfigError, match="iothub init"):
        AccountStore(sqlite_url(path))

    assert not path.exists()


def test_empty_database_names_the_remedy(tmp_path: Path) -> None:
    """An `init` that was killed at once leaves an empty file."""
    (tmp_path / "accounts.db").touch()

    with pytest.raises(ConfigError, match="iothub init"):
        AccountStore(sqlite_url(tmp_path / "accounts.db"))


def test_accounts_are_looked_for_without_making_any(tmp_path: Path) -> None:
    """`init` asks before it makes anything: a second hub needs the pepper of the first one."""
    path = tmp_path / "accounts.db"
    assert not has_schema(sqlite_url(path))
    assert not path.exists()

    path.touch()
    assert not has_schema(sqlite_url(path))
    create_schema(sqlite_url(path))
    assert has_schema(sqlite_url(path))


def test_old_database_names_the_remedy(url: str) -> None:
    """A hub never migrates behind its operator's back."""
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE schema_info SET value = 0 WHERE name = 'version'"))
    engine.dispose()

    with pytest.raises(ConflictError, match="iothub db upgrade"):
        AccountStore(url)


def test_damaged_file_is_a_failure_in_words(tmp_path: Path) -> None:
    """Not a traceback."""
    (tmp_path / "accounts.db").write_bytes(b"garbage" * 1000)

    with pytest.raises(BackendError, match=r"not a database; check accounts\.db; see docs/guide/troubleshooting"):
        AccountStore(sqlite_url(tmp_path / "accounts.db"))


def test_schema_is_created_once(tmp_path: Path) -> None:
    """`create_schema` says what it found."""
    url = sqlite_url(tmp_path / "accounts.db")

    assert [create_schema(url), create_schema(url)] == [SchemaState.FRESH, SchemaState.CURRENT]


def test_change_is_committed_with_its_cause(store: AccountStore) -> None:
    """Both, or neither."""
    created = tenants.create(store, "acme")
    with pytest.raises(ZeroDivisionError):
        _change_and_fail(store, created.id)

    with store.read() as connection:
        subjects = set(connection.execute(select(change_log.c.subject)).scalars())

    assert "never" not in subjects
    assert "acme" in subjects


def _change_and_fail(store: AccountStore, tenant_id: int) -> None:
    with store.write() as writer:
        writer.changed(tenant_id, ChangeKind.TENANT, "never")
        _ = 1 / 0


def test_version_of_a_tenant_rises_with_its_changes(store: AccountStore) -> None:
    """But not with those of its devices: they have records of their own."""
    created = tenants.create(store, "acme")
    versions = []

    for kind in (ChangeKind.ACL, ChangeKind.DEVICE, ChangeKind.BAN):
        with store.write() as writer:
            writer.changed(created.id, kind, "x")
            versions.append(writer.connection.execute(select(tenant.c.version)).scalar_one())

    assert versions[0] == versions[1] < versions[2]


def test_writers_wait_for_each_other(store: AccountStore, url: str, clock: ManualClock) -> None:
    """Two writers at once: both get through, neither sees a locked database."""
    other = AccountStore(url, clock=clock)
    threads = [threading.Thread(target=_write_some, args=(each, 20)) for each in (store, other)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    other.close()
    with store.read() as connection:
        written = connection.execute(select(func.count()).where(change_log.c.subject == "w")).scalar_one()
    assert written == 40


def _write_some(store: AccountStore, count: int) -> None:
    for _ in range(count):
        with store.write() as writer:
            writer.changed(0, ChangeKind.PLAN, "w")


def test_read_only_database_says_where_to_read_on(fresh_database: Path) -> None:
    """The commonest mishap of an operator: the wrong user."""
    store = AccountStore(f"sqlite:///file:{fresh_database}?mode=ro&uri=true")

    with pytest.raises(BackendError, match=r"readonly database; check accounts\.db; see docs/guide/") as failure:
        tenants.create(store, "acme")

    store.close()
    assert failure.value.retryable


def test_broken_constraint_is_a_conflict(store: AccountStore) -> None:
    """What no verb has foreseen still reads as what it is, without the statement and its values."""
    with pytest.raises(ConflictError, match="concurrent change") as refusal, store.write() as writer:
        writer.connection.execute(text("INSERT INTO plan (name, weight, created_ms) VALUES ('standard', 1, 1)"))

    assert "INSERT" not in str(refusal.value)


def test_server_that_lets_us_in_no_longer_is_away(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its passwords are changed, or its database is restored: a running hub waits, where one that starts would end."""
    monkeypatch.setattr(store, "is_on_server", True)
    monkeypatch.setattr(store, "_was_let_in", False)
    denied = OperationalError(None, None, pymysql.err.OperationalError(1045, "Access denied for user 'iothub'"))

    with pytest.raises(ConfigError, match=r"Access denied.*check the url.*docs/guide/sql"), store.asked():
        raise denied
    with store.asked():
        pass
    with pytest.raises(BackendError, match=r"Access denied.*check the url.*docs/guide/sql"), store.asked():
        raise denied


def test_lost_commit_is_told_apart_from_one_that_was_refused(
    store: AccountStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose answer is lost may have been done."""
    lost = OperationalError(
        None, None, pymysql.err.OperationalError(2013, "Lost connection"), connection_invalidated=True
    )
    full = OperationalError(None, None, pymysql.err.OperationalError(1021, "Disk full"))
    for error, message in (
        (full, "did not commit: Disk full$"),
        (lost, "before it confirmed the change"),
    ):
        monkeypatch.setattr(Connection, "commit", Mock(side_effect=error))
        with pytest.raises(BackendError, match=message):
            tenants.create(store, "acme")


def test_full_disk_is_named_with_path_and_free_space(tmp_path: Path) -> None:
    """As every other SQLite file of the hub."""
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    file = tmp_path / "accounts.db"

    with pytest.raises(BackendError) as caught, errors_translated(file):
        raise OperationalError("INSERT", {}, full)

    assert re.match(
        rf"the accounts database failed: {file}: database or disk is full \([\d.]+ \w+ free in {tmp_path}\); "
        r"free some disk space first; check accounts\.db; see docs/guide/",
        str(caught.value),
    )
