"""The jobs: each reads, transforms and writes. `JOBS` has one for each name of `iothub_spark.catalogue`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from iothub_spark.report import Figures, Report
from iothub_spark.spec import Spec

Job = Callable[[SparkSession, Spec, Report], Figures]

JOBS: dict[str, Job] = {}
