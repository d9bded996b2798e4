"""Events for statistics of made-up tenants, and an accounts database with those tenants, for tests of jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from iothub.records import analytics
from iothub.records.analytics import Metered, Period, Sample
from iothub.records.events import Event, Topic
from iothub.records.job_spec import Option, Spec
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from tests.support.jobs.event_log import append, make_log
from tests.support.jobs.spark import sqlite_spec

HOUR_MS = 3_600_000
NOON_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS
MINUTE_MS = 60_000


def period(sequence: int, minute: int = 0, incarnation: str = "hub-1/1/1") -> Period:
    """Return the record number `sequence` of a worker, of a minute counted from noon."""
    from_ms = NOON_MS + minute * MINUTE_MS
    return Period(incarnation, sequence, from_ms, from_ms + MINUTE_MS)


def used(tenant_id: int, sequence: int, minute: int = 0, incarnation: str = "hub-1/1/1", **figures: int) -> Event:
    return analytics.usage_counted(tenant_id, period(sequence, minute, incarnation), Metered(**figures))


def sampled(tenant_id: int, sequence: int, minute: int = 0, incarnation: str = "hub-1/1/1", **figures: int) -> Event:
    return analytics.tenant_sampled(tenant_id, period(sequence, minute, incarnation), Sample(**figures))


def harness(folder: Path, *names: str) -> dict[str, int]:
    """Make logs and accounts in a folder; returns the tenants' numbers."""
    make_log(folder / "events.db")
    store = init_store(sqlite_url(folder / "accounts.db"), pepper=b"p" * 32, clock=ManualClock())
    numbers = {name: tenants.create(store, name).id for name in names}
    store.close()
    (folder / "accounts.url").write_text(sqlite_url(folder / "accounts.db"), encoding="utf-8")
    return numbers


def log(folder: Path, *events: Event) -> int:
    """Append to the log for statistics; returns its end."""
    return append(folder / "events.db", events, Topic.ANALYTICS)


def spec_of(folder: Path, job: str, **options: Option) -> Spec:
    return replace(sqlite_spec(folder, job, **options), sql_url_file=folder / "accounts.url")
