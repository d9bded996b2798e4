"""`spark.read.format("iothub-state")`: session rows as a frame, of the live state store or of one version of the checkpoint, whatever the driver.

Knows the columns `STATES`, not what a record says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from iothub.records.job_spec import Spec, parse_spec, write_spec
from iothub_spark.schemas.states import STATES
from iothub_spark.stores.opened import opened_checkpoints, opened_states
from iothub_spark.stores.rows import Part, StateRow

NAME = "iothub-state"

_ROWS = to_arrow_schema(STATES)
_BATCH = 5_000


def read_checkpoint(spark: SparkSession, spec: Spec, version: int) -> DataFrame:
    """Return the rows of one version."""
    return _frame(spark, spec, str(version))


def read_states(spark: SparkSession, spec: Spec) -> DataFrame:
    """Return the rows of the live state store; a hub may be changing them."""
    return _frame(spark, spec, "")


def _frame(spark: SparkSession, spec: Spec, version: str) -> DataFrame:
    spark.dataSource.register(StateSource)
    pieces = max(spec.spark.shuffle_partitions, spark.sparkContext.defaultParallelism)
    options = {"spec": write_spec(spec), "version": version, "pieces": str(pieces)}
    return spark.read.format(NAME).options(**options).load()


class StateSource(DataSource):
    """The format. Options: `spec` (a run's), `version` of the checkpoint (empty: the live store), `pieces`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return STATES

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return StateReader(dict(self.options))


@dataclass(slots=True)
class Share(InputPartition):
    """What one task reads."""

    part: Part


class StateReader(DataSourceReader):
    """Travels to the tasks; opens the store there."""

    def __init__(self, options: dict[str, str]) -> None:
        self._spec = parse_spec(json.loads(options["spec"]))
        self._version = int(options["version"]) if options["version"] else None
        self._pieces = int(options["pieces"])

    def partitions(self) -> list[InputPartition]:
        if self._version is None:
            with opened_states(self._spec.state) as states:
                return [Share(part) for part in states.parts(self._pieces)]
        with opened_checkpoints(self._spec.checkpoints) as checkpoints:
            return [Share(part) for part in checkpoints.parts(self._version, self._pieces)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Share):
            return
        with self._rows(partition.part) as rows:
            while some := list(islice(rows, _BATCH)):
                columns = zip(*some, strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, _ROWS, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=_ROWS)

    @contextmanager
    def _rows(self, part: Part) -> Iterator[Iterator[StateRow]]:
        if self._version is None:
            with opened_states(self._spec.state) as states:
                yield states.rows(part)
        else:
            with opened_checkpoints(self._spec.checkpoints) as checkpoints:
                yield checkpoints.rows(self._version, part)
