"""Verbs on tenants: create, list, show, update, suspend, resume, protect, delete.

Knows nothing of queues, sessions and retained messages: a deletion leaves a row in state `deleting` until whoever owns those stores has emptied them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from ipaddress import ip_network

from sqlalchemy import Connection, RowMapping, func, insert, select
from sqlalchemy import delete as delete_from
from sqlalchemy import update as update_table

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_services.auth.port import ClientIdPolicy, TenantState
from iothub_tenants.accounts.counters import next_id
from iothub_tenants.accounts.store import AccountStore, ChangeKind, Writer
from iothub_tenants.accounts.tables import (
    acl_rule,
    admin_user,
    api_key,
    ban,
    device,
    device_group,
    group_member,
    login_session,
    quota_override,
    stream,
    token_issuer,
    usage_hour,
    webhook,
    webhook_attempt,
)
from iothub_tenants.accounts.tables import (
    plan as plan_table,
)
from iothub_tenants.accounts.tables import (
    tenant as table,
)
from iothub_tenants.identity import RESERVED, check_tenant_name, shown

DISPLAY_NAME_LIMIT = 200
BEHIND_ALL = "\x7f"  # behind every character that a name may have

# What belongs to a tenant outside the accounts database; each must be emptied before `finish_deletion`.
OUTSIDE_STORES = ("sessions", "queues", "retained", "usage")

_DEFAULTS: dict[str, object] = {
    "display_name": "",
    "state": TenantState.ACTIVE.value,
    "is_protected": False,
    "client_id_policy": ClientIdPolicy.OWNER.value,
    "is_closed_on_denied_publish": False,
    "is_qos0_queued": False,
    "allowed_networks": "",
    "denied_networks": "",
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant as people see it; `registry.py` has what the hub sees."""

    id: int
    name: str
    display_name: str
    state: TenantState
    plan: str
    is_protected: bool
    client_id_policy: ClientIdPolicy
    is_closed_on_denied_publish: bool
    is_qos0_queued: bool
    allowed_networks: tuple[str, ...]
    denied_networks: tuple[str, ...]
    created_ms: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What `update` changes of a tenant; None leaves a setting as it is. Networks are CIDR ranges; an empty tuple lifts the restriction."""

    display_name: str | None = None
    plan: str | None = None
    client_id_policy: str | None = None
    is_closed_on_denied_publish: bool | None = None
    is_qos0_queued: bool | None = None
    allowed_networks: tuple[str, ...] | None = None
    denied_networks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """A tenant on its way out: what must still be emptied, outside the accounts database."""

    tenant_id: int
    name: str
    remaining: tuple[str, ...] = OUTSIDE_STORES


def create(
    store: AccountStore,
    name: str,
    *,
    plan: str = "standard",
    is_closed: bool = False,
    display_name: str = "",
    client_id_policy: str = ClientIdPolicy.OWNER.value,
    reserved: frozenset[str] = RESERVED,
) -> Tenant:
    """Create a tenant, with one visible rule that lets its devices use all its topics unless `is_closed`.

    Raises:
        ConfigError: the name is malformed or reserved, or an option is unknown.
        ConflictError: the name is taken, or its former bearer is not gone entirely.
        NotFoundError: no such plan.
    """
    settings = Settings(display_name=display_name, client_id_policy=client_id_policy)
    with store.write() as writer:
        created = create_closed(writer, name, plan, reserved)
        if not is_closed:
            _open_up(writer, created.id)
        return write_settings(writer, created, settings)


def list_all(store: AccountStore) -> list[Tenant]:
    """Return all tenants by name, those being deleted included."""
    with store.read() as connection:
        return [_tenant(row) for row in connection.execute(select(table).order_by(table.c.name)).mappings()]


def page(store: AccountStore, after: str, limit: int, *, prefix: str = "", plan: str | None = None) -> list[Tenant]:
    """Return the first tenants behind a name, by name: those whose name begins so, and of this plan."""
    query = select(table).where(table.c.name > after).order_by(table.c.name).limit(limit)
    if prefix:
        query = query.where(table.c.name >= prefix, table.c.name < prefix + BEHIND_ALL)
    if plan is not None:
        query = query.where(table.c.plan == plan)
    with store.read() as connection:
        return [_tenant(row) for row in connection.execute(query).mappings()]


def count(store: AccountStore) -> int:
    """Return how many tenants there are, those being deleted included. Raises BackendError."""
    with store.read() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def highest_id(store: AccountStore) -> int:
    """Return the highest id that was ever given to a tenant, be it gone or not; 0: none was."""
    with store.read() as connection:
        return next_id(connection, table.name) - 1


def missing(store: AccountStore, names: Iterable[str]) -> list[str]:
    """Return those of these names that no tenant has, or one that is being deleted; each once, in their order."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return []
    is_living = table.c.state != TenantState.DELETING.value
    with store.read() as connection:
        found = set(connection.execute(select(table.c.name).where(table.c.name.in_(wanted), is_living)).scalars())
    return [name for name in wanted if name not in found]


def show(store: AccountStore, name: str) -> Tenant:
    """Return one tenant. Raises NotFoundError."""
    with store.read() as connection:
        return find(connection, name)


def update(
    store: AccountStore, name: str, settings: Settings, *, is_expected: Callable[[Tenant], None] | None = None
) -> Tenant:
    """Change what is given, leave the rest. `is_expected` looks at it before, in the same transaction, and what it raises leaves it as it is.

    Raises:
        NotFoundError: no such tenant or plan.
        ConflictError: the tenant is being deleted.
        ConfigError: a value is not one that the setting takes.
    """
    with store.write() as writer:
        found = living(writer.connection, name)
        if is_expected is not None:
            is_expected(found)
        return write_settings(writer, found, settings)


def suspend(store: AccountStore, name: str) -> Tenant:
    """Refuse its connections from now on, keep everything it stored. Idempotent."""
    return _change(store, name, state=TenantState.SUSPENDED.value)


def resume(store: AccountStore, name: str) -> Tenant:
    """End a suspension. Idempotent."""
    return _change(store, name, state=TenantState.ACTIVE.value)


def protect(store: AccountStore, name: str) -> Tenant:
    """Make `delete` refuse this tenant. Idempotent."""
    return _change(store, name, is_protected=True)


def unprotect(store: AccountStore, name: str) -> Tenant:
    """Let `delete` have this tenant again. Idempotent."""
    return _change(store, name, is_protected=False)


def delete(store: AccountStore, name: str) -> Deletion:
    """Remove the tenant's accounts, rules, limits and bans at once and mark it `deleting`; the answer says what is left to empty.

    Idempotent until `finish_deletion`, which frees the name.

    Raises:
        NotFoundError: no such tenant.
        ConflictError: it is protected.
    """
    with store.write() as writer:
        found = find(writer.connection, name)
        if found.is_protected:
            raise ConflictError(f"tenant {name} is protected: run `iothub tenant unprotect {name}` first")
        _remove_belongings(writer.connection, found.id)
        if found.state is not TenantState.DELETING:
            _set(writer, found, {"state": TenantState.DELETING.value})
        return Deletion(found.id, name)


def pending_deletions(store: AccountStore) -> list[Deletion]:
    """Return the tenants in state `deleting`, oldest first: what a starting hub has to finish."""
    query = select(table.c.id, table.c.name).where(table.c.state == TenantState.DELETING.value).order_by(table.c.id)
    with store.read() as connection:
        return [Deletion(tenant_id, name) for tenant_id, name in connection.execute(query)]


def finish_deletion(store: AccountStore, tenant_id: int) -> None:
    """Forget a tenant in state `deleting` whose other stores are empty; its name is free, its id is never used again. Idempotent."""
    with store.write() as writer:
        is_it = (table.c.id == tenant_id) & (table.c.state == TenantState.DELETING.value)
        name = writer.connection.execute(select(table.c.name).where(is_it)).scalar()
        if name is None:
            return
        _remove_belongings(writer.connection, tenant_id)
        writer.connection.execute(delete_from(stream).where(stream.c.tenant_id == tenant_id))
        of_it = select(webhook.c.id).where(webhook.c.tenant_id == tenant_id)
        writer.connection.execute(delete_from(webhook_attempt).where(webhook_attempt.c.webhook_id.in_(of_it)))
        writer.connection.execute(delete_from(webhook).where(webhook.c.tenant_id == tenant_id))
        writer.connection.execute(delete_from(table).where(is_it))
        writer.changed(tenant_id, ChangeKind.TENANT, name, before={"name": name, "state": TenantState.DELETING.value})


def require_free(store: AccountStore, name: str, reserved: frozenset[str] = RESERVED) -> None:
    """Raise ConfigError or ConflictError unless a new tenant may have this name now."""
    check_tenant_name(name, reserved)
    with store.read() as connection:
        _refuse_taken(connection, name)


def check_settings(settings: Settings) -> None:
    """Raise ConfigError if one of them is malformed; whether there is such a plan is not asked."""
    _checked(settings)


# --- for other modules of this package, inside their transactions


def find(connection: Connection, name: str) -> Tenant:
    """Return the tenant of this name. Raises NotFoundError."""
    row = connection.execute(select(table).where(table.c.name == name)).mappings().first()
    if row is None:
        raise NotFoundError(f"there is no tenant {shown(name)}: `iothub tenant list` shows them")
    return _tenant(row)


def living(connection: Connection, name: str) -> Tenant:
    """Return the tenant of this name to change something of it. Raises NotFoundError, ConflictError (it is being deleted)."""
    found = find(connection, name)
    if found.state is TenantState.DELETING:
        raise ConflictError(f"tenant {name} is being deleted: nothing of it can be changed")
    return found


def require_plan(connection: Connection, name: str) -> None:
    """Raise NotFoundError unless there is a plan of this name."""
    if connection.execute(select(plan_table.c.name).where(plan_table.c.name == name)).first() is None:
        raise NotFoundError(f"there is no plan {shown(name)}: `iothub plan list` shows them")


def create_closed(writer: Writer, name: str, plan: str, reserved: frozenset[str] = RESERVED) -> Tenant:
    """Create an active tenant without any rule. Raises ConfigError, ConflictError, NotFoundError as `create` does."""
    check_tenant_name(name, reserved)
    _refuse_taken(writer.connection, name)
    require_plan(writer.connection, plan)
    row = _DEFAULTS | {"name": name, "plan": plan, "version": writer.number, "created_ms": writer.now_ms}
    writer.connection.execute(insert(table).values(row))
    created = find(writer.connection, name)
    writer.changed(created.id, ChangeKind.TENANT, name, after=created)
    return created


def write_settings(
    writer: Writer, found: Tenant, settings: Settings, more: Mapping[str, object] | None = None
) -> Tenant:
    """Write what is given, and `more` columns as they are. Raises ConfigError, NotFoundError as `update` does."""
    values = _checked(settings) | dict(more or {})
    if settings.plan is not None:
        require_plan(writer.connection, settings.plan)
    return _set(writer, found, values)


# --- private


def _tenant(row: RowMapping) -> Tenant:
    return Tenant(
        id=row["id"],
        name=row["name"],
        display_name=row["display_name"],
        state=TenantState(row["state"]),
        plan=row["plan"],
        is_protected=row["is_protected"],
        client_id_policy=ClientIdPolicy(row["client_id_policy"]),
        is_closed_on_denied_publish=row["is_closed_on_denied_publish"],
        is_qos0_queued=row["is_qos0_queued"],
        allowed_networks=tuple(row["allowed_networks"].split()),
        denied_networks=tuple(row["denied_networks"].split()),
        created_ms=row["created_ms"],
    )


def _refuse_taken(connection: Connection, name: str) -> None:
    state = connection.execute(select(table.c.state).where(table.c.name == name)).scalar()
    if state == TenantState.DELETING.value:
        raise ConflictError(
            f"the former tenant {name} is still being deleted: try again when it is gone from `iothub tenant list`"
        )
    if state is not None:
        raise ConflictError(f"tenant {name} exists already")


def _open_up(writer: Writer, tenant_id: int) -> None:
    rule = {"scope": "tenant", "subject": "", "effect": "allow", "action": "both", "filter": "#"}
    writer.connection.execute(insert(acl_rule).values(rule | {"tenant_id": tenant_id, "created_ms": writer.now_ms}))


def _change(store: AccountStore, name: str, **values: object) -> Tenant:
    with store.write() as writer:
        return _set(writer, living(writer.connection, name), values)


def _set(writer: Writer, found: Tenant, values: dict[str, object]) -> Tenant:
    if not values:
        return found
    writer.connection.execute(update_table(table).where(table.c.id == found.id).values(values))
    changed = find(writer.connection, found.name)
    if changed != found:
        writer.changed(found.id, ChangeKind.TENANT, found.name, before=found, after=changed)
    return changed


def _remove_belongings(connection: Connection, tenant_id: int) -> None:
    """All but the streams, which say until the end which topics there are to delete."""
    groups = select(device_group.c.id).where(device_group.c.tenant_id == tenant_id)
    connection.execute(delete_from(group_member).where(group_member.c.group_id.in_(groups)))
    users = select(admin_user.c.id).where(admin_user.c.tenant_id == tenant_id)
    connection.execute(delete_from(login_session).where(login_session.c.user_id.in_(users)))
    for owned in (device_group, acl_rule, quota_override, ban, token_issuer, usage_hour, api_key, admin_user, device):
        connection.execute(delete_from(owned).where(owned.c.tenant_id == tenant_id))


def _checked_display_name(text: str) -> str:
    if len(text) > DISPLAY_NAME_LIMIT or not text.isprintable():
        raise ConfigError(
            f"the display name is too long or not printable: expected up to {DISPLAY_NAME_LIMIT} characters on one line"
        )
    return text


def _policy(word: str) -> ClientIdPolicy:
    try:
        return ClientIdPolicy(word)
    except ValueError as error:
        raise ConfigError(f"{shown(word)} is not a client id policy: expected owner, equal or prefix") from error


def _checked(settings: Settings) -> dict[str, object]:
    values: dict[str, object] = {item.name: getattr(settings, item.name) for item in fields(settings)}
    if settings.display_name is not None:
        values["display_name"] = _checked_display_name(settings.display_name)
    if settings.client_id_policy is not None:
        values["client_id_policy"] = _policy(settings.client_id_policy).value
    for name in ("allowed_networks", "denied_networks"):
        if values[name] is not None:
            values[name] = _checked_networks(getattr(settings, name))
    return {name: value for name, value in values.items() if value is not None}


def _checked_networks(networks: tuple[str, ...]) -> str:
    try:
        return " ".join(str(ip_network(network)) for network in networks)
    except ValueError as error:
        raise ConfigError(f"not a network: {error}; expected for example 192.0.2.0/24 or 2001:db8::/32") from error
