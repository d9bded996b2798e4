"""Session rows as frames: a version of the checkpoint, the live states; every row once, wherever the parts are cut."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.base.errors import CorruptRecordError
from iothub.testing.checkpoint_contract import rows_of
from iothub_spark.failures import translated
from iothub_spark.schemas.states import STATES
from iothub_spark.sources.states import read_checkpoint, read_states
from iothub_spark.stores.rows import StateRow
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from tests.support.jobs.spark import sqlite_spec


def test_rows_of_a_version_are_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    """Of that version alone; more than fit one part. A row of a newer program is refused."""
    rows = [StateRow(*row) for row in rows_of(6_000, 1) + rows_of(4_000, 2)]
    with closing(SqliteCheckpoints(tmp_path / "checkpoints.db")) as store:
        store.write(5, rows)
        store.write(6, [StateRow(1, "other", 1, b"x")])
    frame = read_checkpoint(spark, sqlite_spec(tmp_path), 5)

    assert frame.schema == STATES
    assert frame.rdd.getNumPartitions() > 1
    assert sorted((r.tenant_id, r.client_id, r.offset, bytes(r.record)) for r in frame.collect()) == rows

    with closing(sqlite3.connect(tmp_path / "checkpoints.db")) as file, file:
        file.execute("UPDATE checkpoint SET value = x'0200' WHERE version = 6")
    with pytest.raises(Exception, match="CorruptRecordError") as caught:
        read_checkpoint(spark, sqlite_spec(tmp_path), 6).collect()
    assert isinstance(translated(caught.value), CorruptRecordError)


def test_live_states_are_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as states, states:
        states.execute("CREATE TABLE session (tenant INTEGER, client_id TEXT, offset INTEGER, record BLOB)")
        states.executemany("INSERT INTO session VALUES (?, ?, ?, ?)", rows_of(30))

    found = read_states(spark, sqlite_spec(tmp_path)).collect()
    assert sorted((r.tenant_id, r.client_id, r.offset, bytes(r.record)) for r in found) == rows_of(30)
