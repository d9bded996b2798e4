"""Verbs on devices: create, list, show, secrets, enable and disable, delete.

Knows no MQTT and no hash function: `iothub_services.auth.secrets` makes and checks credentials. A secret is returned once, by the call that made it,
and stored only as a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    and_,
    insert,
    select,
    update,
)
from sqlalchemy import (
    delete as delete_from,
)

from iothub.base.distinguished_names import canonical
from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_services.auth.port import BanKind, Scope
from iothub_services.auth.secrets import MAX_SECRET_BYTES, generate_secret, hash_generated, hash_password, is_acceptable
from iothub_tenants.accounts import streams, tenants
from iothub_tenants.accounts.store import AccountStore, ChangeKind, Writer
from iothub_tenants.accounts.tables import acl_rule, ban, device_group, group_member, quota_override
from iothub_tenants.accounts.tables import device as table
from iothub_tenants.identity import check_device_name, shown

SUBJECT_LIMIT = 512
_LOOKUP = 500  # names per query


class CredentialForm(StrEnum):
    """What a device proves itself with, finer than `auth.port.CredentialKind`: both kinds of secrets are distinguished."""

    GENERATED = "generated"  # a secret of ours, >= 128 bit: salted HMAC with the pepper
    PASSWORD = "password"  # noqa: S105  chosen by people: argon2id
    X509 = "x509"  # the subject, or the common name, of a certificate that the listener has verified
    JWT = "jwt"  # a token of one of the tenant's issuers
    NONE = "none"  # nothing fits it: a secret must be made first


@dataclass(frozen=True, slots=True)
class Device:
    """One account of a tenant; its credential stays in the store."""

    name: str
    tenant: str
    credential: CredentialForm
    is_enabled: bool
    groups: tuple[str, ...]
    created_ms: int
    changed_ms: int
    certificate_subject: str | None = None  # no secret; of X.509 devices only


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A device and the secret that was made for it; `secret` is None where the caller chose the password. Shown once, never logged."""

    device: Device
    secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credential:
    """A hash as it is stored."""

    form: CredentialForm
    value: str = field(repr=False)


BY_TOKEN = Credential(CredentialForm.JWT, "")


def create(
    store: AccountStore,
    tenant: str,
    name: str,
    *,
    password: str | None = None,
    groups: Sequence[str] = (),
    with_token: bool = False,
) -> NewSecret:
    """Create a device with the given password, with a generated secret that is returned once, or for tokens only.

    Raises:
        ConfigError: the name or the password is malformed.
        NotFoundError: no such tenant or group.
        ConflictError: the tenant has a device of this name, or is being deleted.
    """
    check_device_name(name)
    secret, credential = (None, BY_TOKEN) if with_token else make_credential(store, password)
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        if writer.connection.execute(select(table.c.id).where(_is_device(owner.id, name))).first() is not None:
            raise ConflictError(
                f"tenant {tenant} has a device {name} already: `iothub device rotate-secret {tenant} {name}` makes a new secret"
            )
        insert_devices(writer, owner.id, [(name, credential)])
        device_id = required_id(writer.connection, owner, name)
        for group in groups:
            add_member(writer.connection, device_id, required_group(writer.connection, owner, group))
        made = find(writer.connection, owner, name)
        writer.changed(owner.id, ChangeKind.DEVICE, name, after=made)
        return NewSecret(made, secret)


def list_all(store: AccountStore, tenant: str) -> list[Device]:
    """Return the tenant's devices by name. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        groups: dict[str, list[str]] = {}
        for group, name in connection.execute(memberships(owner.id)):
            groups.setdefault(name, []).append(group)
        query = select(table).where(table.c.tenant_id == owner.id).order_by(table.c.name)
        return [_device(row, tenant, groups.get(row["name"], ())) for row in connection.execute(query).mappings()]


def page(store: AccountStore, tenant: str, after: str, limit: int, *, prefix: str = "") -> list[Device]:
    """Return the first devices behind a name, by name: those whose name begins so. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        query = select(table).where(table.c.tenant_id == owner.id, table.c.name > after)
        if prefix:
            query = query.where(table.c.name >= prefix, table.c.name < prefix + tenants.BEHIND_ALL)
        rows = connection.execute(query.order_by(table.c.name).limit(limit)).mappings().all()
        groups: dict[str, list[str]] = {}
        if rows:
            is_between = table.c.name.between(rows[0]["name"], rows[-1]["name"])
            for group, name in connection.execute(memberships(owner.id).where(is_between)):
                groups.setdefault(name, []).append(group)
        return [_device(row, tenant, groups.get(row["name"], ())) for row in rows]


def show(store: AccountStore, tenant: str, name: str) -> Device:
    """Return one device. Raises NotFoundError."""
    with store.read() as connection:
        return find(connection, tenants.find(connection, tenant), name)


def rotate_secret(store: AccountStore, tenant: str, name: str) -> NewSecret:
    """Replace whatever credential the device has by a new generated secret, returned once. Raises NotFoundError, ConflictError."""
    secret, credential = make_credential(store, None)
    return NewSecret(_set_credential(store, tenant, name, credential), secret)


def set_password(store: AccountStore, tenant: str, name: str, password: str) -> Device:
    """Replace whatever credential the device has by this password. Raises NotFoundError, ConflictError, ConfigError."""
    _, credential = make_credential(store, password)
    return _set_credential(store, tenant, name, credential)


def set_certificate(store: AccountStore, tenant: str, name: str, subject: str) -> Device:
    """Let the device in by the certificate with this subject (`CN=dev1,O=Acme`) or common name (`dev1`), and by nothing else.

    Raises NotFoundError, ConflictError, ConfigError.
    """
    if "=" in subject:
        subject = canonical(subject)
    if not 1 <= len(subject) <= SUBJECT_LIMIT or not subject.isprintable():
        raise ConfigError(
            f"the certificate's subject is not 1 to {SUBJECT_LIMIT} printable characters: copy it exactly"
        )
    return _set_credential(store, tenant, name, Credential(CredentialForm.X509, subject))


def set_jwt(store: AccountStore, tenant: str, name: str) -> Device:
    """Let the device in by a token of one of the tenant's issuers, and by nothing else. Raises NotFoundError, ConflictError."""
    return _set_credential(store, tenant, name, BY_TOKEN)


def set_credential(store: AccountStore, tenant: str, name: str, credential: Credential) -> Device:
    """Replace whatever credential the device has by one that is hashed already, and checked. Raises NotFoundError, ConflictError."""
    return _set_credential(store, tenant, name, credential)


def enable(store: AccountStore, tenant: str, name: str) -> Device:
    """Let the device connect again. Idempotent. Raises NotFoundError, ConflictError."""
    return change_device(store, tenant, name, {"is_enabled": True})


def disable(store: AccountStore, tenant: str, name: str) -> Device:
    """Refuse the device and close its connections, keep its account. Idempotent. Raises NotFoundError, ConflictError."""
    return change_device(store, tenant, name, {"is_enabled": False})


def delete(store: AccountStore, tenant: str, name: str) -> None:
    """Remove the device with the rules, limits and bans that name it: a successor of the same name inherits nothing.

    Its sessions are the hub's: it ends them when it reads of the deletion, also at its next start.

    Raises NotFoundError, ConflictError.
    """
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        device_id, known = required_id(writer.connection, owner, name), find(writer.connection, owner, name)
        _remove(writer.connection, owner.id, device_id, name)
        writer.changed(owner.id, ChangeKind.DEVICE_DELETED, name, before=known)


# --- for other modules of this package, inside their transactions


def make_credential(store: AccountStore, password: str | None) -> tuple[str | None, Credential]:
    """Hash a chosen password (slow on purpose), or make a secret and hash that; returns what to show, and what to store.

    Called outside transactions.

    Raises:
        ConfigError: this cannot be a password, or the store was opened without the pepper.
    """
    if password is not None:
        check_password(password)
        return None, Credential(CredentialForm.PASSWORD, hash_password(password))
    if not store.pepper:
        raise ConfigError("a secret cannot be generated without the server's pepper: open the store with the pepper")
    secret = generate_secret()
    return secret, Credential(CredentialForm.GENERATED, hash_generated(secret, store.pepper))


def check_password(password: str) -> None:
    """Raise ConfigError unless this can be a password: 1 to 1024 bytes of UTF-8 without U+0000."""
    try:
        octets = password.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("the password is not UTF-8 text") from error
    if not is_acceptable(octets) or b"\0" in octets:
        raise ConfigError(f"the password is empty, longer than {MAX_SECRET_BYTES} bytes or holds a NUL: choose another")


def insert_devices(writer: Writer, tenant_id: int, accounts: Iterable[tuple[str, Credential]]) -> None:
    """Add rows for devices that do not exist yet; the caller puts the line into the change log. Raises ConflictError: a stream has that subject."""
    rows = [
        {
            "tenant_id": tenant_id,
            "name": name,
            "credential_kind": credential.form.value,
            "credential": credential.value,
            "is_enabled": True,
            "created_ms": writer.now_ms,
            "changed_ms": writer.now_ms,
        }
        for name, credential in accounts
    ]
    streams.refuse_subjects(writer.connection, tenant_id, [str(row["name"]) for row in rows])
    if rows:
        writer.connection.execute(insert(table), rows)


def find(connection: Connection, owner: tenants.Tenant, name: str) -> Device:
    """Return one device. Raises NotFoundError."""
    row = connection.execute(select(table).where(_is_device(owner.id, name))).mappings().first()
    if row is None:
        raise _no_device(owner, name)
    names = select(device_group.c.name).join(group_member, group_member.c.group_id == device_group.c.id)
    mine = names.where(group_member.c.device_id == row["id"]).order_by(device_group.c.name)
    return _device(row, owner.name, connection.execute(mine).scalars())


def required_id(connection: Connection, owner: tenants.Tenant, name: str) -> int:
    """Return the device's row id. Raises NotFoundError."""
    device_id = connection.execute(select(table.c.id).where(_is_device(owner.id, name))).scalar()
    if device_id is None:
        raise _no_device(owner, name)
    return int(device_id)


def required_group(connection: Connection, owner: tenants.Tenant, name: str) -> int:
    """Return the group's row id. Raises NotFoundError."""
    is_it = (device_group.c.tenant_id == owner.id) & (device_group.c.name == name)
    group_id = connection.execute(select(device_group.c.id).where(is_it)).scalar()
    if group_id is None:
        raise NotFoundError(f"tenant {owner.name} has no device group {shown(name)}: create it first")
    return int(group_id)


def add_member(connection: Connection, device_id: int, group_id: int) -> bool:
    """Put a device into a group; False if it is there already."""
    is_it = (group_member.c.device_id == device_id) & (group_member.c.group_id == group_id)
    if connection.execute(select(group_member.c.device_id).where(is_it)).first() is not None:
        return False
    connection.execute(insert(group_member).values(device_id=device_id, group_id=group_id))
    return True


def row_ids(connection: Connection, tenant_id: int, names: Sequence[str]) -> dict[str, int]:
    """Return the row ids, by name, of those of these devices that exist."""
    found: dict[str, int] = {}
    for start in range(0, len(names), _LOOKUP):
        is_it = (table.c.tenant_id == tenant_id) & table.c.name.in_(names[start : start + _LOOKUP])
        found.update(
            (name, row_id) for name, row_id in connection.execute(select(table.c.name, table.c.id).where(is_it))
        )
    return found


def memberships(tenant_id: int) -> Select[str, str]:
    """Select (group, device) of a tenant, both ascending."""
    return (
        select(device_group.c.name, table.c.name)
        .join_from(group_member, device_group, group_member.c.group_id == device_group.c.id)
        .join(table, group_member.c.device_id == table.c.id)
        .where(device_group.c.tenant_id == tenant_id)
        .order_by(device_group.c.name, table.c.name)
    )


def change_device(
    store: AccountStore, tenant: str, name: str, values: dict[str, object], *, action: str = ""
) -> Device:
    """Set columns of one device. `action`: as in `Writer.changed`. Raises NotFoundError, ConflictError."""
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        device_id, known = required_id(writer.connection, owner, name), find(writer.connection, owner, name)
        changed = values | {"changed_ms": writer.now_ms}
        writer.connection.execute(update(table).where(table.c.id == device_id).values(changed))
        made = find(writer.connection, owner, name)
        writer.changed(owner.id, ChangeKind.DEVICE, name, before=known, after=made, action=action)
        return made


# --- private


def _set_credential(store: AccountStore, tenant: str, name: str, credential: Credential) -> Device:
    values: dict[str, object] = {"credential_kind": credential.form.value, "credential": credential.value}
    return change_device(store, tenant, name, values, action="rotated")


def _device(row: RowMapping, tenant: str, groups: Iterable[str]) -> Device:
    return Device(
        name=row["name"],
        tenant=tenant,
        credential=CredentialForm(row["credential_kind"]),
        is_enabled=row["is_enabled"],
        groups=tuple(groups),
        created_ms=row["created_ms"],
        changed_ms=row["changed_ms"],
        certificate_subject=row["credential"] if row["credential_kind"] == CredentialForm.X509 else None,
    )


def _no_device(owner: tenants.Tenant, name: str) -> NotFoundError:
    return NotFoundError(
        f"tenant {owner.name} has no device {shown(name)}: `iothub device list {owner.name}` shows them"
    )


def _is_device(tenant_id: int, name: str) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == tenant_id, table.c.name == name)


def _remove(connection: Connection, tenant_id: int, device_id: int, name: str) -> None:
    connection.execute(delete_from(group_member).where(group_member.c.device_id == device_id))
    ruled = and_(acl_rule.c.tenant_id == tenant_id, acl_rule.c.scope == Scope.DEVICE.value, acl_rule.c.subject == name)
    connection.execute(delete_from(acl_rule).where(ruled))
    override = and_(quota_override.c.tenant_id == tenant_id, quota_override.c.device == name)
    connection.execute(delete_from(quota_override).where(override))
    banned = and_(ban.c.tenant_id == tenant_id, ban.c.kind == BanKind.DEVICE.value, ban.c.value == name)
    connection.execute(delete_from(ban).where(banned))
    connection.execute(delete_from(table).where(table.c.id == device_id))
