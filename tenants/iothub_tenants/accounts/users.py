"""Verbs on users, the people who log in: create, list, show, set the password, disable and enable, delete; and who an OpenID provider says they are.

Knows no HTTP and no scope. A user has a password, of which a hash is stored, or comes from the provider (`iothub.rest.oidc`), which then says at
each login what he is. Whatever makes a login worthless (disabled, deleted, another password) ends it in the same transaction.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from sqlalchemy import Connection, RowMapping, Select, delete, insert, select, update

from iothub.base.errors import ConfigError, ConflictError, DeniedError, NotFoundError
from iothub_tenants.accounts import passwords, tenants
from iothub_tenants.accounts.roles import Role, checked_role
from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import admin_user as table
from iothub_tenants.accounts.tables import login_session
from iothub_tenants.accounts.tables import tenant as tenant_table
from iothub_tenants.identity import check_user_name, shown

OF_PROVIDER = "oidc:"  # how the names of users from the provider begin: none of them is ever a local one
_NAME_LIMIT = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:@-]")
_KIND = "user"


@dataclass(frozen=True, slots=True)
class User:
    """One user. `tenant`: the only one that he sees; None: he is of the platform. `is_local`: he has a password."""

    id: int = field(repr=False)
    name: str
    role: Role
    tenant: str | None
    is_local: bool
    is_enabled: bool
    created_ms: int
    changed_ms: int
    login_ms: int
    last_used_ms: int


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A user, and the password that was generated for him; None: he has chosen one. Shown once, never logged."""

    user: User
    password: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Person:
    """Whom an OpenID provider has logged in."""

    issuer: str
    subject: str
    name: str
    role: str
    tenant: str | None


def create(
    store: AccountStore, name: str, role: str, tenant: str | None = None, password: str | None = None
) -> NewPassword:
    """Make a user; without a password one is generated.

    Raises:
        ConfigError: the name is malformed, the role is none of a user, or needs a tenant, or may have none; the password is too short or obvious.
        ConflictError: there is a user of this name, or the tenant is being deleted.
        NotFoundError: no such tenant.
    """
    check_user_name(name)
    if name.startswith(OF_PROVIDER):
        raise ConfigError(f"user names that begin with {OF_PROVIDER} are those of the OpenID provider: choose another")
    kind = checked_role(role, tenant, is_user=True)
    credential, generated = _credential(name, password)
    with store.write() as writer:
        if _row(writer.connection, name) is not None:
            raise ConflictError(
                f"there is a user {name} already: `iothub admin user set-password {name}` gives it another password"
            )
        made = _insert(writer, name, kind, _owner(writer, tenant), {"credential": credential})
        return NewPassword(made, generated)


def list_all(store: AccountStore) -> list[User]:
    """Return all users by name."""
    with store.read() as connection:
        return [_user(row) for row in connection.execute(_rows().order_by(table.c.name)).mappings()]


def show(store: AccountStore, name: str) -> User:
    """Return one user. Raises NotFoundError."""
    with store.read() as connection:
        return _find(connection, name)


def set_password(store: AccountStore, name: str, password: str | None = None) -> NewPassword:
    """Give the user another password, a generated one unless it is named; his logins end.

    Raises:
        ConfigError: it is too short, too long or obvious.
        ConflictError: the user is the OpenID provider's, and has none.
        NotFoundError: no such user.
    """
    credential, generated = _credential(name, password)
    with store.write() as writer:
        known = _find(writer.connection, name)
        if not known.is_local:
            raise ConflictError(f"the user {name} has no password here: the OpenID provider has it")
        end_all(writer, known.id)
        return NewPassword(_change(writer, known, {"credential": credential}), generated)


def enable(store: AccountStore, name: str) -> User:
    """Let the user log in again. Idempotent. Raises NotFoundError."""
    with store.write() as writer:
        return _change(writer, _find(writer.connection, name), {"is_enabled": True})


def disable(store: AccountStore, name: str) -> User:
    """End all logins of the user, and let him not log in. Idempotent. Raises NotFoundError."""
    with store.write() as writer:
        known = _find(writer.connection, name)
        end_all(writer, known.id)
        return _change(writer, known, {"is_enabled": False})


def remove(store: AccountStore, name: str) -> None:
    """Delete the user and end his logins. One of the OpenID provider is made again when he logs in. Raises NotFoundError."""
    with store.write() as writer:
        known = _find(writer.connection, name)
        end_all(writer, known.id)
        writer.connection.execute(delete(table).where(table.c.id == known.id))
        writer.audited(tenant_id(writer, known), _KIND, name, before=known)


def proven(store: AccountStore, name: str, password: str) -> tuple[User, str] | None:
    """Return the user whose password this is, and what proves it; None: nobody, or he is disabled.

    It takes the same time whether there is such a user or not: tens of milliseconds. Raises BackendError.
    """
    with store.read() as connection:
        row = _row(connection, name)
    stored = "" if row is None else str(row["credential"])
    is_right = passwords.is_right(password, stored or None)
    if row is None or not is_right or not row["is_enabled"]:
        return None
    return _user(row), stored


def take_person(store: AccountStore, person: Person) -> User:
    """Return the user that somebody is whom the OpenID provider has logged in: made at his first login, and with the role that he has now.

    Raises:
        ConfigError: the role is none of a user, or does not go with the tenant.
        ConflictError: another person of the provider has this name.
        DeniedError: the user is disabled.
        NotFoundError: no such tenant.
    """
    kind = checked_role(person.role, person.tenant, is_user=True)
    subject = hashlib.sha256(f"{person.issuer}\0{person.subject}".encode()).hexdigest()
    name = OF_PROVIDER + _NOT_IN_NAMES.sub("_", person.name)[: _NAME_LIMIT - len(OF_PROVIDER)]
    with store.write() as writer:
        owner = _owner(writer, person.tenant)
        row = writer.connection.execute(_rows().where(table.c.subject == subject)).mappings().first()
        if row is None:
            if _row(writer.connection, name) is not None:
                raise ConflictError(
                    f"another person of the OpenID provider is the user {name}: delete that one if it is nobody any more"
                )
            return _insert(writer, name, kind, owner, {"credential": "", "subject": subject})
        known = _user(row)
        if not known.is_enabled:
            raise DeniedError(f"the user {known.name} is disabled")
        if (known.role, known.tenant) == (kind, person.tenant):
            return known
        end_all(writer, known.id)
        return _change(writer, known, {"role": kind.value, "tenant_id": owner})


# --- for `login_sessions`, inside its transactions


def end_all(writer: Writer, user_id: int) -> None:
    """End all logins of a user."""
    writer.connection.execute(delete(login_session).where(login_session.c.user_id == user_id))


def with_id(connection: Connection, user_id: int) -> tuple[User, str] | None:
    """Return a user and his stored credential."""
    row = connection.execute(_rows().where(table.c.id == user_id)).mappings().first()
    return None if row is None else (_user(row), row["credential"])


def with_name(connection: Connection, name: str) -> User | None:
    """Return the user of this name."""
    row = _row(connection, name)
    return None if row is None else _user(row)


def tenant_id(writer: Writer, user: User) -> int:
    """Return the number of the user's tenant; 0: he is of the platform."""
    return 0 if user.tenant is None else tenants.find(writer.connection, user.tenant).id


# --- private


def _credential(name: str, password: str | None) -> tuple[str, str | None]:
    """Return what is stored, and the password if it was generated. Raises ConfigError."""
    if password is not None:
        passwords.check(name, password)
        return passwords.hashed(password), None
    generated = passwords.generate()
    return passwords.hashed(generated), generated


def _owner(writer: Writer, tenant: str | None) -> int | None:
    return None if tenant is None else tenants.living(writer.connection, tenant).id


def _insert(writer: Writer, name: str, role: Role, owner: int | None, more: dict[str, object]) -> User:
    row = {
        "name": name,
        "role": role.value,
        "tenant_id": owner,
        "is_enabled": True,
        "created_ms": writer.now_ms,
        "changed_ms": writer.now_ms,
        "login_ms": 0,
        "used_ms": 0,
        **more,
    }
    writer.connection.execute(insert(table).values(row))
    made = _find(writer.connection, name)
    writer.audited(owner or 0, _KIND, name, after=made)
    return made


def _change(writer: Writer, known: User, values: dict[str, object]) -> User:
    changed = values | {"changed_ms": writer.now_ms}
    writer.connection.execute(update(table).where(table.c.id == known.id).values(changed))
    made = _find(writer.connection, known.name)
    writer.audited(tenant_id(writer, made), _KIND, known.name, before=known, after=made)
    return made


def _rows() -> Select[tuple[object, ...]]:
    columns = (*table.c, tenant_table.c.name.label("tenant"))
    return select(*columns).join_from(table, tenant_table, table.c.tenant_id == tenant_table.c.id, isouter=True)


def _row(connection: Connection, name: str) -> RowMapping | None:
    return connection.execute(_rows().where(table.c.name == name)).mappings().first()


def _find(connection: Connection, name: str) -> User:
    row = _row(connection, name)
    if row is None:
        raise NotFoundError(f"there is no user {shown(name)}: `iothub admin user list` shows them")
    return _user(row)


def _user(row: RowMapping) -> User:
    return User(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        tenant=row["tenant"],
        is_local=bool(row["credential"]),
        is_enabled=row["is_enabled"],
        created_ms=row["created_ms"],
        changed_ms=row["changed_ms"],
        login_ms=row["login_ms"],
        last_used_ms=row["used_ms"],
    )
