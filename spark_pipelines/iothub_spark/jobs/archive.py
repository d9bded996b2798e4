"""The job `archive`: copies the events of both logs into Parquet files, and marks up to where, so that no trimming goes past it.

Knows the order of things: say what is gone already, mark, copy, count, move the mark. Killed anywhere, the next run writes the same batch anew.
"""

from __future__ import annotations

import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from iothub.base.errors import ConflictError, CorruptRecordError
from iothub.records.events import Topic
from iothub.records.job_spec import Spec
from iothub_spark import trimmed
from iothub_spark.planning import plan_copy
from iothub_spark.report import Figures, Report, watched
from iothub_spark.sinks.archive import write_batch
from iothub_spark.sources.events import read_events
from iothub_spark.stores.accounts import Accounts, Mark, opened_accounts
from iothub_spark.stores.archive import ARCHIVE, LOGS, batch_folder, note_gap, required
from iothub_spark.stores.log import LogRange, range_after
from iothub_spark.stores.opened import opened_log
from iothub_spark.transforms.archive import archived


def run(spark: SparkSession, spec: Spec, report: Report) -> Figures:
    """Copy what came since the last run. With `full`, go on where a log begins now, if events before that are gone for good."""
    required(spec.archive)
    figures: dict[str, int | float | str | bool] = {}
    with opened_accounts(spec.sql_url_file) as accounts:
        for topic, log in LOGS.items():
            mark, wanted = _wanted(spec, report, accounts, topic)
            if mark is None:
                figures |= _report_gap(spec, report, topic)
                mark = _begin(spec, accounts, wanted)
            figures |= {f"{log}_{name}": count for name, count in _archive(spark, spec, report, mark, wanted).items()}
            if not spec.is_dry_run:
                accounts.set_mark(ARCHIVE, log, wanted.upto, _now_ms())
    return figures


def _report_gap(spec: Spec, report: Report, topic: Topic) -> dict[str, str]:
    """Say, and remember for reports, which events were gone when a copy began."""
    with opened_log(spec.events) as log:
        before_ms = trimmed.before_ms(log, topic, _now_ms())
    if before_ms is None:
        return {}
    report.note(trimmed.describe(topic, before_ms))
    if not spec.is_dry_run:
        note_gap(required(spec.archive), LOGS[topic], before_ms)
    return {f"{LOGS[topic]}_missing_before": trimmed.moment(before_ms)}


def _begin(spec: Spec, accounts: Accounts, wanted: LogRange) -> Mark:
    """Set the mark of a copy that begins: should this run fail, the next one must find everything. It names the batch, in every attempt."""
    if spec.is_dry_run:
        return Mark(wanted.after, 0)
    return accounts.set_mark(ARCHIVE, LOGS[wanted.topic], wanted.after, _now_ms())


def _wanted(spec: Spec, report: Report, accounts: Accounts, topic: Topic) -> tuple[Mark | None, LogRange]:
    """Return what is to be copied, behind which mark; None: a copy begins. Raises ConflictError: events are missing that were not copied."""
    name = LOGS[topic]
    mark = accounts.mark(ARCHIVE, name)
    with opened_log(spec.events) as log:
        try:
            wanted = plan_copy(log, None if mark is None else mark.offsets, topic, name)
        except ConflictError as error:
            if not spec.is_full:
                raise
            report.note(f"the archive of {name} has a gap: {error.__cause__}")
            mark, wanted = None, range_after(log, None, topic)
    return mark, wanted


def _archive(spark: SparkSession, spec: Spec, report: Report, mark: Mark, wanted: LogRange) -> dict[str, int]:
    """Write one batch, and see that it is whole. Raises CorruptRecordError."""
    if not wanted.offsets:
        return {"events": 0, "damaged": 0}
    log = LOGS[wanted.topic]
    events = read_events(spark, spec, wanted).persist()
    with watched(spark, report, (f"read {log}", f"write {log}"), wanted.offsets):
        damaged = events.where(F.col("damage").isNotNull()).count()
        readable = events.count() - damaged
        if not spec.is_dry_run:
            folder = batch_folder(required(spec.archive), log, mark)
            write_batch(archived(events), folder)
            found = spark.read.parquet(str(folder)).count() if readable else 0
            if found != readable:
                raise CorruptRecordError(
                    f"{folder}: {readable} events were written, but {found} can be read back; run the job again"
                )
    events.unpersist()
    return {"events": readable, "damaged": damaged}


def _now_ms() -> int:
    return int(time.time() * 1000)
