"""The accounts as the hub sees them: one tenant or one device in one consistent read. Fulfils `iothub_services.auth.port.Accounts`.

Knows no cache, no policy and no verb. All methods block: the hub calls them in threads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, and_, select

from iothub_services.auth.port import (
    Action,
    Ban,
    BanKind,
    ClientIdPolicy,
    CredentialKind,
    DeviceRecord,
    Effect,
    Rule,
    Scope,
    TenantRecord,
    TenantState,
)
from iothub_tenants.accounts import bans, limits, plans, token_issuers
from iothub_tenants.accounts.devices import CredentialForm
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import (
    acl_rule,
    device,
    device_group,
    group_member,
    plan,
    quota_override,
    tenant,
)

T = TypeVar("T")

_KINDS = {CredentialForm.X509.value: CredentialKind.X509, CredentialForm.JWT.value: CredentialKind.JWT}


class Registry:
    """Looks up tenants and devices. May be used from any thread.

    A name is the one that was asked for byte by byte: MariaDB takes blanks at the end for nothing, PostgreSQL stores no NUL.
    """

    def __init__(self, store: AccountStore) -> None:
        self._store = store

    def find_tenant(self, name: str) -> TenantRecord | None:
        """Return the tenant with its tenant and group rules, bans in force, token issuers and limits; None without one. Raises BackendError."""
        if "\0" in name:
            return None
        found = self._tenant(tenant.c.name == name)
        return found if found is not None and found.name == name else None

    def tenant_by_id(self, tenant_id: int) -> TenantRecord | None:
        """Return the tenant as `find_tenant` does: a line of the change log has only its id. Raises BackendError."""
        return self._tenant(tenant.c.id == tenant_id)

    def find_device(self, tenant_id: int, name: str) -> DeviceRecord | None:
        """Return the device with its groups, own rules and own limits; None if there is none. Raises BackendError."""
        return self.find_devices(tenant_id, (name,)).get(name)

    def find_devices(self, tenant_id: int, names: Collection[str]) -> dict[str, DeviceRecord]:
        """Return by name those devices that exist, as `find_device` does: as many queries for all as for one. Raises BackendError."""
        asked = {name for name in names if "\0" not in name}
        if not asked:
            return {}
        with self._store.read() as connection:
            is_asked = and_(device.c.tenant_id == tenant_id, _is_among(device.c.name, asked))
            rows = connection.execute(select(device).where(is_asked)).mappings()
            found = {row["name"]: row for row in rows if row["name"] in asked}
            return dict(_devices(connection, tenant_id, found)) if found else {}

    def device_limits(self, tenant_id: int) -> dict[str, str]:
        """Return the own limits, as text of the grammar, of the tenant's devices that have any. Raises BackendError."""
        with self._store.read() as connection:
            return _limits(connection, tenant_id, quota_override.c.device != "")

    def tenant_names(self) -> dict[int, str]:
        """Return all tenants' names by id, those being deleted included. Raises BackendError."""
        with self._store.read() as connection:
            rows = connection.execute(select(tenant.c.id, tenant.c.name).order_by(tenant.c.id))
            return {row.id: row.name for row in rows}

    def tenants_on_plan(self, name: str) -> list[int]:
        """Return the ids of the tenants that a change of this plan concerns, those on plans that inherit from it included. Raises BackendError."""
        with self._store.read() as connection:
            query = select(tenant.c.id).where(tenant.c.plan.in_(plans.family(connection, name))).order_by(tenant.c.id)
            return list(connection.execute(query).scalars())

    def _tenant(self, is_it: ColumnElement[bool]) -> TenantRecord | None:
        query = select(tenant, plan.c.weight).join(plan, tenant.c.plan == plan.c.name).where(is_it)
        with self._store.read() as connection:
            row = connection.execute(query).mappings().first()
            return None if row is None else _tenant(connection, row, self._store.now_ms())


def _tenant(connection: Connection, row: RowMapping, now_ms: int) -> TenantRecord:
    tenant_id = row["id"]
    own = and_(quota_override.c.tenant_id == tenant_id, quota_override.c.device == "")
    return TenantRecord(
        id=tenant_id,
        name=row["name"],
        state=TenantState(row["state"]),
        version=row["version"],
        client_id_policy=ClientIdPolicy(row["client_id_policy"]),
        plan=row["plan"],
        plan_limits=plans.text_in_force(connection, row["plan"]),
        limits=limits.load_text(connection, quota_override, own),
        weight=row["weight"],
        rules=_rules(connection, and_(acl_rule.c.tenant_id == tenant_id, acl_rule.c.scope != Scope.DEVICE.value)),
        bans=tuple(_ban(found) for found in bans.in_force(connection, tenant_id, now_ms)),
        allowed_networks=tuple(row["allowed_networks"].split()),
        denied_networks=tuple(row["denied_networks"].split()),
        is_closed_on_denied_publish=row["is_closed_on_denied_publish"],
        is_qos0_queued=row["is_qos0_queued"],
        token_issuers=token_issuers.records(connection, tenant_id),
    )


def _devices(
    connection: Connection, tenant_id: int, found: Mapping[str, RowMapping]
) -> Iterator[tuple[str, DeviceRecord]]:
    are_their_rules = and_(
        acl_rule.c.tenant_id == tenant_id, acl_rule.c.scope == Scope.DEVICE.value, _is_among(acl_rule.c.subject, found)
    )
    rules: dict[str, list[Rule]] = defaultdict(list)
    for rule in _rules(connection, are_their_rules):
        rules[rule.subject].append(rule)
    groups = _groups(connection, [row["id"] for row in found.values()])
    texts = _limits(connection, tenant_id, _is_among(quota_override.c.device, found))
    for name, row in found.items():
        yield (
            name,
            DeviceRecord(
                name=name,
                credential=row["credential"],
                credential_kind=_KINDS.get(row["credential_kind"], CredentialKind.SECRET),
                is_enabled=row["is_enabled"],
                groups=tuple(groups.get(row["id"], ())),
                rules=tuple(rules.get(name, ())),
                limits=texts.get(name, ""),
                id=row["id"],
            ),
        )


def _is_among(column: Column[T], values: Collection[T]) -> ColumnElement[bool]:
    """The condition that a column has one of these values. A list is written into the SQL anew at each call: a third of a look-up of one."""
    return column == next(iter(values)) if len(values) == 1 else column.in_(values)


def _groups(connection: Connection, device_ids: Collection[int]) -> dict[int, list[str]]:
    """Return the names of each device's groups, ascending."""
    query = select(group_member.c.device_id, device_group.c.name)
    query = query.join(device_group, group_member.c.group_id == device_group.c.id)
    found: dict[int, list[str]] = defaultdict(list)
    for device_id, name in connection.execute(
        query.where(_is_among(group_member.c.device_id, device_ids)).order_by(device_group.c.name)
    ):
        found[device_id].append(name)
    return found


def _limits(connection: Connection, tenant_id: int, where: ColumnElement[bool]) -> dict[str, str]:
    """Return the text of each device's own limits, if it has any."""
    query = select(quota_override.c.device, quota_override.c.value)
    query = query.where(quota_override.c.tenant_id == tenant_id, where)
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in connection.execute(query.order_by(quota_override.c.device, quota_override.c.name)):
        found[name].append(value)
    return {name: " ".join(values) for name, values in found.items()}


def _rules(connection: Connection, where: ColumnElement[bool]) -> tuple[Rule, ...]:
    rows = connection.execute(select(acl_rule).where(where).order_by(acl_rule.c.id)).mappings()
    return tuple(
        Rule(Scope(row["scope"]), row["subject"], Effect(row["effect"]), Action(row["action"]), row["filter"])
        for row in rows
    )


def _ban(row: RowMapping) -> Ban:
    return Ban(BanKind(row["kind"]), row["value"], row["until_ms"] / 1000, row["reason"])
