"""The accounts database: does it answer, and does its schema fit this program? Of a server `sql` tells more.

Knows no table.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub.base.clock import SystemClock
from iothub.base.errors import BackendError, ConfigError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.doctor import sql
from iothub.doctor.findings import Finding, Look, State, timed
from iothub_migrations import schema
from iothub_migrations.schema import SchemaState
from iothub_tenants.accounts.bounds import bounds_of
from iothub_tenants.accounts.database import accounts_url, open_engine
from iothub_tenants.accounts.store import errors_translated

_NAME = "accounts"


def look(data_dir: DataDir, settings: Config) -> Look:
    return Look(_NAME, lambda: _look(data_dir, settings))


def _look(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    file = settings.sql.url_file
    if file is None:
        data_dir.require_accounts()
        yield from _database(data_dir, settings)
        return
    try:
        yield from _database(data_dir, settings)
    except BackendError as error:
        yield Finding(_NAME, State.FAIL, str(error), f"start it, or correct the line in {file} (sql.url_file)")
    except ConfigError as error:  # its text says what to do, and not where
        yield Finding(_NAME, State.FAIL, str(error), f"the file is {file}")


def _database(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    url = accounts_url(settings.sql.url_file, data_dir.accounts)
    engine = open_engine(url, bounds_of(settings.sql))
    try:
        with errors_translated():
            schema.check(engine)  # the first connection takes longer than those of a hub that runs
            state, seconds = timed(lambda: schema.check(engine))
            if engine.dialect.name != "sqlite":
                yield from sql.look(engine, SystemClock().wall(), settings.sql.connections)
    finally:
        engine.dispose()
    told = f"{engine.dialect.name}, schema {state.value}"
    if state is SchemaState.FRESH:
        yield Finding(_NAME, State.FAIL, told, "make the accounts: iothub init", seconds)
    elif state is SchemaState.OLD:
        yield Finding(_NAME, State.FAIL, told, "bring it up to date: iothub db upgrade", seconds)
    else:
        yield Finding(_NAME, State.OK, told, seconds=seconds)
