"""The usage of a tenant summed by hour, day or in total, in the form in which the command line and the REST API show it.

Knows no log: the hours come from the accounts, where the job `usage` has written them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from iothub.admin.content import time_of
from iothub.base.units import format_duration
from iothub.records.events import GENERATION_BITS
from iothub.records.job_catalogue import USAGE, USAGE_SEEN

if TYPE_CHECKING:
    from iothub_tenants.accounts.job_runs import Run
    from iothub_tenants.accounts.store import AccountStore
    from iothub_tenants.accounts.usage_hours import UsageHour

BY: dict[str, Callable[[UsageHour], str]] = {
    "hour": lambda hour: str(time_of(hour.hour_ms)),
    "day": lambda hour: str(time_of(hour.hour_ms))[:10],
    "total": lambda _hour: "total",
}
_UNDER = (1 << GENERATION_BITS) - 1  # what of an offset counts the events of a log
WEEK_MS = 7 * 24 * 3_600_000


def of_tenant(store: AccountStore, tenant: str, since_ms: int, until_ms: int, by: str) -> list[dict[str, object]]:
    """Return the usage of a tenant, a row for each period. Raises NotFoundError."""
    from iothub_tenants.accounts import usage_hours

    return rows(usage_hours.hours(store, tenant, since_ms, until_ms), by)


def why_none(store: AccountStore, tenant: str, interval_s: float) -> str:
    """Say why there is no sum in a period, and what to do. `interval_s`: the setting events.usage_interval."""
    from iothub_tenants.accounts import job_runs, usage_hours

    ends = usage_hours.ends(store, tenant)
    if ends is not None:
        first, last = map(time_of, ends)
        return f"no usage in this period; {tenant} has usage from {first} to {last}: set --from and --to"
    found = job_runs.summaries(store).get(USAGE)
    if found is None:
        return f"no usage yet, because the job has never run: `iothub job run {USAGE}`"
    if found.success is None:
        return f"no usage yet, because no run of the job has succeeded; the last run: {found.last.result}, see `iothub job show {found.last.id}`"
    return _why_none_by(store, tenant, found.success, interval_s)


def _why_none_by(store: AccountStore, tenant: str, run: Run, interval_s: float) -> str:
    """Say why a run that was done has left no sum of a tenant."""
    from iothub_tenants.accounts import job_runs, marks

    begun = job_runs.moment(run.started_ms)
    period = f"a hub writes one every {format_duration(interval_s)} (events.usage_interval)"
    if not any(upto & _UNDER for upto in marks.of_job(store, USAGE, USAGE_SEEN).values()):
        return f"no usage yet, because no period had ended when the job ran ({begun}); {period}: run `iothub job run {USAGE}` after that"
    return (
        f"no usage of {tenant} up to the job's last run ({begun}); {period} "
        f"for tenants with traffic: run `iothub job run {USAGE}` after that"
    )


def rows(hours: Iterable[UsageHour], by: str) -> list[dict[str, object]]:
    """Return a row for each period; `by` is one of BY."""
    return [_row(name, list(some)) for name, some in groupby(hours, BY[by])]


def _row(name: str, hours: Sequence[UsageHour]) -> dict[str, object]:
    blocks_in, blocks_out = (sum(hour.blocks_in for hour in hours), sum(hour.blocks_out for hour in hours))
    return {
        "name": name,
        "hours": len(hours),
        "messages_in": sum(hour.messages_in for hour in hours),
        "messages_out": sum(hour.messages_out for hour in hours),
        "equivalents": blocks_in + blocks_out,
        "equivalents_in": blocks_in,
        "equivalents_out": blocks_out,
        "bytes_in": sum(hour.bytes_in for hour in hours),
        "bytes_out": sum(hour.bytes_out for hour in hours),
        "connection_minutes": round(sum(hour.connection_ms for hour in hours) / 60_000, 3),
        "stored_byte_hours": round(sum(hour.stored_byte_s for hour in hours) / 3_600, 3),
        "fanout": sum(hour.fanout for hour in hours),
    }
