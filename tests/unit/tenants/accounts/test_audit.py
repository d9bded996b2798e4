"""The audit log: each change leaves a line with who, what, before and after, in its own transaction."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from iothub.base.errors import ConflictError, NotFoundError
from iothub_tenants.accounts import (
    acl_rules,
    api_keys,
    audit,
    audit_rows,
    bans,
    devices,
    groups,
    imports,
    limit_lines,
    plans,
    quotas,
    tenants,
)
from iothub_tenants.accounts.audit import Entry
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import audit as table


def newest(store: AccountStore) -> Entry:
    return audit.page(store, limit=1)[0]


@pytest.fixture
def acme(store: AccountStore) -> AccountStore:
    """Tenant `acme` with device `dev1`, as somebody with a key sees them."""
    tenants.create(store, "acme")
    devices.create(store, "acme", "dev1", password="secret")
    return store.acting_as("key:ci")


def test_change_has_who_what_before_and_after(acme: AccountStore) -> None:
    tenants.suspend(acme, "acme")

    line = newest(acme)
    assert (line.actor, line.tenant, line.kind, line.subject) == ("key:ci", "acme", "tenant", "acme")
    assert line.action == "changed"
    assert isinstance(line.before, dict)
    assert isinstance(line.after, dict)
    assert (line.before["state"], line.after["state"]) == ("active", "suspended")


def test_line_of_a_device_has_no_secret(acme: AccountStore) -> None:
    secret = devices.rotate_secret(acme, "acme", "dev1").secret

    line = newest(acme)
    assert (line.kind, line.subject, line.action) == ("device", "dev1", "changed")
    assert str(secret) not in repr(line)


@pytest.mark.parametrize(
    ("change", "kind", "subject", "action"),
    [
        (lambda store: devices.create(store, "acme", "new"), "device", "new", "created"),
        (lambda store: devices.delete(store, "acme", "dev1"), "device_deleted", "dev1", "deleted"),
        (lambda store: acl_rules.allow(store, "acme", "*", "publish", "a/#"), "acl", "*", "created"),
        (lambda store: bans.add(store, "acme", "device", "dev1"), "ban", "device:dev1", "created"),
        (lambda store: groups.create(store, "acme", "g"), "acl", "group:g", "created"),
        (lambda store: quotas.set_limits(store, "acme", "connections=1"), "quota", "*", "changed"),
        (lambda store: limit_lines.set_limits_of_lines(store, "acme", ["connections=1"]), "quota", "*", "set"),
        (lambda store: plans.create(store, "small"), "plan", "small", "created"),
        (lambda store: plans.set_plan(store, "standard", weight=2), "plan", "standard", "changed"),
        (lambda store: imports.import_devices(store, "acme", ["name,password", "d2,x"]), "device", "*", "imported"),
        (lambda store: api_keys.create(store, "k", "viewer"), "api_key", "k", "created"),
        (lambda store: audit.note(store, "acme", "session", "c1", {"done": "discarded"}), "session", "c1", "discarded"),
    ],
)
def test_each_kind_of_change_leaves_a_line(
    acme: AccountStore, change: object, kind: str, subject: str, action: str
) -> None:
    assert callable(change)

    change(acme)

    line = newest(acme)
    assert (line.actor, line.kind, line.subject, line.action) == ("key:ci", kind, subject, action)


def test_change_that_is_refused_leaves_no_line(acme: AccountStore) -> None:
    before = newest(acme).id

    with pytest.raises(ConflictError):
        tenants.create(acme, "acme")

    assert newest(acme).id == before


def test_what_does_not_change_leaves_no_line(acme: AccountStore) -> None:
    before = newest(acme).id

    tenants.resume(acme, "acme")

    assert newest(acme).id == before


def test_lines_outlive_their_tenant_and_are_nobody_elses(acme: AccountStore) -> None:
    """A successor of the same name has none of them."""
    marked = tenants.delete(acme, "acme")
    tenants.finish_deletion(acme, marked.tenant_id)
    tenants.create(acme, "acme", is_closed=True)

    assert [(line.subject, line.action) for line in audit.page(acme, tenant="acme")] == [("acme", "created")]
    assert ("acme", "deleted") in [(line.subject, line.action) for line in audit.page(acme)]
    with pytest.raises(NotFoundError):
        audit.page(acme, tenant="nobody")


def test_pages_go_from_the_newest_to_the_oldest(acme: AccountStore) -> None:
    for number in range(5):
        acl_rules.allow(acme, "acme", "*", "publish", f"a/{number}")

    first = audit.page(acme, limit=3)
    second = audit.page(acme, limit=3, before_id=first[-1].id)

    ids = [line.id for line in (*first, *second)]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == 6


def test_long_values_are_cut_and_old_lines_forgotten(acme: AccountStore) -> None:
    acl_rules.allow(acme, "acme", "*", "publish", "x" * 60_000)
    with acme.read() as connection:
        longest = connection.execute(select(func.max(func.length(table.c.after)))).scalar_one()

    assert longest < 4 * audit_rows._TEXT_LIMIT
    assert audit.trim(acme) == 0
    assert audit.trim(acme, keep_s=-1) > 0
    assert audit.page(acme) == []


def test_hints_are_for_whoever_has_changed_something(store: AccountStore) -> None:
    """A store that acts for several knows of each."""
    one, other = store.acting_as("key:one"), store.acting_as("key:other")

    tenants.create(one, "acme")

    assert (one.has_changed, other.has_changed, store.has_changed) == (True, False, False)
