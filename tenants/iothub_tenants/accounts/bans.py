"""Verbs on bans: keep a device, a Client Identifier or an address out of a tenant, until a time or for good.

Knows nothing of failed logins: who counts those keeps bans of its own (`iothub_services.auth.failures`).
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, func, insert, or_, select

from iothub.base.errors import ConfigError, NotFoundError
from iothub_services.auth.port import BanKind
from iothub_tenants.accounts import devices, tenants
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import ban as table
from iothub_tenants.identity import check_device_name, shown

CLIENT_ID_LIMIT_BYTES = 256
REASON_LIMIT = 200


@dataclass(frozen=True, slots=True)
class BanEntry:
    """One ban. `until_ms` 0: for good. `value` of an address is a network in CIDR form."""

    tenant: str
    kind: BanKind
    value: str
    until_ms: int
    reason: str
    created_ms: int


def add(store: AccountStore, tenant: str, kind: str, value: str, *, until_ms: int = 0, reason: str = "") -> BanEntry:
    """Ban somebody, or replace the time and reason of the ban that is there.

    Raises:
        ConfigError: the kind, the value, the time (past) or the reason is malformed.
        NotFoundError: no such tenant or device.
        ConflictError: the tenant is being deleted.
    """
    kind_, value = checked(kind, value)
    if len(reason) > REASON_LIMIT or not reason.isprintable():
        raise ConfigError(
            f"the reason is too long or not printable: expected up to {REASON_LIMIT} characters on one line"
        )
    if until_ms < 0 or 0 < until_ms <= store.now_ms():
        raise ConfigError(
            "the end of the ban is in the past: expected a time in the future, or none for a ban without end"
        )
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        if kind_ is BanKind.DEVICE:
            devices.required_id(writer.connection, owner, value)
        known = _found(writer.connection, owner, kind_, value)
        writer.connection.execute(
            delete(table).where(or_(_is(owner.id, kind_, value), _expired(owner.id, writer.now_ms)))
        )
        row = {"kind": kind_.value, "value": value, "until_ms": until_ms, "reason": reason, "created_ms": writer.now_ms}
        writer.connection.execute(insert(table).values(row | {"tenant_id": owner.id}))
        made = BanEntry(tenant, kind_, value, until_ms, reason, writer.now_ms)
        writer.changed(owner.id, ChangeKind.BAN, _changed_subject(kind_, value), before=known, after=made)
        return made


def remove(store: AccountStore, tenant: str, kind: str, value: str) -> None:
    """Lift a ban. Raises NotFoundError, ConflictError, ConfigError (the value is malformed)."""
    kind_, value = checked(kind, value)
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        known = _found(writer.connection, owner, kind_, value)
        if known is None:
            raise NotFoundError(
                f"tenant {tenant} has no ban of {kind_.value} {shown(value)}; `iothub ban list {tenant}` shows them"
            )
        writer.connection.execute(delete(table).where(_is(owner.id, kind_, value)))
        writer.changed(owner.id, ChangeKind.BAN, _changed_subject(kind_, value), before=known)


def list_all(store: AccountStore, tenant: str) -> list[BanEntry]:
    """Return the bans in force by kind and value. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        return [_entry(row, tenant) for row in in_force(connection, owner.id, store.now_ms())]


def in_force(connection: Connection, tenant_id: int, now_ms: int) -> list[RowMapping]:
    """Read the rows of the bans in force."""
    lasts = or_(table.c.until_ms == 0, table.c.until_ms > now_ms)
    query = select(table).where(table.c.tenant_id == tenant_id, lasts).order_by(table.c.kind, table.c.value)
    return list(connection.execute(query).mappings())


def count_in_force(store: AccountStore) -> dict[str, int]:
    """Count the bans in force of all tenants by kind, for the metric. Raises BackendError."""
    lasts = or_(table.c.until_ms == 0, table.c.until_ms > store.now_ms())
    query = select(table.c.kind, func.count()).where(lasts).group_by(table.c.kind)
    with store.read() as connection:
        return {str(kind): int(count) for kind, count in connection.execute(query)}


def checked(kind: str, value: str) -> tuple[BanKind, str]:
    """Read what is banned; an address becomes its network. Raises ConfigError."""
    try:
        known = BanKind(kind)
    except ValueError as error:
        raise ConfigError(f"{shown(kind)} cannot be banned: expected device, client_id or address") from error
    if known is BanKind.DEVICE:
        check_device_name(value)
    elif known is BanKind.ADDRESS:
        value = _network(value)
    elif not 1 <= len(value.encode(errors="replace")) <= CLIENT_ID_LIMIT_BYTES or "\0" in value:
        raise ConfigError(f"the client id is empty, longer than {CLIENT_ID_LIMIT_BYTES} bytes or holds a NUL")
    return known, value


def checked_reason(reason: str) -> str:
    """Return the reason. Raises ConfigError unless it is one short line."""
    if len(reason) > REASON_LIMIT or not reason.isprintable():
        raise ConfigError(
            f"the reason is too long or not printable: expected up to {REASON_LIMIT} characters on one line"
        )
    return reason


def _found(connection: Connection, owner: tenants.Tenant, kind: BanKind, value: str) -> BanEntry | None:
    row = connection.execute(select(table).where(_is(owner.id, kind, value))).mappings().first()
    return None if row is None else _entry(row, owner.name)


def _entry(row: RowMapping, tenant: str) -> BanEntry:
    return BanEntry(tenant, BanKind(row["kind"]), row["value"], row["until_ms"], row["reason"], row["created_ms"])


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ConfigError(
            f"not an address or network: {error}; expected for example 192.0.2.7 or 2001:db8::/32"
        ) from error


def _is(tenant_id: int, kind: BanKind, value: str) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == tenant_id, table.c.kind == kind.value, table.c.value == value)


def _expired(tenant_id: int, now_ms: int) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == tenant_id, table.c.until_ms > 0, table.c.until_ms <= now_ms)


def _changed_subject(kind: BanKind, value: str) -> str:
    return f"{kind.value}:{value}"[:256]
