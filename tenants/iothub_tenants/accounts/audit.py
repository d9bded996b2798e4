"""Reads the audit log: who has changed what in the accounts, and what the API had a hub do.

Knows no verb: a line is written with each change (`store.Writer.changed`), in its transaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import RowMapping, delete, select

from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import audit as table

KEEP_S = 400 * 86_400.0  # a year, and what it takes to look at it
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `action`: created, changed, deleted, or what a hub did; `before` and `after` are None where there was, or is, nothing."""

    id: int
    at_ms: int
    actor: str
    tenant: str
    kind: str
    subject: str
    action: str
    before: object
    after: object


def page(
    store: AccountStore, *, tenant: str | None = None, before_id: int | None = None, limit: int = PAGE
) -> list[Entry]:
    """Return the newest lines first, those before a line if one is named. `tenant`: of this one alone. Raises NotFoundError."""
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(table.c.id < before_id)
    with store.read() as connection:
        if tenant is not None:
            query = query.where(table.c.tenant_id == tenants.find(connection, tenant).id)
        return [_entry(row) for row in connection.execute(query).mappings()]


def note(store: AccountStore, tenant: str, kind: str, subject: str, after: object) -> None:
    """Write a line about what a hub has done, which is no change of the accounts. `tenant` "": of the whole hub. Raises NotFoundError."""
    with store.write() as writer:
        tenant_id = tenants.find(writer.connection, tenant).id if tenant else 0
        writer.audited(tenant_id, kind, subject, after=after)


def trim(store: AccountStore, keep_s: float = KEEP_S) -> int:
    """Forget lines older than this, and return how many."""
    with store.write() as writer:
        is_old = table.c.at_ms < writer.now_ms - int(keep_s * 1000)
        return writer.connection.execute(delete(table).where(is_old)).rowcount


def _entry(row: RowMapping) -> Entry:
    before, after = (json.loads(row[name]) if row[name] else None for name in ("before", "after"))
    return Entry(
        id=row["id"],
        at_ms=row["at_ms"],
        actor=row["actor"],
        tenant=row["tenant"],
        kind=row["kind"],
        subject=row["subject"],
        action=_action(before, after),
        before=before,
        after=after,
    )


def _action(before: object, after: object) -> str:
    if before is None and isinstance(after, dict) and "done" in after:
        return str(after["done"])
    if (before is None) == (after is None):
        return "changed"
    return "created" if before is None else "deleted"
