"""Device groups: who is in them, and what goes with them."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError, ConflictError, NotFoundError
from iothub_tenants.accounts import acl_rules, devices, groups, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.store import AccountStore


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme", is_closed=True)
    devices.create(store, "acme", "dev1")
    groups.create(store, "acme", "sensors")


def test_group_is_created_once_under_a_proper_name(store: AccountStore) -> None:
    """Exit codes 4 and 2."""
    with pytest.raises(ConflictError, match="sensors already"):
        groups.create(store, "acme", "sensors")
    with pytest.raises(ConfigError, match="group name"):
        groups.create(store, "acme", "@sensors")


def test_device_joins_and_leaves(store: AccountStore) -> None:
    """Both may be said twice; the second time is no change."""
    watcher = ChangeWatcher(store)

    groups.join(store, "acme", "sensors", "dev1")
    joined = groups.join(store, "acme", "sensors", "dev1")
    shown = groups.show(store, "acme", "sensors")
    groups.leave(store, "acme", "sensors", "dev1")
    left = groups.leave(store, "acme", "sensors", "dev1")

    assert (joined.groups, shown.devices, left.groups) == (("sensors",), ("dev1",), ())
    assert [change.subject for change in watcher.poll()] == ["device:dev1", "device:dev1"]


def test_deleted_group_takes_its_rules_along(store: AccountStore) -> None:
    """Its devices stay."""
    groups.join(store, "acme", "sensors", "dev1")
    acl_rules.allow(store, "acme", "@sensors", "publish", "a/#")

    groups.delete(store, "acme", "sensors")

    assert groups.list_all(store, "acme") == []
    assert acl_rules.list_all(store, "acme") == []
    assert devices.show(store, "acme", "dev1").groups == ()


def test_groups_are_listed_with_and_without_members(store: AccountStore) -> None:
    """By name."""
    groups.create(store, "acme", "actors")
    groups.join(store, "acme", "sensors", "dev1")

    assert [(group.name, group.devices) for group in groups.list_all(store, "acme")] == [
        ("actors", ()),
        ("sensors", ("dev1",)),
    ]


def test_unknown_group_or_device_is_not_found(store: AccountStore) -> None:
    """By every verb."""
    for verb in (
        lambda: groups.show(store, "acme", "none"),
        lambda: groups.delete(store, "acme", "none"),
        lambda: groups.join(store, "acme", "none", "dev1"),
        lambda: groups.leave(store, "acme", "sensors", "nobody"),
    ):
        with pytest.raises(NotFoundError):
            verb()
