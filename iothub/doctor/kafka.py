"""The Kafka cluster of the session log: each broker's port, the cluster itself, our topics.

Knows our topics and no event. Nothing is made: that is the hub's.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from iothub.doctor.findings import Finding, Look, State, timed
from iothub.drivers import require_extra
from iothub.errors import NotFoundError
from iothub.settings import Kafka
from iothub.units import Endpoint

if TYPE_CHECKING:
    from iothub_services.events.kafka_topics import KafkaTopic

_NAME = "Kafka"
_HINT = "start it, or correct kafka.brokers"


def looks(settings: Kafka) -> list[Look]:
    return [
        *(Look(f"Kafka broker {each}", partial(_broker, each, settings)) for each in settings.brokers),
        Look(_NAME, lambda: _cluster(settings)),
    ]


def _broker(broker: Endpoint, settings: Kafka) -> Iterator[Finding]:
    """A broker that is not there is no failure of the cluster."""
    name = f"Kafka broker {broker}"
    try:
        connection, seconds = timed(lambda: socket.create_connection(broker, settings.timeout_s))
    except OSError as error:
        yield Finding(name, State.WARN, f"cannot be reached: {error.strerror or error}", _HINT)
        return
    connection.close()
    yield Finding(name, State.OK, "accepts connections", seconds=seconds)


def _cluster(settings: Kafka) -> Iterator[Finding]:
    require_extra('events.driver = "kafka"', "kafka", "kafka", "crc32c")
    from iothub_services.events.kafka_cluster import KafkaCluster
    from iothub_services.events.kafka_topics import look_at_topics

    cluster = KafkaCluster(settings)
    with cluster.admin() as admin:
        names, seconds = timed(admin.list_topics)
    yield Finding(_NAME, State.OK, f"{cluster.name} lists {len(names)} topics", seconds=seconds)
    try:
        topics, seconds = timed(lambda: look_at_topics(cluster))
    except NotFoundError as error:
        yield Finding("Kafka topics", State.OK, str(error))
        return
    for topic in topics:
        yield _topic(topic, seconds)


def _topic(topic: KafkaTopic, seconds: float) -> Finding:
    return Finding(
        f"Kafka topic {topic.name}", State.OK, f"{topic.partitions} partitions, as configured", seconds=seconds
    )
