"""`iothub quota`: limits of a tenant or a device; a running hub applies a change within a second.

Knows neither usage nor grammar: `iothub_tenants.accounts.quotas` and the quota service do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from iothub.admin.limits import with_values
from iothub.base.errors import ConfigError, IotHubError
from iothub.cli import accounts
from iothub.cli.app import App, noun, verb
from iothub.cli.files import NamedPath, opened_lines
from iothub.cli.limits import LimitsCommand, words_of
from iothub.cli.output import Row, counted
from iothub.cli.paging import WHOLE, Page, paged
from iothub.records.admin_commands import Verb
from iothub_services.quota.grammar import parse_name
from iothub_tenants.accounts.plain import plain

command = noun(
    "quota",
    "Limits. A device's limit overrides its tenant's, and that overrides the plan's. LIMIT: name=value, with a window for "
    "rates: connections=100, publish_messages=50/1s,1000000/1d, queued_bytes=1GiB, connects=unlimited.",
)
PING_TIMEOUT_S = 3.0
_ASK = "see `iothub status`"
_NOTES = {  # what a hub says of limits that do not hold over all hubs now
    "degraded": f"degraded: the quota ledger is unavailable; each hub or worker keeps its last share; {_ASK}",
    "initialising": f"initialising: the quota ledger is empty; hubs report current usage; no new grants until done; {_ASK}",
}
DEVICE = click.option("--device", help="Limits of this device, not of the whole tenant.")


@verb(command, "list")
@click.argument("tenant")
@DEVICE
@paged("DEVICE/NAME")
def list_all(app: App, tenant: str, device: str | None, page: Page) -> None:
    """List the limits set for a tenant and its devices, without those of the plan (`quota show` has all).

    Example:
      iothub --data-dir ./hub quota list acme
    """
    rows = [plain(override) for override in accounts.quotas.list_all(app.store(), tenant, device)]
    _show(app, page.by_place(rows, _place), "name", "limits", "device", page=page)


@verb(command, "show")
@click.argument("tenant")
@DEVICE
def show(app: App, tenant: str, device: str | None) -> None:
    """Show every limit in force and where it comes from: device, tenant, plan, a plan that this one inherits from, or default (unlimited).

    In JSON, `origin` is device, tenant, plan or none; with plan, `plan` names the plan that says so, and `is_inherited` is true if it is not the
    tenant's own.

    Examples:
      iothub --data-dir ./hub quota show acme
      iothub --data-dir ./hub quota show acme --device dev1 -o json
    """
    rows = [plain(limit) for limit in accounts.quotas.effective(app.store(), tenant, device)]
    _show(app, rows, "name", "limits", "origin")


@verb(command, "explain")
@click.argument("tenant")
@click.argument("name", required=False)
@DEVICE
def explain(app: App, tenant: str, name: str | None, device: str | None) -> None:
    """Explain limits: what each one means, whose usage it counts, its value, and its source.

    Examples:
      iothub --data-dir ./hub quota explain acme
      iothub --data-dir ./hub quota explain acme publish_messages
    """
    wanted = parse_name(name).value if name is not None else None
    rows = []
    for limit in accounts.quotas.effective(app.store(), tenant, device):
        if wanted in (None, limit.name):
            quota = parse_name(limit.name)
            rows.append({**plain(limit), "counted_per": quota.scope.value, "meaning": quota.doc})
    _show(app, rows, "name", "limits", "origin", "counted_per", "meaning")


@verb(command, "set", LimitsCommand)
@click.argument("tenant")
@click.argument("limits", nargs=-1, metavar="LIMIT...")
@DEVICE
@click.option(
    "-f", "--file", type=NamedPath(allow_dash=True), help="Set the limits of this file; -: of standard input."
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="With --file: check all lines; set nothing.")
def set_limits(
    app: App, tenant: str, limits: tuple[str, ...], device: str | None, file: Path | None, is_dry_run: bool
) -> None:
    """Set limits of a tenant, of one of its devices, or with --file of many; other limits stay.

    A line of the file is LIMIT... for the tenant, or DEVICE LIMIT... for a device. Blank lines, and lines that begin with #, mean nothing.
    All lines are set at once, or none; bad lines are reported with their numbers (exit code 4).

    Example file:
      connections=5000 publish_messages=500/1s
      dev1 device_publish_messages=5/1s,10000/1d
      dev2 device_publish_messages=20/1s

    Examples:
      iothub --data-dir ./hub quota set acme connections=100 publish_messages=50/1s
      iothub --data-dir ./hub quota set acme device_publish_messages=5/1s --device dev1
      iothub --data-dir ./hub quota set acme --file limits.txt --dry-run
      iothub --data-dir ./hub quota set acme --file limits.txt
    """
    if file is not None:
        if limits or device is not None:
            raise ConfigError("--file has the limits and the devices: leave out LIMIT and --device")
        _set_lines(app, tenant, file, is_dry_run=is_dry_run)
        return
    if not limits:
        raise click.UsageError("Missing argument 'LIMIT...', or the option --file.")
    if is_dry_run:
        raise ConfigError("--dry-run goes with --file; to try out a limit in a running hub, set dry-run:NAME=VALUE")
    rows = [
        with_values(plain(override)) for override in accounts.quotas.set_limits(app.store(), tenant, limits, device)
    ]
    app.done(f"set {' '.join(limits)}", {"name": tenant, "limits": rows})


@verb(command, "unset")
@click.argument("tenant")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@DEVICE
def unset(app: App, tenant: str, names: tuple[str, ...], device: str | None) -> None:
    """Remove limits of a tenant or device; those of the tenant or the plan apply again.

    Example:
      iothub --data-dir ./hub quota unset acme connections
    """
    rows = [with_values(plain(override)) for override in accounts.quotas.unset(app.store(), tenant, names, device)]
    app.done(f"unset {' '.join(names)}", {"name": tenant, "limits": rows})


def _set_lines(app: App, tenant: str, file: Path, *, is_dry_run: bool) -> None:
    with opened_lines(file) as lines:
        overrides = accounts.limit_lines.set_limits_of_lines(app.store(), tenant, lines, is_dry_run=is_dry_run)
    number = counted(len(overrides), "limit")
    record = {"name": tenant, "limits": [with_values(plain(override)) for override in overrides]}
    if is_dry_run:
        app.done(f"would set {number}", {**record, "is_set": False})
    else:
        app.done(f"set {number}", record)


def _place(row: Row) -> str:
    """Return `dev1/connections`; of the tenant's own limits without a device."""
    return f"{row['device']}/{row['name']}"


def _show(app: App, rows: Sequence[Row], *columns: str, page: Page = WHOLE) -> None:
    """Print limits: as an object in JSON, else just the value, for the name has its own column. Add a note if they do not hold fully."""
    if app.form in {"json", "jsonl"}:
        written = [with_values(row) for row in rows]
    else:
        written = [{**row, "limits": words_of(str(row["limits"])), "origin": _origin(row)} for row in rows]
    page.show(app, written, *columns, place=_place)
    note = _note(app)
    if note:
        app.say(f"iothub: note: limits are {note}")


def _origin(row: Row) -> object:
    """Say for a person where a limit comes from."""
    if row.get("origin") == "plan":
        return f"inherited from plan {row['plan']}" if row["is_inherited"] else f"plan {row['plan']}"
    return "default" if row.get("origin") == "none" else row.get("origin")


def _note(app: App) -> str:
    """Ask the running hub whether limits hold over all hubs; empty: they do, or there is one hub only."""
    if app.is_remote:
        return ""
    settings = app.loaded.config
    has_ledger = settings.quota.ledger == "redis" or (app.data_dir.read_hub() or {}).get("workers")
    holder = app.data_dir.holder() if has_ledger else None
    if holder is None or holder.command != "iothub serve":
        return ""
    try:
        mode = app.hub.ask(Verb.STATUS, "", {}, PING_TIMEOUT_S).result.get("quota")
    except IotHubError as error:
        return f"as set; whether they hold over all hubs is unknown, because the hub does not answer: {error}"
    return _NOTES.get(str(mode), "")
