"""`iothub job`: the nightly jobs and others, each in its own process, one run at a time, and their history.

Knows options and output; `iothub.jobs` runs them, and only their process loads Spark.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from iothub.admin.runs import Asked, run_row
from iothub.base.clock import SystemClock
from iothub.base.errors import (
    ConfigError,
    ConflictError,
    CorruptRecordError,
    InterruptedWorkError,
    IotHubError,
    UnavailableError,
)
from iothub.cli import accounts, output
from iothub.cli.app import SET, App, noun, verb
from iothub.cli.durations import seconds
from iothub.cli.job_progress import JobProgress
from iothub.cli.numbers import WholeNumber
from iothub.jobs import specs, timetable
from iothub.jobs.places import Places
from iothub.jobs.runner import LOST, TIMED_OUT, Runner, Timing
from iothub.jobs.timetable import Installation
from iothub.records.events import Topic
from iothub.records.job_catalogue import JobEntry
from iothub.records.job_spec import Option
from iothub_tenants.accounts.job_runs import Result, Run

command = noun(
    "job",
    "Jobs: run, cancel, list, plan, status, history, show, logs, schedule, forget. Jobs need the extra `spark`; the hub does not.",
)

_ERRORS: dict[str, type[IotHubError]] = {
    "conflict": ConflictError,
    "unavailable": UnavailableError,
    "config": ConfigError,
    "corrupt": CorruptRecordError,
    TIMED_OUT: UnavailableError,
    LOST: UnavailableError,
}
_BY_CODE: dict[int, type[IotHubError]] = {
    kind.exit_code: kind for kind in (ConfigError, ConflictError, UnavailableError)
}
_POLL_S = 1.0
_HISTORY = ("run", "job", "options", "result", "started", "seconds", "by", "host", "text")


@verb(command, "list")
def list_all(app: App) -> None:
    """List all jobs with their options.

    Example:
      iothub --data-dir ./hub job list
    """
    rows = accounts.admin_runs.jobs(app.there, app.loaded.config.jobs.nightly)
    app.rows(rows, "name", "nightly", "options", "what")


@verb(command, "run")
@click.argument("name", required=False)
@click.option("--nightly", "is_nightly", is_flag=True, help="Run all jobs of jobs.nightly, one after another.")
@click.option("--full", "is_full", is_flag=True, help="Start from the beginning, not from where the last run ended.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--option", "given", multiple=True, metavar="NAME=VALUE", help="Another option of the job (repeatable).")
@click.option(
    "--wait", "wait_s", metavar="DURATION", callback=seconds, help='Maximum time to wait for another run, such as "2h".'
)
@SET
def run(
    app: App,
    name: str | None,
    is_nightly: bool,
    is_full: bool,
    is_dry_run: bool,
    given: tuple[str, ...],
    wait_s: float | None,
    flags: tuple[str, ...],
) -> None:
    """Run a job now on this machine, with or without a running hub; with a context, on the machine of the API.

    Two runs never overlap, not even on two machines with the same accounts database: the second one ends with exit code 4.
    Ctrl-C and SIGTERM stop the job's process and its Java. Progress is text on a terminal, else JSON lines on standard error.

    Examples:
      iothub --data-dir ./hub job run compact_events
      iothub --data-dir ./hub job run compact_events --full --dry-run -o json
      iothub --data-dir ./hub job run --nightly --wait 2h
      iothub --data-dir ./hub job run usage --set spark.driver_memory=2GiB
    """
    if (name is None) != is_nightly:
        raise ConfigError(
            "expected the name of one job, or --nightly for all of jobs.nightly; `iothub job list` shows the names"
        )
    if app.is_remote:
        _run_there(
            app, name, Asked(is_full, is_dry_run, given), has_more=is_nightly or wait_s is not None or bool(flags)
        )
        return
    settings = app.load(flags).config
    app.require_initialised()
    names = settings.jobs.nightly if name is None else (name,)
    if is_nightly and (is_full or is_dry_run or given):
        raise ConfigError("--nightly does not allow --full, --dry-run and --option: run the jobs one by one instead")
    asked = [
        (entry, specs.read_options(entry, given, is_full=is_full, is_dry_run=is_dry_run))
        for entry in map(specs.entry_of, names)
    ]
    for _, options in asked:
        _require_given_out(app, options)
    specs.require_spark(settings, os.environ)
    timing = Timing(wait_s=wait_s or 0.0, max_runtime_s=settings.jobs.max_runtime_s)
    if not is_nightly:
        _run_one(app, *asked[0], timing)
        return
    _run_all(app, asked, timing)


def _run_there(app: App, name: str | None, asked: Asked, *, has_more: bool) -> None:
    """Run a job on the machine of the API, and wait for its end."""
    if name is None or has_more:
        raise ConfigError("--nightly, --wait and --set do not work with a context: run the jobs one by one")
    run_id = int(str(run_row(accounts.admin_runs.start(app.store(), _start_nowhere, name, asked))["run"]))
    app.say(f"iothub: started run {run_id} of {name}; Ctrl-C does not stop it: `iothub job cancel {run_id}` does")
    row = run_row(accounts.job_runs.show(app.store(), run_id))
    while row["result"] == Result.RUNNING.value:
        time.sleep(_POLL_S)
        row = run_row(accounts.job_runs.show(app.store(), run_id))
    app.record(row)
    if row["result"] != Result.DONE.value:
        kind = _ERRORS.get(str(row["kind"]), _FailedError)
        raise kind(f"{name} failed: {row['text']}; more in `iothub job logs {run_id}`")


def _start_nowhere(_store: object, job: str, /, *, is_full: bool, is_dry_run: bool, options: Sequence[str]) -> NoReturn:
    """Here a run is no process that outlives its command: `Runner` runs it."""
    raise AssertionError(job, is_full, is_dry_run, options)


def _require_given_out(app: App, options: dict[str, Option]) -> None:
    """Raise ConfigError for a tenant number that was never used: the job would read everything and find nothing."""
    tenant_id = options.get("tenant_id")
    if not isinstance(tenant_id, int):
        return
    highest = accounts.tenants.highest_id(app.store())
    if not 0 < tenant_id <= highest:
        known = f"the highest so far is {highest}" if highest else "there was no tenant yet"
        raise ConfigError(
            f"--option tenant_id: no tenant ever had the number {tenant_id}: {known}; expected the number of the deleted tenant, "
            "see the folders tenant_id=... of the archive"
        )


def _run_one(app: App, entry: JobEntry, options: dict[str, Option], timing: Timing) -> None:
    ended = _ended(app, entry, options, timing)
    app.record(run_row(ended))
    _require_done(ended)


def _run_all(app: App, asked: list[tuple[JobEntry, dict[str, Option]]], timing: Timing) -> None:
    """Run each, even after a failure; the exit code is that of the first one that failed."""
    runs: list[Run] = []
    first: IotHubError | None = None
    for entry, options in asked:
        try:
            runs.append(_ended(app, entry, options, timing))
            _require_done(runs[-1])
        except InterruptedWorkError:
            raise
        except IotHubError as error:
            first = first or error
            app.say(f"iothub: {error}")
    app.rows([run_row(each) for each in runs], *_HISTORY)
    if first is not None:
        kind = _BY_CODE.get(first.exit_code, _FailedError)
        raise kind(f"at least one nightly job failed; the first one: {first}")


def _ended(app: App, entry: JobEntry, options: dict[str, Option], timing: Timing) -> Run:
    settings = app.loaded.config
    places = Places(app.data_dir.path)
    progress = JobProgress(entry.name)

    def start(run: Run, folder: Path) -> tuple[list[str], dict[str, str]]:
        from iothub.cli import stores  # loads every driver

        progress.begin()
        stores.require_own_stores(app.data_dir, settings)
        spec = specs.make_spec(settings, app.data_dir, entry, options, run.id, folder)
        return specs.command_of(settings, spec, folder), specs.environment_of(settings, folder, os.environ)

    try:
        return Runner(app.store(), places, progress, timing).run(entry.name, options, start)
    finally:
        progress.close()


class _FailedError(IotHubError):
    """A failure without an exit code of its own."""


def _require_done(ended: Run) -> None:
    """Raise the error of a failed run, with the place of its log."""
    if ended.result is Result.DONE:
        return
    kind = _ERRORS.get(ended.kind, _FailedError)
    raise kind(f"{ended.job} failed: {ended.text}; more in `iothub job logs {ended.id}`")


@verb(command, "cancel")
@click.argument("run_id", metavar="RUN", type=WholeNumber(1))
def cancel(app: App, run_id: int) -> None:
    """Ask a run of this machine to stop, as Ctrl-C does: its unfinished work is discarded, and its result is `interrupted`.

    Exit code 4 when it is not under way, or runs on another machine.

    Example:
      iothub --data-dir ./hub job cancel 12
    """
    row = run_row(accounts.admin_runs.cancel(app.store(), run_id))
    app.done(f"asked run {run_id} of {row['job']} to stop", row)


@verb(command, "status")
def status(app: App) -> None:
    """Show for each job whether it runs, the result of its last run, and when it last succeeded.

    A run is `died` if it has not ended and has written no heartbeat for a minute: it was killed, or its machine stopped.

    Example:
      iothub --data-dir ./hub job status
    """
    rows = accounts.admin_runs.states(app.store(), app.loaded.config.jobs, SystemClock().wall())
    app.rows(rows, "name", "state", "run", "started", "last_success", "seconds", "next")


@verb(command, "history")
@click.argument("name", required=False)
@click.option("--limit", type=WholeNumber(1, 1000), default=20, show_default=True, help="Maximum number of runs.")
def history(app: App, name: str | None, limit: int) -> None:
    """Show the runs of one job or of all, newest first; the last 1,000 of each job are kept.

    Examples:
      iothub --data-dir ./hub job history
      iothub --data-dir ./hub job history compact_events --limit 100 -o json
    """
    if name is not None:
        specs.entry_of(name)
    runs = accounts.job_runs.history(app.store(), name, limit)
    app.rows([run_row(each) for each in runs], *_HISTORY)


@verb(command, "show")
@click.argument("run_id", metavar="RUN", type=WholeNumber(1))
def show(app: App, run_id: int) -> None:
    """Show one run with its options and results.

    Example:
      iothub --data-dir ./hub job show 12 -o json
    """
    app.record(run_row(accounts.job_runs.show(app.store(), run_id)))


@verb(command, "logs")
@click.argument("run_id", metavar="RUN", type=WholeNumber(1))
def logs(app: App, run_id: int) -> None:
    """Print the log of a run, mainly Spark's lines. Logs of the last 20 runs are kept, on the machine where they ran.

    Example:
      iothub --data-dir ./hub job logs 12
    """
    output.write_bytes(accounts.admin_runs.read_log(app.store(), Places(app.data_dir.path), run_id))


@verb(command, "plan")
def plan(app: App) -> None:
    """Show what the nightly jobs would do next: when, and which part of the log. Nothing is changed.

    Example:
      iothub --data-dir ./hub job plan -o json
    """
    app.require_initialised()
    from iothub.cli import job_plan  # loads every driver

    app.rows(job_plan.rows(app, SystemClock().wall()), "name", "at", "log", "from", "events")
    if app.loaded.config.jobs.at is None:
        app.say(
            "iothub: jobs.at is off, so there is no schedule; create one with `iothub job schedule --print systemd`"
        )


@verb(command, "forget")
@click.argument("name")
def forget(app: App, name: str) -> None:
    """Forget how far a job has read the logs, so that they may be trimmed without waiting for it.

    For a job that you no longer run (alarm `job_mark_stale`). If it runs again, it starts at the beginning of the log, and the log waits
    for it again; `archive` then copies the whole log, so the archive has twice what it copied before.

    Example:
      iothub --data-dir ./hub job forget archive
    """
    if not app.is_remote:
        app.require_initialised()
    marked = accounts.marks.forget(app.store(), name)
    if not marked:
        specs.entry_of(name)  # says which there are
    app.record({"name": name, "held": [log for log in marked if log.upper() in Topic.__members__]})


@verb(command, "schedule")
@click.option("--print", "form", type=click.Choice(["systemd", "cron"]), required=True, help="The scheduler.")
@click.option("--user", default="iothub", show_default=True, help="Owner of the hub's files.")
def schedule(app: App, form: str, user: str) -> None:
    """Print the files that start the nightly jobs of this data directory at jobs.at (02:30 UTC if it is off).

    Examples:
      iothub --data-dir /var/lib/iothub job schedule --print systemd
      iothub --data-dir /var/lib/iothub job schedule --print cron --user hub
    """
    app.require_initialised()
    settings = app.loaded.config
    minutes = settings.jobs.at
    archive = settings.spark.archive.absolute() if settings.spark.archive is not None else None
    config = app.config_file.absolute() if app.config_file is not None else None
    program = Path(sys.executable).with_name("iothub")
    installation = Installation(program, app.data_dir.path.absolute(), config, user, archive)
    minutes = timetable.USUAL_AT if minutes is None else minutes
    if form == "cron":
        files = {"crontab": timetable.cron_line(minutes, installation)}
    else:
        files = {"service": timetable.systemd_service(installation), "timer": timetable.systemd_timer(minutes)}
    if app.form == "table":
        output.write_text("\n".join(files.values()), end="")
    else:
        app.record({"name": form, **files})
