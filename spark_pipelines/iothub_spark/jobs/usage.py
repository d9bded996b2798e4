"""The job `usage`: adds up what each tenant used, by the hour, into the table `usage_hour` and into the archive.

Knows the order of things; the sums are `transforms.usage`'s.

Theory: hours only grow. A run reads what is behind its mark, which is below all hours that may still grow, so it makes those from all of their
records and leaves the others as they are; where nothing is new it does nothing. Should something come for an hour that is older, such as from a
hub that could not write for long, the whole log is read. The mark keeps the log from being trimmed before it was added up; it stays below
the hours that may still grow, and one hour below those, for an hour counts as whole only when the log has something from before it; where that
hour has nothing, because the hub stood still, below the last event before them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from iothub.records.events import Topic
from iothub.records.job_catalogue import USAGE, USAGE_SEEN
from iothub.records.job_spec import KafkaLog, Spec
from iothub_spark.planning import UsagePlan, plan_usage
from iothub_spark.report import Figures, Report, watched
from iothub_spark.schemas.statistics import USAGE_HOURS
from iothub_spark.sinks.archive import write_usage
from iothub_spark.sources.events import read_events
from iothub_spark.stores.accounts import Accounts, Mark, opened_accounts
from iothub_spark.stores.log import LogRange, Offsets, range_after
from iothub_spark.stores.opened import opened_log
from iothub_spark.transforms import usage

JOB, LOG = USAGE, "analytics"
_DAY_MS = 86_400_000
_OPEN_HOURS = 2  # beside the one that has begun: workers write late when the log is away, and see above


def run(spark: SparkSession, spec: Spec, report: Report) -> Figures:
    """Add up what can have changed since the last run."""
    with opened_accounts(spec.sql_url_file) as accounts:
        held, seen = (accounts.mark(JOB, log) for log in (LOG, USAGE_SEEN))
    with opened_log(spec.events) as log:
        places = (None if mark is None else mark.offsets for mark in (held, seen))
        plan = plan_usage(log, *places, is_full=spec.is_full)
    if held is not None and plan.is_done:
        return _nothing_new(spec, report, held)
    if seen is not None and plan.seen is not None:
        if (events := _new_events(spark, spec, report, plan, seen)) is not None:
            return _add_up(spark, spec, report, plan, events, _last_run(spec, plan, seen))
        plan = UsagePlan(replace(plan.wanted, after=_begin(spec)))
    _hold(spec, plan.wanted)
    events = read_events(spark, spec, plan.wanted).persist()
    return _add_up(spark, spec, report, plan, events, _last_run(spec, plan, seen))


def _nothing_new(spec: Spec, report: Report, held: Mark) -> Figures:
    """Say that the mark is no forgotten one."""
    report.note("nothing new since the last run")
    if not spec.is_dry_run:
        with opened_accounts(spec.sql_url_file) as accounts:
            accounts.set_mark(JOB, LOG, held.offsets, _now_ms())
    figures = dict.fromkeys(("events", "hours", "rows_written", "damaged", "missing_records"), 0)
    return {**figures, **usage.totals([])}


def _new_events(spark: SparkSession, spec: Spec, report: Report, plan: UsagePlan, seen: Mark) -> DataFrame | None:
    """Return what is behind the mark; None: it is not enough."""
    events = read_events(spark, spec, plan.wanted).persist()
    if not usage.reaches_back(events, _trimmed(plan), seen.offsets, seen.at_ms, _last_run(spec, plan, seen)):
        return events
    report.note("events of older hours have arrived: reading the whole log")
    events.unpersist()
    return None


def _begin(spec: Spec) -> Offsets:
    with opened_log(spec.events) as log:
        return range_after(log, None, Topic.ANALYTICS).after


def _trimmed(plan: UsagePlan) -> list[int]:
    """Return the partitions of which not everything is read that ever was there."""
    return [part for part, offset in enumerate(plan.wanted.after) if offset > 0]


def _last_run(spec: Spec, plan: UsagePlan, seen: Mark | None) -> usage.LastRun | None:
    """Return what the last run knows of where partitions begin.

    Kafka removes by age, and may empty the partition of a tenant that is silent: its next event is no beginning of the others' hours.
    """
    if seen is None or not isinstance(spec.events, KafkaLog):
        return None
    known = [
        part for part, (after, upto) in enumerate(zip(plan.wanted.after, seen.offsets, strict=False)) if after <= upto
    ]
    return usage.LastRun(known, _open_ms(seen.at_ms) - 1)


def _open_ms(now_ms: int) -> int:
    """Return the time below which a run lets go of the log."""
    return now_ms - now_ms % usage.HOUR_MS - _OPEN_HOURS * usage.HOUR_MS


def _add_up(
    spark: SparkSession, spec: Spec, report: Report, plan: UsagePlan, events: DataFrame, last: usage.LastRun | None
) -> Figures:
    """Write the hours of which these events are the whole."""
    wanted, trimmed = plan.wanted, _trimmed(plan)
    with watched(spark, report, ("read", "add up"), wanted.offsets):
        hours = usage.whole_hours(usage.usage_hours(events), events, trimmed, last)
        rows = [row.asDict() for row in hours.collect()]
    missing, damaged = usage.missing_records(events, plan.seen), usage.damaged(events, plan.seen)
    if missing:
        report.note(f"{missing} usage records are not in the log: usage may lack up to that many minutes")
    begun_ms, written = usage.begun_ms(events, trimmed, last), 0
    if not spec.is_dry_run:
        with opened_accounts(spec.sql_url_file) as accounts:
            if plan.seen is None:
                _note_gap(report, accounts.last_written_ms(), begun_ms)
            written = accounts.replace_hours(rows, _now_ms())
            _copy(spark, spec, accounts, {row["hour_ms"] // _DAY_MS for row in rows})
            accounts.set_mark(JOB, LOG, _settled(events, wanted), _now_ms())
            accounts.set_mark(JOB, USAGE_SEEN, wanted.upto, _now_ms())
    events.unpersist()
    figures = {"events": wanted.offsets, "hours": len(rows), "rows_written": written, "damaged": damaged}
    return {**figures, "missing_records": missing, **usage.totals(rows)}


def _hold(spec: Spec, wanted: LogRange) -> None:
    """Keep the log from the first run on: should it fail, the next one must find everything."""
    if spec.is_dry_run:
        return
    with opened_accounts(spec.sql_url_file) as accounts:
        if accounts.mark(JOB, LOG) is None:
            accounts.set_mark(JOB, LOG, wanted.after, _now_ms())


def _settled(events: DataFrame, wanted: LogRange) -> Offsets:
    """Return up to where no event is of an hour that may still grow, or shows that such an hour is whole.

    One of a clock that is far ahead holds nothing.
    """
    now_ms = _now_ms()
    from_ms = _open_ms(now_ms)
    open_ms, until_ms = from_ms + usage.HOUR_MS, now_ms + _DAY_MS
    first = usage.first_offsets(events, from_ms, until_ms)
    before = usage.last_offsets(events, open_ms, usage.first_offsets(events, open_ms, until_ms))
    return tuple(min(each.get(part, upto + 1) for each in (first, before)) - 1 for part, upto in enumerate(wanted.upto))


def _note_gap(report: Report, last_ms: int | None, begun_ms: int | None) -> None:
    """Say so when the log does not reach back to the last sums: what came between may be in none."""
    if last_ms is not None and begun_ms is not None and begun_ms > last_ms:
        last, begun = (f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M} UTC" for at in (last_ms, begun_ms))
        report.note(
            f"usage between {last} (last sums) and {begun} (begin of the log) is missing, because the events were trimmed; "
            "run usage more often than events are trimmed"
        )


def _now_ms() -> int:
    return int(time.time() * 1000)


def _copy(spark: SparkSession, spec: Spec, accounts: Accounts, days: Iterable[int]) -> None:
    """Write whole days from the table into the archive."""
    if spec.archive is None:
        return
    rows = [row for day in days for row in accounts.hours(day * _DAY_MS, (day + 1) * _DAY_MS)]
    if rows:
        day = F.to_date(F.timestamp_millis("hour_ms")).alias("day")
        frame = spark.createDataFrame([tuple(row[name] for name in USAGE_HOURS.names) for row in rows], USAGE_HOURS)
        write_usage(frame.select(*USAGE_HOURS.names, day), spec.archive / "usage")
