"""From the events for statistics to usage by tenant and hour.

Knows no log and no table. Every function takes and returns frames.

Theory: a worker may write an event twice, under the same number, (incarnation, sequence), so it is taken once. Whole numbers are added, so
the order does not matter and the same events give the same sums. An event belongs to the hour in which its period began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql.types import StructType

from iothub.records.analytics import USAGE_FACTS
from iothub.records.events import EventType
from iothub_spark.schemas.statistics import RECORD, USAGE_HOURS

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
_BY = ("tenant_id", "hour_ms")
_STORED = "stored_byte_s"


class LastRun(NamedTuple):
    """What the last run knows of some partitions that do not begin with their first event: what of these is not read now was before `settled_ms`."""

    partitions: list[int]
    settled_ms: int


def usage_hours(events: DataFrame) -> DataFrame:
    """events: `EVENTS` of the log for statistics. Returns `USAGE_HOURS`, no order.

    What was stored at the end of a period was stored all through it: bytes times seconds. Workers that share stores all sample the whole
    of them, so in each minute the largest of what they say counts; what they have counted is added.
    """
    records = of_types(events, (EventType.USAGE_COUNTED, EventType.TENANT_SAMPLED), RECORD)
    lasted_ms = F.greatest(F.col("at_ms") - F.col("from_ms"), F.lit(0))
    stored = F.floor((F.col("queued_bytes") + F.col("retained_bytes")) * lasted_ms / 1000).alias(_STORED)
    rows = records.select(
        "tenant_id", _begun(HOUR_MS, "hour_ms"), _begun(MINUTE_MS, "minute_ms"), "incarnation", *USAGE_FACTS, stored
    )
    spread = rows.repartition(*_BY)  # nothing moves any more
    by_worker = spread.groupBy(*_BY, "minute_ms", "incarnation").agg(*_sums(), F.sum(_STORED).alias(_STORED))
    by_minute = by_worker.groupBy(*_BY, "minute_ms").agg(*_sums(), F.max(_STORED).alias(_STORED))
    by_hour = by_minute.groupBy(*_BY).agg(*_sums(), F.sum(_STORED).alias(_STORED))
    return by_hour.select(
        *_BY, *[F.coalesce(F.col(name), F.lit(0)).cast("long").alias(name) for name in USAGE_HOURS.names[2:]]
    )


def _sums() -> list[Column]:
    return [F.sum(name).alias(name) for name in USAGE_FACTS]


def of_types(events: DataFrame, kinds: Iterable[EventType], facts: StructType) -> DataFrame:
    """Return the events of some types with their facts as columns, each once; a fact that a type does not have is null."""
    is_it = F.col("type").isin(*[kind.word for kind in kinds]) & F.col("damage").isNull()
    taken_apart = events.where(is_it).select("tenant_id", "type", "at_ms", F.from_json("facts", facts).alias("fact"))
    named = taken_apart.select("tenant_id", "type", "at_ms", "fact.*").where(F.col("sequence").isNotNull())
    return named.dropDuplicates(["incarnation", "sequence"])  # a second attempt of a worker has the same number


def whole_hours(hours: DataFrame, events: DataFrame, trimmed: list[int], last: LastRun | None = None) -> DataFrame:
    """Leave out hours of which the log has only the end. `trimmed`: the partitions that do not begin with their first event.

    What was removed from a partition happened before its first event, so every later hour is whole; of one that was empty the last run knows more.
    """
    if not trimmed:
        return hours
    is_whole = F.col("hour_ms") > F.coalesce(F.col("begun_ms"), F.lit(0))
    return hours.crossJoin(F.broadcast(_begin(events, trimmed, last))).where(is_whole).select(*USAGE_HOURS.names)


def begun_ms(events: DataFrame, trimmed: list[int], last: LastRun | None = None) -> int | None:
    """Return the time before which events were removed; None: none were, or nothing is there."""
    first = _begin(events, trimmed, last).first() if trimmed else None
    return None if first is None else first["begun_ms"]


def _begin(events: DataFrame, trimmed: list[int], last: LastRun | None) -> DataFrame:
    at_ms = F.col("at_ms")
    if last is not None:
        at_ms = F.when(F.col("partition").isin(last.partitions), F.least(at_ms, F.lit(last.settled_ms))).otherwise(
            at_ms
        )
    return _firsts(events, trimmed).agg(F.max(at_ms).alias("begun_ms"))


def _firsts(events: DataFrame, trimmed: list[int]) -> DataFrame:
    firsts = events.where(F.col("partition").isin(trimmed) & F.col("damage").isNull()).groupBy("partition")
    return firsts.agg(F.min_by("at_ms", "offset").alias("at_ms"))


def reaches_back(
    events: DataFrame, trimmed: list[int], seen: Sequence[int], seen_ms: int, last: LastRun | None = None
) -> bool:
    """Say whether what came after `seen` belongs to an hour of which these events are not the whole, so that all must be read.

    `trimmed`: as `whole_hours`; `seen_ms`: when that was the end. A log that begins later has been made anew.
    """
    begun, first = begun_ms(events, trimmed, last), _firsts(events, trimmed).agg(F.min("at_ms").alias("at_ms")).first()
    if begun is None or first is None or first["at_ms"] > seen_ms:
        return begun is not None
    fresh = events.where(_is_behind(seen) & F.col("damage").isNull())
    facts = fresh.select(F.from_json("facts", RECORD).alias("fact")).select("fact.from_ms")
    return not facts.where(_begun(HOUR_MS, "hour_ms") <= begun).isEmpty()


def first_offsets(events: DataFrame, from_ms: int, to_ms: int) -> dict[int, int]:
    """Return the offset of the first event from a stretch of time in each partition that has any."""
    recent = events.where(F.col("at_ms").between(from_ms, to_ms)).groupBy("partition")
    return {int(row["partition"]): int(row["first"]) for row in recent.agg(F.min("offset").alias("first")).collect()}


def last_offsets(events: DataFrame, before_ms: int, below: dict[int, int]) -> dict[int, int]:
    """Return the offset of the last event from before a time in each partition that has any, of those below an offset where one is given."""
    is_partition = [F.when(F.col("partition") == part, F.lit(offset)) for part, offset in below.items()]
    is_below = F.col("offset") < F.coalesce(*is_partition, F.col("offset") + 1)
    earlier = events.where((F.col("at_ms") < before_ms) & is_below & F.col("damage").isNull()).groupBy("partition")
    return {int(row["partition"]): int(row["last"]) for row in earlier.agg(F.max("offset").alias("last")).collect()}


def damaged(events: DataFrame, seen: Sequence[int] | None) -> int:
    """Return how many events nobody can read. `seen`: of those behind it, for the ones before it were counted by the last run."""
    bad = events.where(F.col("damage").isNotNull())
    return (bad if seen is None else bad.where(_is_behind(seen))).count()


def missing_records(events: DataFrame, seen: Sequence[int] | None = None) -> int:
    """Return how many numbers there are no events of, in lives of workers whose first event is there.

    `seen`: up to where the last run had counted. Then the numbers count that are above all that it had of a life, or, where none of those are among
    these events, above the least one. A worker gives its numbers in the order in which it writes, so each is looked at in one run.
    """
    period, is_new = F.from_json("facts", RECORD).alias("fact"), F.lit(True) if seen is None else _is_behind(seen)
    readable = events.where(F.col("damage").isNull()).select(period, is_new.alias("is_new"))
    numbers = readable.select("fact.incarnation", "fact.sequence", "is_new").where(F.col("sequence").isNotNull())
    first, known = F.min("sequence"), F.max(F.when(~F.col("is_new"), F.col("sequence")))
    start = F.when(first == 1, 0) if seen is None else F.coalesce(known, first - 1)
    lives = numbers.groupBy("incarnation").agg(start.alias("start"), F.max("sequence").alias("last"))
    wanted = numbers.join(F.broadcast(lives), "incarnation").where(F.col("sequence") > F.col("start"))
    gone = F.max("last") - F.max("start") - F.count_distinct("sequence")
    total = wanted.groupBy("incarnation").agg(gone.alias("gone")).agg(F.sum("gone").alias("gone")).first()
    return int(total["gone"] or 0) if total is not None else 0


def _is_behind(seen: Sequence[int]) -> Column:
    is_partition = [F.when(F.col("partition") == part, F.lit(offset)) for part, offset in enumerate(seen)]
    return F.col("offset") > F.coalesce(*is_partition)


def _begun(length_ms: int, name: str) -> Column:
    return (F.col("from_ms") - F.col("from_ms") % length_ms).alias(name)


def totals(hours: list[dict[str, int]]) -> dict[str, int]:
    """Return the sums of all rows, for the report of a run."""
    names = USAGE_HOURS.names[2:]
    empty = dict.fromkeys(names, 0)
    return reduce(lambda sums, row: {name: sums[name] + row[name] for name in names}, hours, empty)
