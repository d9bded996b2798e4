"""`compact_events`: the current checkpoint, and what the log has behind it, become a new checkpoint.

Knows the order of the steps; each is elsewhere. Killed anywhere, the pointer names a whole version that was looked at: rows are written under a
version that nobody reads, then read back, then one compare-and-swap lets them count, and only then older ones go.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from iothub.base.errors import ConflictError
from iothub.records.checkpoint import Pointer, checkpoint_version
from iothub.records.job_spec import Spec
from iothub_spark import checking
from iothub_spark.planning import Plan, planned
from iothub_spark.report import Figures, Report, watched
from iothub_spark.retention import plan_removal, remove
from iothub_spark.sinks.checkpoint import write_checkpoint
from iothub_spark.sources.events import read_stored
from iothub_spark.sources.states import read_checkpoint, read_states
from iothub_spark.stores import marks
from iothub_spark.stores.log import Log, shown
from iothub_spark.stores.marks import Written
from iothub_spark.stores.opened import opened_checkpoints, opened_log
from iothub_spark.stores.rows import Checkpoints
from iothub_spark.transforms.fold import Bounds, fold_events


@dataclass(frozen=True, slots=True)
class _Run:
    """What every step needs."""

    spark: SparkSession
    spec: Spec
    report: Report
    log: Log
    checkpoints: Checkpoints

    @property
    def is_from_state(self) -> bool:
        return self.spec.options.get("from_state") is True


def run(spark: SparkSession, spec: Spec, report: Report) -> Figures:
    """Make a checkpoint; returns the figures of the run history.

    Raises:
        BackendError: A store does not answer.
        ConflictError: The log lacks events, or another run was faster.
        CorruptRecordError: A checkpoint is not what was written.
    """
    with opened_log(spec.events) as log, opened_checkpoints(spec.checkpoints) as checkpoints:
        job = _Run(spark, spec, report, log, checkpoints)
        plan = _plan(job)
        report.note(_describe(plan))
        if plan.is_done:
            return _nothing_new(job, plan)
        if spec.is_dry_run:
            return {"dry_run": True, **_read(plan)}
        pointer, written = _made(job, plan)
        rows, events = _removed(job, pointer)
        return {
            **_read(plan),
            "version": pointer.version,
            "rows": pointer.rows,
            "damaged": written.damaged,
            "rows_dropped": rows,
            "events_trimmed": events,
        }


def _plan(job: _Run) -> Plan:
    plan = planned(job.spec, job.log, job.checkpoints)
    if plan.base is not None and not plan.is_done and not job.spec.is_dry_run:
        checking.check_rows(job.spark, job.spec, plan.base)
    return plan


def _nothing_new(job: _Run, plan: Plan) -> Figures:
    """Finish what a run that was killed has left, and do nothing else."""
    figures = {**_read(plan), "version": plan.base.version if plan.base is not None else 0, "is_new": False}
    if job.spec.is_dry_run or plan.base is None:
        return {"dry_run": True, **figures}
    marks.keep(job.checkpoints, plan.base)
    rows, events = _removed(job, plan.base)
    return {**figures, "rows_dropped": rows, "events_trimmed": events}


def _removed(job: _Run, pointer: Pointer) -> tuple[int, int]:
    """Remove what nobody needs when this pointer counts, and say who needs the rest; returns (rows of checkpoints, events of the log)."""
    removal = plan_removal(job.spec, job.checkpoints, pointer)
    where = f"after offset {shown(removal.trim_upto)}" if removal.trim_upto else "whole"
    job.report.note(f"the log is kept {where}, needed by {removal.held_by}")
    return remove(job.spec, job.checkpoints, removal)


def _made(job: _Run, plan: Plan) -> tuple[Pointer, Written]:
    """Write, look at what was written, let it count."""
    at_ms = time.time_ns() // 1_000_000
    newest = 0 if plan.pointer is None else plan.pointer.version
    version = max(checkpoint_version(at_ms, job.spec.run_id), newest + 1)
    with watched(job.spark, job.report, ("read", "fold"), plan.wanted.offsets):
        write_checkpoint(job.spark, job.spec, _folded(job, plan), version)
    written = marks.written(job.checkpoints, version)
    if written is None:
        raise ConflictError(
            f"checkpoint {version} is discarded, because another run finished first and removed it; run the job again"
        )
    if written.damaged:
        job.report.note(f"{written.damaged} damaged records were passed over, such as: {'; '.join(written.examples)}")
    pointer = Pointer(version, plan.wanted.upto, written.rows, written.checksum, at_ms)
    with watched(job.spark, job.report, ("verify",), pointer.rows):
        picked = checking.check_rows(job.spark, job.spec, pointer, checking.SAMPLE)
    if not job.is_from_state:  # of states there is nothing to fold them again from
        checking.check_sample(job.log, job.checkpoints, plan, version, picked)
    _let_count(job, plan, pointer)
    return pointer, written


def _folded(job: _Run, plan: Plan) -> DataFrame:
    states = None
    if plan.base is not None:
        states = read_checkpoint(job.spark, job.spec, plan.base.version)
    if job.is_from_state:
        states = read_states(job.spark, job.spec)
    stored = read_stored(job.spark, job.spec, plan.wanted)
    bounds = Bounds(plan.begin, are_states_live=job.is_from_state)
    return fold_events(states, stored, bounds, job.spec.spark.shuffle_partitions)


def _let_count(job: _Run, plan: Plan, pointer: Pointer) -> None:
    marks.keep(job.checkpoints, pointer)
    marks.forget(job.checkpoints, _no_fallback(job, plan))  # first: killed behind the swap, nobody would do it
    if not job.checkpoints.move(plan.pointer, pointer):
        marks.forget(job.checkpoints, [pointer.version])
        raise ConflictError(
            f"checkpoint {pointer.version} is discarded, because another run has finished meanwhile; run the job again"
        )


def _no_fallback(job: _Run, plan: Plan) -> list[int]:
    """Return the versions from which nothing shall be made again: the one that is replaced is perhaps damaged, or all are of another log."""
    if plan.pointer is None or plan.base == plan.pointer:
        return []
    newest = plan.pointer.version
    older = [each.version for each in marks.kept(job.checkpoints) if each.version < newest]
    return [*older, newest] if job.is_from_state else [newest]


def _read(plan: Plan) -> dict[str, int | str | bool]:
    return {
        "from": shown(plan.wanted.after),
        "to": shown(plan.wanted.upto),
        "events": plan.wanted.offsets,
        "base_rows": 0 if plan.base is None else plan.base.rows,
    }


def _describe(plan: Plan) -> str:
    base = "nothing" if plan.base is None else f"checkpoint {plan.base.version} with {plan.base.rows} sessions"
    where = f"offset {shown(plan.wanted.after)} to {shown(plan.wanted.upto)}"
    return f"from {base} and {plan.wanted.offsets} offsets of the log, {where}"
