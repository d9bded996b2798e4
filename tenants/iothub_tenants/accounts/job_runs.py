"""The runs of jobs: who runs now, what came of each run, and that two never run at the same time on one accounts database.

Knows no job and no process: whether the process of a run still lives is what the caller says, or what its beat shows.

    begin --> running --end--> done, failed, interrupted        running --bury (its process is gone)--> failed
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, func, insert, select, update

from iothub.base.errors import ConflictError, NotFoundError
from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import job_run as table

KEPT = 1000  # runs of each job
TEXT_LIMIT = 2000
FIGURES_LIMIT = 32 << 10  # bytes of JSON
DIED = "died"  # the kind of failure of a run whose process ended without a word

Json = dict[str, object]


class Result(StrEnum):
    """What came of a run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that looks after a run. `process`: equal for no other process, on any machine, at any time."""

    host: str
    pid: int
    process: str
    user: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `kind`: of a failure, as the job's process names it. Times: Unix milliseconds."""

    id: int
    job: str
    options: Json
    is_dry_run: bool
    owner: Owner
    beat: int
    started_ms: int
    ended_ms: int | None
    result: Result
    kind: str
    figures: Json
    text: str

    def who(self) -> str:
        """Return `compact_events is running since ... as process ... on ...`."""
        return f"{self.job} is running since {moment(self.started_ms)} as process {self.owner.pid} on {self.owner.host} (run {self.id})"


@dataclass(frozen=True, slots=True)
class Summary:
    """What there is to say of one job: its last run that has ended, if one has, and the last that did what it was asked. Dry runs do not count."""

    last: Run
    success: Run | None
    first_ms: int  # when it was tried for the first time, of what is remembered


@dataclass(frozen=True, slots=True)
class Overview:
    """What a hub shows: a summary of each job that ever ran, and what is under way."""

    summaries: Mapping[str, Summary]
    running: list[Run]


class RunningError(ConflictError):
    """Another run is under way."""

    def __init__(self, run: Run) -> None:
        super().__init__(
            f"{run.who()}; two runs never overlap: wait for it (--wait 1h), or look at `iothub job status`"
        )
        self.run = run


# --- the runner's side


def begin(
    store: AccountStore, job: str, options: Mapping[str, object], owner: Owner, is_gone: Callable[[Run], bool]
) -> Run:
    """Note that a run begins. Runs whose process `is_gone` have failed, which is noted as well.

    Raises:
        RunningError: Another one runs, whatever its job.
    """
    with store.write() as writer:
        for other in _runs(writer.connection, table.c.result == Result.RUNNING.value):
            if not is_gone(other):
                raise RunningError(other)
            _bury(writer, other)
        row = {"job": job, "options": json.dumps(dict(options)), "is_dry_run": options.get("dry_run") is True}
        row |= {"host": owner.host[:255], "pid": owner.pid, "process": owner.process, "started_by": owner.user[:64]}
        row |= {"beat": 0, "started_ms": writer.now_ms, "ended_ms": None, "result": Result.RUNNING.value}
        row |= {"kind": "", "figures": "{}", "text": ""}
        key = writer.connection.execute(insert(table).values(row)).inserted_primary_key
        assert key is not None  # noqa: S101  a single insert always has one
        _trim(writer.connection, job)
        return _runs(writer.connection, table.c.id == key[0])[0]


def beat(store: AccountStore, run_id: int) -> bool:
    """Show that the run lives; False: somebody has buried it, and another one may be running."""
    with store.write() as writer:
        values = {"beat": table.c.beat + 1}
        return writer.connection.execute(update(table).where(_is_running(run_id)).values(values)).rowcount == 1


def end(
    store: AccountStore, run_id: int, result: Result, *, kind: str = "", figures: Mapping[str, object], text: str = ""
) -> bool:
    """Note what came of the run; False: it was buried before, and that stands."""
    written = json.dumps(dict(figures), default=str)
    if len(written) > FIGURES_LIMIT:
        written = json.dumps({"left_out": f"{len(written)} bytes of figures, {FIGURES_LIMIT} are kept"})
    with store.write() as writer:
        values = {"ended_ms": writer.now_ms, "result": result.value, "kind": kind[:16]}
        values |= {"figures": written, "text": text[:TEXT_LIMIT]}
        return writer.connection.execute(update(table).where(_is_running(run_id)).values(values)).rowcount == 1


def bury(store: AccountStore, run: Run) -> bool:
    """Note that a run's process is gone, if it has not shown itself since `run` was read."""
    with store.write() as writer:
        return _bury(writer, run)


# --- everybody's


def running(store: AccountStore) -> list[Run]:
    """Return what runs now, or has died without a word."""
    with store.read() as connection:
        return _runs(connection, table.c.result == Result.RUNNING.value)


def history(store: AccountStore, job: str | None = None, limit: int = 20) -> list[Run]:
    """Return the runs of one job or of all, the newest first."""
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    if job is not None:
        query = query.where(table.c.job == job)
    with store.read() as connection:
        return [_run(row) for row in connection.execute(query).mappings()]


def show(store: AccountStore, run_id: int) -> Run:
    """Return one run. Raises NotFoundError."""
    with store.read() as connection:
        rows = _runs(connection, table.c.id == run_id)
    if not rows:
        raise NotFoundError(f"there is no run {run_id}; `iothub job history` shows those that are remembered")
    return rows[0]


def summaries(store: AccountStore) -> dict[str, Summary]:
    """Return what there is to say of each job that ever ran."""
    is_good = (table.c.result == Result.DONE.value) & table.c.is_dry_run.is_(False)
    with store.read() as connection:
        is_meant = table.c.is_dry_run.is_(False)
        last = _newest(connection, is_meant) | _newest(connection, is_meant & table.c.ended_ms.is_not(None))
        success = _newest(connection, is_good)
        first = select(table.c.job, func.min(table.c.started_ms).label("at")).group_by(table.c.job)
        begun = {row.job: int(row.at) for row in connection.execute(first)}
    return {job: Summary(run, success.get(job), begun[job]) for job, run in last.items()}


def overview(store: AccountStore) -> Overview:
    """Return what a hub shows."""
    return Overview(summaries(store), running(store))


def moment(at_ms: int) -> str:
    """Return a time as people read it, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# --- private


def _is_running(run_id: int) -> ColumnElement[bool]:
    return (table.c.id == run_id) & (table.c.result == Result.RUNNING.value)


def _bury(writer: Writer, run: Run) -> bool:
    text = f"its process {run.owner.pid} on {run.owner.host} ended without a word: killed, or the machine was"
    values = {"ended_ms": writer.now_ms, "result": Result.FAILED.value, "kind": DIED, "text": text}
    is_it = _is_running(run.id) & (table.c.beat == run.beat)
    return writer.connection.execute(update(table).where(is_it).values(values)).rowcount == 1


def _trim(connection: Connection, job: str) -> None:
    kept = select(table.c.id).where(table.c.job == job).order_by(table.c.id.desc()).offset(KEPT).limit(1)
    newest_of_the_rest = connection.execute(kept).scalar()
    if newest_of_the_rest is not None:
        connection.execute(delete(table).where(table.c.job == job, table.c.id <= newest_of_the_rest))


def _newest(connection: Connection, where: ColumnElement[bool]) -> dict[str, Run]:
    ids = select(func.max(table.c.id)).where(where).group_by(table.c.job)
    return {run.job: run for run in _runs(connection, table.c.id.in_(list(connection.execute(ids).scalars())))}


def _runs(connection: Connection, where: ColumnElement[bool]) -> list[Run]:
    rows = connection.execute(select(table).where(where).order_by(table.c.id)).mappings()
    return [_run(row) for row in rows]


def _run(row: RowMapping) -> Run:
    return Run(
        id=row["id"],
        job=row["job"],
        options=json.loads(row["options"]),
        is_dry_run=row["is_dry_run"],
        owner=Owner(row["host"], row["pid"], row["process"], row["started_by"]),
        beat=row["beat"],
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        result=Result(row["result"]),
        kind=row["kind"],
        figures=json.loads(row["figures"]),
        text=row["text"],
    )
