"""A Spark session for all tests of a process, small and quiet; and the spec of a run over the stores of one folder."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub_spark.session import start_session
from iothub_spark.spec import Option, SparkSettings, Spec, SqliteFile

SETTINGS = SparkSettings(master="local[2]", driver_memory="768m", shuffle_partitions=3)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark itself warns of what it uses: that is not ours to mend."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start_session(SETTINGS, "tests")
        yield session
        session.stop()


def sqlite_spec(folder: Path, job: str = "compact_events", **options: Option) -> Spec:
    """Return the spec of a run over `events.db`, `checkpoints.db` and `state.db` in a folder."""
    return Spec(
        job=job,
        run_id=1,
        events=SqliteFile(folder / "events.db"),
        checkpoints=SqliteFile(folder / "checkpoints.db"),
        state=SqliteFile(folder / "state.db"),
        options=options,
        archive=folder / "archive",
        spark=SETTINGS,
    )
