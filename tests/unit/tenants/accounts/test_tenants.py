"""The verbs on tenants, their refusals, and what a deletion leaves."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_services.auth.port import ClientIdPolicy, TenantState
from iothub_tenants.accounts import acl_rules, bans, devices, groups, quotas, tenants
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import metadata


def test_new_tenant_is_active_with_one_rule_for_everything(store: AccountStore) -> None:
    """The rule is visible and can be removed like any other."""
    created = tenants.create(store, "acme", display_name="Acme Ltd")

    (rule,) = acl_rules.list_all(store, "acme")
    assert (created.state, created.plan, created.display_name) == (TenantState.ACTIVE, "standard", "Acme Ltd")
    assert (rule.subject, rule.effect.value, rule.action.value, rule.filter) == ("*", "allow", "both", "#")


def test_closed_tenant_has_no_rule(store: AccountStore) -> None:
    """Default deny."""
    tenants.create(store, "acme", is_closed=True)

    assert acl_rules.list_all(store, "acme") == []


def test_name_is_given_once(store: AccountStore) -> None:
    """The second caller learns that it exists."""
    tenants.create(store, "acme")

    with pytest.raises(ConflictError, match="exists already"):
        tenants.create(store, "acme")


@pytest.mark.parametrize("name", ["", "a", "Acme", "acme!", "null", "a" * 33, "acme/x"])
def test_bad_name_is_refused(store: AccountStore, name: str) -> None:
    """Exit code 2, nothing written."""
    with pytest.raises(ConfigError):
        tenants.create(store, name)

    assert tenants.list_all(store) == []


def test_names_without_a_tenant_are_told(store: AccountStore) -> None:
    """Each once; one that is being deleted is none any more."""
    for name in ("acme", "beta", "gone"):
        tenants.create(store, name)
    tenants.delete(store, "gone")

    assert tenants.missing(store, ["acme", "zeta", "gone", "beta", "zeta"]) == ["zeta", "gone"]
    assert tenants.missing(store, []) == []


def test_unknown_plan_is_not_found(store: AccountStore) -> None:
    """On creation and on update."""
    with pytest.raises(NotFoundError, match="iothub plan list"):
        tenants.create(store, "acme", plan="gold")
    tenants.create(store, "acme")
    with pytest.raises(NotFoundError, match="'gold'"):
        tenants.update(store, "acme", tenants.Settings(plan="gold"))


def test_tenants_are_listed_by_name(store: AccountStore) -> None:
    """All of them, whatever their state."""
    for name in ("zeta", "acme"):
        tenants.create(store, name)
    tenants.suspend(store, "zeta")

    assert [(found.name, found.state.value) for found in tenants.list_all(store)] == [
        ("acme", "active"),
        ("zeta", "suspended"),
    ]


@pytest.mark.parametrize(
    "verb", [tenants.show, tenants.suspend, tenants.resume, tenants.protect, tenants.unprotect, tenants.delete]
)
def test_unknown_tenant_is_not_found(store: AccountStore, verb: object) -> None:
    """By every verb."""
    assert callable(verb)
    with pytest.raises(NotFoundError, match="'nobody'"):
        verb(store, "nobody")


def test_update_changes_what_is_given(store: AccountStore) -> None:
    """And leaves the rest."""
    tenants.create(store, "acme", display_name="Acme")

    changed = tenants.update(
        store,
        "acme",
        tenants.Settings(
            plan="unlimited",
            client_id_policy="prefix",
            is_closed_on_denied_publish=True,
            is_qos0_queued=True,
            denied_networks=("192.0.2.0/24", "2001:db8::1"),
        ),
    )

    assert changed == tenants.show(store, "acme")
    assert (changed.display_name, changed.plan, changed.client_id_policy) == (
        "Acme",
        "unlimited",
        ClientIdPolicy.PREFIX,
    )
    assert changed.is_closed_on_denied_publish
    assert changed.is_qos0_queued
    assert changed.denied_networks == ("192.0.2.0/24", "2001:db8::1/128")


@pytest.mark.parametrize(
    "settings",
    [
        tenants.Settings(client_id_policy="any"),
        tenants.Settings(display_name="two\nlines"),
        tenants.Settings(allowed_networks=("192.0.2.0/33",)),
    ],
)
def test_unknown_value_of_a_setting_is_refused(store: AccountStore, settings: tenants.Settings) -> None:
    """With what was expected."""
    tenants.create(store, "acme")

    with pytest.raises(ConfigError, match="expected"):
        tenants.update(store, "acme", settings)


def test_suspension_ends_with_resume(store: AccountStore) -> None:
    """Both may be said twice."""
    tenants.create(store, "acme")

    states = [
        verb(store, "acme").state.value for verb in (tenants.suspend, tenants.suspend, tenants.resume, tenants.resume)
    ]

    assert states == ["suspended", "suspended", "active", "active"]


def test_protected_tenant_is_not_deleted(store: AccountStore) -> None:
    """Until it is unprotected."""
    tenants.create(store, "acme")
    tenants.protect(store, "acme")

    with pytest.raises(ConflictError, match="unprotect acme"):
        tenants.delete(store, "acme")
    tenants.unprotect(store, "acme")
    assert tenants.delete(store, "acme").name == "acme"


def test_deletion_leaves_no_row_in_any_table(store: AccountStore) -> None:
    """A scan over every table that knows tenants; the logs of changes tell of the past."""
    created = fill(store, "acme")
    fill(store, "other")

    tenants.delete(store, "acme")
    tenants.finish_deletion(store, created.id)

    with store.read() as connection:
        left = {
            table.name: connection.execute(select(func.count()).where(table.c.tenant_id == created.id)).scalar_one()
            for table in metadata.sorted_tables
            if "tenant_id" in table.c and table.name not in ("change_log", "audit")
        }
        members = connection.execute(select(func.count()).select_from(metadata.tables["group_member"])).scalar_one()
    assert set(left.values()) == {0}
    assert members == 1
    assert [device.name for device in devices.list_all(store, "other")] == ["dev1"]


def fill(store: AccountStore, name: str) -> tenants.Tenant:
    created = tenants.create(store, name)
    groups.create(store, name, "sensors")
    devices.create(store, name, "dev1", groups=["sensors"])
    acl_rules.deny(store, name, "dev1", "publish", "a/#")
    acl_rules.deny(store, name, "@sensors", "publish", "b/#")
    quotas.set_limits(store, name, "connections=5")
    quotas.set_limits(store, name, "packet_bytes=100", device="dev1")
    bans.add(store, name, "device", "dev1")
    return created


def test_deletion_may_be_repeated_until_it_is_finished(store: AccountStore) -> None:
    """A killed one is found again at the next start."""
    created = tenants.create(store, "acme")

    first = tenants.delete(store, "acme")
    again = tenants.delete(store, "acme")

    assert first == again == tenants.Deletion(created.id, "acme", tenants.OUTSIDE_STORES)
    assert tenants.pending_deletions(store) == [first]
    tenants.finish_deletion(store, created.id)
    tenants.finish_deletion(store, created.id)
    assert tenants.pending_deletions(store) == []


def test_name_is_free_when_the_deletion_is_finished(store: AccountStore) -> None:
    """The id is not: the successor gets a new one."""
    first = tenants.create(store, "acme")
    tenants.delete(store, "acme")
    with pytest.raises(ConflictError, match="still being deleted"):
        tenants.create(store, "acme")
    tenants.finish_deletion(store, first.id)

    second = tenants.create(store, "acme")

    assert second.id > first.id


def test_living_tenant_is_not_finished_off(store: AccountStore) -> None:
    """`finish_deletion` is for tenants that are being deleted."""
    created = tenants.create(store, "acme")

    tenants.finish_deletion(store, created.id)

    assert tenants.show(store, "acme") == created


def test_tenant_being_deleted_cannot_be_changed(store: AccountStore) -> None:
    """Nor can anything be put into it."""
    tenants.create(store, "acme")
    tenants.delete(store, "acme")

    for verb in (
        lambda: tenants.resume(store, "acme"),
        lambda: devices.create(store, "acme", "dev1"),
        lambda: acl_rules.allow(store, "acme", "*", "both", "#"),
        lambda: quotas.set_limits(store, "acme", "connections=1"),
    ):
        with pytest.raises(ConflictError, match="being deleted"):
            verb()


def test_number_of_a_tenant_that_is_gone_counts_as_given_out(store: AccountStore) -> None:
    """It is never issued again, and what it left may still be there."""
    before = tenants.highest_id(store)
    tenants.create(store, "acme")
    tenants.finish_deletion(store, tenants.delete(store, "acme").tenant_id)

    assert (before, tenants.highest_id(store)) == (0, 1)
