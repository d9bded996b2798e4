"""A run of a job, in the form in which the command line and the REST API show it, and the report that it wrote.

Knows no process and no Spark.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from iothub.base.errors import NotFoundError, UnavailableError

if TYPE_CHECKING:
    from iothub_tenants.accounts.job_runs import Run

_REPORT = "report"  # the figure that names a job's report
_REPORT_BYTES = 64 << 20
_PLOT = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_INK = "#68788c"  # of a picture alone, which has no page around it: readable on light and dark


def run_row(run: Run) -> dict[str, object]:
    """Return a run as scripts see it."""
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


def seconds_of(run: Run) -> float | None:
    return None if run.ended_ms is None else round((run.ended_ms - run.started_ms) / 1000, 1)


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
