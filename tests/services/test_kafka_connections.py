"""What attempts at brokers that are gone leave behind: nothing (`iothub_services.events.kafka.connections`).

kafka-python alone would leave descriptors, and a thread with each consumer.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import pytest
from kafka import KafkaProducer
from kafka.admin import NewTopic

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub.config.sections import Kafka
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.statistics import StatisticsWriter
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.waiting import PATIENCE_S, until

ATTEMPTS = 3
HASTY_S = 1.5  # each attempt at a broker that is gone lasts as long
NOBODY = Endpoint(HOST, 1)


def held() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def administer(cluster: KafkaCluster) -> object:
    with cluster.admin() as admin:
        return admin


@pytest.mark.parametrize("make", [KafkaCluster.producer, KafkaCluster.consumer, administer])
def test_attempts_at_brokers_that_are_gone_leave_no_descriptor_and_no_thread(
    make: Callable[[KafkaCluster], object],
) -> None:
    """A hub tries every second, all night if need be; the collector is away, as in a hub that allocates little."""
    cluster = KafkaCluster(Kafka(brokers=(NOBODY,), timeout_s=0.7))
    gc.collect()
    gc.disable()
    try:
        descriptors, threads = held()
        for _attempt in range(ATTEMPTS):
            with pytest.raises(BackendError, match="no answer"), cluster.errors_translated():
                make(cluster)
        assert held()[0] <= descriptors  # what earlier tests have left may end meanwhile
        assert held()[1] <= threads
    finally:
        gc.enable()


def test_a_writer_whose_broker_was_killed_keeps_nothing_of_its_attempts(broker_alone: Services, kafka: Kafka) -> None:
    """Its clients go on trying by themselves; those of the writer of statistics are made anew with each attempt."""
    hasty = replace(kafka, timeout_s=HASTY_S)
    sessions, statistics = KafkaEvents(hasty), KafkaEvents(hasty)
    writer = StatisticsWriter(statistics)
    try:
        sessions.probe()
        writer.probe()
        descriptors, threads = held()
        broker_alone.kill("kafka")
        gc.collect()
        gc.disable()
        for _attempt in range(ATTEMPTS):
            with pytest.raises(BackendError):
                sessions.probe()
            with pytest.raises(BackendError):
                writer.probe()
        until(lambda: held()[0] <= descriptors, "the descriptors of refused attempts to be closed")
        assert held()[1] <= threads
    finally:
        gc.enable()
        broker_alone.up("kafka")
        sessions.close()
        statistics.close()
        with warnings.catch_warnings():  # a client that is closed while it connects leaves that socket to the collector
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def test_producer_that_waits_for_a_leader_takes_no_processor(broker_alone: Services, kafka: Kafka) -> None:
    """Its topic is gone while it has a record for it; when the topic is there again the record is, too."""
    topic = f"{kafka.topic_prefix}.leaderless"
    cluster = KafkaCluster(kafka)
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
        producer = cluster.producer()
        producer.send(topic, b"first", partition=0).get(PATIENCE_S)
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics(), "the topic is gone")
        waiting = producer.send(topic, b"second", partition=0)
        time.sleep(1.0)
        taken, began = producer_thread_s(producer), time.monotonic()
        time.sleep(3.0)
        share = (producer_thread_s(producer) - taken) / (time.monotonic() - began)
        admin.create_topics([NewTopic(topic, 1, 1)])
        waiting.get(PATIENCE_S)
        producer.close(PATIENCE_S)

    assert share < 0.1


def producer_thread_s(producer: KafkaProducer) -> float:
    """Processor time of the thread that sends."""
    return time.clock_gettime(time.pthread_getcpuclockid(producer._sender.ident))
