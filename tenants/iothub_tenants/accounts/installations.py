"""Which installation an accounts database is of: an id that stores on servers have, too.

Knows no such store: `iothub.hub.stores.installation` compares. Raises BackendError, as every verb of the accounts.
"""

from __future__ import annotations

import re

from sqlalchemy import func, select, update

from iothub.base.errors import ConfigError, ConflictError
from iothub_tenants.accounts import tables
from iothub_tenants.accounts.store import AccountStore

_ID = re.compile(r"[0-9a-f]{32}")


def own(store: AccountStore) -> str:
    """Return the id: 32 hexadecimal digits."""
    with store.read() as connection:
        return str(connection.execute(select(tables.installation.c.id)).scalar_one())


def adopt(store: AccountStore, installation: str) -> str:
    """Let the accounts be of another installation, whose stores they belong to; returns which they were of.

    Raises:
        ConfigError: That is no id.
        ConflictError: No tenant was ever made in these accounts, so nothing anywhere is theirs.
    """
    if not _ID.fullmatch(installation):
        raise ConfigError(
            f"{installation[:64]!r} is not an installation id: expected the 32 hexadecimal digits of the error message"
        )
    before = own(store)
    with store.write() as writer:
        if not writer.connection.execute(select(func.count()).select_from(tables.tenant)).scalar_one():
            raise ConflictError(
                "these accounts have no tenant, so stored sessions belong to other accounts: restore those accounts, "
                "or choose another hbase.namespace and kafka.topic_prefix"
            )
        writer.connection.execute(update(tables.installation).values(id=installation))
    return before
