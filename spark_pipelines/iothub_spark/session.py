"""The Spark session of a run.

Knows settings, no job. A local master retries a task whose worker died; workers run this interpreter; nothing listens but on this machine.
"""

from __future__ import annotations

import os
import re
import sys

from pyspark.sql import SparkSession

from iothub.records.job_spec import SparkSettings
from iothub_spark import daemon

_ATTEMPTS = 4  # of a task, as a cluster has it
_JAVA = "-XX:TieredStopAtLevel=1"  # optimizing costs more than it saves: Java moves and sorts events, Python folds them
_LOCAL = re.compile(r"local(?:\[([^,\]]+)\])?")


def start_session(settings: SparkSettings, name: str) -> SparkSession:
    """Start Spark, or return the session that spark-submit has started."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"iothub {name}").master(_master(settings))
    for option, value in session_options(settings).items():
        builder = builder.config(option, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def session_options(settings: SparkSettings) -> dict[str, str]:
    """Return the settings of Spark."""
    options = {
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",  # a fold's partitions are as many as was said
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    }
    if settings.local_dir is not None:
        options["spark.local.dir"] = str(settings.local_dir)
    if _LOCAL.fullmatch(settings.master) is not None:
        options |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.python.daemon.module": daemon.NAME,
        }
    return options


def _master(settings: SparkSettings) -> str:
    local = _LOCAL.fullmatch(settings.master)
    return settings.master if local is None else f"local[{local[1] or 1},{_ATTEMPTS}]"
