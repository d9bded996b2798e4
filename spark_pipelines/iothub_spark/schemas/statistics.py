"""The columns of what is made of the events for statistics; the facts are those of `iothub.records.analytics`.

Knows no source and no sink.
"""

from __future__ import annotations

from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType

from iothub.records.analytics import SAMPLE_FACTS, USAGE_FACTS

_PERIOD = [
    StructField("incarnation", StringType()),
    StructField("sequence", LongType()),
    StructField("from_ms", LongType()),
]

RECORD = StructType([*_PERIOD, *[StructField(name, LongType()) for name in (*USAGE_FACTS, *SAMPLE_FACTS)]])
"""What usage and samples say; no fact has the same name in both."""

COUNT = StructType(
    [
        *_PERIOD,
        StructField("reason", StringType()),  # of a drop
        StructField("quota", StringType()),  # of a refusal
        StructField("cause", StringType()),  # of a failed login
        StructField("count", LongType()),
        StructField("device", StringType()),
    ]
)

USAGE_HOURS = StructType(
    [
        StructField("tenant_id", LongType()),
        StructField("hour_ms", LongType()),
        *[StructField(name, LongType()) for name in USAGE_FACTS],
        StructField("stored_byte_s", LongType()),
    ]
)
"""One row for each tenant and hour."""

ARCHIVED = StructType(
    [
        StructField("partition", LongType()),
        StructField("offset", LongType()),
        StructField("tenant_id", LongType()),
        StructField("client_id", StringType()),
        StructField("type", StringType()),
        StructField("epoch", LongType()),
        StructField("at_ms", LongType()),
        StructField("facts", StringType()),
        StructField("day", DateType()),
    ]
)
"""An event in the archive; `tenant_id` and `day` are names of folders."""
