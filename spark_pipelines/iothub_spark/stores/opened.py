"""Which driver a place of the spec is opened with.

Knows every driver's name and nothing of what they do. A driver's library is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from iothub.records.job_spec import HBaseTables, KafkaLog, SqliteFile
from iothub_spark.stores.log import Log
from iothub_spark.stores.log_sqlite import SqliteLog
from iothub_spark.stores.rows import Checkpoints, States
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints, SqliteStates


@contextmanager
def opened_log(place: SqliteFile | KafkaLog) -> Iterator[Log]:
    """Open the event log to read. Raises BackendError, NotFoundError."""
    with closing(_log(place)) as log:
        yield log


@contextmanager
def opened_checkpoints(place: SqliteFile | HBaseTables) -> Iterator[Checkpoints]:
    """Open the checkpoints to read and write. Raises BackendError, ConflictError for a future schema."""
    with closing(_checkpoints(place)) as checkpoints:
        yield checkpoints


@contextmanager
def opened_states(place: SqliteFile | HBaseTables) -> Iterator[States]:
    """Open the live session states to read. Raises BackendError, NotFoundError."""
    with closing(_states(place)) as states:
        yield states


def _log(place: SqliteFile | KafkaLog) -> Log:
    if isinstance(place, SqliteFile):
        return SqliteLog(place.path)
    from iothub_spark.stores.log_kafka import KafkaStretches

    return KafkaStretches(place)


def _checkpoints(place: SqliteFile | HBaseTables) -> Checkpoints:
    if isinstance(place, SqliteFile):
        return SqliteCheckpoints(place.path)
    from iothub_spark.stores.rows_hbase import HBaseCheckpoints

    return HBaseCheckpoints(place)


def _states(place: SqliteFile | HBaseTables) -> States:
    if isinstance(place, SqliteFile):
        return SqliteStates(place.path)
    from iothub_spark.stores.rows_hbase import HBaseStates

    return HBaseStates(place)
