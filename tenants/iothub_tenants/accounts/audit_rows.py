"""How a line of the audit log is written: who, what, before, after.

Knows no verb and no store: `store.Writer` writes a line with each change, in its transaction; `audit` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass

from sqlalchemy import ColumnElement, Connection, insert, literal, select
from sqlalchemy.sql.functions import coalesce

from iothub_tenants.accounts.plain import plain
from iothub_tenants.accounts.tables import audit as table
from iothub_tenants.accounts.tables import tenant

SUBJECT_LIMIT = 256
_TEXT_LIMIT = 1000  # characters of one value: MySQL's TEXT holds 64 KiB, and a Topic Filter alone may have as many
_LIST_LIMIT = 50


@dataclass(frozen=True, slots=True)
class Who:
    """Who changes something, of which tenant (0: of the whole hub), and when."""

    actor: str
    tenant_id: int
    at_ms: int


def write(connection: Connection, who: Who, kind: str, subject: str, *, before: object, after: object) -> None:
    """Write one line. The tenant has the name that its row has; without a row, for it is gone, the subject is its name."""
    line = {
        "at_ms": who.at_ms,
        "actor": who.actor[:128],
        "tenant_id": who.tenant_id,
        "tenant": name_of(who.tenant_id, subject if kind == "tenant" else ""),
        "kind": kind,
        "subject": subject[:SUBJECT_LIMIT],
        "before": _text(before),
        "after": _text(after),
    }
    connection.execute(insert(table).values(line))


def name_of(tenant_id: int, otherwise: str) -> ColumnElement[str]:
    """Select the name of a tenant; `otherwise`: it has no row."""
    return coalesce(select(tenant.c.name).where(tenant.c.id == tenant_id).scalar_subquery(), literal(otherwise))


def _text(record: object) -> str:
    if record is None:
        return ""
    row = plain(record) if is_dataclass(record) else record
    return json.dumps(_short(row), ensure_ascii=False, separators=(",", ":"), default=str)


def _short(value: object) -> object:
    """Cut what is too long for a line; a cut is seen."""
    if isinstance(value, str):
        return value if len(value) <= _TEXT_LIMIT else f"{value[:_TEXT_LIMIT]}..."
    if isinstance(value, Mapping):
        return {name: _short(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        cut = [_short(part) for part in value[:_LIST_LIMIT]]
        return cut if len(value) <= _LIST_LIMIT else [*cut, f"and {len(value) - _LIST_LIMIT} more"]
    return value
