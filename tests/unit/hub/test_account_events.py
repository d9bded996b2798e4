"""Changes of the accounts as events: which they are, and which of several hubs publishes them (`iothub.hub.account_events`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.hub import account_events
from iothub.hub.account_events import KEPT_S, AccountEvents, event_of
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


class OneOfTwo:
    """A hub that reads the changes; the test says whether it is the first."""

    def __init__(self, store: AccountStore, *, is_first: bool) -> None:
        self.is_first = is_first
        self.clock = ManualClock()
        self.published: list[str] = []
        self.lost: list[int] = []
        self._watcher = ChangeWatcher(store)
        self.events = AccountEvents(
            lambda event: self.published.append(event.subject),
            is_first=lambda: self.is_first,
            clock=self.clock,
            on_lost=self.lost.append,
        )

    def read(self) -> None:
        self.events.on_changes(self._watcher.poll())

    def become_first(self) -> None:
        """The others have noticed that the first one is gone."""
        self.is_first = True
        self.events.on_view()


def test_one_hub_publishes(store: AccountStore) -> None:
    hubs = OneOfTwo(store, is_first=True), OneOfTwo(store, is_first=False)
    tenants.create(store, "acme")
    for hub in hubs:
        hub.read()
        hub.events.on_view()

    assert [hub.published for hub in hubs] == [["acme"], []]


def test_changes_while_the_death_of_the_first_hub_is_unnoticed_come_late_and_none_is_lost(store: AccountStore) -> None:
    """Also one that it had read and not yet published; nothing else has to happen for that."""
    first, other = OneOfTwo(store, is_first=True), OneOfTwo(store, is_first=False)
    tenants.create(store, "before")
    first.read()
    other.read()
    for second in range(15):
        tenants.create(store, f"t{second}")
        other.clock.advance(1.0)
        other.read()
    assert other.published == []

    other.become_first()
    late = [f"t{second}" for second in range(15)]
    assert other.published == ["before", *late]
    tenants.create(store, "after")
    other.read()
    other.events.on_view()

    assert other.published == ["before", *late, "after"]
    assert other.lost == []


def test_what_the_first_hub_has_had_time_to_publish_is_not_repeated(store: AccountStore) -> None:
    other = OneOfTwo(store, is_first=False)
    tenants.create(store, "old")
    other.read()
    other.clock.advance(KEPT_S + 1)

    other.become_first()

    assert other.published == []


def test_more_changes_than_are_kept_are_counted_once_they_would_have_been_published(
    store: AccountStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_events, "MOST_KEPT", 2)
    other, spared = OneOfTwo(store, is_first=False), OneOfTwo(store, is_first=False)
    for name in ("aa", "bb", "cc", "dd", "ee"):
        tenants.create(store, name)
    for hub in (other, spared):
        hub.read()
    spared.clock.advance(KEPT_S + 1)

    for hub in (other, spared):
        hub.become_first()

    assert (other.published, other.lost) == (["dd", "ee"], [3])
    assert (spared.published, spared.lost) == ([], [])
