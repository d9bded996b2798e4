"""Writes a batch of the archive, whole or not at all.

Knows no log and no mark.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

_ROWS_PER_FILE = 1_000_000


def write_batch(events: DataFrame, folder: Path) -> None:
    """Write `ARCHIVED` into a folder by tenant and day, in the place of what is there; Spark marks it as whole at the end.

    A tenant with most events is spread by the log's partitions; days are few.
    """
    spread = events.repartition("tenant_id", "day", "partition", (F.col("offset") / _ROWS_PER_FILE).cast("long"))
    ordered = spread.sortWithinPartitions("tenant_id", "day", "partition", "offset")
    writer = ordered.write.mode("overwrite").option("maxRecordsPerFile", _ROWS_PER_FILE)
    writer.partitionBy("tenant_id", "day").parquet(str(folder))


def write_usage(hours: DataFrame, folder: Path) -> None:
    """Write `USAGE_HOURS` with their day by tenant and day; days that are not among them stay."""
    writer = hours.repartition(1).write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy("tenant_id", "day").parquet(str(folder))
