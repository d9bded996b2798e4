"""The accounts database: does it answer, does its schema fit this program, and does every plan inherit? `sql` checks the settings of a server.

Knows no table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from iothub.base.clock import SystemClock
from iothub.base.errors import ConfigError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.doctor import sql
from iothub.doctor.findings import Check, Finding, State, of_probe, timed
from iothub_migrations import schema
from iothub_migrations.schema import SchemaState
from iothub_services.quota.names import Quota
from iothub_tenants.accounts import plans
from iothub_tenants.accounts.bounds import bounds_of
from iothub_tenants.accounts.database import accounts_url, file_of
from iothub_tenants.accounts.store import AccountStore, errors_translated

_NAME = "accounts"


def check(data_dir: DataDir, settings: Config) -> Check:
    return Check(_NAME, lambda: _check(data_dir, settings))


def _check(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    file = settings.sql.url_file
    if file is None:
        data_dir.require_accounts()
    where = "" if file is None else f"the file is {file}"
    try:
        url = accounts_url(file, data_dir.accounts)
        with closing(AccountStore(url, bounds=bounds_of(settings.sql), is_checked=False)) as store:
            found = store.probe()
            if not found.is_reached:
                yield of_probe(_NAME, found, beside=where)
                return
            yield from _database(store, settings)
    except ConfigError as error:  # its text says what to do, but not in which file
        yield Finding(_NAME, State.FAIL, str(error), where)


def _database(store: AccountStore, settings: Config) -> Iterator[Finding]:
    with errors_translated(file_of(store.url)):
        state, seconds = timed(lambda: schema.check(store.engine))
        if store.is_on_server:
            yield from sql.check(store.engine, SystemClock().wall(), settings.sql.connections)
    text = f"{store.engine.dialect.name}, schema {state.value}"
    if state is SchemaState.FRESH:
        yield Finding(_NAME, State.FAIL, text, "create the accounts: iothub init", seconds)
    elif state is SchemaState.OLD:
        yield Finding(_NAME, State.FAIL, text, "stop the hub and upgrade the schema: iothub db upgrade", seconds)
    else:
        yield Finding(_NAME, State.OK, text, seconds=seconds)
        yield from _plans(store)


def _plans(store: AccountStore) -> Iterator[Finding]:
    """Plans that were made before plans could inherit."""
    for plan in plans.list_all(store):
        if plan.parent is None and plan.name not in plans.BUILT_IN:
            named = {part.partition("=")[0] for part in plan.limits.split()}
            open_limits = sum(quota.value not in named for quota in Quota)
            yield Finding(
                "plans",
                State.WARN,
                f"plan {plan.name} inherits from no plan: the {open_limits} limits that it does not name are unlimited",
                f"let it inherit: iothub plan set {plan.name} --from {plans.STANDARD}",
            )
