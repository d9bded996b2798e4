"""From the events for statistics to usage by tenant and hour.

Knows no log and no table. Every function takes and returns frames.

Theory: a worker may write an event twice, under the same number; (incarnation, sequence) tells, so it is taken once. Whole numbers are added, so
the order does not matter and the same events give the same sums. An event belongs to the hour in which its period began.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql.types import StructType

from iothub.records.analytics import USAGE_FACTS
from iothub.records.events import EventType
from iothub_spark.schemas.statistics import SAMPLE, USAGE, USAGE_HOURS

HOUR_MS = 3_600_000
_BY = ["tenant_id", "hour_ms"]


def usage_hours(events: DataFrame) -> DataFrame:
    """events: `EVENTS` of the log for statistics. Returns `USAGE_HOURS`, no order."""
    counted = counted_by_hour(of_type(events, EventType.USAGE_COUNTED, USAGE))
    stored = stored_by_hour(of_type(events, EventType.TENANT_SAMPLED, SAMPLE))
    both = counted.join(stored, on=_BY, how="full")
    return both.select(*_BY, *[_or_zero(name) for name in USAGE_HOURS.names[2:]])


def of_type(events: DataFrame, kind: EventType, facts: StructType) -> DataFrame:
    """Return the events of one type with their facts as columns, each once."""
    is_it = (F.col("type") == kind.word) & F.col("damage").isNull()
    taken_apart = events.where(is_it).select("tenant_id", "at_ms", F.from_json("facts", facts).alias("fact"))
    named = taken_apart.select("tenant_id", "at_ms", "fact.*").where(F.col("sequence").isNotNull())
    return named.dropDuplicates(["incarnation", "sequence"])  # a second attempt of a worker has the same number


def counted_by_hour(counted: DataFrame) -> DataFrame:
    hours = counted.select("tenant_id", _hour(), *USAGE_FACTS)
    return hours.groupBy(*_BY).agg(*[F.sum(name).alias(name) for name in USAGE_FACTS])


def stored_by_hour(sampled: DataFrame) -> DataFrame:
    """What was stored at the end of a period was stored all through it: bytes times seconds."""
    lasted_ms = F.greatest(F.col("at_ms") - F.col("from_ms"), F.lit(0))
    stored = F.col("queued_bytes") + F.col("retained_bytes")
    hours = sampled.select("tenant_id", _hour(), F.floor(stored * lasted_ms / 1000).alias("stored_byte_s"))
    return hours.groupBy(*_BY).agg(F.sum("stored_byte_s").alias("stored_byte_s"))


def whole_hours(hours: DataFrame, events: DataFrame, trimmed: list[int]) -> DataFrame:
    """Leave out hours of which the log has only the end. `trimmed`: the partitions that do not begin with their first event.

    What was removed from a partition happened before its first event, so every later hour is whole.
    """
    if not trimmed:
        return hours
    firsts = events.where(F.col("partition").isin(trimmed) & F.col("damage").isNull()).groupBy("partition")
    first = firsts.agg(F.min_by("at_ms", "offset").alias("at_ms")).agg(F.max("at_ms").alias("begun_ms"))
    is_whole = F.col("hour_ms") > F.coalesce(F.col("begun_ms"), F.lit(0))
    return hours.crossJoin(F.broadcast(first)).where(is_whole).select(*USAGE_HOURS.names)


def missing_records(events: DataFrame) -> int:
    """Return how many numbers there are no events of, in lives of workers whose first event is there."""
    period = F.from_json("facts", USAGE).alias("fact")
    numbers = events.where(F.col("damage").isNull()).select(period).select("fact.incarnation", "fact.sequence")
    lives = numbers.where(F.col("sequence").isNotNull()).groupBy("incarnation")
    ends = lives.agg(
        F.min("sequence").alias("first"),
        F.max("sequence").alias("last"),
        F.count_distinct("sequence").alias("known"),
    )
    gone = ends.where(F.col("first") == 1).agg(F.sum(F.col("last") - F.col("known")).alias("gone")).first()
    return int(gone["gone"] or 0) if gone is not None else 0


def _hour() -> Column:
    return (F.col("from_ms") - F.col("from_ms") % HOUR_MS).alias("hour_ms")


def _or_zero(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0)).cast("long").alias(name)


def totals(hours: list[dict[str, int]]) -> dict[str, int]:
    """Return the sums of all rows, for the report of a run."""
    names = USAGE_HOURS.names[2:]
    empty = dict.fromkeys(names, 0)
    return reduce(lambda sums, row: {name: sums[name] + row[name] for name in names}, hours, empty)
