"""Verbs on keys of the REST API: create, list, show, disable and enable, rotate, delete; and whose key a text is.

Knows no HTTP and no scope: what a role may do is the API's. The text of a key is returned once, by the call that made it, and stored only as a
hash; its first part, which is no secret, finds the row.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import Connection, RowMapping, Select, delete, insert, select, update

from iothub.base.errors import BackendError, ConfigError, ConflictError, NotFoundError
from iothub_services.auth.secrets import generate_secret, hash_generated, verify_generated
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.roles import Role, checked_role
from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import api_key as table
from iothub_tenants.accounts.tables import tenant as tenant_table
from iothub_tenants.identity import check_key_name, shown

MARK = "iothub_"  # what a search for keys in other people's files looks for
USED_EVERY_MS = 60_000  # how exactly it is known when something was used
_PREFIX_BYTES = 6
_TEXT = re.compile(MARK + r"([0-9a-f]{12})_([A-Za-z0-9_-]{32})")
_KIND = "api_key"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key. `tenant`: the only one that it is for; None: it is the platform's. `last_used_ms`: to the minute; 0: never."""

    name: str
    role: Role
    tenant: str | None
    prefix: str
    is_enabled: bool
    created_ms: int
    changed_ms: int
    last_used_ms: int


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key and its text. Shown once, never logged."""

    key: ApiKey
    text: str = field(repr=False)


def create(store: AccountStore, name: str, role: str, tenant: str | None = None) -> NewKey:
    """Make a key.

    Raises:
        ConfigError: the name is malformed, the role is unknown, or it needs a tenant, or may have none.
        ConflictError: there is a key of this name, or the tenant is being deleted.
        NotFoundError: no such tenant.
    """
    check_key_name(name)
    kind = checked_role(role, tenant)
    prefix, text, credential = _made(store)
    with store.write() as writer:
        owner = None if tenant is None else tenants.living(writer.connection, tenant).id
        if writer.connection.execute(select(table.c.id).where(table.c.name == name)).first() is not None:
            raise ConflictError(f"there is a key {name} already: `iothub admin key rotate {name}` makes a new secret")
        row = {
            "name": name,
            "role": kind.value,
            "tenant_id": owner,
            "prefix": prefix,
            "credential": credential,
            "is_enabled": True,
            "created_ms": writer.now_ms,
            "changed_ms": writer.now_ms,
        }
        writer.connection.execute(insert(table).values(row))
        made = _find(writer.connection, name)
        writer.audited(owner or 0, _KIND, name, after=made)
        return NewKey(made, text)


def list_all(store: AccountStore) -> list[ApiKey]:
    """Return all keys by name, without their texts."""
    with store.read() as connection:
        return [_key(row) for row in connection.execute(_rows().order_by(table.c.name)).mappings()]


def show(store: AccountStore, name: str) -> ApiKey:
    """Return one key. Raises NotFoundError."""
    with store.read() as connection:
        return _find(connection, name)


def enable(store: AccountStore, name: str) -> ApiKey:
    """Let the key in again. Idempotent. Raises NotFoundError."""
    return _change(store, name, {"is_enabled": True})


def disable(store: AccountStore, name: str) -> ApiKey:
    """Refuse the key from now on. Idempotent. Raises NotFoundError."""
    return _change(store, name, {"is_enabled": False})


def rotate(store: AccountStore, name: str) -> NewKey:
    """Make a new text for the key; the old one is refused from now on. Raises NotFoundError."""
    prefix, text, credential = _made(store)
    return NewKey(_change(store, name, {"prefix": prefix, "credential": credential}), text)


def remove(store: AccountStore, name: str) -> None:
    """Delete the key. Raises NotFoundError."""
    with store.write() as writer:
        known = _find(writer.connection, name)
        writer.connection.execute(delete(table).where(table.c.name == name))
        writer.audited(_tenant_id(writer, known), _KIND, name, before=known)


def holder(store: AccountStore, text: str) -> ApiKey | None:
    """Return the key that this is the text of; None: of none that is enabled. One read, and a write each minute. Raises BackendError."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    prefix, secret = found.groups()
    with store.read() as connection:
        row = connection.execute(_rows().where(table.c.prefix == prefix)).mappings().first()
    is_let_in = row is not None and row["is_enabled"] and verify_generated(secret, row["credential"], store.pepper)
    if row is None or not is_let_in:
        return None
    if row["used_ms"] < store.now_ms() - USED_EVERY_MS:
        with suppress(BackendError), store.write() as writer:  # the next request tries it again
            writer.connection.execute(update(table).where(table.c.id == row["id"]).values(used_ms=writer.now_ms))
    return _key(row)


# --- private


def _made(store: AccountStore) -> tuple[str, str, str]:
    """Return prefix, text and what is stored. Raises ConfigError: the store was opened without the pepper."""
    if not store.pepper:
        raise ConfigError("a key cannot be made without the server's pepper: open the store with the pepper")
    prefix, secret = secrets.token_hex(_PREFIX_BYTES), generate_secret()
    return prefix, f"{MARK}{prefix}_{secret}", hash_generated(secret, store.pepper)


def _change(store: AccountStore, name: str, values: dict[str, object]) -> ApiKey:
    with store.write() as writer:
        known = _find(writer.connection, name)
        changed = values | {"changed_ms": writer.now_ms}
        writer.connection.execute(update(table).where(table.c.name == name).values(changed))
        made = _find(writer.connection, name)
        writer.audited(_tenant_id(writer, known), _KIND, name, before=known, after=made)
        return made


def _tenant_id(writer: Writer, key: ApiKey) -> int:
    return 0 if key.tenant is None else tenants.find(writer.connection, key.tenant).id


def _rows() -> Select[tuple[object, ...]]:
    columns = (*table.c, tenant_table.c.name.label("tenant"))
    return select(*columns).join_from(table, tenant_table, table.c.tenant_id == tenant_table.c.id, isouter=True)


def _find(connection: Connection, name: str) -> ApiKey:
    row = connection.execute(_rows().where(table.c.name == name)).mappings().first()
    if row is None:
        raise NotFoundError(f"there is no key {shown(name)}: `iothub admin key list` shows them")
    return _key(row)


def _key(row: RowMapping) -> ApiKey:
    return ApiKey(
        name=row["name"],
        role=Role(row["role"]),
        tenant=row["tenant"],
        prefix=row["prefix"],
        is_enabled=row["is_enabled"],
        created_ms=row["created_ms"],
        changed_ms=row["changed_ms"],
        last_used_ms=row["used_ms"],
    )
