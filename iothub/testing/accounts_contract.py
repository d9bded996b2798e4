"""The contract suite of the accounts port: what every store of accounts must answer about one small world.

Knows no driver: `tests/contract` builds the world below in each of them and runs `CASES`.

The world: tenant `acme` (default rule, group rule of `sensors` that denies publishing `a/#`, limits `sessions=4`) with the devices
`dev1` (member of `sensors`, own rule that denies publishing `b/#`, limits `session_queued_messages=9`) and `Dev1`; tenant `bmce`
without rules, with a device `dev1`. All devices have different credentials.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable

from iothub_services.auth.port import (
    MOST_DEVICES,
    Accounts,
    Action,
    DeviceRecord,
    Effect,
    Rule,
    Scope,
    TenantRecord,
    TenantState,
)

Case = Callable[[Accounts], None]

TENANT_RULE = Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "#")
GROUP_RULE = Rule(Scope.GROUP, "sensors", Effect.DENY, Action.PUBLISH, "a/#")
DEVICE_RULE = Rule(Scope.DEVICE, "dev1", Effect.DENY, Action.PUBLISH, "b/#")


def found(accounts: Accounts, tenant: str, device: str) -> tuple[TenantRecord, DeviceRecord]:
    """Return both records, which must be there."""
    owner = accounts.find_tenant(tenant)
    assert owner is not None
    record = accounts.find_device(owner.id, device)
    assert record is not None
    return owner, record


def a_tenant_brings_its_tenant_and_group_rules(accounts: Accounts) -> None:
    tenant, _ = found(accounts, "acme", "dev1")
    assert (tenant.name, tenant.state, tenant.limits) == ("acme", TenantState.ACTIVE, "sessions=4")
    assert set(tenant.rules) == {TENANT_RULE, GROUP_RULE}


def a_device_brings_its_groups_own_rules_and_limits(accounts: Accounts) -> None:
    _, device = found(accounts, "acme", "dev1")
    assert (device.name, device.is_enabled, device.groups) == ("dev1", True, ("sensors",))
    assert device.rules == (DEVICE_RULE,)
    assert device.limits == "session_queued_messages=9"


def equal_names_of_two_tenants_are_two_devices(accounts: Accounts) -> None:
    acme, first = found(accounts, "acme", "dev1")
    bmce, second = found(accounts, "bmce", "dev1")
    assert acme.id != bmce.id
    assert first.credential != second.credential
    assert (second.groups, second.rules, second.limits, bmce.rules) == ((), (), "", ())


def names_are_compared_byte_by_byte(accounts: Accounts) -> None:
    acme, lower = found(accounts, "acme", "dev1")
    _, upper = found(accounts, "acme", "Dev1")
    assert upper.credential != lower.credential
    assert upper.rules == ()
    for name in ("DEV1", "dev1 ", " dev1", "dev", "dev%", "d_v1", "dev1\0", "d\u0435v1", ""):
        assert accounts.find_device(acme.id, name) is None
    for name in ("Acme", "acme ", "acm%", "acme\0", "\u0430cme", "", "acme/dev1"):
        assert accounts.find_tenant(name) is None


def what_does_not_exist_is_none(accounts: Accounts) -> None:
    acme, _ = found(accounts, "acme", "dev1")
    assert accounts.find_tenant("nobody") is None
    assert accounts.find_device(acme.id, "nobody") is None
    assert accounts.find_device(acme.id + 1_000, "dev1") is None


def many_devices_are_found_with_one_question(accounts: Accounts) -> None:
    """Each as it is found alone; who does not exist is left out, and no name stands for another."""
    acme, _ = found(accounts, "acme", "dev1")
    strange = ["nobody", "DEV1", "dev1 ", "dev%", "dev1\0", "d\u0435v1", ""]
    assert accounts.find_devices(acme.id, ["dev1", *strange, "Dev1"]) == {
        name: accounts.find_device(acme.id, name) for name in ("dev1", "Dev1")
    }
    assert accounts.find_devices(acme.id, strange) == {}
    assert accounts.find_devices(acme.id, []) == {}
    assert accounts.find_devices(acme.id + 1_000, ["dev1"]) == {}


def as_many_devices_are_found_as_one_question_may_name(accounts: Accounts) -> None:
    acme, device = found(accounts, "acme", "dev1")
    names = [f"made-up-{number}" for number in range(MOST_DEVICES - 1)]
    assert accounts.find_devices(acme.id, [*names, "dev1"]) == {"dev1": device}


CASES: tuple[Case, ...] = (
    a_tenant_brings_its_tenant_and_group_rules,
    a_device_brings_its_groups_own_rules_and_limits,
    equal_names_of_two_tenants_are_two_devices,
    names_are_compared_byte_by_byte,
    what_does_not_exist_is_none,
    many_devices_are_found_with_one_question,
    as_many_devices_are_found_as_one_question_may_name,
)
