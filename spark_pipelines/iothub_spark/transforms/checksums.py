"""How many states a frame has, their checksum, and a few of them picked out: what says whether rows are those that were written.

Knows the columns `STATES` and the checksum of `iothub.records.checkpoint`, in any order and any number of tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, LongType, StructField, StructType

from iothub.records.checkpoint import add_checksums, row_checksum
from iothub.records.keys import session_of_state, state_key

SUMS = StructType(
    [
        StructField("rows", LongType(), nullable=False),
        StructField("checksum", BinaryType(), nullable=False),  # 8 bytes: a `long` has a sign
        StructField("picked", ArrayType(BinaryType(), containsNull=False), nullable=False),
    ]
)
"""One row for each task. `picked`: a rank and a key each."""

_OUT = to_arrow_schema(SUMS)
_RANK_BYTES = 8
_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15  # odd, so that ranks of two versions are in another order


@dataclass(frozen=True, slots=True)
class Sums:
    """What a frame has in all. `picked`: sessions (tenant, client id), other ones for another `salt`."""

    rows: int
    checksum: int
    picked: tuple[tuple[int, str], ...]


def sums_of(states: DataFrame, picks: int = 0, salt: int = 0) -> Sums:
    """Count a frame of `STATES`."""
    counted = states.select("tenant_id", "client_id", "offset", "record")
    found = counted.mapInArrow(partial(_sum_batches, picks=picks, salt=salt), SUMS).collect()
    lowest = heapq.nsmallest(picks, (bytes(each) for row in found for each in row["picked"]))
    return Sums(
        sum(row["rows"] for row in found),
        add_checksums(int.from_bytes(row["checksum"], "big") for row in found),
        tuple(session_of_state(each[_RANK_BYTES:]) for each in lowest),
    )


def _sum_batches(batches: Iterable[pa.RecordBatch], picks: int, salt: int) -> Iterator[pa.RecordBatch]:
    rows = checksum = 0
    picked: list[bytes] = []
    for batch in batches:
        ranked = []
        for tenant_id, client_id, offset, record in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            own = row_checksum(tenant_id, client_id, offset, record)
            checksum = add_checksums((checksum, own))
            if picks:
                rank = (own ^ salt) * _SPREAD & _MASK
                ranked.append(rank.to_bytes(_RANK_BYTES, "big") + state_key(tenant_id, client_id))
        rows += batch.num_rows
        picked = heapq.nsmallest(picks, [*picked, *ranked])
    found = [{"rows": rows, "checksum": checksum.to_bytes(8, "big"), "picked": picked}]
    yield pa.RecordBatch.from_pylist(found, schema=_OUT)
