"""The verbs on plans."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_tenants.accounts import plans, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore, ChangeKind


def test_plan_is_created_and_changed_by_the_same_verb(store: AccountStore) -> None:
    """What is not given stays."""
    plans.set_plan(store, "gold", ["connections=5", "connects=10/1s"], weight=4)

    changed = plans.set_plan(store, "gold", "connections=6")

    assert (changed.limits, changed.weight) == ("connections=6 connects=10/1s", 4)
    assert plans.set_plan(store, "gold", weight=5).weight == 5


def test_limit_leaves_a_plan(store: AccountStore) -> None:
    """It is unlimited then."""
    plans.set_plan(store, "gold", "connections=5 connects=10/1s")

    assert plans.unset(store, "gold", ["connections"]).limits == "connects=10/1s"
    with pytest.raises(ConfigError, match="unknown quota"):
        plans.unset(store, "gold", ["conections"])


@pytest.mark.parametrize(
    ("name", "limits", "weight"), [("Gold", "", 1), ("gold", "connections", 1), ("gold", "", 0), ("gold", "", 101)]
)
def test_malformed_plan_is_refused(store: AccountStore, name: str, limits: str, weight: int) -> None:
    """Nothing is written."""
    with pytest.raises(ConfigError):
        plans.set_plan(store, name, limits, weight=weight)

    assert len(plans.list_all(store)) == 2


def test_changed_plan_changes_its_tenants(store: AccountStore) -> None:
    """One line in the log, and a new version of every tenant that has it, of no other."""
    plans.set_plan(store, "gold", "connections=5")
    tenants.create(store, "rich", plan="gold")
    tenants.create(store, "poor")
    registry, watcher = Registry(store), ChangeWatcher(store)
    before = {name: registry.find_tenant(name) for name in ("rich", "poor")}

    plans.set_plan(store, "gold", "connections=6")

    (change,) = watcher.poll()
    after = {name: registry.find_tenant(name) for name in ("rich", "poor")}
    assert (change.kind, change.subject, change.tenant_id) == (ChangeKind.PLAN, "gold", 0)
    assert before["rich"] is not None
    assert after["rich"] is not None
    assert after["rich"].version > before["rich"].version
    assert after["rich"].plan_limits == "connections=6"
    assert after["poor"] == before["poor"]


def test_used_or_built_in_plan_is_not_deleted(store: AccountStore) -> None:
    """A tenant is never without a plan."""
    plans.set_plan(store, "gold")
    tenants.create(store, "acme", plan="gold")

    with pytest.raises(ConflictError, match="built in"):
        plans.delete(store, "standard")
    with pytest.raises(ConflictError, match="tenants: 1"):
        plans.delete(store, "gold")
    tenants.update(store, "acme", tenants.Settings(plan="standard"))
    plans.delete(store, "gold")

    with pytest.raises(NotFoundError, match="'gold'"):
        plans.show(store, "gold")
