"""Bans: whom they may name and how they end."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError, NotFoundError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import bans, devices, tenants
from iothub_tenants.accounts.store import AccountStore


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme")
    devices.create(store, "acme", "dev1")


def test_ban_ends_at_its_time(store: AccountStore, clock: ManualClock) -> None:
    """One without a time stays."""
    bans.add(store, "acme", "device", "dev1", until_ms=store.now_ms() + 1000, reason="too loud")
    bans.add(store, "acme", "client_id", "c/1")

    assert [ban.value for ban in bans.list_all(store, "acme")] == ["c/1", "dev1"]
    clock.advance(1)
    assert [ban.value for ban in bans.list_all(store, "acme")] == ["c/1"]


def test_second_ban_replaces_the_first(store: AccountStore) -> None:
    """Time and reason are the new ones."""
    bans.add(store, "acme", "device", "dev1", reason="first")

    bans.add(store, "acme", "device", "dev1", reason="second")

    assert [ban.reason for ban in bans.list_all(store, "acme")] == ["second"]


def test_address_is_kept_as_a_network(store: AccountStore) -> None:
    """So the same one is found however it was written."""
    bans.add(store, "acme", "address", "2001:DB8:0::1")

    assert [ban.value for ban in bans.list_all(store, "acme")] == ["2001:db8::1/128"]
    bans.remove(store, "acme", "address", "2001:db8::1")
    assert bans.list_all(store, "acme") == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [("ip", "192.0.2.1"), ("address", "192.0.2.1/8"), ("address", "host"),
     ("device", "a/b"), ("client_id", ""), ("client_id", "x" * 257), ("client_id", "a\0")],
)  # fmt: skip
def test_malformed_ban_is_refused(store: AccountStore, kind: str, value: str) -> None:
    """Exit code 2."""
    with pytest.raises(ConfigError):
        bans.add(store, "acme", kind, value)


def test_ban_of_a_device_that_is_not_there_is_refused(store: AccountStore) -> None:
    """A misspelt name would keep nobody out; a client id may be anybody's."""
    with pytest.raises(NotFoundError, match="no device 'dev2'"):
        bans.add(store, "acme", "device", "dev2")
    bans.add(store, "acme", "client_id", "dev2")

    assert [ban.kind.value for ban in bans.list_all(store, "acme")] == ["client_id"]


def test_past_end_and_long_reason_are_refused(store: AccountStore) -> None:
    """A ban that never was would look like one that works."""
    with pytest.raises(ConfigError, match="past"):
        bans.add(store, "acme", "device", "dev1", until_ms=store.now_ms())
    with pytest.raises(ConfigError, match="reason"):
        bans.add(store, "acme", "device", "dev1", reason="x" * 201)


def test_ban_that_is_not_there_is_not_found(store: AccountStore) -> None:
    """Exit code 3."""
    with pytest.raises(NotFoundError, match="no ban of device 'dev1'"):
        bans.remove(store, "acme", "device", "dev1")


def test_bans_in_force_are_counted_by_kind(store: AccountStore, clock: ManualClock) -> None:
    """Of all tenants together, for the metric."""
    tenants.create(store, "beta")
    devices.create(store, "beta", "dev1")
    bans.add(store, "acme", "device", "dev1", until_ms=store.now_ms() + 1000)
    bans.add(store, "beta", "device", "dev1")
    bans.add(store, "beta", "address", "192.0.2.0/24")

    assert bans.count_in_force(store) == {"device": 2, "address": 1}
    clock.advance(1)
    assert bans.count_in_force(store) == {"device": 1, "address": 1}
