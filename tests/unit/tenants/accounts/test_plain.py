"""Records as plain rows: what scripts read."""

from __future__ import annotations

import json

import pytest

from iothub_tenants.accounts import acl_rules, devices, tenants
from iothub_tenants.accounts.plain import iso, plain
from iothub_tenants.accounts.store import AccountStore


def test_records_become_json(store: AccountStore) -> None:
    """Words for enums, lists for tuples, ISO times, in the order of the fields."""
    created = tenants.create(store, "acme")

    row = plain(created)

    assert json.loads(json.dumps(row)) == row
    assert list(row)[:4] == ["id", "name", "display_name", "state"]
    assert (row["state"], row["allowed_networks"], row["created"]) == ("active", [], "2023-11-14T22:13:20Z")
    assert json.dumps([plain(rule) for rule in acl_rules.list_all(store, "acme")])


def test_secrets_are_left_out(store: AccountStore) -> None:
    """Whoever shows one asks for it by name."""
    tenants.create(store, "acme")

    row = plain(devices.create(store, "acme", "dev1"))

    assert "secret" not in row
    assert row["device"] == plain(devices.show(store, "acme", "dev1"))


def test_no_time_is_null() -> None:
    """A ban for good has no end."""
    ban = tenants.Deletion(1, "acme")

    assert plain(ban) == {"tenant_id": 1, "name": "acme", "remaining": list(tenants.OUTSIDE_STORES)}
    assert iso(1000) == "1970-01-01T00:00:01Z"


def test_other_things_are_refused() -> None:
    """A defect of ours, not of a user."""
    with pytest.raises(TypeError, match="expected a record"):
        plain("text")
