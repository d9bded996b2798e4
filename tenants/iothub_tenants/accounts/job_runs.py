"""The runs of jobs: who runs now, what came of each run, and that two never run at the same time on one accounts database.

Knows no job and no process.

Theory: the row of a run is also its lease. Its owner writes a heartbeat every few seconds; a lease whose last heartbeat is `LEASE_S` old has
expired, for good: it is not renewed, nothing is written of its end, and everybody reads the run as `died`. So nobody has to look for a process,
and there is nothing to repair after a crash. Heartbeats are of the clock of the database server (with SQLite: of this machine), because clocks of
machines differ.

    begin --> running --end--> done, failed, interrupted        running --no heartbeat for LEASE_S--> died
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, RowMapping, delete, func, insert, not_, select, update

from iothub.base.errors import ConflictError, NotFoundError
from iothub_tenants.accounts.servers import clock_of
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import job_run as table

KEPT = 1000  # runs of each job
LEASE_S = 60.0  # longer than a database is busy, or a machine holds its breath
TEXT_LIMIT = 2000
FIGURES_LIMIT = 32 << 10  # bytes of JSON
DIED = "died"  # the kind of failure of a run whose process ended without a word

Json = dict[str, object]


class Result(StrEnum):
    """What came of a run. `died` is never stored: it is a running one whose lease has expired."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DIED = DIED


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that looks after a run, for people: where to look for it."""

    host: str
    pid: int
    user: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `kind`: of a failure, as the job's process names it. `ended_ms` of one that died: its last heartbeat. Times: Unix milliseconds."""

    id: int
    job: str
    options: Json
    is_dry_run: bool
    owner: Owner
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
            f"{run.who()}; two runs never overlap: wait for it (--wait 1h), or look at `iothub job status`; "
            f"if it was killed, another one may run {LEASE_S:.0f} s after its last heartbeat"
        )
        self.run = run


# --- the runner's side


def begin(store: AccountStore, job: str, options: Mapping[str, object], owner: Owner) -> Run:
    """Note that a run begins; it has the lease.

    Raises:
        RunningError: Another one has it, whatever its job.
    """
    with store.write() as writer:
        now_ms = _now_ms(store, writer.connection)
        for other in _runs(writer.connection, _has_lease(now_ms), now_ms):
            raise RunningError(other)
        row = {"job": job, "options": json.dumps(dict(options)), "is_dry_run": options.get("dry_run") is True}
        row |= {"host": owner.host[:255], "pid": owner.pid, "started_by": owner.user[:64], "heartbeat_ms": now_ms}
        row |= {"started_ms": writer.now_ms, "ended_ms": None, "result": Result.RUNNING.value}
        row |= {"kind": "", "figures": "{}", "text": ""}
        key = writer.connection.execute(insert(table).values(row)).inserted_primary_key
        assert key is not None  # noqa: S101  a single insert always has one
        _trim(writer.connection, job)
        if not row["is_dry_run"]:
            writer.noted(0, ChangeKind.JOB, f"{job}:{key[0]}", "started")
        return _runs(writer.connection, table.c.id == key[0], now_ms)[0]


def renew(store: AccountStore, run_id: int) -> bool:
    """Write a heartbeat; False: the lease has expired, and another run may have it."""
    with store.write() as writer:
        now_ms = _now_ms(store, writer.connection)
        is_ours = _has_lease(now_ms) & (table.c.id == run_id)
        return writer.connection.execute(update(table).where(is_ours).values(heartbeat_ms=now_ms)).rowcount == 1


def end(
    store: AccountStore, run_id: int, result: Result, *, kind: str = "", figures: Mapping[str, object], text: str = ""
) -> bool:
    """Note what came of the run, which gives the lease back; False: it had expired, and the run stays `died`."""
    written = json.dumps(dict(figures), default=str)
    if len(written) > FIGURES_LIMIT:
        written = json.dumps({"left_out": f"{len(written)} bytes of figures, {FIGURES_LIMIT} are kept"})
    with store.write() as writer:
        is_ours = _has_lease(_now_ms(store, writer.connection)) & (table.c.id == run_id)
        values = {"ended_ms": writer.now_ms, "result": result.value, "kind": kind[:16]}
        values |= {"figures": written, "text": text[:TEXT_LIMIT]}
        is_noted = writer.connection.execute(update(table).where(is_ours).values(values)).rowcount == 1
        run = writer.connection.execute(select(table.c.job, table.c.is_dry_run).where(table.c.id == run_id)).first()
        if is_noted and run is not None and not run.is_dry_run:
            action = "succeeded" if result is Result.DONE else "failed"
            writer.noted(0, ChangeKind.JOB, f"{run.job}:{run_id}", action)
        return is_noted


# --- everybody's


def running(store: AccountStore) -> list[Run]:
    """Return what has the lease now: one run, or none."""
    with store.read() as connection:
        now_ms = _now_ms(store, connection)
        return _runs(connection, _has_lease(now_ms), now_ms)


def history(store: AccountStore, job: str | None = None, limit: int = 20) -> list[Run]:
    """Return the runs of one job or of all, the newest first."""
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    if job is not None:
        query = query.where(table.c.job == job)
    with store.read() as connection:
        now_ms = _now_ms(store, connection)
        return [_run(row, now_ms) for row in connection.execute(query).mappings()]


def show(store: AccountStore, run_id: int) -> Run:
    """Return one run. Raises NotFoundError."""
    with store.read() as connection:
        rows = _runs(connection, table.c.id == run_id, _now_ms(store, connection))
    if not rows:
        raise NotFoundError(f"there is no run {run_id}; `iothub job history` shows those that are remembered")
    return rows[0]


def summaries(store: AccountStore) -> dict[str, Summary]:
    """Return what there is to say of each job that ever ran."""
    is_meant = table.c.is_dry_run.is_(False)
    with store.read() as connection:
        now_ms = _now_ms(store, connection)
        is_over = not_(_has_lease(now_ms))
        last = _newest(connection, is_meant, now_ms) | _newest(connection, is_meant & is_over, now_ms)
        success = _newest(connection, is_meant & (table.c.result == Result.DONE.value), now_ms)
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


def _now_ms(store: AccountStore, connection: Connection) -> int:
    """Return the time by which leases expire."""
    if not store.is_on_server:
        return store.now_ms()
    return int(connection.execute(clock_of(store.engine)).scalar_one())


def _has_lease(now_ms: int) -> ColumnElement[bool]:
    is_fresh = table.c.heartbeat_ms > now_ms - int(LEASE_S * 1000)
    return (table.c.result == Result.RUNNING.value) & is_fresh


def _trim(connection: Connection, job: str) -> None:
    kept = select(table.c.id).where(table.c.job == job).order_by(table.c.id.desc()).offset(KEPT).limit(1)
    newest_of_the_rest = connection.execute(kept).scalar()
    if newest_of_the_rest is not None:
        connection.execute(delete(table).where(table.c.job == job, table.c.id <= newest_of_the_rest))


def _newest(connection: Connection, where: ColumnElement[bool], now_ms: int) -> dict[str, Run]:
    ids = select(func.max(table.c.id)).where(where).group_by(table.c.job)
    newest = table.c.id.in_(list(connection.execute(ids).scalars()))
    return {run.job: run for run in _runs(connection, newest, now_ms)}


def _runs(connection: Connection, where: ColumnElement[bool], now_ms: int) -> list[Run]:
    rows = connection.execute(select(table).where(where).order_by(table.c.id)).mappings()
    return [_run(row, now_ms) for row in rows]


def _run(row: RowMapping, now_ms: int) -> Run:
    result, kind, text, ended_ms = Result(row["result"]), row["kind"], row["text"], row["ended_ms"]
    if result is Result.RUNNING and now_ms - row["heartbeat_ms"] >= LEASE_S * 1000:
        result, kind, ended_ms = Result.DIED, DIED, row["heartbeat_ms"]
        text = f"no heartbeat since {moment(ended_ms)}: process {row['pid']} on {row['host']} was killed, or the machine stopped"
    return Run(
        id=row["id"],
        job=row["job"],
        options=json.loads(row["options"]),
        is_dry_run=row["is_dry_run"],
        owner=Owner(row["host"], row["pid"], row["started_by"]),
        started_ms=row["started_ms"],
        ended_ms=ended_ms,
        result=result,
        kind=kind,
        figures=json.loads(row["figures"]),
        text=text,
    )
