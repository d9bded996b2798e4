"""Sharing of compiled policies."""

from __future__ import annotations

import gc

import pytest

from iothub_services.auth import policies
from iothub_services.auth.policies import PolicyCache
from iothub_services.auth.port import Action, DeviceRecord, Effect, Rule, Scope, TenantRecord

OPEN = Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "#")
OWN_TOPIC = Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "{device}/#")
OWN_SESSION = Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "{clientid}/#")
GROUP = Rule(Scope.GROUP, "g", Effect.DENY, Action.BOTH, "x")


def device(name: str, *groups: str, rules: tuple[Rule, ...] = ()) -> DeviceRecord:
    return DeviceRecord(name, "", groups=groups, rules=rules)


def test_devices_with_the_same_rules_share_one_policy() -> None:
    """Memory of a fleet does not grow with its devices."""
    cache = PolicyCache()
    tenant = TenantRecord(1, "acme", rules=(OPEN, GROUP))

    first = cache.policy(tenant, device("a"), "c1")

    assert cache.policy(tenant, device("b"), "c2") is first
    assert cache.policy(tenant, device("c", "g"), "c3") is not first
    same = [device(name, rules=(Rule(Scope.DEVICE, name, Effect.DENY, Action.BOTH, "y"),)) for name in "de"]
    assert cache.policy(tenant, same[0], "1") is cache.policy(tenant, same[1], "2")
    assert cache.policy(tenant, same[0], "1") is not first


def test_policy_that_no_name_splits_stays_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that connects after the last one has gone looks at no rule, and compiles none."""
    cache = PolicyCache()
    tenant = TenantRecord(1, "acme", rules=(OPEN, GROUP))
    cache.policy(tenant, device("a", "g"), "c1")
    monkeypatch.setattr(policies, "rules_for", None)

    assert not cache.policy(tenant, device("b", "g"), "c2").may_publish(b"x")


def test_policies_at_hand_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenants, versions and groups come and go; what is full begins anew."""
    monkeypatch.setattr(policies, "_MOST_SHAPES", 2)
    cache = PolicyCache()
    kept = []
    for tenant_id in (1, 2, 3):
        cache.policy(TenantRecord(tenant_id, "acme", rules=(OPEN,)), device("a"), "c")
        kept.append(len(cache))

    assert kept == [1, 2, 1]


def test_templates_split_policies_by_the_name_they_use() -> None:
    """`{device}` does not split by Client Identifier."""
    cache = PolicyCache()
    by_device = TenantRecord(1, "acme", rules=(OWN_TOPIC,))
    by_client = TenantRecord(2, "bmce", rules=(OWN_SESSION,))

    first = cache.policy(by_device, device("a"), "c1")
    second = cache.policy(by_client, device("a"), "c1")

    assert cache.policy(by_device, device("a"), "c2") is first
    assert not cache.policy(by_device, device("b"), "c1").may_publish(b"a/x")
    assert cache.policy(by_client, device("b"), "c1") is second
    assert not cache.policy(by_client, device("a"), "c2").may_publish(b"c1/x")


def test_tenants_never_share_and_versions_never_mix() -> None:
    """A new version is a new Policy; so is another tenant's."""
    cache = PolicyCache()
    kept = cache.policy(TenantRecord(1, "acme", rules=(OPEN,)), device("a"), "c")

    assert cache.policy(TenantRecord(1, "acme", version=2, rules=(OPEN,)), device("a"), "c").version == 2
    assert cache.policy(TenantRecord(2, "acme", rules=(OPEN,)), device("a"), "c") is not kept


def test_unused_policies_are_forgotten() -> None:
    """Nothing grows with connections that have gone."""
    cache = PolicyCache()
    tenant = TenantRecord(1, "acme", rules=(OWN_SESSION,))
    for number in range(50):
        cache.policy(tenant, device("a"), f"c{number}")
    gc.collect()

    assert len(cache) == 0
