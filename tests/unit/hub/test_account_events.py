"""Changes of the accounts as events: which they are, and which of several hubs publishes them (`iothub.hub.account_events`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.hub.account_events import AccountEvents, event_of
from iothub.records.tenant_events import EventKind, TenantEvent
from iothub.testing.clock import ManualClock
from iothub_services.webhooks.port import PLATFORM
from iothub_tenants.accounts import devices, job_runs, quotas, tenants
from iothub_tenants.accounts.changes import Change, ChangeWatcher
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.job_runs import Owner, Result
from iothub_tenants.accounts.store import AccountStore, ChangeKind

OWNER = Owner("here", 1, "me")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AccountStore]:
    url = sqlite_url(tmp_path / "accounts.db")
    with closing(init_store(url, pepper=b"p" * 32, clock=ManualClock())) as made:
        yield made


def told(watcher: ChangeWatcher) -> list[tuple[str, str, str]]:
    """What hubs make of the changes since the last call: kind, tenant, last level of the topic."""
    found = [event for change in watcher.poll() if (event := event_of(change)) is not None]
    return [(event.kind.value, event.tenant, event.subject) for event in found]


def test_changes_of_devices_are_their_tenants_events(store: AccountStore) -> None:
    tenants.create(store, "acme")
    watcher = ChangeWatcher(store)

    devices.create(store, "acme", "dev1", password="secret")
    devices.set_password(store, "acme", "dev1", "another")
    devices.disable(store, "acme", "dev1")
    devices.enable(store, "acme", "dev1")
    quotas.set_limits(store, "acme", "publish_messages=5/1s")
    devices.delete(store, "acme", "dev1")

    assert told(watcher) == [
        (f"device/{what}", "acme", "dev1") for what in ("created", "rotated", "disabled", "enabled", "deleted")
    ]


def test_changes_of_tenants_and_runs_of_jobs_are_the_platforms(store: AccountStore) -> None:
    """A dry run does nothing, and is none."""
    watcher = ChangeWatcher(store)

    tenants.create(store, "acme")
    tenants.update(store, "acme", tenants.Settings(display_name="Acme"))
    tenants.suspend(store, "acme")
    tenants.resume(store, "acme")
    deleted = tenants.delete(store, "acme")
    tenants.finish_deletion(store, deleted.tenant_id)
    for result, is_dry in ((Result.DONE, False), (Result.INTERRUPTED, False), (Result.DONE, True)):
        run = job_runs.begin(store, "usage", {"dry_run": is_dry}, OWNER)
        job_runs.end(store, run.id, result, figures={})

    assert [each for each in told(watcher) if each[0] != "tenant/changed"] == [
        *((f"tenant/{what}", "", "acme") for what in ("created", "suspended", "resumed", "deleting", "deleted")),
        *((f"job/{what}", "", "usage") for what in ("started", "succeeded", "started", "failed")),
    ]


def test_event_has_the_facts_and_an_id_that_is_the_same_at_every_hub() -> None:
    run = Change(7, 0, ChangeKind.JOB, "usage:12", 5, "", "failed")
    made = Change(8, 3, ChangeKind.DEVICE, "dev1", 6, "acme", "created")

    job, device = event_of(run), event_of(made)

    assert device == TenantEvent(EventKind.DEVICE_CREATED, 3, "acme", "dev1", 6, {"device": "dev1"}, "change-8")
    assert job is not None
    assert (job.tenant_id, job.facts, job.body(1, 2)["id"]) == (PLATFORM, {"job": "usage", "run": 12}, "change-7")
    assert job.topic == b"$events/job/failed/usage"


def test_import_of_devices_is_one_event() -> None:
    """With limits its line is one of all limits."""
    for kind in (ChangeKind.DEVICE, ChangeKind.QUOTA):
        event = event_of(Change(1, 3, kind, "*", 5, "acme", "imported"))
        assert event is not None
        assert (event.kind, event.subject) == (EventKind.DEVICE_IMPORTED, "*")


@pytest.mark.parametrize(
    "change",
    [
        Change(1, 3, ChangeKind.DEVICE, "dev1", 5),  # of an older program
        Change(1, 3, ChangeKind.DEVICE, "dev1", 5, "acme", "renamed"),  # of a later one
        Change(1, 3, ChangeKind.QUOTA, "*", 5, "acme", "created"),
        Change(1, 3, ChangeKind.WEBHOOK, "pager", 5, "acme", "created"),
        Change(1, 3, ChangeKind.UNKNOWN, "x", 5, "acme", "created"),
    ],
)
def test_what_is_no_event_is_none(change: Change) -> None:
    assert event_of(change) is None


def test_one_hub_publishes() -> None:
    published: list[TenantEvent] = []
    change = Change(8, 3, ChangeKind.DEVICE, "dev1", 6, "acme", "created")

    for is_first in (True, False):
        AccountEvents(published.append, is_first=lambda is_first=is_first: is_first).on_changes([change])  # type: ignore[misc]

    assert [event.id for event in published] == ["change-8"]
