"""Verbs on access rules: allow, deny, list, remove.

Knows no evaluation: `iothub_services.auth` compiles rules into policies. Precedence is by scope and effect, never by order of creation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, and_, insert, select
from sqlalchemy import delete as delete_from

from iothub.base.errors import ConfigError, NotFoundError
from iothub_services.auth.port import Action, Effect, Scope
from iothub_tenants.accounts import devices, streams, tenants
from iothub_tenants.accounts.store import AccountStore, ChangeKind, Writer
from iothub_tenants.accounts.tables import acl_rule as table
from iothub_tenants.identity import invalid_filter, shown

FILTER_LIMIT_BYTES = 65_535  # §1.5.4: the longest UTF-8 string of the protocol
PLACEHOLDERS = ("{device}", "{clientid}")
GROUP_SIGN = "@"  # "@sensors" as a subject is the group; no device name begins with it

_PLACEHOLDER_LIKE = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True)
class AclRule:
    """One rule. `subject` as people write it: a device's name, `@` and a group's name, or `*` for all devices of the tenant."""

    id: int
    tenant: str
    scope: Scope
    subject: str
    effect: Effect
    action: Action
    filter: str
    created_ms: int


def allow(store: AccountStore, tenant: str, subject: str, action: str, topic_filter: str) -> AclRule:
    """Add an allow rule, or return the same rule that is there already.

    Raises:
        ConfigError: the action or the Topic Filter is malformed.
        NotFoundError: no such tenant, device or group.
        ConflictError: the tenant is being deleted.
    """
    return add(store, tenant, subject, Effect.ALLOW, action, topic_filter)


def deny(store: AccountStore, tenant: str, subject: str, action: str, topic_filter: str) -> AclRule:
    """Add a deny rule, or return the same rule that is there already. Raises as `allow` does."""
    return add(store, tenant, subject, Effect.DENY, action, topic_filter)


def add(store: AccountStore, tenant: str, subject: str, effect: Effect, action: str, topic_filter: str) -> AclRule:
    """Add a rule, or return the same rule that is there already. Raises as `allow` does."""
    check_filter(topic_filter)
    scope, name = split_subject(subject)
    rule = {"effect": effect.value, "action": parse_action(action).value, "filter": topic_filter}
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        require_subject(writer.connection, owner, scope, name)
        same = {"tenant_id": owner.id, "scope": scope.value, "subject": name} | rule
        query = select(table).where(*(table.c[column] == value for column, value in same.items()))
        row = writer.connection.execute(query).mappings().first()
        if row is None:
            writer.connection.execute(insert(table).values(same | {"created_ms": writer.now_ms}))
            row = writer.connection.execute(query).mappings().one()
            writer.changed(owner.id, ChangeKind.ACL, changed_subject(scope, name), after=_rule(row, tenant))
        return _rule(row, tenant)


def remove(store: AccountStore, tenant: str, rule_id: int) -> AclRule:
    """Remove one rule by its number and return it. Raises NotFoundError, ConflictError."""
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        is_it = and_(table.c.tenant_id == owner.id, table.c.id == rule_id)
        row = writer.connection.execute(select(table).where(is_it)).mappings().first()
        if row is None:
            raise NotFoundError(f"tenant {tenant} has no rule {rule_id}: `iothub acl list {tenant}` shows them")
        return _removed(writer, owner, row)


def remove_matching(store: AccountStore, tenant: str, subject: str, action: str, topic_filter: str) -> list[AclRule]:
    """Remove the allow and deny rules that say exactly this and return them. Raises NotFoundError (none does), ConflictError."""
    scope, name = split_subject(subject)
    same = {"scope": scope.value, "subject": name, "action": parse_action(action).value, "filter": topic_filter}
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        conditions = [table.c[column] == value for column, value in same.items()]
        query = select(table).where(table.c.tenant_id == owner.id, *conditions).order_by(table.c.id)
        rows = writer.connection.execute(query).mappings().all()
        if not rows:
            raise NotFoundError(f"tenant {tenant} has no such rule: `iothub acl list {tenant}` shows them")
        return [_removed(writer, owner, row) for row in rows]


def list_all(store: AccountStore, tenant: str) -> list[AclRule]:
    """Return the tenant's rules in order of precedence (device, group, tenant; deny before allow). Raises NotFoundError."""
    with store.read() as connection:
        return _rules(connection, tenants.find(connection, tenant))


def page(store: AccountStore, tenant: str, after: int, limit: int) -> list[AclRule]:
    """Return the tenant's first rules behind a number, by number. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        query = select(table).where(table.c.tenant_id == owner.id, table.c.id > after).order_by(table.c.id).limit(limit)
        return [_rule(row, tenant) for row in connection.execute(query).mappings()]


def list_applying(store: AccountStore, tenant: str, subject: str) -> list[AclRule]:
    """Return the rules that a subject is judged by, in order of precedence: of a device its own, its groups' and `*`; of a group its own and `*`.

    Rules of `*` are for devices: a stream has only its own.

    Raises:
        NotFoundError: no such tenant, device, stream or group.
    """
    scope, name = split_subject(subject)
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        require_subject(connection, owner, scope, name)
        applying = {subject}
        if not (scope is Scope.DEVICE and streams.is_subject(connection, owner, name)):
            applying.add("*")
            if scope is Scope.DEVICE:
                groups = devices.find(connection, owner, name).groups
                applying |= {join_subject(Scope.GROUP, group) for group in groups}
        return [rule for rule in _rules(connection, owner) if rule.subject in applying]


def split_subject(subject: str) -> tuple[Scope, str]:
    """Read a subject as people write it: `dev1`, `@group` or `*`."""
    if subject == "*":
        return Scope.TENANT, ""
    if subject.startswith(GROUP_SIGN):
        return Scope.GROUP, subject.removeprefix(GROUP_SIGN)
    return Scope.DEVICE, subject


def join_subject(scope: Scope, name: str) -> str:
    """Write a subject as people read it."""
    return {Scope.TENANT: "*", Scope.GROUP: GROUP_SIGN + name, Scope.DEVICE: name}[scope]


def changed_subject(scope: Scope, name: str) -> str:
    """Return what the change log says of a changed rule of this subject."""
    return "*" if scope is Scope.TENANT else f"{scope.value}:{name}"


def parse_action(word: str) -> Action:
    """Read `publish`, `subscribe` or `both`. Raises ConfigError."""
    try:
        return Action(word)
    except ValueError as error:
        raise ConfigError(f"{shown(word)} is not an action: expected publish, subscribe or both") from error


def check_filter(text: str) -> None:
    """Raise ConfigError unless this is a Topic Filter [MQTT-4.7.1-1] [MQTT-4.7.1-2] whose placeholders stand for whole levels."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ConfigError("the topic filter is not UTF-8 text") from error
    if not 1 <= size <= FILTER_LIMIT_BYTES or "\0" in text:
        raise invalid_filter(text, FILTER_LIMIT_BYTES)
    levels = text.split("/")
    if levels[0] == "$share":
        raise ConfigError("give the topic filter without $share/GROUP/: the rule applies to shared subscriptions, too")
    if any("#" in level for level in levels[:-1]):
        raise invalid_filter(text)
    for level in levels:
        _check_level(level, text)


def require_subject(connection: Connection, owner: tenants.Tenant, scope: Scope, name: str) -> None:
    """Raise NotFoundError unless the device, stream or group is there."""
    if scope is Scope.DEVICE:
        if not streams.is_subject(connection, owner, name):
            devices.required_id(connection, owner, name)
    elif scope is Scope.GROUP:
        devices.required_group(connection, owner, name)


def _check_level(level: str, text: str) -> None:
    if len(level) > 1 and ("+" in level or "#" in level):
        raise invalid_filter(text)
    if level in PLACEHOLDERS:
        return
    if _PLACEHOLDER_LIKE.fullmatch(level) or any(placeholder in level for placeholder in PLACEHOLDERS):
        known = " and ".join(PLACEHOLDERS)
        raise ConfigError(
            f"topic filter {shown(text)}: {shown(level)} is not a placeholder; {known} must be a whole level"
        )


def _rules(connection: Connection, owner: tenants.Tenant) -> list[AclRule]:
    rows = connection.execute(select(table).where(table.c.tenant_id == owner.id)).mappings()
    return sorted((_rule(row, owner.name) for row in rows), key=precedence)


def _rule(row: RowMapping, tenant: str) -> AclRule:
    scope = Scope(row["scope"])
    return AclRule(
        id=row["id"],
        tenant=tenant,
        scope=scope,
        subject=join_subject(scope, row["subject"]),
        effect=Effect(row["effect"]),
        action=Action(row["action"]),
        filter=row["filter"],
        created_ms=row["created_ms"],
    )


def precedence(rule: AclRule) -> tuple[int, str, bool, int]:
    """Return the key of the order of precedence."""
    return list(Scope).index(rule.scope), rule.subject, rule.effect is not Effect.DENY, rule.id


def _removed(writer: Writer, owner: tenants.Tenant, row: RowMapping) -> AclRule:
    writer.connection.execute(delete_from(table).where(table.c.id == row["id"]))
    removed = _rule(row, owner.name)
    writer.changed(owner.id, ChangeKind.ACL, changed_subject(removed.scope, row["subject"]), before=removed)
    return removed
