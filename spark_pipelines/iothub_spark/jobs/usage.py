"""The job `usage`: adds up what each tenant used, by the hour, into the table `usage_hour` and into the archive.

Knows the order of things; the sums are `transforms.usage`'s. Run again over the same log it writes the same rows.

Theory: every run reads what the log still has, and hours only grow. Its mark keeps the log from being trimmed before it was added up; it stays below
the hours that may still grow, and one hour below those, for an hour counts as whole only when the log has something from before it; where that
hour has nothing, because the hub stood still, below the last event before them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from iothub.records.events import Topic
from iothub_spark.report import Figures, Report, watched
from iothub_spark.schemas.statistics import USAGE_HOURS
from iothub_spark.sinks.archive import write_usage
from iothub_spark.sources.events import read_events
from iothub_spark.spec import Spec
from iothub_spark.stores.accounts import Accounts, opened_accounts
from iothub_spark.stores.log import LogRange, Offsets, range_after
from iothub_spark.stores.opened import opened_log
from iothub_spark.transforms import usage

JOB, LOG = "usage", "analytics"
_DAY_MS = 86_400_000
_OPEN_HOURS = 2  # beside the one that has begun: workers write late when the log is away, and see above


def run(spark: SparkSession, spec: Spec, report: Report) -> Figures:
    """Add up the whole log for statistics: what it still has is what can have changed."""
    with opened_log(spec.events) as log:
        wanted = range_after(log, None, Topic.ANALYTICS)
        trimmed = [part for part, offset in enumerate(log.begin(Topic.ANALYTICS)) if offset > 1]
    _hold(spec, wanted)
    events = read_events(spark, spec, wanted).persist()
    with watched(spark, report, ("read", "add up"), wanted.offsets):
        hours = usage.whole_hours(usage.usage_hours(events), events, trimmed)
        rows = [row.asDict() for row in hours.collect()]
    missing, damaged = usage.missing_records(events), events.where(F.col("damage").isNotNull()).count()
    if missing:
        report.note(f"{missing} records of workers are not in the log: usage may be short by so many minutes")
    begun_ms, written = usage.begun_ms(events, trimmed), 0
    if not spec.is_dry_run:
        with opened_accounts(spec.sql_url_file) as accounts:
            _note_gap(report, accounts.last_written_ms(), begun_ms)
            written = accounts.replace_hours(rows, _now_ms())
            _copy(spark, spec, accounts, {row["hour_ms"] // _DAY_MS for row in rows})
            accounts.set_mark(JOB, LOG, _settled(events, wanted), _now_ms())
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
    from_ms = now_ms - now_ms % usage.HOUR_MS - _OPEN_HOURS * usage.HOUR_MS
    open_ms, until_ms = from_ms + usage.HOUR_MS, now_ms + _DAY_MS
    first = usage.first_offsets(events, from_ms, until_ms)
    before = usage.last_offsets(events, open_ms, usage.first_offsets(events, open_ms, until_ms))
    return tuple(min(each.get(part, upto + 1) for each in (first, before)) - 1 for part, upto in enumerate(wanted.upto))


def _note_gap(report: Report, last_ms: int | None, begun_ms: int | None) -> None:
    """Say so when the log does not reach back to the last sums: what came between may be in none."""
    if last_ms is not None and begun_ms is not None and begun_ms > last_ms:
        last, begun = (f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M} UTC" for at in (last_ms, begun_ms))
        report.note(
            f"sums were written last at {last}, the log has events since {begun}: what was trimmed between is in no sum; "
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
