"""The job `insights`: a page about every tenant, from the archive and from what the logs have beyond it.

Knows the order of things; what is found is `transforms.insights`'s, how it looks `reports.page`'s.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from iothub.records.events import Topic
from iothub.records.job_spec import Spec
from iothub_spark import trimmed
from iothub_spark.planning import plan_copy
from iothub_spark.report import Figures, Report
from iothub_spark.reports.findings import Cells, gathered
from iothub_spark.sources.archive import read_archive
from iothub_spark.sources.events import read_events
from iothub_spark.stores.accounts import Accounts, opened_accounts
from iothub_spark.stores.archive import ARCHIVE, LOGS, last_gap_ms, required, write_text
from iothub_spark.stores.opened import opened_log
from iothub_spark.transforms import insights

DAYS = 8  # seven whole ones, and today
_DEVICES = 10  # of each tenant


def run(spark: SparkSession, spec: Spec, report: Report) -> Figures:
    """Write `reports/insights-DAY.html` beside the archive's events."""
    from iothub_spark.reports.page import page  # the only job that draws

    now = datetime.fromtimestamp(time.time(), UTC)
    first = (now - timedelta(days=DAYS - 1)).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [(first + timedelta(days=number)).date().isoformat() for number in range(DAYS)]
    with opened_accounts(spec.sql_url_file) as accounts:
        names = accounts.tenants()
        gaps = _gaps(spec, accounts, now, first)
        sessions, statistics = [_events(spark, spec, accounts, topic, first) for topic in LOGS]
    lacking = [trimmed.describe(topic, before_ms) for topic, before_ms in gaps.items()]
    for text in lacking:
        report.note(f"{text}: the report's counts are too low")
    frames = {
        "churn": insights.churn(sessions),
        "disconnects": insights.disconnects(sessions),
        "refusals": insights.refusals(statistics),
        "devices": insights.noisy_devices(sessions, statistics, _DEVICES),
        "growth": insights.growth(statistics),
        "traffic": insights.traffic(statistics),
    }
    rows: dict[str, list[Cells]] = {}
    for number, (name, frame) in enumerate(frames.items(), 1):
        rows[name] = [row.asDict() for row in frame.collect()]
        report.stage("find", number, len(frames), "tables")
    findings = gathered(days, names, **rows)
    file = required(spec.archive) / "reports" / f"insights-{days[-1]}.html"
    write_text(file, page(findings, trimmed.moment(int(now.timestamp() * 1000)), lacking))
    report.note(f"wrote the report {file}")
    missing = {f"{LOGS[topic]}_missing_before": trimmed.moment(before_ms) for topic, before_ms in gaps.items()}
    return {"tenants": len(findings.tenants), "days": len(findings.days_with_events), "report": str(file), **missing}


def _gaps(spec: Spec, accounts: Accounts, now: datetime, first: datetime) -> dict[Topic, int]:
    """Return before which moment events of these days are gone that nobody has copied, for the logs that lack any."""
    found = {}
    for topic, name in LOGS.items():
        moments = [last_gap_ms(required(spec.archive), name)]
        if accounts.mark(ARCHIVE, name) is None:
            with opened_log(spec.events) as log:
                moments.append(trimmed.before_ms(log, topic, int(now.timestamp() * 1000)))
        before_ms = max((each for each in moments if each is not None), default=0)
        if before_ms > first.timestamp() * 1000:
            found[topic] = before_ms
    return found


def _events(spark: SparkSession, spec: Spec, accounts: Accounts, topic: Topic, first: datetime) -> DataFrame:
    """Return what the archive has of these days, and what the log has beyond it."""
    mark = accounts.mark(ARCHIVE, LOGS[topic])
    with opened_log(spec.events) as log:
        wanted = plan_copy(log, None if mark is None else mark.offsets, topic, LOGS[topic])
    live = read_events(spark, spec, wanted)
    kept = read_archive(spark, required(spec.archive), LOGS[topic], first.date().isoformat())
    return insights.since(kept.unionByName(live), int(first.timestamp() * 1000)).persist()
