"""The log on the real Kafka is trimmed behind checkpoints, and a hub goes on from what is kept.

The long form of what `tests/services/test_spark_jobs.py` does with two compactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.base.errors import ConflictError
from iothub.config.sections import Kafka
from iothub.records.events import Event, Topic
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.kafka.topics import topic_name
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import Tables, layouts
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints as HubCheckpoints
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.service import StateService
from iothub_spark.jobs import compact_events, verify
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller
from tests.support.hbase.own_tables import made_tables
from tests.support.jobs.event_log import EventMill, Facts, replay
from tests.support.jobs.server_log import append_to_kafka, load_sessions, servers_spec
from tests.support.jobs.spark import Quiet, facts_of, hold, spark, states_from
from tests.support.servers.kafka import own_topics, produce

__all__ = ["spark"]

PARTITIONS = 3

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def kafka(services: Services) -> Iterator[Kafka]:
    with own_topics(services, partitions=PARTITIONS) as settings:
        yield settings


def test_log_on_kafka_is_trimmed_behind_the_older_checkpoint(
    spark: SparkSession, services: Services, kafka: Kafka, tmp_path: Path
) -> None:
    """As the embedded one is: never past another job's mark, nor past what the states have; a hub goes on from what is kept.

    And what nobody can read ends a compaction before it trims; the live states are the way out.
    """
    tables = Tables("sparktrim")
    wanted = [each for each in layouts(tables.namespace, 1) if each.name.endswith((":state", ":checkpoints"))]
    mill, spec = EventMill(60, 3), servers_spec(services, kafka, tables.namespace, tmp_path)
    logged: list[Event] = []

    def compact(own: DirectCaller) -> dict[str, object]:
        more = list(mill.events(400))
        logged.extend(more)
        append_to_kafka(kafka, more)
        with closing(KafkaEvents(kafka)) as log:
            load_sessions(log, own, tables)
        return dict(compact_events.run(spark, spec, Quiet()))

    with made_tables(services, wanted), caller(services) as own, closing(KafkaEvents(kafka)) as log:
        hold(tmp_path, (7, 7, 7))
        assert compact(own)["events_trimmed"] == 0
        first = log.end()
        assert compact(own)["events_trimmed"] == 21
        assert log.begin() == (8, 8, 8)
        hold(tmp_path, None)

        second = log.end()
        assert compact(own)["events_trimmed"] == sum(second) - 21
        assert log.begin() == tuple(offset + 1 for offset in second)
        assert first != second

        whole = replay(logged, PARTITIONS)
        alarms: list[str] = []
        for states in (HBaseStates(own, tables), MemoryStates()):
            hub = StateService(log, states, lambda name, text: alarms.append(name), HubCheckpoints(own, tables))
            live = {state.key: facts_of(state) for state in hub.load()}
            hub.idle()  # what the store lacked is written behind
            assert live == {key: facts for key, facts in whole.sessions.items() if not facts["is_ended"]}
        assert alarms == []
        assert verify.run(spark, replace(spec, job="verify"), Quiet())["sides"].startswith("checkpoint ")
        with pytest.raises(ConflictError, match="neither checkpoint nor session states have the events before it"):
            StateService(log, MemoryStates(), lambda name, text: None).load()

        more = list(mill.events(400))
        logged.extend(more)
        append_to_kafka(kafka, more)
        produce(services, topic_name(kafka, Topic.SESSIONS), b"no event")
        report = Quiet()
        assert compact_events.run(spark, spec, report)["damaged"] == 1
        assert any("1 damaged records were passed over, such as: event of nobody" in note for note in report.notes)
        found = {each.key: facts_of(each) for each in states_from(HubCheckpoints(own, tables)).values()}
        assert _alive(found) == _alive(replay(logged, PARTITIONS).sessions)


def _alive(sessions: dict[tuple[int, str], Facts]) -> dict[tuple[int, str], Facts]:
    return {key: facts for key, facts in sessions.items() if not facts["is_ended"]}
