"""`spark.read.format("iothub-events")`: a stretch of the event log as a frame, whatever the driver.

Knows the columns, not what an event means. Use `read_events` or `read_stored`: the bounds of the log are captured by the caller, once, and
travel as options, so that every task and every retry reads the same.

Damaged events, which the hub passes over, too, are rows with `damage`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from iothub.base.errors import CorruptRecordError
from iothub.records.events import Topic, read_event
from iothub.records.job_spec import Spec, parse_spec, write_spec
from iothub_spark.schemas.events import EVENTS, STORED_EVENTS
from iothub_spark.stores.log import Log, LogRange, Page, StoredEvent, Stretch
from iothub_spark.stores.opened import opened_log

NAME = "iothub-events"

_STORED = to_arrow_schema(STORED_EVENTS)
_PARSED = to_arrow_schema(EVENTS)


def read_events(spark: SparkSession, spec: Spec, wanted: LogRange) -> DataFrame:
    """Return the events of a range, taken apart: columns `EVENTS`."""
    return _frame(spark, spec, wanted, "events")


def read_stored(spark: SparkSession, spec: Spec, wanted: LogRange, keys: tuple[bytes, ...] = ()) -> DataFrame:
    """Return the events of a range as they are stored: columns `STORED_EVENTS`. `keys`: of these sessions only."""
    return _frame(spark, spec, wanted, "stored", keys)


def _frame(spark: SparkSession, spec: Spec, wanted: LogRange, form: str, keys: tuple[bytes, ...] = ()) -> DataFrame:
    spark.dataSource.register(EventSource)
    pieces = max(spec.spark.shuffle_partitions, spark.sparkContext.defaultParallelism)
    options = {
        "spec": write_spec(spec),
        "form": form,
        "topic": wanted.topic.name,
        "after": json.dumps(wanted.after),
        "upto": json.dumps(wanted.upto),
        "pieces": str(pieces),
        "keys": json.dumps([key.hex() for key in keys]),
    }
    frame = spark.read.format(NAME).options(**options).load()
    if not keys:
        return frame
    return frame.where(frame["key"].isin([bytearray(key) for key in keys]))


class EventSource(DataSource):
    """The format. Options: `spec` (a run's), `form` (events, stored), `topic`, `after` and `upto` (a range), `pieces`, `keys`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return STORED_EVENTS if self.options["form"] == "stored" else EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return EventReader(dict(self.options))


@dataclass(slots=True)
class Piece(InputPartition):
    """What one task reads."""

    stretch: Stretch


class EventReader(DataSourceReader):
    """Travels to the tasks; opens the log there."""

    def __init__(self, options: dict[str, str]) -> None:
        self._spec = parse_spec(json.loads(options["spec"]))
        after, upto = tuple(json.loads(options["after"])), tuple(json.loads(options["upto"]))
        self._range = LogRange(Topic[options["topic"]], after, upto)
        self._pieces = int(options["pieces"])
        self._keys = tuple(bytes.fromhex(key) for key in json.loads(options["keys"]))
        self._is_stored = options["form"] == "stored"

    def partitions(self) -> list[InputPartition]:
        return [Piece(stretch) for stretch in self._range.stretches(self._pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piece):
            return  # a range without events has no piece; Spark asks for one all the same
        stretch = partition.stretch
        with opened_log(self._spec.events) as log:
            for page in log.read(stretch, self._range.topic, self._keys):
                yield (
                    _stored(page, stretch.partition) if self._is_stored else self._parsed(log, page, stretch.partition)
                )

    def _parsed(self, log: Log, page: Page, partition: int) -> pa.RecordBatch:
        rows = [self._row(log, partition, stored) for stored in page]
        return pa.RecordBatch.from_pylist(rows, schema=_PARSED)

    def _row(self, log: Log, partition: int, stored: StoredEvent) -> dict[str, object]:
        offset, key, value = stored
        topic, partitions = self._range.topic, len(self._range.upto)
        try:
            event = read_event(value, key, partition, partitions, topic)
        except CorruptRecordError as error:
            damage = f"{log.where(partition, offset, topic)}: {error}"
            return {"partition": partition, "offset": offset, "damage": damage}
        return {
            "partition": partition,
            "offset": offset,
            "tenant_id": event.tenant_id,
            "client_id": event.client_id,
            "type": event.type.word,
            "epoch": event.epoch,
            "at_ms": event.at_ms,
            "facts": json.dumps(dict(event.facts), separators=(",", ":"), ensure_ascii=False),
        }


def _stored(page: Page, partition: int) -> pa.RecordBatch:
    offsets, keys, values = zip(*page, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition] * len(page), pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        schema=_STORED,
    )
