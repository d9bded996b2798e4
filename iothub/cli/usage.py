"""`iothub usage`: usage of a tenant, as the job `usage` has summed it.

Knows no log: the figures come from the accounts database and are as recent as the job's last run.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click

from iothub.admin import usage
from iothub.base.errors import ConfigError
from iothub.cli import accounts
from iothub.cli.app import App, noun, verb

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
    found = accounts.admin_usage.of_tenant(app.store(), tenant, since_ms, until_ms, by)
    app.rows(found, *COLUMNS)
    if not found:
        interval_s = app.loaded.config.events.usage_interval_s
        app.say(f"iothub: {accounts.admin_usage.why_none(app.store(), tenant, interval_s)}")
