"""A few words with the real Kafka, as the tests need them. Knows no hub."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from iothub.base.units import Endpoint
from iothub.config.sections import Kafka
from ops.services.services import Services
from tests.support.waiting import until

WAIT_S = 30.0


def broker(services: Services) -> str:
    return f"127.0.0.1:{services.ports.kafka}"


def create_topic(services: Services, name: str) -> None:
    """Make a topic with one partition."""
    admin = KafkaAdminClient(bootstrap_servers=broker(services))
    try:
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})
    finally:
        admin.close()


def delete_topic(services: Services, name: str) -> None:
    """Delete a topic, and wait until its broker knows: it takes records meanwhile, and they are gone then."""
    admin = KafkaAdminClient(bootstrap_servers=broker(services))
    try:
        admin.delete_topics([name])
        until(lambda: name not in admin.list_topics(), f"a broker without the topic {name}", WAIT_S)
    finally:
        admin.close()


def change_topic(services: Services, name: str, **settings: str) -> None:
    """Set a topic's own settings."""
    admin = KafkaAdminClient(bootstrap_servers=broker(services))
    try:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=settings)])
    finally:
        admin.close()


def produce(services: Services, topic: str, value: bytes) -> int:
    """Return the offset of the acknowledged record."""
    producer = KafkaProducer(bootstrap_servers=broker(services))
    try:
        offset: int = producer.send(topic, value, partition=0).get(timeout=WAIT_S).offset
        return offset
    finally:
        producer.close(timeout=WAIT_S)


def own_settings(services: Services, *, partitions: int = 4, timeout_s: float = 3.0) -> Kafka:
    """Return settings with topics of their own: tests share the broker, not the log."""
    prefix = f"test-{uuid.uuid4().hex[:12]}"
    brokers = (Endpoint("127.0.0.1", services.ports.kafka),)
    return Kafka(brokers, topic_prefix=prefix, partitions=partitions, replication=1, timeout_s=timeout_s)


@contextmanager
def own_topics(services: Services, *, partitions: int = 4, timeout_s: float = 3.0) -> Iterator[Kafka]:
    """Settings with topics of their own, which are gone afterwards."""
    settings = own_settings(services, partitions=partitions, timeout_s=timeout_s)
    try:
        yield settings
    finally:
        services.up("kafka")
        admin = KafkaAdminClient(bootstrap_servers=broker(services))
        try:
            ours = [name for name in admin.list_topics() if name.startswith(f"{settings.topic_prefix}.")]
            if ours:
                admin.delete_topics(ours)
        finally:
            admin.close()
