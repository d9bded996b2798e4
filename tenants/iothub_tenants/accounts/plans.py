"""Verbs on plans: set, unset, list, show, delete.

Knows no tenant's own limits and no figures in use. A tenant names exactly one plan; what the plan says, tenant and device may override.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, func, insert, select, update
from sqlalchemy import delete as delete_from

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_services.quota.grammar import Limits, parse_limits
from iothub_tenants.accounts import limits as stored
from iothub_tenants.accounts.store import AccountStore, ChangeKind, Writer
from iothub_tenants.accounts.tables import plan as table
from iothub_tenants.accounts.tables import plan_quota, tenant
from iothub_tenants.identity import check_plan_name, shown

BUILT_IN = ("standard", "unlimited")
MAX_WEIGHT = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan. `limits`: canonical text of the quota grammar; a name that is absent is not limited. `tenants`: how many have it."""

    name: str
    limits: str
    weight: int  # share of its tenants in fair scheduling
    tenants: int
    created_ms: int


def set_plan(store: AccountStore, name: str, limits: str | Iterable[str] = (), *, weight: int | None = None) -> Plan:
    """Create a plan, or change what is given of an existing one.

    Raises:
        ConfigError: the name, a limit or the weight is malformed.
    """
    check_plan_name(name)
    if weight is not None and not 1 <= weight <= MAX_WEIGHT:
        raise ConfigError(f"the weight of a plan is 1 to {MAX_WEIGHT}, got {weight}")
    parsed = parse_limits(limits)
    with store.write() as writer:
        write_plan(writer, name, parsed, weight)
        return _find(writer.connection, name)


def unset(store: AccountStore, name: str, quotas: Iterable[str]) -> Plan:
    """Remove limits from a plan by name: they are unlimited there. Raises ConfigError (unknown quota), NotFoundError (plan)."""
    with store.write() as writer:
        _find(writer.connection, name)
        stored.remove(writer.connection, plan_quota, {"plan": name}, quotas)
        _changed(writer, name)
        return _find(writer.connection, name)


def list_all(store: AccountStore) -> list[Plan]:
    """Return all plans by name."""
    with store.read() as connection:
        rows = connection.execute(select(table).order_by(table.c.name)).mappings().all()
        return [_plan(connection, row) for row in rows]


def show(store: AccountStore, name: str) -> Plan:
    """Return one plan. Raises NotFoundError."""
    with store.read() as connection:
        return _find(connection, name)


def delete(store: AccountStore, name: str) -> None:
    """Remove a plan that no tenant has. Raises NotFoundError, ConflictError (in use, or built in)."""
    with store.write() as writer:
        found = _find(writer.connection, name)
        if name in BUILT_IN:
            raise ConflictError(f"plan {name} is built in: it can be changed, not deleted")
        if found.tenants:
            raise ConflictError(f"plan {name} is in use (tenants: {found.tenants}): give them another one first")
        writer.connection.execute(delete_from(plan_quota).where(plan_quota.c.plan == name))
        writer.connection.execute(delete_from(table).where(table.c.name == name))
        writer.changed(0, ChangeKind.PLAN, name)


def write_plan(writer: Writer, name: str, limits: Limits, weight: int | None) -> None:
    """Create or change a plan inside the caller's transaction."""
    if writer.connection.execute(select(table.c.name).where(table.c.name == name)).first() is None:
        row = {"name": name, "weight": weight or 1, "created_ms": writer.now_ms}
        writer.connection.execute(insert(table).values(row))
    elif weight is not None:
        writer.connection.execute(update(table).where(table.c.name == name).values(weight=weight))
    stored.merge(writer.connection, plan_quota, {"plan": name}, limits)
    _changed(writer, name)


def _changed(writer: Writer, name: str) -> None:
    writer.changed(0, ChangeKind.PLAN, name)
    writer.touch(tenant.c.plan == name)


def _find(connection: Connection, name: str) -> Plan:
    row = connection.execute(select(table).where(table.c.name == name)).mappings().first()
    if row is None:
        raise NotFoundError(f"there is no plan {shown(name)}: `iothub plan list` shows them")
    return _plan(connection, row)


def _plan(connection: Connection, row: RowMapping) -> Plan:
    name = row["name"]
    tenants = connection.execute(select(func.count()).select_from(tenant).where(tenant.c.plan == name)).scalar_one()
    text = stored.load_text(connection, plan_quota, plan_quota.c.plan == name)
    return Plan(name, text, row["weight"], tenants, row["created_ms"])
