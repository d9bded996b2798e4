"""Verbs on streams: create, list, show, delete; what goes from a tenant's devices to Kafka, and from there to them.

Knows no Kafka: whoever calls makes and deletes the topics. A stream's own rules are those of the subject `stream:NAME`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, func, insert, select

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, TenantLimitError
from iothub_services.auth.port import Action, Effect, Rule, Scope, TenantState
from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import resolve_texts
from iothub_services.streams.port import Direction, Stream
from iothub_tenants.accounts import limits, plans, tenants
from iothub_tenants.accounts.store import AccountStore, ChangeKind, Writer
from iothub_tenants.accounts.tables import acl_rule, quota_override
from iothub_tenants.accounts.tables import device as device_table
from iothub_tenants.accounts.tables import stream as table
from iothub_tenants.accounts.tables import tenant as tenant_table
from iothub_tenants.identity import check_stream_name, invalid_filter, shown

FILTER_LIMIT_BYTES = 4_096
MOST_PARTITIONS = 1_000
SUBJECT = "stream:"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a new stream is to be."""

    name: str
    filter: str
    direction: Direction = Direction.OUT
    partitions: int = 1
    retention_ms: int = 7 * 86_400_000


def create(store: AccountStore, tenant: str, wanted: Wanted) -> Stream:
    """Make a stream.

    Raises:
        ConfigError: name, filter or a number is malformed.
        NotFoundError: no such tenant.
        ConflictError: the tenant has a stream of this name, or is being deleted.
        TenantLimitError: it has as many as its limit `streams` allows.
    """
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        _check_room(writer.connection, owner)
        insert_row(writer, owner, wanted)
        made = _find(writer.connection, owner, wanted.name)
        writer.changed(owner.id, ChangeKind.STREAM, wanted.name, after=made)
        return made


def list_all(store: AccountStore, tenant: str) -> list[Stream]:
    """Return the tenant's streams by name. Raises NotFoundError."""
    with store.read() as connection:
        owner = tenants.find(connection, tenant)
        return [_stream(row, owner.name) for row in rows(connection, owner.id)]


def show(store: AccountStore, tenant: str, name: str) -> Stream:
    """Return one stream. Raises NotFoundError."""
    with store.read() as connection:
        return _find(connection, tenants.find(connection, tenant), name)


def remove(store: AccountStore, tenant: str, name: str) -> Stream:
    """Delete a stream and its rules; running hubs stop within a second. Returns what it was. Raises NotFoundError, ConflictError."""
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        found = _find(writer.connection, owner, name)
        writer.connection.execute(delete(table).where(_is(owner.id, name)))
        is_rule = and_(acl_rule.c.scope == Scope.DEVICE.value, acl_rule.c.subject == found.subject)
        writer.connection.execute(delete(acl_rule).where(acl_rule.c.tenant_id == owner.id, is_rule))
        writer.changed(owner.id, ChangeKind.STREAM, name, before=found)
        return found


# --- for the hub


def active(store: AccountStore) -> list[Stream]:
    """Return every stream of every tenant that is active, with its rules. Raises BackendError."""
    with store.read() as connection:
        found = _rows_of(connection, tenant_table.c.state == TenantState.ACTIVE.value)
        rules = _rules(connection) if any(row["direction"] == Direction.IN.value for row in found) else {}
        return [_stream(row, row["tenant"], rules) for row in found]


def living(store: AccountStore) -> list[Stream]:
    """Return every stream that is to have topics, without rules: whose tenant is active, or suspended. Raises BackendError."""
    with store.read() as connection:
        found = _rows_of(connection, tenant_table.c.state != TenantState.DELETING.value)
        return [_stream(row, row["tenant"]) for row in found]


def of_tenant(store: AccountStore, tenant_id: int, tenant: str) -> list[Stream]:
    """Return the streams of a tenant that is being deleted: whose topics must go. Raises BackendError."""
    with store.read() as connection:
        return [_stream(row, tenant) for row in rows(connection, tenant_id)]


def owners(store: AccountStore) -> frozenset[int]:
    """Return the ids of the tenants that have streams, in whatever state. Raises BackendError."""
    with store.read() as connection:
        return frozenset(connection.execute(select(table.c.tenant_id).distinct()).scalars())


# --- for other modules of this package, inside their transactions


def rows(connection: Connection, tenant_id: int) -> list[RowMapping]:
    """Read the tenant's rows, by name."""
    query = select(table).where(table.c.tenant_id == tenant_id).order_by(table.c.name)
    return list(connection.execute(query).mappings())


def insert_row(writer: Writer, owner: tenants.Tenant, wanted: Wanted) -> None:
    """Write a new stream; the caller puts the line into the change log. Raises ConfigError, ConflictError as `create` does."""
    _check(wanted)
    if writer.connection.execute(select(table.c.id).where(_is(owner.id, wanted.name))).first() is not None:
        raise ConflictError(f"tenant {owner.name} has a stream {wanted.name} already: delete it first")
    device = and_(device_table.c.tenant_id == owner.id, device_table.c.name == SUBJECT + wanted.name)
    if writer.connection.execute(select(device_table.c.id).where(device)).first() is not None:
        raise ConflictError(
            f"tenant {owner.name} has a device {SUBJECT}{wanted.name}, whose access rules would apply to the stream: choose another name"
        )
    values = {
        "tenant_id": owner.id,
        "name": wanted.name,
        "direction": wanted.direction.value,
        "filter": wanted.filter,
        "partitions": wanted.partitions,
        "retention_ms": wanted.retention_ms,
        "created_ms": writer.now_ms,
    }
    writer.connection.execute(insert(table).values(values))


def is_subject(connection: Connection, owner: tenants.Tenant, subject: str) -> bool:
    """Say whether a rule's subject `stream:NAME` is a stream of the tenant."""
    is_it = _is(owner.id, subject.removeprefix(SUBJECT))
    return subject.startswith(SUBJECT) and connection.execute(select(table.c.id).where(is_it)).first() is not None


def refuse_subjects(connection: Connection, tenant_id: int, names: Iterable[str]) -> None:
    """Raise ConflictError if a device's name is the subject of a stream's rules: they would share them, and lose them together."""
    for name in names:
        if name.startswith(SUBJECT):
            found = select(table.c.id).where(_is(tenant_id, name.removeprefix(SUBJECT)))
            if connection.execute(found).first() is not None:
                raise ConflictError(f"a device cannot be named {name}: that is how the access rules name a stream")


def check_filter(text: str) -> None:
    """Raise ConfigError unless a stream may have this Topic Filter [MQTT-4.7.1-1] [MQTT-4.7.1-2]."""
    octets = text.encode("utf-8", "replace")
    levels = text.split("/")
    if not 1 <= len(octets) <= FILTER_LIMIT_BYTES or "\0" in text:
        raise invalid_filter(text, FILTER_LIMIT_BYTES)
    if text.startswith("$"):
        raise ConfigError(f"topic filter {shown(text)}: a stream has no topics that begin with $")
    if any("#" in level for level in levels[:-1]) or ("#" in levels[-1] and levels[-1] != "#"):
        raise invalid_filter(text)
    if any("+" in level and level != "+" for level in levels):
        raise invalid_filter(text)


# --- private


def _check(wanted: Wanted) -> None:
    check_stream_name(wanted.name)
    check_filter(wanted.filter)
    if not 1 <= wanted.partitions <= MOST_PARTITIONS:
        raise ConfigError(f"{wanted.partitions} partitions: expected 1 to {MOST_PARTITIONS}")
    if wanted.retention_ms != -1 and wanted.retention_ms < 1_000:
        raise ConfigError("expected a retention of one second or more")


def _check_room(connection: Connection, owner: tenants.Tenant) -> None:
    own = and_(quota_override.c.tenant_id == owner.id, quota_override.c.device == "")
    in_plan = plans.text_in_force(connection, owner.plan)
    most = resolve_texts(in_plan, limits.load_text(connection, quota_override, own)).streams
    count = connection.execute(select(func.count()).where(table.c.tenant_id == owner.id)).scalar_one()
    if most and count >= max(most, 0):
        raise TenantLimitError(
            f"tenant {owner.name} has {count} streams, its limit is {max(most, 0)}: "
            f"delete one, or raise it with `iothub quota set {owner.name} streams=N`",
            limit=str(Quota.STREAMS.value),
        )


def _rows_of(connection: Connection, is_theirs: ColumnElement[bool]) -> Sequence[RowMapping]:
    """Read the rows of all those tenants, by id."""
    query = select(table, tenant_table.c.name.label("tenant")).join(
        tenant_table, table.c.tenant_id == tenant_table.c.id
    )
    return connection.execute(query.where(is_theirs).order_by(table.c.id)).mappings().all()


def _find(connection: Connection, owner: tenants.Tenant, name: str) -> Stream:
    row = connection.execute(select(table).where(_is(owner.id, name))).mappings().first()
    if row is None:
        raise NotFoundError(
            f"tenant {owner.name} has no stream {shown(name)}: `iothub stream list {owner.name}` shows them"
        )
    return _stream(row, owner.name)


def _rules(connection: Connection) -> dict[tuple[int, str], list[Rule]]:
    is_theirs = and_(acl_rule.c.scope == Scope.DEVICE.value, acl_rule.c.subject.startswith(SUBJECT, autoescape=True))
    found: dict[tuple[int, str], list[Rule]] = {}
    for row in connection.execute(select(acl_rule).where(is_theirs).order_by(acl_rule.c.id)).mappings():
        rule = Rule(Scope.DEVICE, row["subject"], Effect(row["effect"]), Action(row["action"]), row["filter"])
        found.setdefault((row["tenant_id"], row["subject"]), []).append(rule)
    return found


def _stream(row: RowMapping, tenant: str, rules: dict[tuple[int, str], list[Rule]] | None = None) -> Stream:
    return Stream(
        id=row["id"],
        tenant_id=row["tenant_id"],
        tenant=tenant,
        name=row["name"],
        direction=Direction(row["direction"]),
        filter=row["filter"],
        partitions=row["partitions"],
        retention_ms=row["retention_ms"],
        rules=tuple((rules or {}).get((row["tenant_id"], SUBJECT + row["name"]), ())),
    )


def _is(tenant_id: int, name: str) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == tenant_id, table.c.name == name)
