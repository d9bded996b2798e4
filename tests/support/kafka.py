"""A few words with the real Kafka, as the tests need them. Knows no hub."""

from __future__ import annotations

from kafka import KafkaAdminClient, KafkaProducer

from ops.services.house import Services

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
    admin = KafkaAdminClient(bootstrap_servers=broker(services))
    try:
        admin.delete_topics([name])
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
