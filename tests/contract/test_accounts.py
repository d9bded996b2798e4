"""The accounts port's contract, over the double in memory and the SQL tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.testing.accounts import MemoryAccounts
from iothub.testing.accounts_contract import CASES, DEVICE_RULE, GROUP_RULE, TENANT_RULE, Case
from iothub.testing.clock import ManualClock
from iothub_services.auth.port import Accounts, DeviceRecord, TenantRecord
from iothub_tenants.accounts import acl_rules, devices, groups, quotas, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore


def in_memory() -> MemoryAccounts:
    accounts = MemoryAccounts()
    accounts.add(
        TenantRecord(1, "acme", rules=(TENANT_RULE, GROUP_RULE), limits="sessions=4"),
        DeviceRecord("dev1", "one", groups=("sensors",), rules=(DEVICE_RULE,), limits="session_queued_messages=9"),
        DeviceRecord("Dev1", "two"),
    )
    accounts.add(TenantRecord(2, "bmce"), DeviceRecord("dev1", "three"))
    return accounts


def fill(store: AccountStore) -> None:
    tenants.create(store, "acme")
    tenants.create(store, "bmce", is_closed=True)
    groups.create(store, "acme", "sensors")
    devices.create(store, "acme", "dev1", groups=["sensors"])
    devices.create(store, "acme", "Dev1")
    devices.create(store, "bmce", "dev1")
    acl_rules.deny(store, "acme", "@sensors", "publish", "a/#")
    acl_rules.deny(store, "acme", "dev1", "publish", "b/#")
    quotas.set_limits(store, "acme", "sessions=4")
    quotas.set_limits(store, "acme", "session_queued_messages=9", device="dev1")


@pytest.fixture(params=["memory", "sql"])
def accounts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Accounts]:
    if request.param == "memory":
        yield in_memory()
        return
    store = init_store(sqlite_url(tmp_path / "accounts.db"), pepper=b"p" * 32, clock=ManualClock())
    fill(store)
    yield Registry(store)
    store.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_accounts_contract(case: Case, accounts: Accounts) -> None:
    """Every store of accounts answers as `iothub.testing.accounts_contract` says."""
    case(accounts)
