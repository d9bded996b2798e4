"""Takes one tenant's accounts out as JSON and puts them into another hub: settings, limits, devices, groups, rules, bans, token issuers.

Knows no sessions, queues or retained messages. The text holds password hashes: treat it like the database itself.

Generated secrets are stored under the server's pepper, so they open nothing on a hub with another pepper: such devices arrive without a
credential, and the answer of `import_tenant` names them. The same is true of issuers that share a secret with us: they arrive without a key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass

from sqlalchemy import Connection

from iothub.base.errors import ConfigError
from iothub_tenants.accounts import device_import, devices, tenants
from iothub_tenants.accounts.devices import CredentialForm
from iothub_tenants.accounts.rows import Row, in_order, mapping
from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import device_group, tenant

FORMAT = "iothub-tenant"
VERSION = 1
"""Raised when a reader of the old form would misunderstand the new one."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A tenant that was put in, and its devices and token issuers that need a new secret before they are of use."""

    tenant: tenants.Tenant
    devices: int
    without_secret: tuple[str, ...]
    issuers_without_secret: tuple[str, ...] = ()


def export_tenant(store: AccountStore, name: str) -> dict[str, object]:
    """Return everything that the accounts database knows of a tenant, ready for JSON. Raises NotFoundError."""
    parts = (device_import.RULES, device_import.LIMITS, device_import.BANS, device_import.STREAMS)
    with store.read() as connection:
        owner = tenants.find(connection, name).id
        groups = in_order(device_group).where(device_group.c.tenant_id == owner)
        return {
            "format": FORMAT,
            "version": VERSION,
            "pepper": fingerprint(store.pepper),
            "tenant": _settings(connection, owner),
            "groups": list(connection.execute(groups).scalars("name")),
            "devices": _devices(connection, owner),
            "token_issuers": _issuers(connection, owner),
            **{part.name: part.of(connection, owner) for part in parts},
        }


class _Undone(Exception):  # noqa: N818  not an error: the way out of a transaction that only tried
    """Carries the answer of a dry run out of its transaction."""

    def __init__(self, imported: Imported) -> None:
        super().__init__()
        self.imported = imported


def import_tenant(
    store: AccountStore, document: object, *, name: str | None = None, is_dry_run: bool = False
) -> Imported:
    """Create a tenant from what `export_tenant` returned, under the old name or another; all or nothing, and nothing in a dry run.

    Raises:
        ConfigError: the document is not such a thing, of a later version, or damaged; the place is named.
        ConflictError: the name is taken.
        NotFoundError: this hub has no plan of that name.
    """
    whole = mapping(document, "document")
    _check_form(whole)
    settings = device_import.TENANT.checked(whole.get("tenant"), "tenant")
    name = settings["name"] if name is None else name
    is_foreign = whole.get("pepper") != fingerprint(store.pepper)
    try:
        with store.write() as writer:
            imported = _create(writer, name, settings, whole, is_foreign=is_foreign)
            if is_dry_run:
                raise _Undone(imported)
            return imported
    except _Undone as undone:
        return undone.imported


def fingerprint(pepper: bytes) -> str:
    """Return a name of the pepper that says nothing about it."""
    return hmac.digest(pepper, b"iothub pepper fingerprint", hashlib.sha256).hex()[:16]


def _check_form(whole: Row) -> None:
    if whole.get("format") != FORMAT:
        raise ConfigError(f"not an exported tenant: expected a JSON object with format {FORMAT}")
    if whole.get("version") != VERSION:
        raise ConfigError(f"the exported tenant is of version {whole.get('version')!r}, this program reads {VERSION}")


def _create(writer: Writer, name: str, settings: Row, whole: Row, *, is_foreign: bool) -> Imported:
    owner = device_import.create_tenant(writer, name, settings)
    device_import.create_groups(writer, owner, whole)
    credentials = device_import.create_devices(writer, owner, whole, is_foreign=is_foreign)
    device_import.create_streams(writer, owner, whole)
    device_import.create_rules(writer, owner, whole)
    device_import.create_limits(writer, owner, whole)
    device_import.create_bans(writer, owner, whole)
    keyless = device_import.create_token_issuers(writer, owner, whole, is_foreign=is_foreign)
    found = tenants.find(writer.connection, name)
    without = (name for name, credential in credentials.items() if credential.form is CredentialForm.NONE)
    return Imported(found, len(credentials), tuple(without), keyless)


def _settings(connection: Connection, tenant_id: int) -> dict[str, object]:
    (row,) = device_import.TENANT.rows(connection, tenant.c.id == tenant_id)
    return device_import.TENANT.pick(row) | {name: row[name].split() for name in device_import.NETWORKS}


def _issuers(connection: Connection, tenant_id: int) -> list[dict[str, object]]:
    part = device_import.ISSUERS
    rows = part.rows(connection, part.table.c.tenant_id == tenant_id)
    return [part.pick(row) | {"keys": json.loads(row["key_set"])} for row in rows]


def _devices(connection: Connection, tenant_id: int) -> list[dict[str, object]]:
    groups: dict[str, list[str]] = {}
    for group, name in connection.execute(devices.memberships(tenant_id)):
        groups.setdefault(name, []).append(group)
    return [row | {"groups": groups.get(row["name"], [])} for row in device_import.DEVICES.of(connection, tenant_id)]
