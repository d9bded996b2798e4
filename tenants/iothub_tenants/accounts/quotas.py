"""Verbs on a tenant's and a device's own limits: set, unset, list, and what is in force after plan, tenant and device.

Knows no figures in use: what is left of a limit is the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, and_, bindparam, delete, insert, select

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import DRY_RUN, Limits, parse_limits
from iothub_services.quota.names import Scope
from iothub_services.quota.resolve import Explanation, explain
from iothub_tenants.accounts import devices, plans, tenants
from iothub_tenants.accounts import limits as stored
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import quota_override as table

IsExpected = Callable[[list["Override"]], None]
"""Looks at the own limits before a change, in the same transaction; what it raises leaves them as they are."""

Origin = Literal["plan", "tenant", "device", "none"]


@dataclass(frozen=True, slots=True)
class Override:
    """One limit of a tenant (`device` is "") or of a device. `limits`: its part of the grammar's text, `name=value/window`."""

    name: str
    tenant: str
    device: str
    limits: str


@dataclass(frozen=True, slots=True)
class EffectiveLimit:
    """What is in force for one quota name, with what is only tried out, and which layer said so; `none`: nobody, so it is unlimited.

    With the origin `plan`: which plan, and whether the tenant's own plan inherits it from there.
    """

    name: str
    limits: str
    origin: Origin
    plan: str | None = None
    is_inherited: bool = False


def set_limits(
    store: AccountStore, tenant: str, limits: str | Iterable[str], device: str | None = None
) -> list[Override]:
    """Set limits of a tenant, or of one of its devices; other names stay as they are. Returns all its own limits.

    Raises:
        ConfigError: a limit is malformed, none is given, or it cannot be set for one device.
        NotFoundError: no such tenant or device.
        ConflictError: the tenant is being deleted.
    """
    parsed = parse_limits(limits)
    if not parsed:
        raise ConfigError("no limit given: expected name=value, for example connections=100")
    return change(store, tenant, parsed, (), device)


def merge_many(connection: Connection, owner: tenants.Tenant, added: Mapping[str, Limits]) -> list[Override]:
    """Return what limits of many devices (`""`: of the tenant itself) are once `added` is merged into them; `write_many` writes it.

    One query, however many devices. Raises ConfigError: a dry run of a limit that is not counted.
    """
    known: dict[str, list[str]] = {}
    for override in _overrides(connection, owner, None):
        known.setdefault(override.device, []).append(override.limits)
    return [
        Override(name, owner.name, device, value)
        for device, limits in added.items()
        for name, value in stored.merged(parse_limits(known.get(device, ())), limits).items()
    ]


def write_many(connection: Connection, owner: tenants.Tenant, overrides: Sequence[Override]) -> None:
    """Write limits in place of those of the same names; the caller puts the line into the change log."""
    rows = [
        {"tenant_id": owner.id, "device": override.device, "name": override.name, "value": override.limits}
        for override in overrides
    ]
    if not rows:
        return
    is_it = (table.c[column] == bindparam(f"old_{column}") for column in ("tenant_id", "device", "name"))
    old = [{f"old_{column}": value for column, value in row.items() if column != "value"} for row in rows]
    connection.execute(delete(table).where(*is_it), old)
    connection.execute(insert(table), rows)


def unset(store: AccountStore, tenant: str, names: Iterable[str], device: str | None = None) -> list[Override]:
    """Remove limits by name; the layers below are in force again. Idempotent. Returns all its own limits that are left.

    Raises:
        ConfigError: unknown quota name.
        NotFoundError: no such tenant or device.
        ConflictError: the tenant is being deleted.
    """
    return change(store, tenant, {}, names, device)


def change(
    store: AccountStore,
    tenant: str,
    added: Limits,
    removed: Iterable[str],
    device: str | None = None,
    *,
    is_expected: IsExpected | None = None,
) -> list[Override]:
    """Set limits and remove others by name, at once. Raises as `set_limits` and `unset` do, and what `is_expected` raises."""
    if device is not None:
        refuse_wider(added)
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        if device is not None:
            devices.required_id(writer.connection, owner, device)
        known = _overrides(writer.connection, owner, device or "")
        if is_expected is not None:
            is_expected(known)
        whose = {"tenant_id": owner.id, "device": device or ""}
        is_removed = stored.remove(writer.connection, table, whose, removed)
        stored.merge(writer.connection, table, whose, added)
        made = _overrides(writer.connection, owner, device or "")
        if added or is_removed:
            writer.changed(owner.id, ChangeKind.QUOTA, device or "*", before=_texts(known), after=_texts(made))
        return made


def list_all(store: AccountStore, tenant: str, device: str | None = None) -> list[Override]:
    """Return a device's own limits, or the tenant's and all its devices'. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        if device is not None:
            devices.required_id(connection, owner, device)
        return _overrides(connection, owner, device)


def effective(store: AccountStore, tenant: str, device: str | None = None) -> list[EffectiveLimit]:
    """Return what is in force for every quota name, in the order of the documentation. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        layers = plans.layers(connection, owner.plan)
        own = stored.load(connection, table, and_(table.c.tenant_id == owner.id, table.c.device == ""))
        its: Limits = {}
        if device is not None:
            devices.required_id(connection, owner, device)
            its = stored.load(connection, table, and_(table.c.tenant_id == owner.id, table.c.device == device))
    plan = parse_limits(stored.overlay(text for _, text in layers))
    named_by = {name: each for each, text in reversed(layers) for name in stored.names_in(text)}
    return [_effective(found, owner.plan, named_by) for found in explain(plan, own, its)]


def refuse_wider(parsed: Limits) -> None:
    """Raise ConfigError for a limit that is counted for more than one device, or is the same for all of them."""
    for quota in parsed:
        if quota.is_for_devices:
            continue
        is_shared = quota.scope in (Scope.TENANT, Scope.GROUP)
        why = f"counted for a whole {quota.scope.value}" if is_shared else "the same for all devices of a tenant"
        raise ConfigError(f"{quota.value} is {why}: it cannot be set for one device")


def _effective(found: Explanation, own_plan: str, named_by: Mapping[str, str]) -> EffectiveLimit:
    """`named_by`: the plan that decides about a name."""
    name = found.quota.value
    on_trial = f" {DRY_RUN}{name}={found.dry_run_text}" if found.dry_run_text else ""
    plan = named_by[name] if found.layer == "plan" else None
    return EffectiveLimit(
        name, f"{name}={found.text}{on_trial}", found.layer or "none", plan, is_inherited=plan not in (None, own_plan)
    )


def _texts(overrides: Sequence[Override]) -> dict[str, str]:
    """Return limits as the audit log has them."""
    return {override.name: override.limits for override in overrides}


def _overrides(connection: Connection, owner: tenants.Tenant, device: str | None) -> list[Override]:
    query = select(table).where(table.c.tenant_id == owner.id).order_by(table.c.device, table.c.name)
    if device is not None:
        query = query.where(table.c.device == device)
    rows = connection.execute(query).mappings()
    return [Override(row["name"], owner.name, row["device"], row["value"]) for row in rows]
