"""Writes the parts of an exported tenant into the database, trusting nothing that the document says.

Knows no document as a whole: `transfer.py` does. Every function works inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import insert, update

from iothub.base.errors import ConfigError
from iothub_services.auth.port import Effect, Scope, TenantState, TokenAlgorithm, TokenIssuer, TokenKey
from iothub_services.quota.grammar import parse_limits
from iothub_services.streams.port import Direction
from iothub_tenants.accounts import acl_rules, bans, devices, limits, quotas, streams, tenants, token_issuers
from iothub_tenants.accounts.devices import Credential, CredentialForm
from iothub_tenants.accounts.store import ChangeKind, Writer
from iothub_tenants.accounts.tables import acl_rule, ban, device, device_group, quota_override
from iothub_tenants.identity import check_device_name, check_group_name, shown

_CREDENTIAL_LIMIT = 512

Row = Mapping[str, object]


def create_tenant(writer: Writer, name: str, settings: Row) -> tenants.Tenant:
    """Create the tenant without any rule."""
    plan = text(settings, "plan", "tenant")
    created = tenants.create_closed(writer, name, plan)
    given = tenants.Settings(
        display_name=text(settings, "display_name", "tenant"),
        client_id_policy=text(settings, "client_id_policy", "tenant"),
        is_closed_on_denied_publish=flag(settings, "is_closed_on_denied_publish", "tenant"),
        is_qos0_queued=flag(settings, "is_qos0_queued", "tenant"),
        allowed_networks=words(settings, "allowed_networks", "tenant"),
        denied_networks=words(settings, "denied_networks", "tenant"),
    )
    is_active = text(settings, "state", "tenant") == TenantState.ACTIVE.value
    state = TenantState.ACTIVE if is_active else TenantState.SUSPENDED
    is_protected = flag(settings, "is_protected", "tenant")
    return tenants.write_settings(writer, created, given, {"state": state.value, "is_protected": is_protected})


def create_groups(writer: Writer, owner: tenants.Tenant, names: Sequence[object]) -> None:
    for place, name in enumerate(names):
        if not isinstance(name, str):
            raise _wrong(f"groups[{place}]", "a name")
        check_group_name(name)
        writer.connection.execute(insert(device_group).values(tenant_id=owner.id, name=name, created_ms=writer.now_ms))


def create_devices(
    writer: Writer, owner: tenants.Tenant, found: Sequence[object], *, is_foreign: bool
) -> tuple[str, ...]:
    """Create the devices and return the names of those that have no usable credential here."""
    rows_ = [mapping(row, f"devices[{place}]") for place, row in enumerate(found)]
    accounts = [_account(row, f"devices[{place}]", is_foreign=is_foreign) for place, row in enumerate(rows_)]
    devices.insert_devices(writer, owner.id, accounts)
    for place, row in enumerate(rows_):
        _finish_device(writer, owner, row, f"devices[{place}]")
    return tuple(name for name, credential in accounts if credential.form is CredentialForm.NONE)


def create_rules(writer: Writer, owner: tenants.Tenant, found: Sequence[object]) -> None:
    for place, each in enumerate(found):
        where = f"rules[{place}]"
        row = mapping(each, where)
        scope, effect = text(row, "scope", where), text(row, "effect", where)
        if scope not in {known.value for known in Scope} or effect not in {known.value for known in Effect}:
            raise _wrong(where, "scope device, group or tenant and effect allow or deny")
        acl_rules.check_filter(text(row, "filter", where))
        values = {"scope": scope, "subject": text(row, "subject", where), "effect": effect, "filter": row["filter"]}
        values["action"] = acl_rules.parse_action(text(row, "action", where)).value
        acl_rules.require_subject(writer.connection, owner, Scope(scope), str(values["subject"]))
        writer.connection.execute(
            insert(acl_rule).values(values | {"tenant_id": owner.id, "created_ms": writer.now_ms})
        )


def create_limits(writer: Writer, owner: tenants.Tenant, found: Sequence[object]) -> None:
    for place, each in enumerate(found):
        where = f"limits[{place}]"
        row = mapping(each, where)
        name, parsed = text(row, "device", where), parse_limits(text(row, "value", where))
        if name:
            devices.required_id(writer.connection, owner, name)
            quotas.refuse_wider(parsed)
        limits.merge(writer.connection, quota_override, {"tenant_id": owner.id, "device": name}, parsed)


def create_bans(writer: Writer, owner: tenants.Tenant, found: Sequence[object]) -> None:
    """Write the bans that are still in force."""
    for place, each in enumerate(found):
        where = f"bans[{place}]"
        row = mapping(each, where)
        until_ms = row.get("until_ms")
        if not isinstance(until_ms, int) or until_ms < 0:
            raise _wrong(f"{where}.until_ms", "milliseconds")
        kind, value = bans.checked(text(row, "kind", where), text(row, "value", where))
        reason = bans.checked_reason(text(row, "reason", where))
        if until_ms == 0 or until_ms > writer.now_ms:
            values = {"kind": kind.value, "value": value, "until_ms": until_ms, "reason": reason}
            writer.connection.execute(insert(ban).values(values | {"tenant_id": owner.id, "created_ms": writer.now_ms}))


def create_streams(writer: Writer, owner: tenants.Tenant, found: Sequence[object]) -> None:
    """Write the streams; the hub makes their topics."""
    for place, each in enumerate(found):
        where = f"streams[{place}]"
        row = mapping(each, where)
        direction = text(row, "direction", where)
        if direction not in {known.value for known in Direction}:
            raise _wrong(f"{where}.direction", "out or in")
        partitions, retention_ms = _number(row, "partitions", where), _number(row, "retention_ms", where)
        name, topic_filter = text(row, "name", where), text(row, "filter", where)
        wanted = streams.Wanted(name, topic_filter, Direction(direction), partitions, retention_ms)
        streams.insert_row(writer, owner, wanted)
        writer.changed(owner.id, ChangeKind.STREAM, name)


def create_token_issuers(
    writer: Writer, owner: tenants.Tenant, found: Sequence[object], *, is_foreign: bool
) -> tuple[str, ...]:
    """Create the issuers and return the names of those whose secret is sealed with another hub's pepper."""
    keyless = []
    for place, each in enumerate(found):
        issuer = _issuer(mapping(each, f"token_issuers[{place}]"), f"token_issuers[{place}]")
        if is_foreign and issuer.algorithm is TokenAlgorithm.HS256:
            keyless.append(issuer.name)
            issuer = replace(issuer, keys=())
        token_issuers.insert_row(writer, owner, issuer)
    return tuple(keyless)


# --- reading a document that somebody else wrote


def mapping(value: object, where: str) -> Row:
    if not isinstance(value, Mapping):
        raise _wrong(where, "an object")
    return value


def rows(whole: Row, key: str) -> Sequence[object]:
    value = whole.get(key)
    if not isinstance(value, list):
        raise _wrong(key, "a list")
    return value


def text(row: Row, key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise _wrong(f"{where}.{key}", "a text")
    return value


def _number(row: Row, key: str, where: str) -> int:
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(f"{where}.{key}", "a number")
    return value


def flag(row: Row, key: str, where: str) -> bool:
    value = row.get(key)
    if not isinstance(value, bool):
        raise _wrong(f"{where}.{key}", "true or false")
    return value


def words(row: Row, key: str, where: str) -> tuple[str, ...]:
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise _wrong(f"{where}.{key}", "a list of texts")
    return tuple(value)


def _wrong(where: str, expected: str) -> ConfigError:
    return ConfigError(f"the exported tenant is damaged at {where}: expected {expected}")


def _account(row: Row, where: str, *, is_foreign: bool) -> tuple[str, Credential]:
    name, kind, credential = (
        text(row, "name", where),
        text(row, "credential_kind", where),
        text(row, "credential", where),
    )
    check_device_name(name)
    if kind not in {form.value for form in CredentialForm} or len(credential) > _CREDENTIAL_LIMIT:
        raise ConfigError(
            f"the exported tenant is damaged at {where}: {shown(kind)} is no kind of credential, or it is too long"
        )
    form = CredentialForm(kind)
    if form is CredentialForm.GENERATED and is_foreign:
        return name, Credential(CredentialForm.NONE, "")
    return name, Credential(form, credential)


def _issuer(row: Row, where: str) -> TokenIssuer:
    word, leeway_ms = text(row, "algorithm", where), row.get("leeway_ms")
    if word not in {known.value for known in TokenAlgorithm}:
        raise _wrong(f"{where}.algorithm", "one of " + ", ".join(known.value for known in TokenAlgorithm))
    if not isinstance(leeway_ms, int) or isinstance(leeway_ms, bool):
        raise _wrong(f"{where}.leeway_ms", "milliseconds")
    algorithm = TokenAlgorithm(word)
    keys = tuple(
        _token_key(mapping(each, f"{where}.keys[{place}]"), algorithm, f"{where}.keys[{place}]")
        for place, each in enumerate(rows(row, "keys"))
    )
    name, issuer, audience = (text(row, key, where) for key in ("name", "issuer", "audience"))
    return TokenIssuer(name, algorithm, keys, issuer, audience, leeway_ms / 1000)


def _token_key(row: Row, algorithm: TokenAlgorithm, where: str) -> TokenKey:
    from iothub_services.auth import token_keys  # cryptography, which no other verb needs

    key = TokenKey(text(row, "kid", where), text(row, "key", where))
    try:
        token_keys.check_stored(algorithm, key)
    except ConfigError:
        raise _wrong(where, f"a key for {algorithm.value}") from None
    return key


def _finish_device(writer: Writer, owner: tenants.Tenant, row: Row, where: str) -> None:
    groups = words(row, "groups", where)
    is_enabled = flag(row, "is_enabled", where)
    if groups or not is_enabled:
        device_id = devices.required_id(writer.connection, owner, text(row, "name", where))
        for group in groups:
            devices.add_member(writer.connection, device_id, devices.required_group(writer.connection, owner, group))
        if not is_enabled:
            writer.connection.execute(update(device).where(device.c.id == device_id).values(is_enabled=False))
