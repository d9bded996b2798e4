"""A whole hub on the real Kafka whose topic for statistics goes away: no client notices, and usage is written again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import IotHubError
from iothub.config.sections import Kafka
from iothub.records.events import EventType, Topic
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.kafka.topics import topic_name
from iothub_services.events.port import NOWHERE
from ops.services.services import Services
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import Subscribing, kafka_hub, readiness
from tests.support.servers.kafka import delete_topic
from tests.support.waiting import PATIENCE_S, until

FILTERS = 200


@pytest.fixture
def hub(tmp_path: Path, kafka: Kafka) -> Iterator[Hub]:
    hub = kafka_hub(tmp_path, kafka, events__usage_interval="1s")
    yield hub
    hub.close()


def usage_of(kafka: Kafka) -> set[object]:
    """The numbers of the records of usage that the topic has now."""
    with closing(KafkaEvents(kafka, is_read_only=True)) as log:
        try:
            page = log.read(NOWHERE, 10_000, Topic.ANALYTICS)
        except IotHubError:
            return set()
    return {logged.event.facts["sequence"] for logged in page if logged.event.type is EventType.USAGE_COUNTED}


def subscribe(hub: Hub, client_id: str) -> set[str]:
    subscriber = Subscribing(hub.ports["tcp"], client_id, FILTERS)
    subscriber.start()
    subscriber.close()
    return subscriber.granted


def test_no_client_waits_for_the_topic_of_the_statistics(broker_alone: Services, kafka: Kafka, hub: Hub) -> None:
    """SUBACKs leave, the hub stays ready, its topic is made anew by itself, and the alarm has ended."""
    hub.start()
    assert len(subscribe(hub, "before")) == FILTERS
    until(lambda: bool(usage_of(kafka)), "usage in the log")
    before = usage_of(kafka)

    delete_topic(broker_alone, topic_name(kafka, Topic.ANALYTICS))
    for number in range(5):
        assert len(subscribe(hub, f"client-{number}")) == FILTERS
        assert readiness(hub)[0]

    until(
        lambda: bool(found := usage_of(kafka)) and not before <= found,
        "usage in a topic that was made anew, and has nothing of the deleted one",
        PATIENCE_S,
    )
    until(lambda: hub.log.count("alarm cleared") == hub.log.count("alarm raised"), "the end of the alarm")
    assert '"subject":"events"' not in hub.log.replace(" ", "")
    assert hub.stop() == 0
