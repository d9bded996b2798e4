"""Verbs on plans: create, set, unset, list, show, delete; and what a plan says together with those it inherits from.

Knows no tenant's own limits and no figures in use. A tenant names exactly one plan; what the plan says, tenant and device may override.

Theory. A plan inherits while it is asked, not when it is made: what it does not name is what its parent says now, so a change of the parent
reaches all that inherit from it. Parents are checked in the one transaction that writes them, and all writers stand in one row: there is no cycle,
and no parent is missing. Both are no foreign key: a table that refers to itself can neither be copied nor emptied in one order on every server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

STANDARD = "standard"
BUILT_IN = (STANDARD, "unlimited")
MAX_WEIGHT = 100
MOST_LEVELS = 8
"""Plans from one without a parent down to the last that inherits from it: each is one more query when a tenant is read."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan. `limits`, its own, and `inherited` are texts of the quota grammar; a name in neither is not limited. `tenants`: how many have it."""

    name: str
    parent: str | None
    limits: str
    inherited: str
    weight: int  # share of its tenants in fair scheduling; not inherited
    tenants: int
    created_ms: int


def create(
    store: AccountStore,
    name: str,
    limits: str | Iterable[str] = (),
    *,
    parent: str = STANDARD,
    weight: int | None = None,
) -> Plan:
    """Create a plan that inherits what it does not name.

    Raises:
        ConfigError: the name, a limit or the weight is malformed, or too many plans stand above it.
        ConflictError: the name is taken.
        NotFoundError: no such parent.
    """
    check_plan_name(name)
    check_weight(weight)
    parsed = parse_limits(limits)
    with store.write() as writer:
        if _row(writer.connection, name) is not None:
            raise ConflictError(f"plan {name} exists already: `iothub plan set {name}` changes it")
        _check_parent(writer.connection, name, parent)
        insert_plan(writer, name, parsed, parent=parent, weight=weight or 1)
        return _find(writer.connection, name)


def set_plan(
    store: AccountStore,
    name: str,
    limits: str | Iterable[str] = (),
    *,
    without: Iterable[str] = (),
    parent: str | None = None,
    weight: int | None = None,
    is_expected: Callable[[Plan], None] | None = None,
) -> Plan:
    """Change what is given of a plan, and remove the limits `without`.

    `is_expected` looks at it before, in the same transaction, and what it raises leaves it as it is.

    Raises:
        ConfigError: a limit or the weight is malformed, or the chain of plans is too long.
        ConflictError: a built-in plan is given a parent, or the parent inherits from this plan.
        NotFoundError: no such plan or parent.
    """
    check_weight(weight)
    parsed = parse_limits(limits)
    with store.write() as writer:
        if _row(writer.connection, name) is None:
            raise NotFoundError(f"there is no plan {shown(name)}: create it first: `iothub plan create {name}`")
        known = _find(writer.connection, name)
        if is_expected is not None:
            is_expected(known)
        if parent is not None:
            _check_parent(writer.connection, name, parent)
        values = {column: value for column, value in (("parent", parent), ("weight", weight)) if value is not None}
        if values:
            writer.connection.execute(update(table).where(table.c.name == name).values(values))
        stored.remove(writer.connection, plan_quota, {"plan": name}, without)
        stored.merge(writer.connection, plan_quota, {"plan": name}, parsed)
        return _changed(writer, name, known)


def unset(store: AccountStore, name: str, quotas: Iterable[str]) -> Plan:
    """Remove limits from a plan by name: it inherits them again. Raises ConfigError (unknown quota), NotFoundError (plan)."""
    with store.write() as writer:
        known = _find(writer.connection, name)
        stored.remove(writer.connection, plan_quota, {"plan": name}, quotas)
        return _changed(writer, name, known)


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
    """Remove a plan that no tenant has and no plan inherits from. Raises NotFoundError, ConflictError (in use, or built in)."""
    with store.write() as writer:
        found = _find(writer.connection, name)
        if name in BUILT_IN:
            raise ConflictError(f"plan {name} is built in: it can be changed, not deleted")
        if found.tenants:
            raise ConflictError(f"plan {name} is in use (tenants: {found.tenants}): give them another one first")
        children = _children(writer.connection, [name])
        if children:
            raise ConflictError(
                f"plan {name} is in use: these plans inherit from it: {', '.join(children)}; "
                f"give each another parent first: `iothub plan set {children[0]} --from {found.parent or STANDARD}`"
            )
        writer.connection.execute(delete_from(plan_quota).where(plan_quota.c.plan == name))
        writer.connection.execute(delete_from(table).where(table.c.name == name))
        writer.changed(0, ChangeKind.PLAN, name, before=found)


def check_weight(weight: int | None) -> None:
    """Raise ConfigError unless a plan may have this weight; None: it is not given."""
    if weight is not None and not 1 <= weight <= MAX_WEIGHT:
        raise ConfigError(f"the weight of a plan is 1 to {MAX_WEIGHT}, got {weight}")


def refuse_parent_of_built_in(name: str) -> None:
    """Raise ConflictError if this plan is built in: it inherits from no plan."""
    if name in BUILT_IN:
        raise ConflictError(f"plan {name} is built in: it inherits from no plan")


# --- for other modules of this package, inside their transactions


def insert_plan(writer: Writer, name: str, limits: Limits, *, parent: str | None, weight: int = 1) -> None:
    """Write a new plan; name, parent and weight are not checked."""
    row = {"name": name, "weight": weight, "created_ms": writer.now_ms, "parent": parent}
    writer.connection.execute(insert(table).values(row))
    stored.merge(writer.connection, plan_quota, {"plan": name}, limits)
    _changed(writer, name, None)


def layers(connection: Connection, name: str) -> list[tuple[str, str]]:
    """Return a plan and those above it, each with its own limits as text; the first that names a limit decides."""
    found: list[tuple[str, str]] = []
    above: str | None = name
    while above is not None and len(found) < MOST_LEVELS:
        found.append((above, stored.load_text(connection, plan_quota, plan_quota.c.plan == above)))
        above = connection.execute(select(table.c.parent).where(table.c.name == above)).scalar()
    return found


def text_in_force(connection: Connection, name: str) -> str:
    """Return what a plan says together with those that it inherits from."""
    return stored.overlay(text for _, text in layers(connection, name))


def family(connection: Connection, name: str) -> list[str]:
    """Return a plan and all that inherit from it: what a change of it concerns."""
    return [each for level in _levels(connection, name) for each in level]


# --- private


def _check_parent(connection: Connection, name: str, parent: str) -> None:
    """Raise unless this plan, new or not, may inherit from that one."""
    refuse_parent_of_built_in(name)
    _find(connection, parent)
    above = [each for each, _ in layers(connection, parent)]
    if name in above:
        cycle = " -> ".join((name, *above[: above.index(name) + 1]))
        raise ConflictError(f"plan {name} cannot inherit from {parent}: {cycle} is a cycle")
    levels = len(above) + len(_levels(connection, name))
    if levels > MOST_LEVELS:
        raise ConfigError(
            f"plan {name} cannot inherit from {parent}: the chain would have {levels} plans, expected at most {MOST_LEVELS}"
        )


def _changed(writer: Writer, name: str, before: Plan | None) -> Plan:
    made = _find(writer.connection, name)
    writer.changed(0, ChangeKind.PLAN, name, before=before, after=made)
    writer.touch(tenant.c.plan.in_(family(writer.connection, name)))
    return made


def _levels(connection: Connection, name: str) -> list[list[str]]:
    """Return the plan, those that inherit from it, those that inherit from these, and so on."""
    levels = [[name]]
    while len(levels) < MOST_LEVELS and (children := _children(connection, levels[-1])):
        levels.append(children)
    return levels


def _children(connection: Connection, names: Iterable[str]) -> list[str]:
    query = select(table.c.name).where(table.c.parent.in_(list(names))).order_by(table.c.name)
    return list(connection.execute(query).scalars())


def _row(connection: Connection, name: str) -> RowMapping | None:
    return connection.execute(select(table).where(table.c.name == name)).mappings().first()


def _find(connection: Connection, name: str) -> Plan:
    row = _row(connection, name)
    if row is None:
        raise NotFoundError(f"there is no plan {shown(name)}: `iothub plan list` shows them")
    return _plan(connection, row)


def _plan(connection: Connection, row: RowMapping) -> Plan:
    name = row["name"]
    tenants = connection.execute(select(func.count()).select_from(tenant).where(tenant.c.plan == name)).scalar_one()
    (_, own), *above = layers(connection, name)
    inherited = stored.without(stored.overlay(text for _, text in above), own)
    return Plan(name, row["parent"], own, inherited, row["weight"], tenants, row["created_ms"])
