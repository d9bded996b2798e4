"""Where two frames of states differ.

Knows the columns `STATES`. A session that has ended may be missing on either side: nobody keeps it for ever.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from iothub.base.errors import CorruptRecordError
from iothub.records.state import SessionState, decode_state

_SESSION = ["tenant_id", "client_id"]


class Difference(NamedTuple):
    """A session that is otherwise on both sides."""

    tenant_id: int
    client_id: str
    what: str

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.client_id}: {self.what}"


def differing(expected: DataFrame, found: DataFrame) -> DataFrame:
    """Return the sessions whose records differ, null where one has none: `tenant_id client_id expected found expected_offset found_offset`."""
    ours = expected.select(*_SESSION, F.col("record").alias("expected"), F.col("offset").alias("expected_offset"))
    theirs = found.select(*_SESSION, F.col("record").alias("found"), F.col("offset").alias("found_offset"))
    is_same = F.col("expected").eqNullSafe(F.col("found"))
    is_only_over = (F.col("found").isNull() & _is_over("expected")) | (F.col("expected").isNull() & _is_over("found"))
    return ours.join(theirs, on=_SESSION, how="full_outer").where(~(is_same | is_only_over))


def _is_over(name: str) -> Column:
    """What a tombstone has, and no other record: a text of a client has its quotes escaped."""
    return F.col(name).cast("string").contains('"is_ended":true')


def first_differences(frame: DataFrame, most: int) -> list[Difference]:
    """Return the first differences in the order of tenant and client id, and say what differs."""
    rows = frame.orderBy(*_SESSION).limit(most).collect()
    return [Difference(row.tenant_id, row.client_id, what_differs(row.expected, row.found)) for row in rows]


def what_differs(expected: bytes | None, found: bytes | None) -> str:
    """Say for a person what differs between two records of a session."""
    if found is None:
        return "in the log, but not stored"
    if expected is None:
        return "stored, but not in the log"
    try:
        one, other = decode_state(bytes(expected)), decode_state(bytes(found))
    except CorruptRecordError as error:
        return str(error)
    names = [name for name, before, now in zip(SessionState._fields, one, other, strict=True) if before != now]
    return f"different from the log ({', '.join(names) or 'in its form'})"
