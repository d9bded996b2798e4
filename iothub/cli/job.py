"""`iothub job`: the jobs of the night and others, run in a process of their own, one at a time, and what came of them.

Knows what a person asks and is told; `iothub.jobs` runs them, and Spark is loaded in their process alone.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from iothub.base.clock import SystemClock
from iothub.base.errors import (
    ConfigError,
    ConflictError,
    CorruptRecordError,
    InterruptedWorkError,
    IotHubError,
    UnavailableError,
)
from iothub.cli import job_plan, output, stores
from iothub.cli.app import App, noun, verb
from iothub.cli.durations import seconds
from iothub.cli.job_progress import JobProgress
from iothub.jobs import marks as job_marks
from iothub.jobs import process, specs, timetable
from iothub.jobs.places import Places
from iothub.jobs.runner import LOST, TIMED_OUT, Runner, Timing
from iothub.jobs.timetable import Installation
from iothub_spark.catalogue import CATALOGUE, JobEntry
from iothub_spark.spec import Option
from iothub_tenants.accounts import job_runs, tenants
from iothub_tenants.accounts.job_runs import DIED, Result, Run, moment

command = noun(
    "job",
    "Jobs: run, list, plan, status, history, show, logs, schedule, forget. They need the extra `spark`; the hub runs without.",
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
_HISTORY = ("run", "job", "options", "result", "started", "seconds", "by", "host", "text")


@verb(command, "list")
def list_all(app: App) -> None:
    """List the jobs there are, with their options.

    Example:
      iothub --data-dir ./hub job list
    """
    nightly = app.loaded.config.jobs.nightly
    rows = [
        {
            "name": entry.name,
            "nightly": entry.name in nightly,
            "options": [option.name for option in entry.options],
            "what": entry.sentence,
        }
        for entry in CATALOGUE.values()
    ]
    app.rows(rows, "name", "nightly", "options", "what")


@verb(command, "run")
@click.argument("name", required=False)
@click.option("--nightly", "is_nightly", is_flag=True, help="Run all of jobs.nightly, one after another.")
@click.option("--full", "is_full", is_flag=True, help="From the beginning, not from where the last run ended.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would be done.")
@click.option("--option", "given", multiple=True, metavar="NAME=VALUE", help="Another option of the job; repeatable.")
@click.option(
    "--wait", "wait_s", metavar="DURATION", callback=seconds, help='How long to wait for another run, such as "2h".'
)
def run(
    app: App,
    name: str | None,
    is_nightly: bool,
    is_full: bool,
    is_dry_run: bool,
    given: tuple[str, ...],
    wait_s: float | None,
) -> None:
    """Run a job here and now, beside a running hub or without one.

    Two runs never overlap, also not from two machines with one accounts database: the second one ends with exit code 4.
    Ctrl-C and SIGTERM end the job's process and its Java. On a terminal it says how far it is, elsewhere in JSON lines on standard error.

    Examples:
      iothub --data-dir ./hub job run compact_events
      iothub --data-dir ./hub job run compact_events --full --dry-run -o json
      iothub --data-dir ./hub job run --nightly --wait 2h
    """
    if (name is None) != is_nightly:
        raise ConfigError(
            "expected the name of one job, or --nightly for all of jobs.nightly; `iothub job list` has the names"
        )
    app.require_initialised()
    settings = app.loaded.config
    names = settings.jobs.nightly if name is None else (name,)
    if is_nightly and (is_full or is_dry_run or given):
        raise ConfigError("--nightly takes no --full, --dry-run and --option: run the jobs one by one for that")
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


def _require_given_out(app: App, options: dict[str, Option]) -> None:
    """Raise ConfigError where a job is for a tenant that never was: it would look through everything and find nothing."""
    tenant_id = options.get("tenant_id")
    if not isinstance(tenant_id, int):
        return
    highest = tenants.highest_id(app.store())
    if not 0 < tenant_id <= highest:
        known = f"the highest that one had is {highest}" if highest else "none was yet"
        raise ConfigError(
            f"--option tenant_id: no tenant ever had the number {tenant_id}: {known}; expected the one of the deleted tenant, "
            "as in the folders tenant_id=... of the archive"
        )


def _run_one(app: App, entry: JobEntry, options: dict[str, Option], timing: Timing) -> None:
    ended = _ended(app, entry, options, timing)
    app.record(_record(ended))
    _require_done(ended)


def _run_all(app: App, asked: list[tuple[JobEntry, dict[str, Option]]], timing: Timing) -> None:
    """Run each, whatever became of the one before; the exit code is that of the first one that failed."""
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
    app.rows([_record(each) for each in runs], *_HISTORY)
    if first is not None:
        kind = _BY_CODE.get(first.exit_code, _FailedError)
        raise kind(f"not every job of the night was done; the first that was not: {first}")


def _ended(app: App, entry: JobEntry, options: dict[str, Option], timing: Timing) -> Run:
    settings = app.loaded.config
    places = Places(app.data_dir.path)
    progress = JobProgress(entry.name)

    def start(run: Run, folder: Path) -> tuple[list[str], dict[str, str]]:
        progress.begin()
        stores.require_own_stores(app.data_dir, settings)
        spec = specs.make_spec(settings, app.data_dir, entry, options, run.id, folder)
        return specs.command_of(settings, spec, folder), specs.environment_of(settings, folder, os.environ)

    try:
        return Runner(app.store(), places, progress, timing).run(entry.name, options, start)
    finally:
        progress.close()


class _FailedError(IotHubError):
    """A run has failed in a way that no exit code of its own stands for."""


def _require_done(ended: Run) -> None:
    """Raise the error that a failed run stands for, with where to look."""
    if ended.result is Result.DONE:
        return
    kind = _ERRORS.get(ended.kind, _FailedError)
    raise kind(f"{ended.job} failed: {ended.text}; more in `iothub job logs {ended.id}`")


@verb(command, "status")
def status(app: App) -> None:
    """Show for each job whether it runs, what came of its last run, and when it last did what it should.

    A run is `died` when its process was on this machine and is gone; the next run of any job notes that it failed.

    Example:
      iothub --data-dir ./hub job status
    """
    store, settings = app.store(), app.loaded.config
    found = job_runs.summaries(store)
    under_way = {each.job: each for each in job_runs.running(store)}
    now_s = SystemClock().wall()
    at = settings.jobs.at
    rows = []
    for name in CATALOGUE:
        summary, running = found.get(name), under_way.get(name)
        last = running or (summary.last if summary else None)
        success = summary.success if summary else None
        is_due = at is not None and name in settings.jobs.nightly
        is_gone = running is not None and process.is_gone(running.owner.process)
        rows.append(
            {
                "name": name,
                "state": DIED if is_gone else last.result.value if last else "never run",
                "run": last.id if last else None,
                "started": moment(last.started_ms) if last else None,
                "host": last.owner.host if last else None,
                "pid": running.owner.pid if running and not is_gone else None,
                "last_success": moment(success.ended_ms or success.started_ms) if success else None,
                "seconds": _seconds(success) if success else None,
                "next": moment(timetable.next_at(at, now_s) * 1000) if is_due and at is not None else None,
            }
        )
    app.rows(rows, "name", "state", "run", "started", "last_success", "seconds", "next")


@verb(command, "history")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
def history(app: App, name: str | None, limit: int) -> None:
    """Show the runs of one job or of all, the newest first; 1,000 of each job are kept.

    Examples:
      iothub --data-dir ./hub job history
      iothub --data-dir ./hub job history compact_events --limit 100 -o json
    """
    if name is not None:
        specs.entry_of(name)
    runs = job_runs.history(app.store(), name, limit)
    app.rows([_record(each) for each in runs], *_HISTORY)


@verb(command, "show")
@click.argument("run_id", metavar="RUN", type=click.IntRange(1))
def show(app: App, run_id: int) -> None:
    """Show one run with its options and figures.

    Example:
      iothub --data-dir ./hub job show 12 -o json
    """
    app.record(_record(job_runs.show(app.store(), run_id)))


@verb(command, "logs")
@click.argument("run_id", metavar="RUN", type=click.IntRange(1))
def logs(app: App, run_id: int) -> None:
    """Print what a run's process wrote, Spark's own lines above all; kept on the machine where it ran, for the last 20 runs.

    Example:
      iothub --data-dir ./hub job logs 12
    """
    job_runs.show(app.store(), run_id)
    output.write_bytes(Places(app.data_dir.path).read_log(run_id))


@verb(command, "plan")
def plan(app: App) -> None:
    """Show what the jobs of the night would do next: when, and from which place of the log to which. Nothing is changed.

    Example:
      iothub --data-dir ./hub job plan -o json
    """
    app.require_initialised()
    app.rows(job_plan.rows(app, SystemClock().wall()), "name", "at", "log", "from", "events")
    if app.loaded.config.jobs.at is None:
        app.say(
            "iothub: jobs.at is off: no schedule is known here; `iothub job schedule --print systemd` says how to make one"
        )


@verb(command, "forget")
@click.argument("name")
def forget(app: App, name: str) -> None:
    """Let go of the logs that a job holds: what it has not read may be trimmed from now on.

    For a job that was given up (alarm `job_mark_stale`). One that is run again holds the log again, from where it begins then;
    `archive` then copies everything that the log has, so what it had copied before is in the archive twice.

    Example:
      iothub --data-dir ./hub job forget archive
    """
    app.require_initialised()
    stores.require_own_stores(app.data_dir, app.loaded.config)
    held = job_marks.forget(app.loaded.config, app.data_dir, app.store(), name)
    app.record({"name": name, "held": held})


@verb(command, "schedule")
@click.option("--print", "form", type=click.Choice(["systemd", "cron"]), required=True, help="For which scheduler.")
@click.option("--user", default="iothub", show_default=True, help="Whom the hub's files belong to.")
def schedule(app: App, form: str, user: str) -> None:
    """Print the files that start the jobs of the night of this data directory, at jobs.at (02:30 UTC where it is off).

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
        output.write_text(timetable.cron_line(minutes, installation), end="")
    else:
        output.write_text(timetable.systemd_service(installation))
        output.write_text(timetable.systemd_timer(minutes), end="")


def _record(run: Run) -> dict[str, object]:
    """Return a run as scripts see it."""
    return {
        "run": run.id,
        "job": run.job,
        "result": run.result.value,
        "kind": run.kind or None,
        "started": moment(run.started_ms),
        "ended": None if run.ended_ms is None else moment(run.ended_ms),
        "seconds": _seconds(run),
        "options": run.options,
        "by": run.owner.user,
        "host": run.owner.host,
        "pid": run.owner.pid,
        "figures": run.figures,
        "text": run.text,
    }


def _seconds(run: Run) -> float | None:
    return None if run.ended_ms is None else round((run.ended_ms - run.started_ms) / 1000, 1)
