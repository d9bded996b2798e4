"""Which driver a place of the spec is opened with.

Knows every driver's name and nothing of what they do. A driver's library is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iothub_spark.spec import KafkaLog, SqliteFile
from iothub_spark.stores.log import Log
from iothub_spark.stores.log_sqlite import SqliteLog


@contextmanager
def opened_log(place: SqliteFile | KafkaLog) -> Iterator[Log]:
    """Open the event log to read. Raises BackendError, NotFoundError."""
    log = _log(place)
    try:
        yield log
    finally:
        log.close()


def _log(place: SqliteFile | KafkaLog) -> Log:
    if isinstance(place, SqliteFile):
        return SqliteLog(place.path)
    from iothub_spark.stores.log_kafka import KafkaStretches

    return KafkaStretches(place)
