"""A tenant's and a device's own limits, and what is in force."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError, NotFoundError
from iothub_tenants.accounts import devices, plans, quotas, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.store import AccountStore


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme")
    devices.create(store, "acme", "dev1")


def in_force(store: AccountStore, name: str, device: str | None = None) -> tuple[str, str]:
    (found,) = (limit for limit in quotas.effective(store, "acme", device) if limit.name == name)
    return found.limits, found.origin


def test_limits_are_set_by_name(store: AccountStore) -> None:
    """The form that the CLI passes on; other names stay."""
    quotas.set_limits(store, "acme", ["connections=100", "publish_messages=50/1s"])

    own = quotas.set_limits(store, "acme", ["publish_messages=60/1s,1000/1h"])

    assert [limit.limits for limit in own] == ["connections=100", "publish_messages=60/1s,1000/1h"]


def test_dry_run_stands_beside_what_is_enforced(store: AccountStore) -> None:
    """Each replaces only its like."""
    quotas.set_limits(store, "acme", "publish_messages=50/1s")
    quotas.set_limits(store, "acme", "dry-run:publish_messages=10/1s")

    (own,) = quotas.set_limits(store, "acme", "dry-run:publish_messages=20/1s")

    assert own.limits == "publish_messages=50/1s dry-run:publish_messages=20/1s"


def test_innermost_layer_decides(store: AccountStore) -> None:
    """Plan, tenant, device."""
    assert in_force(store, "packet_bytes", "dev1") == ("packet_bytes=1MiB", "plan")
    quotas.set_limits(store, "acme", "packet_bytes=1KiB")
    assert in_force(store, "packet_bytes", "dev1") == ("packet_bytes=1KiB", "tenant")
    quotas.set_limits(store, "acme", "packet_bytes=unlimited", device="dev1")
    assert in_force(store, "packet_bytes", "dev1") == ("packet_bytes=unlimited", "device")
    assert in_force(store, "packet_bytes") == ("packet_bytes=1KiB", "tenant")
    assert in_force(store, "device_publish_messages") == ("device_publish_messages=unlimited", "none")


def test_plan_that_says_so_is_named(store: AccountStore) -> None:
    """The tenant's own plan, or the one that it inherits from; nobody else's name."""
    plans.create(store, "small", "connections=3")
    tenants.update(store, "acme", tenants.Settings(plan="small"))
    quotas.set_limits(store, "acme", "sessions=4")

    found = {limit.name: limit for limit in quotas.effective(store, "acme")}

    assert [
        (found[name].limits, found[name].origin, found[name].plan, found[name].is_inherited)
        for name in ("connections", "subscriptions", "sessions", "device_publish_messages")
    ] == [
        ("connections=3", "plan", "small", False),
        ("subscriptions=20000", "plan", "standard", True),
        ("sessions=4", "tenant", None, False),
        ("device_publish_messages=unlimited", "none", None, False),
    ]


def test_limit_on_trial_hides_nothing(store: AccountStore) -> None:
    """What the plan says stays in force."""
    quotas.set_limits(store, "acme", "dry-run:connects=1/1s")

    assert in_force(store, "connects") == ("connects=50/1s dry-run:connects=1/1s", "plan")


def test_unset_limit_uncovers_the_layer_below(store: AccountStore) -> None:
    """May be said twice; the second time is no change."""
    quotas.set_limits(store, "acme", "connections=1")
    watcher = ChangeWatcher(store)

    quotas.unset(store, "acme", ["connections"])
    quotas.unset(store, "acme", ["connections"])

    assert in_force(store, "connections") == ("connections=1000", "plan")
    assert [change.subject for change in watcher.poll()] == ["*"]


def test_limit_of_the_whole_tenant_cannot_be_set_for_a_device(store: AccountStore) -> None:
    """It would never be reached or mean something else."""
    with pytest.raises(ConfigError, match="whole tenant"):
        quotas.set_limits(store, "acme", "connections=1", device="dev1")


@pytest.mark.parametrize(
    "limit", ["topic_levels=3", "topic_bytes=10", "user_properties=1", "fanout=2", "fanout_bytes=2"]
)
def test_limit_that_is_the_same_for_all_devices_cannot_be_set_for_one(store: AccountStore, limit: str) -> None:
    """The message plane asks for all alike; a limit that would be ignored is refused."""
    with pytest.raises(ConfigError, match="the same for all devices"):
        quotas.set_limits(store, "acme", limit, device="dev1")


@pytest.mark.parametrize("limit", ["packet_bytes=100", "queued_messages=3", "session_expiry_s=1s"])
def test_dry_run_of_what_nobody_counts_is_refused(store: AccountStore, limit: str) -> None:
    """A trial that reports nothing would look like one that found nothing."""
    with pytest.raises(ConfigError, match="no dry run"):
        quotas.set_limits(store, "acme", f"dry-run:{limit}")


def test_bad_limits_are_refused(store: AccountStore) -> None:
    """All or nothing."""
    for text in ("", "connections", "connections=5 nosuch=1", "connections=5/1s"):
        with pytest.raises(ConfigError):
            quotas.set_limits(store, "acme", text)

    assert quotas.list_all(store, "acme") == []


def test_limits_are_listed_for_the_tenant_and_its_devices(store: AccountStore) -> None:
    """The tenant's own first."""
    quotas.set_limits(store, "acme", "packet_bytes=100", device="dev1")
    quotas.set_limits(store, "acme", "packet_bytes=200")

    assert [(limit.device, limit.limits) for limit in quotas.list_all(store, "acme")] == [
        ("", "packet_bytes=200"),
        ("dev1", "packet_bytes=100"),
    ]
    assert [limit.device for limit in quotas.list_all(store, "acme", "dev1")] == ["dev1"]


def test_unknown_device_is_not_found(store: AccountStore) -> None:
    """By every verb."""
    for verb in (
        lambda: quotas.set_limits(store, "acme", "packet_bytes=64", device="no"),
        lambda: quotas.unset(store, "acme", ["packet_bytes"], device="no"),
        lambda: quotas.list_all(store, "acme", "no"),
        lambda: quotas.effective(store, "acme", "no"),
    ):
        with pytest.raises(NotFoundError):
            verb()
