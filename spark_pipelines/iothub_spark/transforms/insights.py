"""From events of both logs to what tenants should know: by day, by reason, by device.

Knows no log and no page. Every function takes and returns frames; days are UTC's, as text.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from iothub.records.events import EventType
from iothub_spark.schemas.statistics import COUNT, RECORD
from iothub_spark.transforms.usage import of_types

CHURN = (
    "session.created",
    "session.connected",
    "session.disconnected",
    "session.taken_over",
    "session.expired",
    "session.discarded",
)
BRIEF = "brief_"  # before the word of what a session did that is not kept: the log has its coming alone
_REFUSALS = (EventType.MESSAGE_DROPPED, EventType.QUOTA_REFUSED, EventType.AUTH_FAILED)


def churn(sessions: DataFrame) -> DataFrame:
    """Return (tenant_id, day, happening, times): how often sessions came and went; those that end with their connection apart (`BRIEF`)."""
    is_churn = F.col("type").isin(*CHURN) & F.col("damage").isNull()
    word = F.substring_index("type", ".", -1)
    happening = F.when(F.col("epoch") > 0, word).otherwise(F.concat(F.lit(BRIEF), word)).alias("happening")
    rows = sessions.where(is_churn).select("tenant_id", _day(), happening)
    return rows.groupBy("tenant_id", "day", "happening").agg(F.count("*").alias("times"))


def disconnects(sessions: DataFrame) -> DataFrame:
    """Return (tenant_id, day, reason, times): why connections ended."""
    is_it = (F.col("type") == EventType.SESSION_DISCONNECTED.word) & F.col("damage").isNull()
    reason = F.get_json_object("facts", "$.reason").alias("reason")
    rows = sessions.where(is_it).select("tenant_id", _day(), reason)
    return rows.groupBy("tenant_id", "day", "reason").agg(F.count("*").alias("times"))


def refusals(statistics: DataFrame) -> DataFrame:
    """Return (tenant_id, day, kind, reason, times): drops, limits and failed logins by reason."""
    rows = _counts(statistics).select("tenant_id", "day", "kind", "reason", "count")
    return rows.groupBy("tenant_id", "day", "kind", "reason").agg(F.sum("count").alias("times"))


def noisy_devices(sessions: DataFrame, statistics: DataFrame, most: int) -> DataFrame:
    """Return (tenant_id, device, connects, drops, refusals, failed_logins, rank): the `most` devices of each tenant that stand out."""
    by = ["tenant_id", "device"]
    is_connect = (F.col("type") == EventType.SESSION_CONNECTED.word) & F.col("damage").isNull()
    device = F.get_json_object("facts", "$.device").alias("device")
    connects = sessions.where(is_connect).select("tenant_id", device).groupBy(*by).agg(F.count("*").alias("connects"))
    by_device = _counts(statistics).where(F.col("device") != "").groupBy(*by)
    counted = by_device.agg(
        _of_kind(EventType.MESSAGE_DROPPED).alias("drops"),
        _of_kind(EventType.QUOTA_REFUSED).alias("refusals"),
        _of_kind(EventType.AUTH_FAILED).alias("failed_logins"),
    )
    names = ["connects", "drops", "refusals", "failed_logins"]
    both = connects.join(counted, on=by, how="full").na.fill(0, names)
    noise = reduce(Column.__add__, [F.col(name) for name in names])
    order = Window.partitionBy("tenant_id").orderBy(noise.desc(), F.col("device"))
    ranked = both.select(*by, *names, F.row_number().over(order).alias("rank"))
    return ranked.where(F.col("rank") <= most)


def growth(statistics: DataFrame) -> DataFrame:
    """Return (tenant_id, day, and the last sample of that day): sessions and what is stored."""
    names = ["sessions", "connected", "queued_messages", "queued_bytes", "retained_bytes"]
    samples = of_types(statistics, (EventType.TENANT_SAMPLED,), RECORD).select("tenant_id", "at_ms", _day(), *names)
    last = samples.groupBy("tenant_id", "day").agg(F.max_by(F.struct(*names), "at_ms").alias("last"))
    return last.select("tenant_id", "day", *[F.col(f"last.{name}").alias(name) for name in names])


def traffic(statistics: DataFrame) -> DataFrame:
    """Return (tenant_id, day, messages_in, messages_out, bytes_in, bytes_out, fanout)."""
    names = ["messages_in", "messages_out", "bytes_in", "bytes_out", "fanout"]
    usage = of_types(statistics, (EventType.USAGE_COUNTED,), RECORD).select("tenant_id", _day("from_ms"), *names)
    return usage.groupBy("tenant_id", "day").agg(*[F.sum(name).alias(name) for name in names])


def since(events: DataFrame, from_ms: int) -> DataFrame:
    return events.where(F.col("at_ms") >= from_ms)


def _counts(statistics: DataFrame) -> DataFrame:
    """Return (tenant_id, day, kind, device, reason, count)."""
    return of_types(statistics, _REFUSALS, COUNT).select(
        "tenant_id",
        _day(),
        F.col("type").alias("kind"),
        F.coalesce("device", F.lit("")).alias("device"),
        F.coalesce("reason", "quota", "cause").alias("reason"),
        "count",
    )


def _of_kind(kind: EventType) -> Column:
    return F.sum(F.when(F.col("kind") == kind.word, F.col("count")).otherwise(0))


def _day(moment: str = "at_ms") -> Column:
    return F.date_format(F.timestamp_millis(moment), "yyyy-MM-dd").alias("day")
