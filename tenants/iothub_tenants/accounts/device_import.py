"""Writes the parts of an exported tenant into the database, trusting nothing that the document says.

Knows no form of a document: `transfer` does. Every function works inside the caller's transaction.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TypeVar

from sqlalchemy import insert, update

from iothub.base.errors import ConfigError
from iothub_services.auth.port import Effect, Scope, TenantState, TokenAlgorithm, TokenIssuer, TokenKey
from iothub_services.auth.secrets import is_generated_hash, is_password_hash
from iothub_services.quota.grammar import parse_limits
from iothub_services.streams.port import Direction
from iothub_tenants.accounts import acl_rules, bans, devices, limits, quotas, streams, tables, tenants, token_issuers
from iothub_tenants.accounts.devices import Credential, CredentialForm
from iothub_tenants.accounts.rows import Part, Row, damaged, mapping, value, words
from iothub_tenants.accounts.store import ChangeKind, Writer
from iothub_tenants.accounts.tables import acl_rule, ban, device, device_group, quota_override
from iothub_tenants.identity import check_device_name, check_group_name

E = TypeVar("E", bound=Enum)

_CREDENTIAL_LIMIT = 512
_FLAGS = "is_protected is_closed_on_denied_publish is_qos0_queued"

TENANT = Part("tenant", tables.tenant, f"name display_name state plan client_id_policy {_FLAGS}")
NETWORKS = ("allowed_networks", "denied_networks")  # of a tenant: lists of words
DEVICES = Part("devices", device, "name credential_kind credential is_enabled")
RULES = Part("rules", acl_rule, "scope subject effect action filter")
LIMITS = Part("limits", quota_override, "device value")
BANS = Part("bans", ban, "kind value until_ms reason")
ISSUERS = Part("token_issuers", tables.token_issuer, "name algorithm issuer audience leeway_ms")
STREAMS = Part("streams", tables.stream, "name direction filter partitions retention_ms")


def create_tenant(writer: Writer, name: str, settings: Row) -> tenants.Tenant:
    """Create the tenant without any rule."""
    created = tenants.create_closed(writer, name, settings["plan"])
    given = tenants.Settings(
        display_name=settings["display_name"],
        client_id_policy=settings["client_id_policy"],
        is_closed_on_denied_publish=settings["is_closed_on_denied_publish"],
        is_qos0_queued=settings["is_qos0_queued"],
        allowed_networks=words(settings, "allowed_networks", "tenant"),
        denied_networks=words(settings, "denied_networks", "tenant"),
    )
    state = TenantState.ACTIVE if settings["state"] == TenantState.ACTIVE.value else TenantState.SUSPENDED
    more = {"state": state.value, "is_protected": settings["is_protected"]}
    return tenants.write_settings(writer, created, given, more)


def create_groups(writer: Writer, owner: tenants.Tenant, document: Row) -> None:
    for name in words(document, "groups", ""):
        check_group_name(name)
        writer.connection.execute(insert(device_group).values(tenant_id=owner.id, name=name, created_ms=writer.now_ms))


def create_devices(writer: Writer, owner: tenants.Tenant, document: Row, *, is_foreign: bool) -> dict[str, Credential]:
    """Create the devices; returns, by name, the credential that each has here."""
    found = list(DEVICES.found_in(document))
    credentials = {row["name"]: credential(row, where, is_foreign=is_foreign) for where, row in found}
    if len(credentials) < len(found):
        raise damaged("devices", "each name once")
    devices.insert_devices(writer, owner.id, credentials.items())
    for where, row in found:
        _finish_device(writer, owner, row, where)
    return credentials


def credential(row: Row, where: str, *, is_foreign: bool) -> Credential:
    """Return a device's credential as an export has it; a generated secret of another hub fits nothing here. Raises ConfigError."""
    check_device_name(row["name"])
    form = _member(CredentialForm, row, "credential_kind", where)
    if len(row["credential"]) > _CREDENTIAL_LIMIT:
        raise damaged(f"{where}.credential", f"at most {_CREDENTIAL_LIMIT} characters")
    if form is CredentialForm.PASSWORD and not is_password_hash(row["credential"]):
        raise damaged(
            f"{where}.credential",
            "the hash of a password, of which one check takes 256 MiB or 600,000 iterations at most",
        )
    if form is CredentialForm.GENERATED and is_foreign:
        return Credential(CredentialForm.NONE, "")
    if form is CredentialForm.GENERATED and not is_generated_hash(row["credential"]):
        raise damaged(f"{where}.credential", "the hash of a generated secret, as an export has it")
    return Credential(form, row["credential"])


def create_rules(writer: Writer, owner: tenants.Tenant, document: Row) -> None:
    for where, row in RULES.found_in(document):
        scope = _member(Scope, row, "scope", where)
        _member(Effect, row, "effect", where)
        acl_rules.check_filter(row["filter"])
        action = acl_rules.parse_action(row["action"])
        if scope is Scope.TENANT and row["subject"]:
            raise damaged(f"{where}.subject", "none: a rule with the scope tenant is for all devices")
        acl_rules.require_subject(writer.connection, owner, scope, row["subject"])
        whose = {"tenant_id": owner.id, "created_ms": writer.now_ms}
        writer.connection.execute(insert(acl_rule).values(RULES.pick(row) | {"action": action.value} | whose))


def create_limits(writer: Writer, owner: tenants.Tenant, document: Row) -> None:
    for _, row in LIMITS.found_in(document):
        name, parsed = row["device"], parse_limits(row["value"])
        if name:
            devices.required_id(writer.connection, owner, name)
            quotas.refuse_wider(parsed)
        limits.merge(writer.connection, quota_override, {"tenant_id": owner.id, "device": name}, parsed)


def create_bans(writer: Writer, owner: tenants.Tenant, document: Row) -> None:
    """Write the bans that are still in force."""
    for where, row in BANS.found_in(document):
        until_ms = row["until_ms"]
        if until_ms < 0:
            raise damaged(f"{where}.until_ms", "milliseconds")
        kind, banned = bans.checked(row["kind"], row["value"])
        reason = bans.checked_reason(row["reason"])
        if until_ms == 0 or until_ms > writer.now_ms:
            values = {"kind": kind.value, "value": banned, "until_ms": until_ms, "reason": reason}
            writer.connection.execute(insert(ban).values(values | {"tenant_id": owner.id, "created_ms": writer.now_ms}))


def create_streams(writer: Writer, owner: tenants.Tenant, document: Row) -> None:
    """Write the streams; the hub makes their topics."""
    for where, row in STREAMS.found_in(document):
        direction = _member(Direction, row, "direction", where)
        wanted = streams.Wanted(row["name"], row["filter"], direction, row["partitions"], row["retention_ms"])
        streams.insert_row(writer, owner, wanted)
        writer.changed(owner.id, ChangeKind.STREAM, row["name"], after=wanted)


def create_token_issuers(writer: Writer, owner: tenants.Tenant, document: Row, *, is_foreign: bool) -> tuple[str, ...]:
    """Create the issuers and return the names of those whose secret is sealed with another hub's pepper."""
    keyless = []
    for where, row in ISSUERS.found_in(document):
        issuer = _issuer(row, where)
        if is_foreign and issuer.algorithm is TokenAlgorithm.HS256:
            keyless.append(issuer.name)
            issuer = replace(issuer, keys=())
        token_issuers.insert_row(writer, owner, issuer)
    return tuple(keyless)


# --- private


def _member(kind: type[E], row: Row, name: str, where: str) -> E:
    """Return what a word stands for. Raises ConfigError."""
    try:
        return kind(row[name])
    except ValueError:
        raise damaged(f"{where}.{name}", "one of " + ", ".join(str(known.value) for known in kind)) from None


def _issuer(row: Row, where: str) -> TokenIssuer:
    algorithm = _member(TokenAlgorithm, row, "algorithm", where)
    keys = tuple(
        _token_key(mapping(each, f"{where}.keys[{place}]"), algorithm, f"{where}.keys[{place}]")
        for place, each in enumerate(value(row, "keys", list, where))
    )
    return TokenIssuer(row["name"], algorithm, keys, row["issuer"], row["audience"], row["leeway_ms"] / 1000)


def _token_key(row: Row, algorithm: TokenAlgorithm, where: str) -> TokenKey:
    from iothub_services.auth import token_keys  # cryptography, which no other verb needs

    key = TokenKey(value(row, "kid", str, where), value(row, "key", str, where))
    try:
        token_keys.check_stored(algorithm, key)
    except ConfigError:
        raise damaged(where, f"a key for {algorithm.value}") from None
    return key


def _finish_device(writer: Writer, owner: tenants.Tenant, row: Row, where: str) -> None:
    groups = words(row, "groups", where)
    if groups or not row["is_enabled"]:
        device_id = devices.required_id(writer.connection, owner, row["name"])
        for group in groups:
            devices.add_member(writer.connection, device_id, devices.required_group(writer.connection, owner, group))
        if not row["is_enabled"]:
            writer.connection.execute(update(device).where(device.c.id == device_id).values(is_enabled=False))
