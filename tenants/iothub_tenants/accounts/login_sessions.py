"""Logins that are in force: begun, found by what the browser has, ended. They are in the accounts, so they outlive a restart of the API.

Knows no cookie. What the browser has are 256 random bits; a plain hash of them is stored.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, delete, insert, select, update

from iothub.base.errors import BackendError
from iothub_tenants.accounts import users
from iothub_tenants.accounts.api_keys import USED_EVERY_MS
from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import admin_user
from iothub_tenants.accounts.tables import login_session as table
from iothub_tenants.accounts.users import User

IDLE_S = 12 * 3600
WHOLE_S = 7 * 86_400
MOST_OF_USER = 20  # logins; the one that was used longest ago makes room
_TOKEN_BYTES = 32
_KIND = "user"


@dataclass(frozen=True, slots=True)
class Begun:
    """A new login. `token`: what the browser gets."""

    user: User
    token: str = field(repr=False)


def begin(store: AccountStore, user: User, proof: str, whole_s: int = WHOLE_S, **noted: object) -> Begun | None:
    """Begin a login of a user whose credential was `proof` when he was looked at; None: it is not any more, or he is disabled.

    `noted`: more for the audit log. Logins that are over are forgotten.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with store.write() as writer:
        found = users.with_id(writer.connection, user.id)
        if found is None or not found[0].is_enabled or found[1] != proof:
            return None
        writer.connection.execute(delete(table).where(_is_over(writer.now_ms)))
        _make_room(writer, user.id)
        row = {
            "token": _hash(token),
            "user_id": user.id,
            "made_ms": writer.now_ms,
            "seen_ms": writer.now_ms,
            "ends_ms": writer.now_ms + whole_s * 1000,
        }
        writer.connection.execute(insert(table).values(row))
        is_user = admin_user.c.id == user.id
        writer.connection.execute(
            update(admin_user).where(is_user).values(login_ms=writer.now_ms, used_ms=writer.now_ms)
        )
        tenant_id = users.tenant_id(writer, found[0])
        writer.audited(tenant_id, _KIND, user.name, after={"done": "logged in", **noted})
        return Begun(found[0], token)


def holder(store: AccountStore, token: str, *, is_used: bool = True) -> User | None:
    """Return whose login this is the token of; None: nobody's, or it is over. One read, and a write each minute. Raises BackendError.

    `is_used`: from now on it has its whole idle time again.
    """
    now_ms = store.now_ms()
    with store.read() as connection:
        row = connection.execute(select(table).where(table.c.token == _hash(token))).mappings().first()
        if row is None or row["ends_ms"] <= now_ms or row["seen_ms"] <= now_ms - IDLE_S * 1000:
            return None
        found = users.with_id(connection, row["user_id"])
    if found is None or not found[0].is_enabled:
        return None
    if is_used and row["seen_ms"] < now_ms - USED_EVERY_MS:
        with suppress(BackendError), store.write() as writer:  # the next request tries it again
            writer.connection.execute(update(table).where(table.c.id == row["id"]).values(seen_ms=writer.now_ms))
            is_user = admin_user.c.id == row["user_id"]
            writer.connection.execute(update(admin_user).where(is_user).values(used_ms=writer.now_ms))
    return found[0]


def end(store: AccountStore, token: str) -> None:
    """End a login. Idempotent."""
    with store.write() as writer:
        is_it = table.c.token == _hash(token)
        user_id = writer.connection.execute(select(table.c.user_id).where(is_it)).scalar()
        found = None if user_id is None else users.with_id(writer.connection, user_id)
        if found is None:
            return
        writer.connection.execute(delete(table).where(is_it))
        tenant_id = users.tenant_id(writer, found[0])
        writer.audited(tenant_id, _KIND, found[0].name, after={"done": "logged out"})


def note_failure(store: AccountStore, name: str, **noted: object) -> str:
    """Write a line about a login that failed, and return the name in it. A name that nobody has is not written: it may be a password."""
    with store.write() as writer:
        found = users.with_name(writer.connection, name)
        tenant_id = 0 if found is None else users.tenant_id(writer, found)
        subject = "" if found is None else found.name
        writer.audited(tenant_id, _KIND, subject, after={"done": "login failed", **noted})
    return subject


def _make_room(writer: Writer, user_id: int) -> None:
    kept = select(table.c.id).where(table.c.user_id == user_id).order_by(table.c.seen_ms.desc(), table.c.id.desc())
    surplus = [row.id for row in writer.connection.execute(kept)][MOST_OF_USER - 1 :]
    if surplus:
        writer.connection.execute(delete(table).where(table.c.id.in_(surplus)))


def _is_over(now_ms: int) -> ColumnElement[bool]:
    return (table.c.ends_ms <= now_ms) | (table.c.seen_ms <= now_ms - IDLE_S * 1000)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
