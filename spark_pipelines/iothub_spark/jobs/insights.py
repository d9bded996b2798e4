"""The job `insights`: a page about every tenant, from the archive and from what the logs have beyond it.

Knows the order of things; what is found is `transforms.insights`'s, how it looks `reports.page`'s.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from iothub.errors import BackendError
from iothub.records.events import Topic
from iothub_spark.jobs.archive import JOB as ARCHIVE
from iothub_spark.report import Figures, Report
from iothub_spark.reports.findings import Cells, gathered
from iothub_spark.sources.archive import read_archive
from iothub_spark.sources.events import read_events
from iothub_spark.spec import Spec
from iothub_spark.stores.accounts import Accounts, opened_accounts
from iothub_spark.stores.archive import LOGS, required
from iothub_spark.stores.log import range_after
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
        sessions, statistics = [_events(spark, spec, accounts, topic, first) for topic in LOGS]
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
    _write(file, page(findings, now.strftime("%Y-%m-%d %H:%M UTC")))
    report.note(f"the report is {file}")
    return {"tenants": len(findings.tenants), "days": DAYS, "report": str(file)}


def _events(spark: SparkSession, spec: Spec, accounts: Accounts, topic: Topic, first: datetime) -> DataFrame:
    """Return what the archive has of these days, and what the log has beyond it."""
    mark = accounts.mark(ARCHIVE, LOGS[topic])
    with opened_log(spec.events) as log:
        wanted = range_after(log, None if mark is None else mark.offsets, topic)
    live = read_events(spark, spec, wanted)
    kept = read_archive(spark, required(spec.archive), LOGS[topic], first.date().isoformat())
    return insights.since(kept.unionByName(live), int(first.timestamp() * 1000)).persist()


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    fresh = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, file)
    except OSError as error:
        raise BackendError(f"{file}: cannot be written: {error.strerror}", retryable=True) from error
