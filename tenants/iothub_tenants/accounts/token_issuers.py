"""Verbs on token issuers: add, list, show, update, remove; whose tokens (JWT) the devices of a tenant may show.

Knows no token and no cryptography: `iothub_services.auth.token_keys` reads and seals keys before they come here.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, insert, select, update

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_services.auth.port import TokenAlgorithm, TokenIssuer, TokenKey
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.store import AccountStore, ChangeKind, Writer
from iothub_tenants.accounts.tables import token_issuer as table
from iothub_tenants.identity import check_issuer_name, shown

CLAIM_LIMIT = 512  # characters of an expected `iss` or `aud`
LEEWAY_LIMIT_S = 600.0
KEY_LIMIT = 32  # keys of all issuers of a tenant: a token without a `kid` may have to be tried against each


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key as people see it: its `kid` ("" without one) and the SHA-256 of its public part ("" for a secret)."""

    kid: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Issuer:
    """One token issuer; its secret, if it has one, stays in the store. Without keys it proves nothing."""

    name: str
    tenant: str
    algorithm: TokenAlgorithm
    issuer: str
    audience: str
    leeway_s: float
    keys: tuple[ShownKey, ...]
    created_ms: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What `change` changes; None leaves it as it is, "" lifts an expectation. Keys are of the issuer's algorithm."""

    keys: tuple[TokenKey, ...] | None = None
    issuer: str | None = None
    audience: str | None = None
    leeway_s: float | None = None


def add(store: AccountStore, tenant: str, given: TokenIssuer) -> Issuer:
    """Trust an issuer from now on.

    Raises:
        ConfigError: the name, an expected claim or the leeway is malformed, or there is no key.
        NotFoundError: no such tenant.
        ConflictError: the tenant has an issuer of this name or too many keys, or is being deleted.
    """
    if not given.keys:
        raise ConfigError("a token issuer needs a key: expected --public-key-file, --jwks-file or --secret-stdin")
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        insert_row(writer, owner, given)
        made = _find(writer.connection, owner, given.name)
        writer.changed(owner.id, ChangeKind.TOKEN_ISSUER, given.name, after=made)
        return made


def list_all(store: AccountStore, tenant: str) -> list[Issuer]:
    """Return the tenant's issuers by name. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        return [_issuer(row, tenant) for row in rows(connection, owner.id)]


def show(store: AccountStore, tenant: str, name: str) -> Issuer:
    """Return one issuer. Raises NotFoundError."""
    with store.read() as connection:
        return _find(connection, tenants.find(connection, tenant), name)


def change(store: AccountStore, tenant: str, name: str, changes: Changes, algorithm: TokenAlgorithm | None) -> Issuer:
    """Change what is given; who was let in under what is not so any more is closed. `algorithm`: of the new keys, if there are any.

    Raises: NotFoundError, ConflictError (too many keys, being deleted), ConfigError (keys of another algorithm, a malformed value).
    """
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        found = _find(writer.connection, owner, name)
        if algorithm not in (None, found.algorithm):
            raise ConfigError(
                f"token issuer {name} signs with {found.algorithm.value}: for another algorithm add another issuer"
            )
        values = _checked(changes)
        if changes.keys is not None:
            _check_room(writer.connection, owner, len(changes.keys), besides=name)
        changed = values | {"changed_ms": writer.now_ms}
        writer.connection.execute(update(table).where(_is(owner.id, name)).values(changed))
        made = _find(writer.connection, owner, name)
        writer.changed(owner.id, ChangeKind.TOKEN_ISSUER, name, before=found, after=made)
        return made


def remove(store: AccountStore, tenant: str, name: str) -> None:
    """Trust the issuer no more; whom its tokens have let in is closed. Raises NotFoundError, ConflictError."""
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        found = _find(writer.connection, owner, name)
        writer.connection.execute(delete(table).where(_is(owner.id, name)))
        writer.changed(owner.id, ChangeKind.TOKEN_ISSUER, name, before=found)


# --- for other modules of this package, inside their transactions


def records(connection: Connection, tenant_id: int) -> tuple[TokenIssuer, ...]:
    """Return the tenant's issuers as the hub sees them."""
    return tuple(
        TokenIssuer(
            row["name"],
            TokenAlgorithm(row["algorithm"]),
            tuple(TokenKey(each["kid"], each["key"]) for each in json.loads(row["key_set"])),
            row["issuer"],
            row["audience"],
            row["leeway_ms"] / 1000,
        )
        for row in rows(connection, tenant_id)
    )


def rows(connection: Connection, tenant_id: int) -> list[RowMapping]:
    """Read the tenant's rows, by name."""
    query = select(table).where(table.c.tenant_id == tenant_id).order_by(table.c.name)
    return list(connection.execute(query).mappings())


def insert_row(writer: Writer, owner: tenants.Tenant, given: TokenIssuer) -> None:
    """Write a new issuer; the caller puts the line into the change log. Raises ConfigError, ConflictError as `add` does."""
    check_issuer_name(given.name)
    if writer.connection.execute(select(table.c.id).where(_is(owner.id, given.name))).first() is not None:
        raise ConflictError(f"tenant {owner.name} has a token issuer {given.name} already: update or remove it")
    _check_room(writer.connection, owner, len(given.keys))
    values = _checked(Changes(given.keys, given.issuer, given.audience, given.leeway_s))
    whose = {"tenant_id": owner.id, "name": given.name, "algorithm": given.algorithm.value}
    times = {"created_ms": writer.now_ms, "changed_ms": writer.now_ms}
    writer.connection.execute(insert(table).values(values | whose | times))


# --- private


def _checked(changes: Changes) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, claim, text in (("issuer", "iss", changes.issuer), ("audience", "aud", changes.audience)):
        if text is not None:
            if len(text) > CLAIM_LIMIT or not text.isprintable():
                raise ConfigError(f"the expected `{claim}` is not one line of up to {CLAIM_LIMIT} characters")
            values[name] = text
    if changes.leeway_s is not None:
        if not 0 <= changes.leeway_s <= LEEWAY_LIMIT_S:
            raise ConfigError(
                f"expected a leeway of 0 to {LEEWAY_LIMIT_S:g} seconds; if clocks differ by more, set them"
            )
        values["leeway_ms"] = round(changes.leeway_s * 1000)
    if changes.keys is not None:
        values["key_set"] = _key_set(changes.keys)
    return values


def _key_set(keys: Sequence[TokenKey]) -> str:
    return json.dumps([{"kid": key.id, "key": key.material} for key in keys])


def _check_room(connection: Connection, owner: tenants.Tenant, more: int, besides: str = "") -> None:
    present = [row for row in rows(connection, owner.id) if row["name"] != besides]
    count = sum(max(len(json.loads(row["key_set"])), 1) for row in present)  # an issuer without keys takes room too
    if count + more > KEY_LIMIT:
        raise ConflictError(
            f"tenant {owner.name} would have {count + more} keys of token issuers, expected at most {KEY_LIMIT}: remove old ones"
        )


def _find(connection: Connection, owner: tenants.Tenant, name: str) -> Issuer:
    row = connection.execute(select(table).where(_is(owner.id, name))).mappings().first()
    if row is None:
        raise _no_issuer(owner, name)
    return _issuer(row, owner.name)


def _issuer(row: RowMapping, tenant: str) -> Issuer:
    return Issuer(
        name=row["name"],
        tenant=tenant,
        algorithm=TokenAlgorithm(row["algorithm"]),
        issuer=row["issuer"],
        audience=row["audience"],
        leeway_s=row["leeway_ms"] / 1000,
        keys=tuple(ShownKey(each["kid"], _fingerprint(each["key"])) for each in json.loads(row["key_set"])),
        created_ms=row["created_ms"],
        changed_ms=row["changed_ms"],
    )


def _fingerprint(material: str) -> str:
    """Return the SHA-256 of a public key's DER form, which is what PEM has between its marks; "" for a sealed secret."""
    lines = material.strip().splitlines()
    if not lines[0].startswith("-----BEGIN"):
        return ""
    return hashlib.sha256(base64.b64decode("".join(lines[1:-1]))).hexdigest()


def _no_issuer(owner: tenants.Tenant, name: str) -> NotFoundError:
    return NotFoundError(
        f"tenant {owner.name} has no token issuer {shown(name)}: `iothub token-issuer list {owner.name}` shows them"
    )


def _is(tenant_id: int, name: str) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == tenant_id, table.c.name == name)
