"""A million messages through a stream while Kafka and the hub are killed: none is lost, and each publisher's come in their order.

Kafka is away for longer than a publish is held, so publishers are refused, or hear nothing, and publish again. A plain consumer runs beside.
`IOTHUB_STREAM_MESSAGES`: how many, for a shorter try.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from iothub.config.sections import Queues
from ops.services.services import Services
from tests.support.hubs.hub import Hub
from tests.support.servers.kafka import own_topics
from tests.support.servers.streams import Publisher, first_places, last_places, reading, records_in, stream_hub
from tests.support.waiting import until

MESSAGES = int(os.environ.get("IOTHUB_STREAM_MESSAGES", "1000000"))
PUBLISHERS = 10
WINDOW = 200
LIMIT_S = 60 + MESSAGES / 100
AWAY_S = (
    2.5 * Queues().give_up_s
)  # what Kafka was sent ends with a connection; what came after that is refused, a second time later
QUOTA_EXCEEDED = 0x97


@pytest.mark.timeout(3 * LIMIT_S)
def test_a_million_messages_survive_kills_of_kafka_and_hub(tmp_path: Path) -> None:
    """What came again is what had been refused, or was left unanswered."""
    services = Services(say=print)
    services.up("kafka")
    with own_topics(services) as kafka:
        hub = stream_hub(tmp_path, kafka)
        topic, file = f"{kafka.topic_prefix}.acme.telemetry", tmp_path / "read"
        hub.run("stream", "create", "acme", "telemetry", "sensors/#")
        hub.start()
        share = MESSAGES // PUBLISHERS
        crowd = [
            Publisher(hub.ports["tcp"], f"p{number}", f"sensors/{number}", share, WINDOW, version=5)
            for number in range(PUBLISHERS)
        ]
        with reading(services, topic, file):
            took_s = _publish(services, hub, crowd)
            count = records_in(services, topic)
            until(lambda: file.read_bytes().count(b"\n") >= count, "everything read", LIMIT_S)
        found = file.read_bytes().splitlines()

    refused = {each.client_id: each.refused for each in crowd}
    print(
        f"{share * PUBLISHERS} messages in {took_s:.0f} s with two kills, {sum(map(len, refused.values()))} refused meanwhile, "
        f"{sum(each.connections for each in crowd)} connections; {len(found)} records read, {len(found) - len(set(found))} of them again"
    )
    assert set.union(*(each.codes for each in crowd)) == {0, QUOTA_EXCEEDED}
    assert last_places(found) == {name: list(range(share)) for name in refused}
    first = {
        name: [each for each in numbers if each not in refused[name]] for name, numbers in first_places(found).items()
    }
    assert first == {name: [each for each in range(share) if each not in refused[name]] for name in refused}


def _publish(services: Services, hub: Hub, crowd: list[Publisher]) -> float:
    """Through both kills; returns the seconds that it took."""
    begun, total = time.monotonic(), sum(each.count for each in crowd)
    try:
        for each in crowd:
            each.start()
        _reach(crowd, total // 4)
        services.kill("kafka")
        time.sleep(AWAY_S)
        services.up("kafka")
        _reach(crowd, total // 2)
        hub.kill()
        hub.start()
        _reach(crowd, total)
        return time.monotonic() - begun
    finally:
        for each in crowd:
            each.is_stopped = True
        hub.close()


def _reach(crowd: list[Publisher], count: int) -> None:
    until(lambda: sum(each.acknowledged for each in crowd) >= count, f"{count} acknowledged", LIMIT_S)
