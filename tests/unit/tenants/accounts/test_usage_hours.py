"""`usage_hours` and `marks`: what a job has written is read back, and goes with its tenant."""

from __future__ import annotations

import pytest
from sqlalchemy import insert

from iothub.base.errors import NotFoundError
from iothub_tenants.accounts import marks, tenants, usage_hours
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import job_mark, usage_hour
from iothub_tenants.accounts.usage_hours import HOUR_MS, UsageHour

FIGURES = dict.fromkeys(
    (
        "messages_in",
        "messages_out",
        "blocks_in",
        "blocks_out",
        "bytes_in",
        "bytes_out",
        "connection_ms",
        "fanout",
        "stored_byte_s",
    ),
    7,
)


def write_hours(store: AccountStore, tenant_id: int, *hours: int) -> None:
    rows = [{"tenant_id": tenant_id, "hour_ms": hour * HOUR_MS, "written_ms": 0, **FIGURES} for hour in hours]
    with store.write() as writer:
        writer.connection.execute(insert(usage_hour), rows)


def test_hours_of_a_stretch_are_returned_in_their_order(store: AccountStore) -> None:
    """From the first hour on, up to the last one and not including it; of this tenant alone."""
    acme, umbrella = tenants.create(store, "acme"), tenants.create(store, "umbrella")
    write_hours(store, acme.id, 3, 1, 2)
    write_hours(store, umbrella.id, 2)

    found = usage_hours.hours(store, "acme", HOUR_MS, 3 * HOUR_MS)

    assert found == [UsageHour(hour * HOUR_MS, **FIGURES) for hour in (1, 2)]


def test_first_and_last_hour_of_a_tenant_are_known(store: AccountStore) -> None:
    acme, umbrella = tenants.create(store, "acme"), tenants.create(store, "umbrella")
    write_hours(store, acme.id, 3, 1, 2)
    write_hours(store, umbrella.id, 7)
    tenants.create(store, "silent")

    found = [usage_hours.ends(store, tenant) for tenant in ("acme", "silent")]

    assert found == [(HOUR_MS, 3 * HOUR_MS), None]


def test_unknown_tenant_has_no_usage(store: AccountStore) -> None:
    with pytest.raises(NotFoundError, match=r"there is no tenant .acme."):
        usage_hours.hours(store, "acme", 0, 1)


def test_deleted_tenant_leaves_no_usage(store: AccountStore) -> None:
    """Its number is not used again, so nobody could ask for these rows."""
    acme = tenants.create(store, "acme")
    write_hours(store, acme.id, 1)

    tenants.delete(store, "acme")
    tenants.finish_deletion(store, acme.id)

    with store.read() as connection:
        assert connection.execute(usage_hour.select()).all() == []


def test_least_mark_of_all_jobs_counts(store: AccountStore) -> None:
    """In each partition by itself, and in each log."""
    rows = [
        {"job": job, "log": log, "part": part, "upto": upto, "at_ms": 0}
        for job, log, part, upto in (
            ("archive", "analytics", 0, 7),
            ("usage", "analytics", 0, 5),
            ("archive", "analytics", 1, 9),
            ("archive", "sessions", 0, 3),
        )
    ]
    with store.write() as writer:
        writer.connection.execute(insert(job_mark), rows)

    assert marks.least(store, "analytics") == {0: 5, 1: 9}
    assert marks.least(store, "sessions") == {0: 3}
    assert marks.least(store, "other") == {}
