"""Jobs on the real Kafka and HBase: the hub's log read by place, checkpoints that a hub starts from, and what is refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.base.errors import BackendError, ConflictError, NotFoundError
from iothub.base.units import Endpoint
from iothub.config.sections import Kafka
from iothub.records.job_spec import HBaseTables, KafkaLog
from iothub.testing.checkpoint_contract import CASES, Case, pointer_to, rows_of
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.hbase.tables import Tables, layouts
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints as HubCheckpoints
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.service import StateService
from iothub_spark.jobs import compact_events, verify
from iothub_spark.stores import marks
from iothub_spark.stores.log import Stretch, range_after
from iothub_spark.stores.log_kafka import KafkaStretches
from iothub_spark.stores.rows_hbase import HBaseCheckpoints
from iothub_spark.stores.rows_hbase import HBaseStates as HBaseSessions
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller, fresh_tables
from tests.support.hbase.own_tables import made_tables
from tests.support.jobs.event_log import EventMill, replay
from tests.support.jobs.job_checkpoints import JobCheckpoints
from tests.support.jobs.server_log import append_to_kafka, load_sessions, servers_spec
from tests.support.jobs.spark import Quiet, facts_of, hold, require_same, spark, states_from
from tests.support.servers.kafka import own_settings, own_topics

__all__ = ["spark"]

PARTITIONS = 3
MADE, MORE = 6_000, 500
SESSIONS, TENANTS = 500, 20

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def own_checkpoints(_servers: Services) -> Iterator[deque[Tables]]:
    with fresh_tables(_servers, "checkpoints", len(CASES) + 1) as made:
        yield deque(made)


@pytest.fixture(scope="module")
def tables(_servers: Services) -> Iterator[Tables]:
    """State and checkpoints in a namespace of their own, cut where the sessions of the test are."""
    names = Tables("sparkjobs")
    wanted = [each for each in layouts(names.namespace, 8) if each.name.endswith((":state", ":checkpoints"))]
    with made_tables(_servers, [replace(each, splits=(b"\0\0\0\1device-3", b"\0\0\0\2")) for each in wanted]):
        yield names


@pytest.fixture
def kafka(services: Services) -> Iterator[Kafka]:
    with own_topics(services, partitions=PARTITIONS) as settings:
        yield settings


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_checkpoint_contract_holds_for_jobs_on_hbase(
    case: Case, services: Services, own_checkpoints: deque[Tables]
) -> None:
    """By happybase what the hub does by a client of its own."""
    place = HBaseTables((Endpoint(HOST, services.ports.thrift),), own_checkpoints.popleft().namespace)
    with closing(JobCheckpoints(HBaseCheckpoints(place))) as store:
        case(store)


def test_missing_table_is_named_with_what_makes_it(services: Services) -> None:
    """Whichever of ours, in whatever is done first; no waiting mends it."""
    place = HBaseTables((Endpoint(HOST, services.ports.thrift),), "sparknowhere")
    with closing(HBaseCheckpoints(place)) as checkpoints, closing(HBaseSessions(place)) as states:
        for name, ask in (
            ("checkpoints", checkpoints.pointer),
            ("checkpoints", checkpoints.marks),
            ("state", states.applied),
        ):
            with pytest.raises(
                NotFoundError, match=f"^missing in HBase: sparknowhere:{name}; create them: iothub hbase"
            ):
                ask()


def test_hub_and_job_share_the_table_and_marks_are_not_rows(services: Services, own_checkpoints: deque[Tables]) -> None:
    """Written by the one, read by the other; the first gateway that answers is taken."""
    tables = own_checkpoints.popleft()
    nobody = Endpoint(HOST, 1)
    place = HBaseTables((nobody, Endpoint(HOST, services.ports.thrift)), tables.namespace)
    with closing(JobCheckpoints(HBaseCheckpoints(place))) as job, caller(services) as own:
        hub, rows = HubCheckpoints(own, tables), rows_of(700)
        job.write(3, rows)
        marks.keep(job.driver, pointer_to(3, rows))
        assert job.move(None, pointer_to(3, rows))

        assert (hub.pointer(), hub.versions(), list(hub.rows(3))) == (pointer_to(3, rows), [3], rows)
        assert marks.kept(job.driver) == [pointer_to(3, rows)]
        marks.forget(job.driver, [3])
        assert marks.kept(job.driver) == []
        assert len(job.driver.get(3, [(1, "client-00003"), (1, "no")])) == 1

    with pytest.raises(BackendError, match=r"no HBase gateway answers at 127\.0\.0\.1:1"):
        HBaseCheckpoints(HBaseTables((nobody,), tables.namespace, timeout_s=1))


def test_log_on_kafka_is_read_by_place(services: Services, kafka: Kafka) -> None:
    """Every partition from where it was left to the end that was captured; offsets are the hub's."""
    append_to_kafka(kafka, list(EventMill(50, 3).events(900)))
    with (
        closing(KafkaStretches(KafkaLog(kafka.brokers, kafka.topic_prefix))) as log,
        closing(KafkaEvents(kafka)) as hub,
    ):
        assert (log.begin(), log.end()) == (hub.begin(), hub.end())
        wanted = range_after(log, (10, 0, 5))
        found = [
            (stretch.partition, event.offset, event.key)
            for stretch in wanted.stretches(6, 50)
            for page in log.read(stretch)
            for event in page
        ]
        expected = [(each.partition, each.offset, each.event.key.encode()) for each in hub.read((10, 0, 5), 2_000)]
        assert sorted(found) == sorted(expected)
        key = expected[0][2]
        some = [
            event
            for page in log.read(Stretch(expected[0][0], 0, log.end()[expected[0][0]]), keys=(key,))
            for event in page
        ]
        assert {event.key for event in some} == {key}

    with (
        closing(KafkaStretches(KafkaLog(kafka.brokers, own_settings(services).topic_prefix))) as none,
        pytest.raises(NotFoundError, match="the first `iothub serve` creates it"),
    ):
        none.end()


def test_checkpoint_on_the_servers_is_what_a_plain_replay_makes(
    spark: SparkSession, services: Services, kafka: Kafka, tables: Tables, tmp_path: Path
) -> None:
    """From nothing, then incrementally; a hub starts from it; verify finds no difference; a log without its beginning is refused."""
    mill, spec = EventMill(SESSIONS, TENANTS), servers_spec(services, kafka, tables.namespace, tmp_path)
    logged = list(mill.events(MADE))
    append_to_kafka(kafka, logged)
    first = compact_events.run(spark, spec, Quiet())
    assert first["events"] == MADE
    with caller(services) as own:
        require_same(states_from(HubCheckpoints(own, tables)), replay(logged, PARTITIONS))

        more = list(mill.events(MORE))
        append_to_kafka(kafka, more)
        second = compact_events.run(spark, spec, Quiet())
        assert (second["events"], second["base_rows"]) == (MORE, first["rows"])
        whole = replay(logged + more, PARTITIONS)
        require_same(states_from(HubCheckpoints(own, tables)), whole)
        assert compact_events.run(spark, spec, Quiet())["is_new"] is False

        with closing(KafkaEvents(kafka)) as log:
            hub = StateService(log, HBaseStates(own, tables), lambda name, text: None, HubCheckpoints(own, tables))
            live = {state.key: facts_of(state) for state in hub.load()}
            hub.idle()  # what the store lacked is written behind
            assert live == {key: facts for key, facts in whole.sessions.items() if not facts["is_ended"]}
            found = verify.run(spark, replace(spec, job="verify"), Quiet())
            assert found["sides"] == f"whole log, checkpoint {second['version']}, live session states"

            pointer = HubCheckpoints(own, tables).pointer()
            assert pointer is not None
            append_to_kafka(kafka, list(mill.events(300)))
            log.trim(tuple(offset + 20 for offset in pointer.offsets))
            with pytest.raises(
                ConflictError, match="does not match the log: events are missing: the log begins at offset"
            ):
                compact_events.run(spark, spec, Quiet())


def test_log_on_kafka_is_trimmed_behind_the_older_checkpoint(
    spark: SparkSession, services: Services, kafka: Kafka, tmp_path: Path
) -> None:
    """As the embedded one is, and never past another job's mark. The long form: `tests/nightly/test_kafka_trimming.py`."""
    tables = Tables("sparktrim")
    wanted = [each for each in layouts(tables.namespace, 1) if each.name.endswith((":state", ":checkpoints"))]
    mill, spec = EventMill(60, 3), servers_spec(services, kafka, tables.namespace, tmp_path)
    with made_tables(services, wanted), caller(services) as own, closing(KafkaEvents(kafka)) as log:
        hold(tmp_path, (7, 7, 7))
        for trimmed in (0, 21):
            append_to_kafka(kafka, list(mill.events(400)))
            with closing(KafkaEvents(kafka)) as fresh:
                load_sessions(fresh, own, tables)
            assert compact_events.run(spark, spec, Quiet())["events_trimmed"] == trimmed
        assert log.begin() == (8, 8, 8)
