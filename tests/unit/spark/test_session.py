"""What Spark is told: on one machine, and on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.records.job_spec import SparkSettings
from iothub_spark.session import session_options


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_session_on_one_machine_listens_nowhere_else_and_does_not_optimize(master: str) -> None:
    """Most of a short run's processor time was Java's second compiler."""
    options = session_options(SparkSettings(master=master))

    assert (options["spark.driver.host"], options["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    assert options["spark.driver.extraJavaOptions"] == "-XX:TieredStopAtLevel=1"
    assert options["spark.python.daemon.module"] == "iothub_spark.daemon"


def test_session_on_a_cluster_leaves_java_and_addresses_to_it() -> None:
    """What spark-submit says of them counts."""
    options = session_options(SparkSettings(master="yarn"))

    ours = {
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.driver.extraJavaOptions",
        "spark.python.daemon.module",
    }
    assert not ours & options.keys()


def test_session_has_as_many_partitions_and_as_much_memory_as_was_set(tmp_path: Path) -> None:
    """And spills where it was told to."""
    options = session_options(SparkSettings(shuffle_partitions=5, driver_memory="2g", local_dir=tmp_path))

    assert options["spark.sql.shuffle.partitions"] == "5"
    assert options["spark.driver.memory"] == "2g"
    assert options["spark.local.dir"] == str(tmp_path)
