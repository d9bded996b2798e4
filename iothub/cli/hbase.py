"""`iothub hbase`: create, check and sweep the hub's tables in HBase.

Knows no table: `iothub_services.hbase` does.
"""

from __future__ import annotations

import click

from iothub.base.clock import SystemClock
from iothub.base.errors import ConfigError
from iothub.base.units import format_duration
from iothub.cli import output
from iothub.cli.app import App, noun, verb
from iothub.cli.durations import seconds
from iothub.cli.progress import LOG_INTERVAL_S
from iothub.hub.stores.drivers import needed_tables
from iothub_services.hbase import from_settings
from iothub_services.hbase.administration import TableState, TableStatus, require_all, require_ours, table_status
from iothub_services.hbase.tables import TableLayout, Tables
from iothub_services.queues.hbase.body_sweep import LEAST_AGE_S, USUAL_AGE_S, Swept, dry_sweep, sweep_leased

command = noun("hbase", "The hub's tables in HBase: create-tables, status, sweep.")

_CLOCK = SystemClock()


@verb(command, "create-tables")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would be created; create nothing.")
def create_tables(app: App, is_dry_run: bool) -> None:
    """Create the missing tables, pre-split into regions. Safe to repeat.

    Creates only the tables that the settings need; the queue tables, for example, only with the queue driver `hbase`.
    Runs a Java class of the iothub-hbase jar (`make coprocessor`) with HBase's `hbase` program, or the one in hbase.admin_program.
    Exit code 2 when the settings need no table, 4 when a table exists with another layout, 7 when HBase does not answer.

    Examples:
      iothub --config .services/iothub.toml hbase create-tables
      HBASE_CLASSPATH=iothub-hbase-0.1.0.jar iothub hbase create-tables --dry-run
    """
    settings = app.loaded.config.hbase
    wanted = _wanted(app)
    with from_settings.direct_caller(settings) as caller:
        before = table_status(caller, wanted)
    require_ours(before)
    missing = [status.name for status in before if status.state is TableState.MISSING]
    if is_dry_run:
        app.done(_sentence("would create", missing), {"name": settings.namespace, "created": missing})
        return
    if missing:
        output.say(
            f"creating {len(missing)} tables, {settings.regions} regions for queues each: up to a minute or two ..."
        )
    created = from_settings.table_admin(settings).create(wanted)
    app.done(_sentence("created", created), {"name": settings.namespace, "created": created})


@verb(command, "status")
def status(app: App) -> None:
    """Show whether each table that the settings need exists with the right layout.

    Exit code 2 when they need none, 3 when one is missing, 4 when one has another layout or is disabled, 7 when HBase does not answer.

    Example:
      iothub --config .services/iothub.toml hbase status -o json
    """
    with from_settings.direct_caller(app.loaded.config.hbase) as caller:
        found = table_status(caller, _wanted(app))
    app.rows([_row(each) for each in found], "name", "state", "regions", "problems")
    require_all(found)


@verb(command, "sweep")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Count what would be deleted; delete nothing.")
@click.option(
    "--older-than",
    "age_s",
    metavar="DURATION",
    callback=seconds,
    help="Keep bodies younger than this. At least 1h; default: 24h.",
)
def sweep(app: App, is_dry_run: bool, age_s: float | None) -> None:
    """Delete the message bodies that no queue refers to. Safe at any time, beside running hubs too.

    One hub does this every `hbase.sweep_interval`; use this command to sweep now, or from your own timer. It reads every queue.
    Exit code 4 when another sweep is running, 1 when the row of the last sweep is damaged, 7 when HBase does not answer.

    Examples:
      iothub --config .services/iothub.toml hbase sweep --dry-run
      iothub --config .services/iothub.toml hbase sweep --older-than 6h -o json
    """
    age_s = USUAL_AGE_S if age_s is None else age_s
    if age_s < LEAST_AGE_S:
        raise ConfigError(
            f"--older-than {format_duration(age_s)}: expected {format_duration(LEAST_AGE_S)} or more: "
            "a hub may be about to refer to younger bodies"
        )
    settings = app.loaded.config.hbase
    tables, progress = Tables(settings.namespace), _SweepProgress()
    with from_settings.direct_caller(settings) as caller:
        swept = (
            dry_sweep(caller, tables, age_s, progress)
            if is_dry_run
            else sweep_leased(caller, tables, age_s, progress, _CLOCK.monotonic)
        )
    assert swept is not None  # noqa: S101  only without `every_s`
    verb_done = "would delete" if is_dry_run else "deleted"
    app.done(
        f"{verb_done} {swept.loose} of {swept.bodies} bodies",
        {
            "name": settings.namespace,
            "bodies": swept.bodies,
            "referenced": swept.referenced,
            "young": swept.young,
            "unreferenced": swept.loose,
            "deleted": swept.deleted,
            "references": swept.references,
        },
    )


class _SweepProgress:
    """Prints the progress of a sweep now and then; the total is not known beforehand."""

    def __init__(self) -> None:
        self._said_at = _CLOCK.monotonic()

    def __call__(self, swept: Swept) -> None:
        if _CLOCK.monotonic() - self._said_at < LOG_INTERVAL_S:
            return
        self._said_at = _CLOCK.monotonic()
        output.say(f"{swept.references} references found, {swept.bodies} bodies checked, {swept.deleted} deleted")


def _wanted(app: App) -> list[TableLayout]:
    """Return the tables that the settings need. Raises ConfigError: they need none."""
    wanted = needed_tables(app.loaded.config, app.data_dir)
    if not wanted:
        raise ConfigError(
            "the settings need no HBase table: "
            'to use HBase, set queues.driver, state.driver or retained.driver to "hbase"'
        )
    return wanted


def _row(status: TableStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "state": status.state.value,
        "regions": status.regions,
        "problems": list(status.problems),
    }


def _sentence(verb_done: str, names: list[str]) -> str:
    return f"{verb_done} {', '.join(names)}" if names else "nothing to do: every table exists"
