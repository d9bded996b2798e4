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
from iothub_services.events.kafka.log import KafkaEvents
from iothub_spark.spec import HBaseTables, KafkaLog, Spec
from ops.services.house import Services
from ops.services.places import HOST
from tests.support.spark import sqlite_spec

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
