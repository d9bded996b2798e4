"""A producer's questions for metadata: one at a time. That it saves a processor is seen on the real Kafka (`test_kafka_connections`)."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.cluster import ClusterMetadata

from iothub_services.events.kafka.metadata import ask_once


class _Loop:
    """Stands for the client's I/O: counts how often the thread would have been woken."""

    def __init__(self) -> None:
        self.woken = 0

    def call_soon_threadsafe(self, _callback: object) -> None:
        self.woken += 1


class _Manager:
    def __init__(self) -> None:
        self._net = _Loop()

    def call_soon(self, refresh: Any) -> object:
        refresh().close()
        return object()


class _Producer:
    def __init__(self) -> None:
        self.manager = _Manager()
        self._metadata = ClusterMetadata()
        self._metadata.attach(self.manager)


@pytest.fixture
def producer() -> _Producer:
    made = _Producer()
    ask_once(made)
    return made


def test_a_question_that_is_under_way_is_not_asked_again(producer: _Producer) -> None:
    first = producer._metadata.request_update()
    for _ in range(10):
        assert producer._metadata.request_update() is first

    assert producer.manager._net.woken == 1


def test_the_next_question_is_asked_when_one_has_failed(producer: _Producer) -> None:
    first = producer._metadata.request_update()
    first.failure(ConnectionError())

    assert producer._metadata.request_update() is not first
    assert producer.manager._net.woken == 2
