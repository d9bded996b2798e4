"""/jobs and /runs: jobs, their runs with logs and reports; start and cancel."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response

from iothub.admin import runs
from iothub.base.errors import NotFoundError
from iothub.records.job_catalogue import CATALOGUE, JobEntry
from iothub.rest import answers, models
from iothub.rest.machine import Here
from iothub.rest.models import Anything, Items, Name
from iothub.rest.routes import Call, Routes
from iothub.rest.scopes import Scope
from iothub_tenants.accounts import audit, job_runs, marks
from iothub_tenants.accounts.job_runs import Summary
from iothub_tenants.accounts.plain import plain
from iothub_tenants.identity import shown

routes = Routes("jobs")
RunNumber = Annotated[int, Path(ge=1, le=2**53, description="A run's number.")]
PlotNumber = Annotated[int, Path(ge=1, le=1000, description="Which plot of the report, from 1.")]
_SVG = "image/svg+xml"
_NOT_KEPT = {"Cache-Control": "no-store"}


@routes.get("/jobs", Scope.JOBS_READ, returns=Items)
def list_jobs(call: Call) -> Response:
    """List all jobs: whether each runs, its last run, when it last succeeded, and when it is due."""
    summaries, settings = job_runs.summaries(call.store), call.settings.jobs
    found = zip(
        runs.jobs(None, settings.nightly), runs.states(call.store, settings, call.store.clock.wall()), strict=True
    )
    rows = [{**job, **state, "last": _last(summaries.get(str(job["name"])))} for job, state in found]
    return answers.shown({"items": rows})


@routes.get("/jobs/{name}", Scope.JOBS_READ, returns=Anything)
def show_job(call: Call, name: Name) -> Response:
    """Show one job: its options, its last run, and the run that is under way."""
    entry = _entry(name)
    under_way = [runs.run_row(run) for run in job_runs.running(call.store) if run.job == name]
    options = [
        {"name": each.name, "kind": each.kind, "what": each.sentence, "is_required": each.is_required}
        for each in entry.options
    ]
    row = {"name": name, "nightly": name in call.settings.jobs.nightly, "what": entry.sentence}
    last = _last(job_runs.summaries(call.store).get(name))
    return answers.shown({**row, "last": last, "options": options, "running": under_way})


@routes.post("/jobs/{name}:run", Scope.JOBS_WRITE, status=202, returns=Anything)
def run_job(call: Call, here: Here, name: Name, body: models.NewRun | None = None) -> Response:
    """Start a job on this machine, in a process that outlives the request and this API; two runs never overlap."""
    given = body or models.NewRun()
    _entry(name)
    options = [f"{key}={_text(value)}" for key, value in given.options.items()]
    asked = runs.Asked(given.is_full, given.is_dry_run, options)
    return answers.shown(runs.run_row(runs.start(call.store, here.start_run, name, asked)), status=202)


@routes.post("/jobs/{name}:forget", Scope.JOBS_WRITE, status=200, returns=Anything)
def forget_job(call: Call, name: Name) -> Response:
    """Forget how far a job has read the logs, so that they may be trimmed without waiting for it. It starts at their beginning if it runs again."""
    held = marks.forget(call.store, name)
    if not held:
        _entry(name)
    return answers.shown({"name": name, "held": held})


@routes.get("/jobs/{name}/runs", Scope.JOBS_READ, returns=Items)
def list_runs(
    call: Call, name: Name, limit: Annotated[int, Query(ge=1, le=1000, description="The newest so many.")] = 20
) -> Response:
    """List the last runs of a job, the newest first."""
    return answers.shown({"items": [plain(run) for run in job_runs.history(call.store, name, limit)]})


@routes.get("/runs", Scope.JOBS_READ, returns=Items)
def list_all_runs(
    call: Call, limit: Annotated[int, Query(ge=1, le=1000, description="The newest so many.")] = 20
) -> Response:
    """List the last runs of all jobs, the newest first."""
    return answers.shown({"items": [plain(run) for run in job_runs.history(call.store, None, limit)]})


@routes.get("/runs/{number}", Scope.JOBS_READ, returns=Anything)
def show_run(call: Call, number: RunNumber) -> Response:
    """Show one run with its options and figures."""
    return answers.shown(runs.run_row(job_runs.show(call.store, number)))


@routes.post("/runs/{number}:cancel", Scope.JOBS_WRITE, status=202, returns=Anything)
def cancel_run(call: Call, here: Here, number: RunNumber) -> Response:
    """Ask a run of this machine to stop; its unfinished work is discarded, and its result will be `interrupted`."""
    run = job_runs.show(call.store, number)
    here.cancel_run(run)
    audit.note(call.store, "", "job", run.job, {"done": "cancelled", "run": run.id})
    return answers.shown(runs.run_row(run), status=202)


@routes.get("/runs/{number}/log", Scope.JOBS_READ, media_type="text/plain")
def show_run_log(
    call: Call,
    here: Here,
    number: RunNumber,
    lines: Annotated[int, Query(ge=1, le=100_000, description="The newest so many.")] = 1000,
) -> Response:
    """Give the newest lines of a run's log, mainly Spark's. Logs of the last 20 runs are kept, on the machine where they ran."""
    kept = here.read_log(job_runs.show(call.store, number)).splitlines(keepends=True)
    return Response(b"".join(kept[-lines:]), 200, _NOT_KEPT, "text/plain; charset=utf-8")


@routes.get("/runs/{number}/report", Scope.JOBS_READ, media_type="text/html")
def show_report(call: Call, here: Here, number: RunNumber) -> Response:
    """Give the page that a run of `insights` wrote."""
    return Response(here.read_report(job_runs.show(call.store, number)), 200, _NOT_KEPT, "text/html; charset=utf-8")


@routes.get("/runs/{number}/plots", Scope.JOBS_READ, returns=Items)
def list_plots(call: Call, here: Here, number: RunNumber) -> Response:
    """List the plots of a run's report."""
    found = runs.plots_in(here.read_report(job_runs.show(call.store, number)))
    path = f"/api/v1/runs/{number}/plots"
    return answers.shown(
        {"items": [{"name": str(each), "path": f"{path}/{each}"} for each in range(1, len(found) + 1)]}
    )


@routes.get("/runs/{number}/plots/{plot}", Scope.JOBS_READ, media_type=_SVG)
def show_plot(call: Call, here: Here, number: RunNumber, plot: PlotNumber) -> Response:
    """Give one plot of a run's report as a picture."""
    found = runs.plots_in(here.read_report(job_runs.show(call.store, number)))
    if plot > len(found):
        raise NotFoundError(f"the report of run {number} has {len(found)} plots")
    return Response(found[plot - 1], 200, _NOT_KEPT, _SVG)


def _entry(name: str) -> JobEntry:
    if name not in CATALOGUE:
        raise NotFoundError(f"there is no job {shown(name)}: expected one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def _last(found: Summary | None) -> dict[str, object] | None:
    return None if found is None else plain(found.last)


def _text(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
