"""Verbs on device groups: create, list, show, delete, and who is in them.

Knows no rules: `acl_rules.py` says what a group may do. A device may be in any number of groups of its tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, and_, insert, select
from sqlalchemy import delete as delete_from

from iothub.base.errors import ConflictError, NotFoundError
from iothub_services.auth.port import Scope
from iothub_tenants.accounts import devices, tenants
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import acl_rule, group_member
from iothub_tenants.accounts.tables import device_group as table
from iothub_tenants.identity import check_group_name, shown


@dataclass(frozen=True, slots=True)
class Group:
    """A device group and its members' names."""

    name: str
    tenant: str
    devices: tuple[str, ...]


def create(store: AccountStore, tenant: str, name: str) -> Group:
    """Create an empty group. Raises ConfigError (name), NotFoundError (tenant), ConflictError (exists)."""
    check_group_name(name)
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        is_it = and_(table.c.tenant_id == owner.id, table.c.name == name)
        if writer.connection.execute(select(table.c.id).where(is_it)).first() is not None:
            raise ConflictError(f"tenant {tenant} has a device group {name} already")
        writer.connection.execute(insert(table).values(tenant_id=owner.id, name=name, created_ms=writer.now_ms))
        made = Group(name, tenant, ())
        writer.changed(owner.id, ChangeKind.ACL, f"group:{name}", after=made)
        return made


def list_all(store: AccountStore, tenant: str) -> list[Group]:
    """Return the tenant's groups by name, with their members. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        names = select(table.c.name).where(table.c.tenant_id == owner.id).order_by(table.c.name)
        members: dict[str, list[str]] = {name: [] for name in connection.execute(names).scalars()}
        for group, device in connection.execute(devices.memberships(owner.id)):
            members[group].append(device)
        return [Group(name, tenant, tuple(found)) for name, found in members.items()]


def show(store: AccountStore, tenant: str, name: str) -> Group:
    """Return one group. Raises NotFoundError."""
    for group in list_all(store, tenant):
        if group.name == name:
            return group
    raise NotFoundError(f"tenant {tenant} has no device group {shown(name)}: create it first")


def delete(store: AccountStore, tenant: str, name: str) -> None:
    """Remove the group with the rules that name it; its devices stay. Raises NotFoundError, ConflictError."""
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        group_id = devices.required_group(writer.connection, owner, name)
        writer.connection.execute(delete_from(group_member).where(group_member.c.group_id == group_id))
        rules = and_(
            acl_rule.c.tenant_id == owner.id, acl_rule.c.scope == Scope.GROUP.value, acl_rule.c.subject == name
        )
        writer.connection.execute(delete_from(acl_rule).where(rules))
        writer.connection.execute(delete_from(table).where(table.c.id == group_id))
        writer.changed(owner.id, ChangeKind.ACL, f"group:{name}", before={"name": name})


def join(store: AccountStore, tenant: str, group: str, device: str) -> devices.Device:
    """Put a device into a group. Idempotent. Raises NotFoundError, ConflictError."""
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        device_id = devices.required_id(writer.connection, owner, device)
        group_id = devices.required_group(writer.connection, owner, group)
        if devices.add_member(writer.connection, device_id, group_id):
            writer.changed(owner.id, ChangeKind.ACL, f"device:{device}", after={"done": "joined", "group": group})
        return devices.find(writer.connection, owner, device)


def row_ids(connection: Connection, tenant_id: int) -> dict[str, int]:
    """Return the row ids of a tenant's groups by name."""
    query = select(table.c.name, table.c.id).where(table.c.tenant_id == tenant_id)
    return {name: row_id for name, row_id in connection.execute(query)}  # noqa: C416  a Row is no pair


def insert_members(connection: Connection, tenant_id: int, groups_of: Mapping[str, Iterable[str]]) -> None:
    """Put devices that are in no group yet into the groups named for each; all exist. The caller puts the line into the change log."""
    group_ids = row_ids(connection, tenant_id)
    device_ids = devices.row_ids(connection, tenant_id, [name for name, groups in groups_of.items() if groups])
    rows = [
        {"device_id": device_id, "group_id": group_ids[group]}
        for name, device_id in device_ids.items()
        for group in groups_of[name]
    ]
    if rows:
        connection.execute(insert(group_member), rows)


def leave(store: AccountStore, tenant: str, group: str, device: str) -> devices.Device:
    """Take a device out of a group. Idempotent. Raises NotFoundError, ConflictError."""
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        device_id = devices.required_id(writer.connection, owner, device)
        group_id = devices.required_group(writer.connection, owner, group)
        is_it = and_(group_member.c.device_id == device_id, group_member.c.group_id == group_id)
        if writer.connection.execute(delete_from(group_member).where(is_it)).rowcount:
            writer.changed(owner.id, ChangeKind.ACL, f"device:{device}", after={"done": "left", "group": group})
        return devices.find(writer.connection, owner, device)
