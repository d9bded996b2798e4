"""Verbs on webhooks: create, list, show, change, rotate, delete, and their last attempts; for one tenant, or for the platform.

Knows no HTTP request: `iothub_services.webhooks` makes them. A secret is returned once, by the call that made it, and is not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, func, insert, or_, select, update

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, TenantLimitError
from iothub.base.units import Network
from iothub.records.tenant_events import TENANT_WANTED, WANTED
from iothub_services.auth.port import TenantState
from iothub_services.webhooks import signing
from iothub_services.webhooks.addresses import place_of, refuse_literal
from iothub_services.webhooks.port import PLATFORM, Attempt, Target
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import tenant as tenant_table
from iothub_tenants.accounts.tables import webhook as table
from iothub_tenants.accounts.tables import webhook_attempt as attempt_table
from iothub_tenants.identity import check_webhook_name, shown

MOST = 20  # webhooks of one tenant, and of the platform
MOST_ATTEMPTS = 50  # that are kept of each
OLD_SECRET_MS = 86_400_000  # for which a replaced secret signs, too


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook. `tenant`: whose events it gets; None: those of all tenants and of the platform."""

    name: str
    tenant: str | None
    url: str
    events: tuple[str, ...]
    is_enabled: bool
    created_ms: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """A webhook and its secret. Shown once, never logged."""

    webhook: Webhook
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Changes:
    """What `change` changes; None leaves it as it is."""

    url: str | None = None
    events: Sequence[str] | None = None
    is_enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """One line of the delivery log."""

    id: int
    at_ms: int
    node: int
    event_id: str
    event: str
    result: str
    status: int
    detail: str


def create(
    store: AccountStore,
    tenant: str | None,
    name: str,
    url: str,
    events: Sequence[str] = ("*",),
    *,
    networks: Sequence[Network] = (),
) -> NewWebhook:
    """Make a webhook; running hubs use it within a second. `networks`: private ones that it may lead to.

    Raises:
        ConfigError: name, URL or an event is malformed, or the URL has an address that it may not lead to.
        NotFoundError: no such tenant.
        ConflictError: there is a webhook of this name, or the tenant is being deleted.
        TenantLimitError: there are as many as there may be.
    """
    check_webhook_name(name)
    _require_pepper(store)
    values = _checked(Changes(url, events), tenant, networks)
    salt = signing.new_salt()
    with store.write() as writer:
        owner = _owner(writer.connection, tenant, is_changed=True)
        if writer.connection.execute(select(table.c.id).where(_is(owner, name))).first() is not None:
            raise ConflictError(f"there is a webhook {name} already: choose another name, or change it")
        count = writer.connection.execute(select(func.count()).where(table.c.tenant_id == owner)).scalar_one()
        if count >= MOST:
            raise TenantLimitError(f"there are {count} webhooks, the limit is {MOST}: delete one", limit="webhooks")
        row = {"tenant_id": owner, "name": name, "is_enabled": True, "salt": salt, "old_salt": "", "old_until_ms": 0}
        times = {"created_ms": writer.now_ms, "changed_ms": writer.now_ms}
        writer.connection.execute(insert(table).values(row | values | times))
        made = _webhook(_find(writer.connection, owner, name, tenant), tenant)
        writer.changed(owner, ChangeKind.WEBHOOK, name, after=made)
        return NewWebhook(made, signing.shown(signing.secret_of(store.pepper, salt)))


def list_all(store: AccountStore, tenant: str | None) -> list[Webhook]:
    """Return the webhooks of a tenant, or of the platform, by name. Raises NotFoundError."""
    with store.read() as connection:
        owner = _owner(connection, tenant)
        rows = connection.execute(select(table).where(table.c.tenant_id == owner).order_by(table.c.name)).mappings()
        return [_webhook(row, tenant) for row in rows]


def show(store: AccountStore, tenant: str | None, name: str) -> Webhook:
    """Return one webhook. Raises NotFoundError."""
    with store.read() as connection:
        return _webhook(_find(connection, _owner(connection, tenant), name, tenant), tenant)


def attempts(store: AccountStore, tenant: str | None, name: str) -> list[ShownAttempt]:
    """Return the last attempts of all hubs, newest first. Raises NotFoundError."""
    with store.read() as connection:
        found = _find(connection, _owner(connection, tenant), name, tenant)
        query = select(attempt_table).where(attempt_table.c.webhook_id == found["id"])
        rows = connection.execute(query.order_by(attempt_table.c.id.desc()).limit(MOST_ATTEMPTS)).mappings()
        return [ShownAttempt(**{name: value for name, value in row.items() if name != "webhook_id"}) for row in rows]


def change(
    store: AccountStore, tenant: str | None, name: str, changes: Changes, *, networks: Sequence[Network] = ()
) -> Webhook:
    """Change what is given, as `create`. What waits for a webhook that is disabled is dropped.

    Raises:
        NotFoundError, ConflictError, ConfigError: As there.
    """
    return _change(store, tenant, name, _checked(changes, tenant, networks))


def rotate(store: AccountStore, tenant: str | None, name: str) -> NewWebhook:
    """Make a new secret; for a day the old one signs, too. Raises NotFoundError, ConflictError."""
    _require_pepper(store)
    with store.read() as connection:
        old = _find(connection, _owner(connection, tenant), name, tenant)["salt"]
    salt = signing.new_salt()
    until = int(store.clock.wall() * 1000) + OLD_SECRET_MS
    changed = _change(store, tenant, name, {"salt": salt, "old_salt": old, "old_until_ms": until})
    return NewWebhook(changed, signing.shown(signing.secret_of(store.pepper, salt)))


def remove(store: AccountStore, tenant: str | None, name: str) -> None:
    """Delete a webhook with its attempts; what waits for it is dropped. Raises NotFoundError, ConflictError."""
    with store.write() as writer:
        owner = _owner(writer.connection, tenant, is_changed=True)
        found = _find(writer.connection, owner, name, tenant)
        _delete(writer.connection, table.c.id == found["id"])
        writer.changed(owner, ChangeKind.WEBHOOK, name, before=_webhook(found, tenant))


def target(store: AccountStore, tenant: str | None, name: str) -> Target:
    """Return one as hubs have it, enabled or not: for a test. Raises NotFoundError."""
    _require_pepper(store)
    with store.read() as connection:
        found = _find(connection, _owner(connection, tenant), name, tenant)
        return _target(store, found, tenant)


def check_event(word: str, tenant: str | None) -> None:
    """Raise ConfigError unless a webhook may be for this; `tenant`: None: it is the platform's."""
    wanted = WANTED if tenant is None else TENANT_WANTED
    if word not in wanted:
        what = "an event of the platform, which no webhook of a tenant gets" if word in WANTED else "no event"
        raise ConfigError(f"{shown(word)} is {what}: expected one of {', '.join(wanted)}")


# --- for hubs


def active(store: AccountStore) -> list[Target]:
    """Return every webhook that is enabled, of the platform and of tenants that are not being deleted. Raises BackendError."""
    columns = (*table.c, tenant_table.c.name.label("tenant"))
    query = select(*columns).join_from(table, tenant_table, table.c.tenant_id == tenant_table.c.id, isouter=True)
    is_living = or_(table.c.tenant_id == PLATFORM, tenant_table.c.state != TenantState.DELETING.value)
    with store.read() as connection:
        rows = connection.execute(query.where(and_(table.c.is_enabled, is_living)).order_by(table.c.id)).mappings()
        return [_target(store, row, row["tenant"]) for row in rows]


def note_attempts(store: AccountStore, found: Iterable[Attempt], node: int) -> None:
    """Write down what a hub has tried, and keep the last `MOST_ATTEMPTS` of each webhook. Raises BackendError."""
    rows = [{**attempt._asdict(), "node": node} for attempt in found]
    with store.write() as writer:
        known = set(writer.connection.execute(select(table.c.id)).scalars())
        rows = [row for row in rows if row["webhook_id"] in known]
        if rows:
            writer.connection.execute(insert(attempt_table), rows)
        for webhook_id in {row["webhook_id"] for row in rows}:
            of_it = attempt_table.c.webhook_id == webhook_id
            newest = select(attempt_table.c.id).where(of_it).order_by(attempt_table.c.id.desc())
            oldest = writer.connection.execute(newest.offset(MOST_ATTEMPTS).limit(1)).scalar()
            if oldest is not None:
                writer.connection.execute(delete(attempt_table).where(and_(of_it, attempt_table.c.id <= oldest)))


# --- for other modules of this package, inside their transactions


def remove_of(connection: Connection, tenant_id: int) -> None:
    """The tenant is deleted."""
    _delete(connection, table.c.tenant_id == tenant_id)


# --- private


def _delete(connection: Connection, which: ColumnElement[bool]) -> None:
    ids = list(connection.execute(select(table.c.id).where(which)).scalars())
    connection.execute(delete(attempt_table).where(attempt_table.c.webhook_id.in_(ids)))
    connection.execute(delete(table).where(table.c.id.in_(ids)))


def _change(store: AccountStore, tenant: str | None, name: str, values: dict[str, object]) -> Webhook:
    with store.write() as writer:
        owner = _owner(writer.connection, tenant, is_changed=True)
        found = _find(writer.connection, owner, name, tenant)
        changed = values | {"changed_ms": writer.now_ms}
        writer.connection.execute(update(table).where(table.c.id == found["id"]).values(changed))
        made = _webhook(_find(writer.connection, owner, name, tenant), tenant)
        writer.changed(owner, ChangeKind.WEBHOOK, name, before=_webhook(found, tenant), after=made)
        return made


def _checked(changes: Changes, tenant: str | None, networks: Sequence[Network]) -> dict[str, object]:
    values: dict[str, object] = {}
    if changes.url is not None:
        refuse_literal(place_of(changes.url), networks)
        values["url"] = changes.url
    if changes.events is not None:
        values["events"] = _checked_events(changes.events, tenant)
    if changes.is_enabled is not None:
        values["is_enabled"] = changes.is_enabled
    return values


def _checked_events(events: Sequence[str], tenant: str | None) -> str:
    for each in events:
        check_event(each, tenant)
    if not events:
        raise ConfigError('a webhook needs an event: "*" is all of them')
    return " ".join(dict.fromkeys(events))


def _require_pepper(store: AccountStore) -> None:
    if not store.pepper:
        raise ConfigError("a secret cannot be made without the server's pepper: open the store with the pepper")


def _owner(connection: Connection, tenant: str | None, *, is_changed: bool = False) -> int:
    if tenant is None:
        return PLATFORM
    return (tenants.living if is_changed else tenants.find)(connection, tenant).id


def _is(owner: int, name: str) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == owner, table.c.name == name)


def _find(connection: Connection, owner: int, name: str, tenant: str | None) -> RowMapping:
    row = connection.execute(select(table).where(_is(owner, name))).mappings().first()
    if row is None:
        of = "" if tenant is None else f" --tenant {tenant}"
        raise NotFoundError(f"there is no webhook {shown(name)}: `iothub webhook list{of}` shows them")
    return row


def _webhook(row: RowMapping, tenant: str | None) -> Webhook:
    return Webhook(
        name=row["name"],
        tenant=tenant,
        url=row["url"],
        events=tuple(row["events"].split()),
        is_enabled=row["is_enabled"],
        created_ms=row["created_ms"],
        changed_ms=row["changed_ms"],
    )


def _target(store: AccountStore, row: RowMapping, tenant: str | None) -> Target:
    salts = [row["salt"]]
    if row["old_salt"] and row["old_until_ms"] > int(store.clock.wall() * 1000):
        salts.append(row["old_salt"])
    return Target(
        id=row["id"],
        tenant_id=row["tenant_id"],
        label=row["name"] if tenant is None else f"{tenant}/{row['name']}",
        url=row["url"],
        events=frozenset(row["events"].split()),
        secrets=tuple(signing.secret_of(store.pepper, salt) for salt in salts),
    )
