"""Compaction on the real Kafka and HBase, killed at one point of each kind: nothing half made counts, and the next run makes what is right.

The long form of `tests/integration/spark/test_compaction.py`, which kills over SQLite.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.config.sections import Kafka
from iothub.records.job_spec import HBaseTables
from iothub_services.hbase.tables import Tables, layouts
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints as HubCheckpoints
from iothub_spark.jobs import compact_events
from iothub_spark.stores import marks
from iothub_spark.stores.rows_hbase import HBaseCheckpoints
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller
from tests.support.hbase.own_tables import made_tables
from tests.support.jobs.event_log import EventMill, replay
from tests.support.jobs.server_log import append_to_kafka, servers_spec
from tests.support.jobs.spark import Quiet, require_same, spark, states_from
from tests.support.jobs.spark_child import Child, started
from tests.support.servers.kafka import own_topics

__all__ = ["spark"]

PARTITIONS = 3
MADE, SESSIONS, TENANTS = 6_000, 600, 20

pytestmark = [pytest.mark.timeout(1_800), pytest.mark.filterwarnings("default")]  # Java starts once for each kill


@pytest.fixture
def kafka(services: Services) -> Iterator[Kafka]:
    with own_topics(services, partitions=PARTITIONS) as settings:
        yield settings


@pytest.fixture
def tables(services: Services) -> Iterator[Tables]:
    """In a namespace of their own: what a killed run has left is nobody else's."""
    names = Tables(f"t{uuid.uuid4().hex}")
    wanted = [each for each in layouts(names.namespace, 8) if each.name.endswith((":state", ":checkpoints"))]
    with made_tables(services, [replace(each, splits=(b"\0\0\0\2",)) for each in wanted]):
        yield names


def _kill_driver(child: Child, is_time: Callable[[], bool]) -> None:
    child.kill_when(is_time)


def _kill_java(child: Child, is_time: Callable[[], bool]) -> None:
    child.kill_java_when(is_time)
    code, said = child.finish()
    assert (code, said[-1]["kind"]) == (1, "died")


def test_kill_at_each_kind_of_point_spoils_nothing(
    spark: SparkSession, services: Services, kafka: Kafka, tables: Tables, tmp_path: Path
) -> None:
    """Driver while rows are written, and between write and flip, workers; one after another, each over what the last has left."""
    spec = servers_spec(services, kafka, tables.namespace, tmp_path)
    to_kill = replace(spec, spark=replace(spec.spark, master="local[1]"))
    logged = list(EventMill(SESSIONS, TENANTS, seed=5).events(MADE))
    append_to_kafka(kafka, logged)
    assert isinstance(spec.checkpoints, HBaseTables)
    with closing(HBaseCheckpoints(spec.checkpoints)) as store:
        known: set[int] = set()

        def is_writing() -> bool:
            return bool(set(store.versions()) - known)

        def is_written() -> bool:
            return any(marks.written(store, version) is not None for version in marks.marked_versions(store) - known)

        kills = ((_kill_driver, is_writing), (_kill_java, is_writing), (_kill_driver, is_written))
        for kill, is_time in kills:
            known = {*store.versions(), *marks.marked_versions(store)}
            with started(to_kill, tmp_path) as child:
                kill(child, is_time)
            assert store.pointer() is None
            assert len(set(store.versions()) - known) == 1

        known = set(store.versions())
        with started(to_kill, tmp_path) as child:
            assert child.kill_workers_when(is_writing) > 0  # tasks are tried again, or the run fails
            code, said = child.finish()
        assert (code, said[-1].get("kind")) in ((0, None), (1, "died"))

        compact_events.run(spark, spec, Quiet())
        pointer = store.pointer()
        assert pointer is not None
        assert store.versions() == [pointer.version]
        with caller(services) as own:
            require_same(states_from(HubCheckpoints(own, tables)), replay(logged, PARTITIONS))
        assert compact_events.run(spark, spec, Quiet())["is_new"] is False
