"""A run of a job, in the form in which the command line and the REST API show it, and the report that it wrote.

Knows no process and no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from iothub.base.errors import NotFoundError, UnavailableError
from iothub.config.sections import Jobs
from iothub.jobs import timetable
from iothub.jobs.places import Places
from iothub.records.admin_commands import Shown
from iothub.records.job_catalogue import CATALOGUE

if TYPE_CHECKING:
    from iothub_tenants.accounts.job_runs import Run, Summary
    from iothub_tenants.accounts.store import AccountStore


class StartRun(Protocol):
    """Starts a job in a process of its own."""

    def __call__(
        self, store: AccountStore, job: str, /, *, is_full: bool, is_dry_run: bool, options: Sequence[str]
    ) -> Run: ...


class Asked(NamedTuple):
    """What a run is to do. `options`: NAME=VALUE."""

    is_full: bool
    is_dry_run: bool
    options: Sequence[str]


_REPORT = "report"  # the figure that names a job's report
_REPORT_BYTES = 64 << 20
_PLOT = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_INK = "#68788c"  # of a picture alone, which has no page around it: readable on light and dark


def run_row(run: Run | Shown) -> dict[str, object]:
    """Return a run as scripts see it."""
    if isinstance(run, Shown):
        return run
    from iothub_tenants.accounts.job_runs import moment

    return {
        "run": run.id,
        "job": run.job,
        "result": run.result.value,
        "kind": run.kind or None,
        "started": moment(run.started_ms),
        "ended": None if run.ended_ms is None else moment(run.ended_ms),
        "seconds": seconds_of(run),
        "options": run.options,
        "by": run.owner.user,
        "host": run.owner.host,
        "pid": run.owner.pid,
        "figures": run.figures,
        "text": run.text,
    }


def jobs(_store: AccountStore | None, nightly: tuple[str, ...]) -> list[dict[str, object]]:
    """Return all jobs with the names of their options."""
    return [
        {
            "name": entry.name,
            "nightly": entry.name in nightly,
            "options": [option.name for option in entry.options],
            "what": entry.sentence,
        }
        for entry in CATALOGUE.values()
    ]


def states(store: AccountStore, settings: Jobs, now_s: float) -> list[dict[str, object]]:
    """Return for each job whether it runs, the result of its last run, and when it last succeeded."""
    from iothub_tenants.accounts import job_runs

    found = job_runs.summaries(store)
    under_way = {each.job: each for each in job_runs.running(store)}
    return [_state(name, found.get(name), under_way.get(name), settings, now_s) for name in CATALOGUE]


def _state(name: str, summary: Summary | None, running: Run | None, settings: Jobs, now_s: float) -> dict[str, object]:
    from iothub_tenants.accounts.job_runs import moment

    last = running or (summary.last if summary else None)
    success = summary.success if summary else None
    at = settings.at if name in settings.nightly else None
    return {
        "name": name,
        "state": last.result.value if last else "never run",
        "run": last.id if last else None,
        "started": moment(last.started_ms) if last else None,
        "host": last.owner.host if last else None,
        "pid": running.owner.pid if running else None,
        "last_success": moment(success.ended_ms or success.started_ms) if success else None,
        "seconds": seconds_of(success) if success else None,
        "next": None if at is None else moment(timetable.next_at(at, now_s) * 1000),
    }


def start(store: AccountStore, run: StartRun, job: str, given: Asked) -> Run:
    """Start a job by `run`, in a process that outlives the caller. Raises as it does."""
    from iothub_tenants.accounts import audit

    begun = run(store, job, is_full=given.is_full, is_dry_run=given.is_dry_run, options=given.options)
    audit.note(store, "", "job", job, {"done": "started", "run": begun.id, "options": begun.options})
    return begun


def seconds_of(run: Run) -> float | None:
    return None if run.ended_ms is None else round((run.ended_ms - run.started_ms) / 1000, 1)


def cancel(store: AccountStore, run_id: int) -> Run:
    """Ask a run of this machine to stop, and return it. Raises NotFoundError, ConflictError, DeniedError."""
    from iothub.jobs import control  # with the accounts' library, which `run_row` does without
    from iothub_tenants.accounts import job_runs

    found = job_runs.show(store, run_id)
    control.cancel_run(found)
    return found


def read_log(store: AccountStore, places: Places, run_id: int) -> bytes:
    """Return the log of a run. Raises NotFoundError: there is no such run, or its log is gone or elsewhere."""
    from iothub_tenants.accounts import job_runs

    job_runs.show(store, run_id)
    return places.read_log(run_id)


def read_report(run: Run, archive: Path) -> str:
    """Return the page that a run wrote. Raises NotFoundError: it wrote none, or it is elsewhere; UnavailableError."""
    given = run.figures.get(_REPORT)
    if not isinstance(given, str):
        raise NotFoundError(f"run {run.id} of the job {run.job} wrote no report")
    file = archive / "reports" / Path(given).name  # whatever the figure says: no other folder is read
    try:
        if file.stat().st_size > _REPORT_BYTES:
            raise UnavailableError(f"the report of run {run.id} is too large to be sent: read {file}")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFoundError(
            f"the report of run {run.id} is not there any more, or on another machine: {file}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"the report of run {run.id} cannot be read: {error}") from None


def plots_in(report: str) -> list[str]:
    """Return the plots of a report as SVG pictures, in their order."""
    return [_alone(found) for found in _PLOT.findall(report)]


def _alone(svg: str) -> str:
    """Return a picture that needs no page: with its name space, and a colour in place of the page's."""
    head, bracket, rest = svg.partition(">")
    if "xmlns=" not in head:
        head += ' xmlns="http://www.w3.org/2000/svg"'
    return (head + bracket + rest).replace("currentColor", _INK)
