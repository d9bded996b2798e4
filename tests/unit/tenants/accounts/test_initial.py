"""`init_store`: a database that is ready for its first tenant, however often it was begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub_services.quota.grammar import format_limits, parse_limits, standard_limits
from iothub_tenants.accounts import initial, plans, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore, create_schema


def test_new_store_has_the_two_plans(store: AccountStore) -> None:
    """The standard plan is the documented one; `unlimited` limits nothing."""
    standard, unlimited = plans.list_all(store)

    assert format_limits(parse_limits(standard.limits)) == format_limits(standard_limits())
    assert (standard.name, unlimited.name, unlimited.limits) == ("standard", "unlimited", "")
    assert (standard.parent, unlimited.parent) == (None, None)


def test_second_initialisation_changes_nothing(tmp_path: Path) -> None:
    """A plan that an operator changed stays as it is."""
    url = sqlite_url(tmp_path / "accounts.db")
    first = initial.init_store(url)
    plans.set_plan(first, "standard", "connections=7")
    tenants.create(first, "acme")
    first.close()

    second = initial.init_store(url)

    assert "connections=7" in plans.show(second, "standard").limits
    assert [tenant.name for tenant in tenants.list_all(second)] == ["acme"]
    second.close()


def test_initialisation_that_was_killed_is_completed(tmp_path: Path) -> None:
    """Tables without plans: the next run adds them."""
    url = sqlite_url(tmp_path / "accounts.db")
    create_schema(url)

    store = initial.init_store(url)

    assert [plan.name for plan in plans.list_all(store)] == ["standard", "unlimited"]
    store.close()


def test_failing_initialisation_closes_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection stays behind."""
    closed: list[AccountStore] = []
    close = AccountStore.close
    monkeypatch.setattr(AccountStore, "close", lambda store: (closed.append(store), close(store)))
    monkeypatch.setattr(plans, "list_all", lambda store: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        initial.init_store(sqlite_url(tmp_path / "accounts.db"))

    assert len(closed) == 1
