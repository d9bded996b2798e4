"""The columns of session states: a store's or a checkpoint's rows, and what the fold leaves.

Knows no source and no sink. A record is `iothub.records.state`'s.
"""

from __future__ import annotations

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

STATES = StructType(
    [
        StructField("tenant_id", LongType(), nullable=False),
        StructField("client_id", StringType(), nullable=False),
        StructField("offset", LongType(), nullable=False),  # of the last event that the record includes
        StructField("record", BinaryType(), nullable=False),
    ]
)

FOLDED = StructType(
    [
        StructField("tenant_id", LongType()),
        StructField("client_id", StringType()),
        StructField("offset", LongType()),
        StructField("record", BinaryType()),
        StructField("damage", StringType()),
    ]
)
"""A state, or, with everything but `offset` and `damage` null, an event or a live state that was left out because nobody can read it."""
