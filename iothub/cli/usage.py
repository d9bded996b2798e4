"""`iothub usage`: usage of a tenant, as the job `usage` has summed it.

Knows no log: the figures come from the accounts database and are as recent as the job's last run.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from iothub.admin import usage
from iothub.admin.content import time_of
from iothub.base.errors import ConfigError
from iothub.base.units import format_duration
from iothub.cli import accounts
from iothub.cli.app import App, noun, verb
from iothub.records.events import GENERATION_BITS
from iothub.records.job_catalogue import USAGE, USAGE_SEEN

if TYPE_CHECKING:
    from iothub_tenants.accounts.job_runs import Run

command = noun("usage", "Usage of a tenant by hour: messages, bytes, connection time, storage.")
COLUMNS = (
    "name",
    "messages_in",
    "messages_out",
    "equivalents",
    "bytes_in",
    "bytes_out",
    "connection_minutes",
    "stored_byte_hours",
    "fanout",
)
_FORMS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ")
_UNDER = (1 << GENERATION_BITS) - 1  # what of an offset counts the events of a log


def _moment(_context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Read a day or a time, UTC, as Unix milliseconds. Raises ConfigError."""
    if text is None:
        return None
    for form in _FORMS:
        try:
            return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError:
            continue
    raise ConfigError(
        f"{option.opts[0]} {text!r}: expected a day such as 2026-11-01, or a time such as 2026-11-01T05:00 (UTC)"
    )


@verb(command, "show")
@click.argument("tenant")
@click.option(
    "--from", "from_ms", metavar="WHEN", callback=_moment, help="First hour, UTC. Default: a week before --to."
)
@click.option("--to", "to_ms", metavar="WHEN", callback=_moment, help="End, UTC, not included. Default: now.")
@click.option("--by", type=click.Choice(list(usage.BY)), default="day", show_default=True, help="Period of one row.")
def show(app: App, tenant: str, from_ms: int | None, to_ms: int | None, by: str) -> None:
    """Show the usage of a tenant, from the table that the job `usage` writes (`iothub job run usage`).

    `equivalents` counts messages in and out in blocks of 4 KiB, rounded up.

    Examples:
      iothub --data-dir ./hub usage show acme
      iothub --data-dir ./hub usage show acme --from 2026-11-01 --to 2026-12-01 --by total -o json
    """
    until_ms = int(time.time() * 1000) if to_ms is None else to_ms
    since_ms = until_ms - usage.WEEK_MS if from_ms is None else from_ms
    if since_ms >= until_ms:
        raise ConfigError("--from must be before --to")
    hours = accounts.usage_hours.hours(app.store(), tenant, since_ms, until_ms)
    app.rows(usage.rows(hours, by), *COLUMNS)
    if not hours:
        app.say(f"iothub: {_why_none(app, tenant)}")


def _why_none(app: App, tenant: str) -> str:
    """Say why there is no sum, and what to do."""
    ends = accounts.usage_hours.ends(app.store(), tenant)
    if ends is not None:
        first, last = map(time_of, ends)
        return f"no usage in this period; {tenant} has usage from {first} to {last}: set --from and --to"
    found = accounts.job_runs.summaries(app.store()).get(USAGE)
    if found is None:
        return f"no usage yet, because the job has never run: `iothub job run {USAGE}`"
    if found.success is None:
        return f"no usage yet, because no run of the job has succeeded; the last run: {found.last.result}, see `iothub job show {found.last.id}`"
    return _why_none_by(app, tenant, found.success)


def _why_none_by(app: App, tenant: str, run: Run) -> str:
    """Say why a run that was done has left no sum of a tenant."""
    begun, interval = (
        accounts.job_runs.moment(run.started_ms),
        format_duration(app.loaded.config.events.usage_interval_s),
    )
    period = f"a hub writes one every {interval} (events.usage_interval)"
    if not any(upto & _UNDER for upto in accounts.marks.of_job(app.store(), USAGE, USAGE_SEEN).values()):
        return f"no usage yet, because no period had ended when the job ran ({begun}); {period}: run `iothub job run {USAGE}` after that"
    return (
        f"no usage of {tenant} up to the job's last run ({begun}); {period} "
        f"for tenants with traffic: run `iothub job run {USAGE}` after that"
    )
