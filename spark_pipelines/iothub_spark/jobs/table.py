"""Which module runs which job: one for each name of `iothub.records.job_catalogue`.

Knows only names.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from iothub.records.job_spec import Spec
from iothub_spark.jobs import archive, compact_events, erase, insights, usage, verify
from iothub_spark.report import Figures, Report

Job = Callable[[SparkSession, Spec, Report], Figures]

JOBS: dict[str, Job] = {
    "compact_events": compact_events.run,
    "verify": verify.run,
    "usage": usage.run,
    "archive": archive.run,
    "insights": insights.run,
    "erase": erase.run,
}
