"""Takes one tenant's accounts out as JSON and puts them into another hub: settings, limits, devices, groups, rules, bans, token issuers.

Knows no sessions, queues or retained messages. The text holds password hashes: treat it like the database itself.

Generated secrets are stored under the server's pepper, so they open nothing on a hub with another pepper: such devices arrive without a
credential, and the answer of `import_tenant` names them. The same is true of issuers that share a secret with us: they arrive without a key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, FromClause, RowMapping, select

from iothub.base.errors import ConfigError
from iothub_tenants.accounts import device_import, devices, streams, tenants, token_issuers
from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import acl_rule, ban, device, device_group, quota_override

FORMAT = "iothub-tenant"
VERSION = 1
"""Raised when a reader of the old form would misunderstand the new one."""

_OF_A_STREAM = ("name", "direction", "filter", "partitions", "retention_ms")


@dataclass(frozen=True, slots=True)
class Imported:
    """A tenant that was put in, and its devices and token issuers that need a new secret before they are of use."""

    tenant: tenants.Tenant
    devices: int
    without_secret: tuple[str, ...]
    issuers_without_secret: tuple[str, ...] = ()


def export_tenant(store: AccountStore, name: str) -> dict[str, object]:
    """Return everything that the accounts database knows of a tenant, ready for JSON. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, name)
        return {
            "format": FORMAT,
            "version": VERSION,
            "pepper": fingerprint(store.pepper),
            "tenant": _settings(owner),
            "groups": [row["name"] for row in _rows(connection, device_group, device_group.c.tenant_id == owner.id)],
            "devices": _devices(connection, owner.id),
            "rules": _pick(connection, acl_rule, owner.id, ("scope", "subject", "effect", "action", "filter")),
            "limits": _pick(connection, quota_override, owner.id, ("device", "value")),
            "bans": _pick(connection, ban, owner.id, ("kind", "value", "until_ms", "reason")),
            "token_issuers": [_issuer(row) for row in token_issuers.rows(connection, owner.id)],
            "streams": [{name: row[name] for name in _OF_A_STREAM} for row in streams.rows(connection, owner.id)],
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
    whole = device_import.mapping(document, "document")
    _check_form(whole)
    settings = device_import.mapping(whole.get("tenant"), "tenant")
    name = device_import.text(settings, "name", "tenant") if name is None else name
    is_foreign = whole.get("pepper") != fingerprint(store.pepper)
    try:
        with store.write() as writer:
            owner = device_import.create_tenant(writer, name, settings)
            without, keyless = _fill(writer, owner, whole, is_foreign=is_foreign)
            count = len(device_import.rows(whole, "devices"))
            imported = Imported(tenants.find(writer.connection, name), count, without, keyless)
            if is_dry_run:
                raise _Undone(imported)
            return imported
    except _Undone as undone:
        return undone.imported


def fingerprint(pepper: bytes) -> str:
    """Return a name of the pepper that says nothing about it."""
    return hmac.digest(pepper, b"iothub pepper fingerprint", hashlib.sha256).hex()[:16]


def _check_form(whole: Mapping[str, object]) -> None:
    if whole.get("format") != FORMAT:
        raise ConfigError(f"not an exported tenant: expected a JSON object with format {FORMAT}")
    if whole.get("version") != VERSION:
        raise ConfigError(f"the exported tenant is of version {whole.get('version')!r}, this program reads {VERSION}")


def _fill(
    writer: Writer, owner: tenants.Tenant, whole: Mapping[str, object], *, is_foreign: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write all parts; returns the devices and the issuers that are without their secret here."""
    device_import.create_groups(writer, owner, device_import.rows(whole, "groups"))
    without = device_import.create_devices(writer, owner, device_import.rows(whole, "devices"), is_foreign=is_foreign)
    device_import.create_streams(
        writer, owner, device_import.rows(whole, "streams") if "streams" in whole else ()
    )  # as issuers
    device_import.create_rules(writer, owner, device_import.rows(whole, "rules"))
    device_import.create_limits(writer, owner, device_import.rows(whole, "limits"))
    device_import.create_bans(writer, owner, device_import.rows(whole, "bans"))
    issuers = device_import.rows(whole, "token_issuers") if "token_issuers" in whole else ()  # older exports have none
    return without, device_import.create_token_issuers(writer, owner, issuers, is_foreign=is_foreign)


def _settings(owner: tenants.Tenant) -> dict[str, object]:
    return {
        "name": owner.name,
        "display_name": owner.display_name,
        "state": owner.state.value,
        "plan": owner.plan,
        "is_protected": owner.is_protected,
        "client_id_policy": owner.client_id_policy.value,
        "is_closed_on_denied_publish": owner.is_closed_on_denied_publish,
        "is_qos0_queued": owner.is_qos0_queued,
        "allowed_networks": list(owner.allowed_networks),
        "denied_networks": list(owner.denied_networks),
    }


def _issuer(row: RowMapping) -> dict[str, object]:
    simple = {name: row[name] for name in ("name", "algorithm", "issuer", "audience", "leeway_ms")}
    return simple | {"keys": json.loads(row["key_set"])}


def _devices(connection: Connection, tenant_id: int) -> list[dict[str, object]]:
    groups: dict[str, list[str]] = {}
    for group, name in connection.execute(devices.memberships(tenant_id)):
        groups.setdefault(name, []).append(group)
    return [
        {
            "name": row["name"],
            "credential_kind": row["credential_kind"],
            "credential": row["credential"],
            "is_enabled": row["is_enabled"],
            "groups": groups.get(row["name"], []),
        }
        for row in _rows(connection, device, device.c.tenant_id == tenant_id)
    ]


def _pick(
    connection: Connection, table: FromClause, tenant_id: int, columns: tuple[str, ...]
) -> list[dict[str, object]]:
    return [
        {column: row[column] for column in columns} for row in _rows(connection, table, table.c.tenant_id == tenant_id)
    ]


def _rows(connection: Connection, table: FromClause, where: ColumnElement[bool]) -> list[RowMapping]:
    return list(connection.execute(select(table).where(where).order_by(*table.primary_key)).mappings())
