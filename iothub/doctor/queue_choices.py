"""The choices of queue drivers by tenant: does each named tenant exist?

Knows no queue. A missing tenant is a warning: it may be created later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from iothub.base.errors import BackendError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.config.sections.stores import chosen_tenants
from iothub.doctor.findings import Check, Finding, State, timed
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.database import accounts_url
from iothub_tenants.accounts.store import AccountStore

_NAME = "queues.choices"


def check(data_dir: DataDir, settings: Config) -> Check:
    return Check(_NAME, lambda: _check(data_dir, settings))


def _check(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    named = chosen_tenants(settings.queues)
    try:
        with closing(AccountStore(accounts_url(settings.sql.url_file, data_dir.accounts))) as store:
            missing, seconds = timed(lambda: tenants.missing(store, named))
    except BackendError as error:  # another check says whether the accounts answer
        yield Finding(_NAME, State.WARN, f"not checked: {error}", "run iothub doctor again when the accounts answer")
        return
    for name in missing:
        yield Finding(
            _NAME,
            State.WARN,
            f"table {named[name]} is for tenant {name}, which does not exist",
            f"correct the name, or create the tenant: iothub tenant create {name}",
            seconds,
        )
    if not missing:
        yield Finding(_NAME, State.OK, f"all named tenants exist: {', '.join(named)}", seconds=seconds)
