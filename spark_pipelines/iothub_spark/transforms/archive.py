"""Events as the archive keeps them.

Knows no folder.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from iothub_spark.schemas.events import EVENTS
from iothub_spark.schemas.statistics import ARCHIVED


def archived(events: DataFrame) -> DataFrame:
    """events: `EVENTS`. Returns `ARCHIVED`: those that can be read, each with its day (UTC)."""
    day = F.to_date(F.timestamp_millis("at_ms")).alias("day")
    places = [F.col(name).cast("long") for name in ("partition", "offset")]
    return events.where(F.col("damage").isNull()).select(*places, *ARCHIVED.names[2:-1], day)


def as_events(archive: DataFrame) -> DataFrame:
    """Take what `archived` made back to `EVENTS`."""
    columns = [F.col(name).cast(EVENTS[name].dataType).alias(name) for name in EVENTS.names[:-1]]
    return archive.select(*columns, F.lit(None).cast("string").alias("damage"))
