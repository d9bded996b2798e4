"""The archive as a frame of events.

Knows folders, not what an event means.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, LongType, StructField, StructType

from iothub_spark.schemas.events import EVENTS
from iothub_spark.schemas.statistics import ARCHIVED
from iothub_spark.stores.archive import whole_batches
from iothub_spark.transforms.archive import as_events

_IN_FILES = StructType([*[field for field in ARCHIVED if field.name not in ("tenant_id", "day")]])
_WITH_FOLDERS = StructType([*_IN_FILES, StructField("tenant_id", LongType()), StructField("day", DateType())])


def read_archive(spark: SparkSession, archive: Path, log: str, from_day: str = "") -> DataFrame:
    """Return the events of whole batches: columns `EVENTS`. `from_day`: YYYY-MM-DD, UTC; folders of earlier days are not opened."""
    frames = [_batch(spark, folder, from_day) for folder in whole_batches(archive, log)]
    found = spark.createDataFrame([], EVENTS)
    for frame in frames:
        found = found.unionByName(frame)
    return found


def _batch(spark: SparkSession, folder: Path, from_day: str) -> DataFrame:
    frame = spark.read.schema(_WITH_FOLDERS).parquet(str(folder))
    return as_events(frame.where(frame["day"] >= from_day) if from_day else frame)
