"""The Spark session of a run.

Knows settings, no job. A local master retries a task whose worker died; workers run this interpreter; nothing listens but on this machine.
"""

from __future__ import annotations

import os
import re
import sys

from pyspark.sql import SparkSession

from iothub_spark.spec import SparkSettings

_ATTEMPTS = 4  # of a task, as a cluster has it
_LOCAL = re.compile(r"local(?:\[([^,\]]+)\])?")


def start_session(settings: SparkSettings, name: str) -> SparkSession:
    """Start Spark, or return the session that spark-submit has started."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
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
    local = _LOCAL.fullmatch(settings.master)
    if local is not None:
        options |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # optimizing would cost more than it saves: events are folded by Python
        }
    master = f"local[{local[1] or 1},{_ATTEMPTS}]" if local is not None else settings.master
    builder = SparkSession.builder.appName(f"iothub {name}").master(master)
    for option, value in options.items():
        builder = builder.config(option, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
