"""The accounts database: does it answer, and does its schema fit this program?

Knows no table.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub.datadir import DataDir
from iothub.doctor.findings import Finding, Look, State, timed
from iothub.settings import Config
from iothub_migrations import schema
from iothub_migrations.schema import SchemaState
from iothub_tenants.accounts.database import accounts_url, open_engine
from iothub_tenants.accounts.store import errors_translated

_NAME = "accounts"


def look(data_dir: DataDir, settings: Config) -> Look:
    return Look(_NAME, lambda: _look(data_dir, settings))


def _look(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    if settings.sql.url_file is None:
        data_dir.require_accounts()
    engine = open_engine(accounts_url(settings.sql.url_file, data_dir.accounts))
    try:
        with errors_translated():
            schema.check(engine)  # the first connection takes longer than those of a hub that runs
            state, seconds = timed(lambda: schema.check(engine))
    finally:
        engine.dispose()
    told = f"{engine.dialect.name}, schema {state.value}"
    if state in (SchemaState.FRESH, SchemaState.OLD):
        yield Finding(_NAME, State.FAIL, told, "bring it up to date: iothub db upgrade", seconds)
    else:
        yield Finding(_NAME, State.OK, told, seconds=seconds)
