"""The Kafka cluster of session log and streams: each broker's port, the cluster itself, the topics of the log.

Knows these topics and no event. Creates nothing; only the hub does.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from iothub.base.errors import NotFoundError
from iothub.base.units import Endpoint
from iothub.config.sections import Kafka
from iothub.doctor.findings import Check, Finding, State, of_probe, timed
from iothub.hub.stores.drivers import require_extra

if TYPE_CHECKING:
    from iothub_services.events.kafka.topics import KafkaTopic

_NAME = "Kafka"


def checks(settings: Kafka, *, has_log: bool, is_needed: Callable[[], bool]) -> list[Check]:
    """`has_log`: Kafka has the session log; else only streams. `is_needed`: whether the hub uses Kafka at all; it may block."""
    return [
        *(Check(f"Kafka broker {each}", partial(_broker, each, settings)) for each in settings.brokers),
        Check(_NAME, lambda: _cluster(settings, has_log=has_log, is_needed=is_needed)),
    ]


def _broker(broker: Endpoint, settings: Kafka) -> Iterator[Finding]:
    """A broker that does not answer is a warning: the cluster may work without it."""
    name = f"Kafka broker {broker}"
    try:
        connection, seconds = timed(lambda: socket.create_connection(broker, settings.timeout_s))
    except OSError as error:
        yield Finding(name, State.WARN, f"cannot be reached: {error.strerror or error}", "check kafka.brokers")
        return
    connection.close()
    yield Finding(name, State.OK, "accepts connections", seconds=seconds)


def _cluster(settings: Kafka, *, has_log: bool, is_needed: Callable[[], bool]) -> Iterator[Finding]:
    require_extra("kafka.brokers", "kafka", "kafka", "crc32c")
    from iothub_services.events.kafka.cluster import KafkaCluster
    from iothub_services.events.kafka.probe import probe
    from iothub_services.events.kafka.topics import look_at_topics

    cluster = KafkaCluster(settings)
    found = probe(cluster)
    if not found.is_reached:
        yield of_probe(_NAME, found, State.FAIL if is_needed() else State.WARN)
        return
    with cluster.admin() as admin:
        brokers = len(admin.describe_cluster()["brokers"])
    yield _answer(found.words, brokers, settings.replication, found.seconds)
    if not has_log:
        return
    try:
        topics, seconds = timed(lambda: look_at_topics(cluster))
    except NotFoundError as error:
        yield Finding("Kafka topics", State.OK, str(error))
        return
    for topic in topics:
        yield _topic(topic, seconds)


def _answer(text: str, brokers: int, copies: int, seconds: float) -> Finding:
    if brokers < copies:
        what = f"{text}; {brokers} of the {copies} brokers that kafka.replication needs"
        return Finding(
            _NAME,
            State.WARN,
            what,
            "start more brokers or lower kafka.replication; until then no topic can be created",
            seconds,
        )
    return Finding(_NAME, State.OK, text, seconds=seconds)


def _topic(topic: KafkaTopic, seconds: float) -> Finding:
    return Finding(
        f"Kafka topic {topic.name}", State.OK, f"{topic.partitions} partitions, as configured", seconds=seconds
    )
