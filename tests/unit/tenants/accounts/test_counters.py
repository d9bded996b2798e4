"""What the counters would issue next, on SQLite here; the servers' are in the tests of copies on servers."""

from __future__ import annotations

from iothub_tenants.accounts import devices, tenants
from iothub_tenants.accounts.counters import COUNTED, next_id
from iothub_tenants.accounts.store import AccountStore


def test_every_table_with_a_counter_is_known() -> None:
    """Those whose ids are never issued twice."""
    assert {"tenant", "device", "change_log", "job_run"} <= set(COUNTED)
    assert "hub" not in COUNTED


def test_counter_stands_above_what_was_deleted(store: AccountStore) -> None:
    """An empty table's as well."""
    tenants.create(store, "acme")
    with store.read() as connection:
        first = next_id(connection, "device")
    devices.create(store, "acme", "dev1")
    devices.delete(store, "acme", "dev1")

    with store.read() as connection:
        assert next_id(connection, "device") == first + 1
        assert next_id(connection, "token_issuer") >= 1
