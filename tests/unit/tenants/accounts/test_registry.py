"""What the hub sees of tenants and devices; fulfils the auth service's `Accounts`."""

from __future__ import annotations

import pytest

from iothub.testing.clock import ManualClock
from iothub_services.auth.port import (
    Accounts,
    Action,
    BanKind,
    ClientIdPolicy,
    CredentialKind,
    Effect,
    Rule,
    Scope,
    TenantState,
)
from iothub_tenants.accounts import acl_rules, bans, devices, groups, plans, quotas, tenants
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore


@pytest.fixture
def registry(store: AccountStore) -> Registry:
    tenants.create(store, "acme")
    groups.create(store, "acme", "sensors")
    devices.create(store, "acme", "dev1", groups=["sensors"])
    return Registry(store)


def test_tenant_record_is_complete(store: AccountStore, registry: Registry) -> None:
    """Rules of group and tenant, limits of plan and tenant, bans in force, settings."""
    plans.create(store, "gold", "connections=9", parent="unlimited", weight=3)
    settings = tenants.Settings(
        plan="gold", client_id_policy="equal", denied_networks=("192.0.2.0/24",), is_qos0_queued=True
    )
    tenants.update(store, "acme", settings)
    acl_rules.deny(store, "acme", "@sensors", "publish", "a/#")
    acl_rules.deny(store, "acme", "dev1", "publish", "b/#")
    quotas.set_limits(store, "acme", "sessions=4")
    quotas.set_limits(store, "acme", "session_subscriptions=4", device="dev1")
    bans.add(store, "acme", "client_id", "c1", reason="no")
    accounts: Accounts = registry

    found = accounts.find_tenant("acme")

    assert found is not None
    assert (found.state, found.client_id_policy, found.plan, found.weight) == (
        TenantState.ACTIVE,
        ClientIdPolicy.EQUAL,
        "gold",
        3,
    )
    assert (found.plan_limits, found.limits) == ("connections=9", "sessions=4")
    assert found.rules == (
        Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "#"),
        Rule(Scope.GROUP, "sensors", Effect.DENY, Action.PUBLISH, "a/#"),
    )
    assert [(ban.kind, ban.subject, ban.until, ban.reason) for ban in found.bans] == [
        (BanKind.CLIENT_ID, "c1", 0.0, "no")
    ]
    assert (found.allowed_networks, found.denied_networks) == ((), ("192.0.2.0/24",))
    assert found.is_qos0_queued
    assert registry.tenant_by_id(found.id) == found


def test_device_record_is_complete(store: AccountStore, registry: Registry) -> None:
    """Groups, own rules, own limits, the stored credential."""
    acl_rules.deny(store, "acme", "dev1", "publish", "b/#")
    quotas.set_limits(store, "acme", "session_subscriptions=4", device="dev1")
    tenant = registry.find_tenant("acme")
    assert tenant is not None

    found = registry.find_device(tenant.id, "dev1")

    assert found is not None
    assert found.credential.startswith("h1$")
    assert (found.credential_kind, found.is_enabled, found.groups) == (CredentialKind.SECRET, True, ("sensors",))
    assert found.rules == (Rule(Scope.DEVICE, "dev1", Effect.DENY, Action.PUBLISH, "b/#"),)
    assert found.limits == "session_subscriptions=4"


def test_certificate_is_another_kind_of_credential(store: AccountStore, registry: Registry) -> None:
    """The two kinds of secrets are one kind to the authenticator: their texts differ."""
    devices.set_certificate(store, "acme", "dev1", "CN=dev1")
    devices.disable(store, "acme", "dev1")
    tenant = registry.find_tenant("acme")
    assert tenant is not None

    found = registry.find_device(tenant.id, "dev1")

    assert found is not None
    assert (found.credential_kind, found.credential, found.is_enabled) == (CredentialKind.X509, "CN=dev1", False)


def test_nobody_is_none(store: AccountStore, registry: Registry) -> None:
    """Another tenant's device is nobody."""
    other = tenants.create(store, "other")

    assert registry.find_tenant("nobody") is None
    assert registry.find_tenant("ACME") is None
    assert registry.tenant_by_id(99) is None
    assert registry.find_device(other.id, "dev1") is None


def test_ban_that_is_over_is_left_out(store: AccountStore, registry: Registry, clock: ManualClock) -> None:
    """The record is read again when something changes; the evaluator looks at `until` itself."""
    bans.add(store, "acme", "device", "dev1", until_ms=store.now_ms() + 500)

    before = registry.find_tenant("acme")
    clock.advance(1)
    after = registry.find_tenant("acme")

    assert before is not None
    assert after is not None
    assert [ban.until for ban in before.bans] == [1_700_000_000.5]
    assert after.bans == ()


def test_tenants_are_found_by_plan_and_by_id(store: AccountStore, registry: Registry) -> None:
    """What a hub needs to follow the change log."""
    other = tenants.create(store, "other", plan="unlimited")

    plans.create(store, "big", parent="unlimited")
    third = tenants.create(store, "third", plan="big")

    assert registry.tenants_on_plan("unlimited") == [other.id, third.id]
    assert registry.tenants_on_plan("big") == [third.id]
    assert registry.tenant_names()[other.id] == "other"


def test_another_device_of_the_same_name_has_another_number(store: AccountStore, registry: Registry) -> None:
    """Whatever else of it is the same: what is remembered of its predecessor is told apart by it."""
    tenant = registry.find_tenant("acme")
    assert tenant is not None
    before = registry.find_device(tenant.id, "dev1")
    devices.delete(store, "acme", "dev1")
    devices.create(store, "acme", "dev1")

    after = registry.find_device(tenant.id, "dev1")

    assert before is not None
    assert after is not None
    assert 0 < before.id < after.id
