"""The event log on the real Kafka: the contract of the port, our topics, and what kill, pause and restart do to what was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iothub.settings import Kafka
from iothub.testing.event_contract import CASES, Case
from iothub_services.events.kafka import KafkaEvents
from ops.services.house import Services
from tests.support.kafka import own_topics


@pytest.fixture
def kafka(services: Services) -> Iterator[Kafka]:
    with own_topics(services) as settings:
        yield settings


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_events_contract(case: Case, kafka: Kafka) -> None:
    """Kafka does what every driver does."""
    log = KafkaEvents(kafka)
    try:
        case(log)
    finally:
        log.close()
