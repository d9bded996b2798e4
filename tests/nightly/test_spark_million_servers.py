"""Compaction at full size on the real Kafka and HBase, and killed at random points there.

`IOTHUB_SPARK_EVENTS=50000 IOTHUB_SPARK_KILLS=2` tries the same on less.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.config.sections import Kafka
from iothub.records.job_spec import HBaseTables, Spec
from iothub_services.hbase.tables import Tables, layouts
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints as HubCheckpoints
from iothub_spark.jobs import compact_events
from iothub_spark.stores.rows_hbase import HBaseCheckpoints
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller
from tests.support.hbase.own_tables import made_tables
from tests.support.jobs.event_log import EventMill, replay
from tests.support.jobs.server_log import append_to_kafka, servers_spec
from tests.support.jobs.spark import Quiet, require_same, spark, states_from
from tests.support.jobs.spark_child import ALL, require_hits, started
from tests.support.servers.kafka import own_topics

__all__ = ["spark"]

MADE = int(os.environ.get("IOTHUB_SPARK_EVENTS") or 1_000_000)
MORE = MADE // 20
SESSIONS, TENANTS, PARTITIONS, SEED = MADE // 10, 50, 8, 17
KILLS, KILLED_EVENTS = int(os.environ.get("IOTHUB_SPARK_KILLS") or 20), min(60_000, MADE)

pytestmark = [pytest.mark.timeout(7_200), pytest.mark.filterwarnings("default")]


@pytest.fixture
def kafka(services: Services) -> Iterator[Kafka]:
    with own_topics(services, partitions=PARTITIONS) as settings:
        yield settings


@pytest.fixture
def tables(services: Services) -> Iterator[Tables]:
    """State and checkpoints in a namespace of their own, cut between tenants."""
    names = Tables(f"t{uuid.uuid4().hex}")  # what a killed run has left is not taken for ours
    wanted = [each for each in layouts(names.namespace, 8) if each.name.endswith((":state", ":checkpoints"))]
    splits = tuple(bytes((0, 0, 0, tenant)) for tenant in (2, 20, 35))
    with made_tables(services, [replace(each, splits=splits) for each in wanted]):
        yield names


def test_million_events_on_the_servers_equal_a_plain_replay(
    spark: SparkSession, services: Services, kafka: Kafka, tables: Tables, tmp_path: Path
) -> None:
    """Session by session; then more events, of which the second run reads the new ones alone; a third has nothing to do."""
    mill, spec = EventMill(SESSIONS, TENANTS, SEED), servers_spec(services, kafka, tables.namespace, tmp_path)
    append_to_kafka(kafka, mill.events(MADE))
    began = time.monotonic()
    first = compact_events.run(spark, spec, Quiet())
    print(f"{MADE} events to {first['rows']} sessions in {time.monotonic() - began:.1f} s")
    assert first["events"] == MADE
    whole = replay(EventMill(SESSIONS, TENANTS, SEED).events(MADE), PARTITIONS)
    with caller(services) as own:
        require_same(states_from(HubCheckpoints(own, tables)), whole)

        append_to_kafka(kafka, mill.events(MORE))
        second = compact_events.run(spark, spec, Quiet())
        print(f"{MORE} more in {time.monotonic() - began:.1f} s since the beginning")
        assert (second["events"], second["base_rows"]) == (MORE, first["rows"])
        whole = replay(EventMill(SESSIONS, TENANTS, SEED).events(MADE + MORE), PARTITIONS)
        found = states_from(HubCheckpoints(own, tables))
    require_same(found, whole)
    assert compact_events.run(spark, spec, Quiet())["is_new"] is False


def test_random_kills_on_the_servers_spoil_nothing(
    spark: SparkSession, services: Services, kafka: Kafka, tables: Tables, tmp_path: Path
) -> None:
    """Kill -9 of driver, Java or workers, anywhere: the pointer names a whole version; the last run makes what nobody disturbed would have made."""
    chance, mill = random.Random(SEED), EventMill(5_000, TENANTS, SEED)
    spec = servers_spec(services, kafka, tables.namespace, tmp_path)
    append_to_kafka(kafka, mill.events(KILLED_EVENTS))
    _length_s(spec, tmp_path)
    append_to_kafka(kafka, mill.events(500))
    usual_s = _length_s(spec, tmp_path)  # of a run like those that are killed: it reads what is new
    total, hits = KILLED_EVENTS + 500, Counter[str]()
    with caller(services) as own:
        for _ in range(KILLS):
            append_to_kafka(kafka, mill.events(500))
            total += 500
            whom, until = chance.choice(ALL), time.monotonic() + chance.uniform(0.2, 1.0) * usual_s
            with started(spec, tmp_path) as child:
                hits[whom] += child.kill_at(until, whom)
            states_from(HubCheckpoints(own, tables))  # raises unless every row is as the pointer counted

        require_hits(hits, KILLS)
        compact_events.run(spark, spec, Quiet())
        found = states_from(HubCheckpoints(own, tables))
    require_same(found, replay(EventMill(5_000, TENANTS, SEED).events(total), PARTITIONS))
    assert compact_events.run(spark, spec, Quiet())["is_new"] is False
    assert isinstance(spec.checkpoints, HBaseTables)
    with closing(HBaseCheckpoints(spec.checkpoints)) as store:
        assert len(store.versions()) <= 2


def _length_s(spec: Spec, folder: Path) -> float:
    """Return how long a run takes that nobody disturbs."""
    began = time.monotonic()
    with started(spec, folder) as child:
        code, said = child.finish()
    assert code == 0, said
    return time.monotonic() - began
