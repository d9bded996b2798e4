"""The columns of events: as the log stores them, and taken apart.

Knows no source. Types are Spark's; numbers are `long`, since a tenant's number may need 32 bits without a sign.
"""

from __future__ import annotations

from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

STORED_EVENTS = StructType(
    [
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("key", BinaryType(), nullable=False),  # tenant/client id, as its writer said
        StructField("value", BinaryType(), nullable=False),
    ]
)
"""What nobody has looked into yet."""

EVENTS = StructType(
    [
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("tenant_id", LongType()),
        StructField("client_id", StringType()),
        StructField("type", StringType()),
        StructField("epoch", LongType()),
        StructField("at_ms", LongType()),
        StructField("facts", StringType()),  # a flat JSON object
        StructField("damage", StringType()),  # why nobody can read it; then all but its place is null
    ]
)
"""One row for each event, in the order of each partition; `iothub.records.events` says what the facts are."""
