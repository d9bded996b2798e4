"""The session log of tests on Kafka, and specs of jobs over it with checkpoints and states in HBase."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

from iothub.base.units import Endpoint
from iothub.config.sections import Kafka
from iothub.records.events import Event
from iothub.records.job_spec import HBaseTables, KafkaLog, Spec
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import Tables
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.service import StateService
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.jobs.spark import sqlite_spec

_AT_ONCE = 1_000  # events of one append


def servers_spec(services: Services, kafka: Kafka, namespace: str, folder: Path) -> Spec:
    """Return the spec of a compaction of the log in Kafka, with checkpoints and states in a namespace of HBase."""
    hbase = HBaseTables((Endpoint(HOST, services.ports.thrift),), namespace)
    log = KafkaLog(kafka.brokers, kafka.topic_prefix, kafka.timeout_s)
    return replace(sqlite_spec(folder), events=log, checkpoints=hbase, state=hbase)


def append_to_kafka(kafka: Kafka, logged: Iterable[Event]) -> None:
    """Append events as a hub does."""
    events = iter(logged)
    with closing(KafkaEvents(kafka)) as log:
        while batch := list(islice(events, _AT_ONCE)):
            log.append(batch)


def load_sessions(log: KafkaEvents, own: DirectCaller, tables: Tables) -> None:
    """Load the sessions as a hub does, and write behind what the states lacked."""
    hub = StateService(log, HBaseStates(own, tables), lambda name, text: None, HBaseCheckpoints(own, tables))
    hub.load()
    hub.idle()
