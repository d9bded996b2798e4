"""`frame.write.format("iothub-checkpoint")`: folded states as rows of a new version of the checkpoint, which does not count yet.

Knows the columns `FOLDED`. A task that fails or runs twice writes the same rows again, and nobody reads them before the pointer names their version:
what the tasks have written is noted in the commit, looked at by the job, and only then may count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from iothub.records.checkpoint import add_checksums, row_checksum
from iothub.records.job_spec import Spec, parse_spec, write_spec
from iothub_spark.schemas.states import FOLDED
from iothub_spark.stores.marks import Written, set_written
from iothub_spark.stores.opened import opened_checkpoints
from iothub_spark.stores.rows import StateRow

NAME = "iothub-checkpoint"

_EXAMPLES = 5  # of damaged records that are named


def write_checkpoint(spark: SparkSession, spec: Spec, folded: DataFrame, version: int) -> None:
    """Write states under a version; the mark `written` then says how many, and which damaged records were passed over."""
    spark.dataSource.register(CheckpointSink)
    options = {"spec": write_spec(spec), "version": str(version)}
    folded.write.format(NAME).options(**options).mode("append").save()


class CheckpointSink(DataSource):
    """The format. Options: `spec` (a run's), `version`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return FOLDED

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        del schema, overwrite
        return CheckpointWriter(dict(self.options))


@dataclass(slots=True)
class Share(WriterCommitMessage):
    """What one task has written."""

    written: Written


class CheckpointWriter(DataSourceArrowWriter):
    """Travels to the tasks."""

    def __init__(self, options: dict[str, str]) -> None:
        self._spec = parse_spec(json.loads(options["spec"]))
        self._version = int(options["version"])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        counted = _Counted(iterator)
        with opened_checkpoints(self._spec.checkpoints) as checkpoints:
            checkpoints.write(self._version, counted)
        return Share(counted.written())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        shares = [message.written for message in messages if isinstance(message, Share)]
        whole = Written(
            sum(share.rows for share in shares),
            add_checksums(share.checksum for share in shares),
            sum(share.damaged for share in shares),
            tuple(sorted(text for share in shares for text in share.examples))[:_EXAMPLES],
        )
        with opened_checkpoints(self._spec.checkpoints) as checkpoints:
            set_written(checkpoints, self._version, whole)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave what was written: nothing names it, and the next run that succeeds removes it."""


class _Counted(Iterable[StateRow]):
    """The states of some batches, counted while they pass."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows = self._checksum = self._damaged = 0
        self._examples: list[str] = []

    def __iter__(self) -> Iterator[StateRow]:
        for batch in self._batches:
            for tenant_id, client_id, offset, record, damage in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            ):
                if damage is not None:
                    self._note(damage)
                    continue
                self._rows += 1
                self._checksum = add_checksums((self._checksum, row_checksum(tenant_id, client_id, offset, record)))
                yield StateRow(tenant_id, client_id, offset, record)

    def written(self) -> Written:
        return Written(self._rows, self._checksum, self._damaged, tuple(self._examples))

    def _note(self, damage: str) -> None:
        self._damaged += 1
        if len(self._examples) < _EXAMPLES:
            self._examples.append(damage)
