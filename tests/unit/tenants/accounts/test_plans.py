"""The verbs on plans, and what they inherit."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_tenants.accounts import plans, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import plan as table


def in_force(store: AccountStore, tenant: str) -> dict[str, str]:
    """The limits of a tenant's plan as the hub gets them, by name."""
    found = Registry(store).find_tenant(tenant)
    assert found is not None
    return {part.partition("=")[0]: part.partition("=")[2] for part in found.plan_limits.split()}


def test_created_plan_is_changed_by_name(store: AccountStore) -> None:
    """What is not given stays."""
    made = plans.create(store, "gold", ["connections=5", "connects=10/1s"], weight=4)

    changed = plans.set_plan(store, "gold", "connections=6")

    assert (made.parent, made.limits, made.weight) == ("standard", "connections=5 connects=10/1s", 4)
    assert (changed.parent, changed.limits, changed.weight) == ("standard", "connections=6 connects=10/1s", 4)
    assert plans.set_plan(store, "gold", weight=5).weight == 5


def test_plan_that_is_not_there_is_not_made_by_set(store: AccountStore) -> None:
    """A misspelt name would be a plan that nobody has."""
    with pytest.raises(NotFoundError, match=r"no plan 'smal': create it first: `iothub plan create smal`"):
        plans.set_plan(store, "smal", "connections=3")

    assert len(plans.list_all(store)) == 2


def test_plan_is_created_once(store: AccountStore) -> None:
    """A second `create` must not change what is in use."""
    plans.create(store, "gold", "connections=5")

    with pytest.raises(ConflictError, match="exists already: `iothub plan set gold`"):
        plans.create(store, "gold", "connections=6")

    assert plans.show(store, "gold").limits == "connections=5"


def test_new_plan_limits_all_that_standard_limits(store: AccountStore) -> None:
    """One named limit lifts no other."""
    plans.create(store, "small", "connections=3")
    tenants.create(store, "acme", plan="small")
    tenants.create(store, "other")

    small, standard = in_force(store, "acme"), in_force(store, "other")

    assert small == standard | {"connections": "3"}
    assert len(standard) > 30


def test_plan_inherits_through_several(store: AccountStore) -> None:
    """The nearest plan that names a limit decides; `unlimited` is a limit that is named."""
    plans.create(store, "a", "connections=5 sessions=5", parent="unlimited")
    plans.create(store, "b", "sessions=unlimited dry-run:connections=2", parent="a")
    plans.create(store, "c", "subscriptions=7", parent="b")
    tenants.create(store, "acme", plan="c")

    found = plans.show(store, "c")

    assert (found.limits, found.inherited) == (
        "subscriptions=7",
        "connections=5 dry-run:connections=2 sessions=unlimited",
    )
    assert in_force(store, "acme") == {
        "connections": "5",
        "dry-run:connections": "2",
        "sessions": "unlimited",
        "subscriptions": "7",
    }


def test_unset_limit_is_inherited_again(store: AccountStore) -> None:
    """It is not unlimited."""
    plans.create(store, "gold", "connections=5 connects=10/1s")

    changed = plans.unset(store, "gold", ["connections"])

    assert changed.limits == "connects=10/1s"
    assert "connections=1000" in changed.inherited.split()
    with pytest.raises(ConfigError, match="unknown quota"):
        plans.unset(store, "gold", ["conections"])


@pytest.mark.parametrize(
    ("name", "limits", "weight"), [("Gold", "", 1), ("gold", "connections", 1), ("gold", "", 0), ("gold", "", 101)]
)
def test_malformed_plan_is_refused(store: AccountStore, name: str, limits: str, weight: int) -> None:
    """Nothing is written."""
    with pytest.raises(ConfigError):
        plans.create(store, name, limits, weight=weight)

    assert len(plans.list_all(store)) == 2


def test_parent_that_is_not_there_is_refused(store: AccountStore) -> None:
    """By both verbs."""
    plans.create(store, "gold")

    with pytest.raises(NotFoundError, match="no plan 'nosuch'"):
        plans.create(store, "silver", parent="nosuch")
    with pytest.raises(NotFoundError, match="no plan 'nosuch'"):
        plans.set_plan(store, "gold", parent="nosuch")


def test_cycle_is_refused(store: AccountStore) -> None:
    """Also a long one, and the shortest."""
    plans.create(store, "a")
    plans.create(store, "b", parent="a")
    plans.create(store, "c", parent="b")

    for parent in ("a", "b", "c"):
        with pytest.raises(ConflictError, match=f"a cannot inherit from {parent}: a -> {parent}.* is a cycle"):
            plans.set_plan(store, "a", parent=parent)

    assert [plans.show(store, name).parent for name in "abc"] == ["standard", "a", "b"]


def test_built_in_plan_gets_no_parent(store: AccountStore) -> None:
    """They are what others begin with."""
    for name in plans.BUILT_IN:
        with pytest.raises(ConflictError, match=f"plan {name} is built in"):
            plans.set_plan(store, name, parent="standard")


def test_plans_stand_above_each_other_up_to_a_bound(store: AccountStore) -> None:
    """Each costs a query when a tenant is read; also where a whole family is hung under another plan."""
    parent = "standard"
    for number in range(2, plans.MOST_LEVELS + 1):
        plans.create(store, f"p{number}", parent=parent)
        parent = f"p{number}"
    plans.create(store, "other")
    plans.create(store, "lower", parent="other")

    with pytest.raises(ConfigError, match="the chain would have 9 plans"):
        plans.create(store, "deep", parent=parent)
    with pytest.raises(ConfigError, match="the chain would have 9 plans"):
        plans.set_plan(store, "other", parent="p7")

    assert plans.set_plan(store, "other", parent="p6").parent == "p6"


def test_another_parent_is_inherited_from_at_once(store: AccountStore) -> None:
    """Also by a plan that was made before plans inherited."""
    plans.create(store, "old", "connections=5")
    with store.write() as writer:
        writer.connection.execute(update(table).where(table.c.name == "old").values(parent=None))
    tenants.create(store, "acme", plan="old")
    assert in_force(store, "acme") == {"connections": "5"}

    plans.set_plan(store, "old", parent="standard")

    assert in_force(store, "acme")["sessions"] == "2000"


def test_changed_plan_changes_its_tenants(store: AccountStore) -> None:
    """One line in the log, and a new version of every tenant that has it or a plan that inherits from it, of no other."""
    plans.create(store, "gold", "connections=5")
    plans.create(store, "golden", "sessions=4", parent="gold")
    for name, plan in (("rich", "gold"), ("richer", "golden"), ("poor", "standard")):
        tenants.create(store, name, plan=plan)
    registry, watcher = Registry(store), ChangeWatcher(store)
    before = {name: registry.find_tenant(name) for name in ("rich", "richer", "poor")}

    plans.set_plan(store, "gold", "connections=6")

    (change,) = watcher.poll()
    after = {name: registry.find_tenant(name) for name in ("rich", "richer", "poor")}
    assert (change.kind, change.subject, change.tenant_id) == (ChangeKind.PLAN, "gold", 0)
    for name in ("rich", "richer"):
        old, new = before[name], after[name]
        assert old is not None
        assert new is not None
        assert new.version > old.version
        assert in_force(store, name)["connections"] == "6"
    assert after["poor"] == before["poor"]


def test_used_or_built_in_plan_is_not_deleted(store: AccountStore) -> None:
    """A tenant is never without a plan, and no plan without its parent."""
    plans.create(store, "gold")
    plans.create(store, "golden", parent="gold")
    plans.create(store, "goldish", parent="gold")
    tenants.create(store, "acme", plan="gold")

    with pytest.raises(ConflictError, match="built in"):
        plans.delete(store, "standard")
    with pytest.raises(ConflictError, match="tenants: 1"):
        plans.delete(store, "gold")
    tenants.update(store, "acme", tenants.Settings(plan="standard"))
    with pytest.raises(
        ConflictError, match=r"inherit from it: golden, goldish; .*`iothub plan set golden --from standard`"
    ):
        plans.delete(store, "gold")
    for name in ("golden", "goldish", "gold"):
        plans.delete(store, name)

    with pytest.raises(NotFoundError, match="'gold'"):
        plans.show(store, "gold")
