"""A million messages through a stream while Kafka and the hub are killed: none is lost, and each publisher's came first in their order.

`IOTHUB_STREAM_MESSAGES`: how many, for a shorter try.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ops.services.house import Services
from tests.support.kafka import own_topics
from tests.support.streams import Publisher, first_places, records_of, stream_hub
from tests.support.waiting import until

MESSAGES = int(os.environ.get("IOTHUB_STREAM_MESSAGES", "1000000"))
PUBLISHERS = 10
WINDOW = 200
LIMIT_S = 60 + MESSAGES / 100


def test_a_million_messages_survive_kills_of_kafka_and_hub(tmp_path: Path) -> None:
    """The consumer is a plain one; what came again is what a kill had left unanswered."""
    services = Services(say=print)
    services.up("kafka")
    with own_topics(services) as kafka:
        hub = stream_hub(tmp_path, kafka, queues__give_up="2m")
        hub.run("stream", "create", "acme", "telemetry", "sensors/#")
        hub.start()
        share = MESSAGES // PUBLISHERS
        crowd = [
            Publisher(hub.ports["tcp"], f"p{number}", f"sensors/{number}", share, WINDOW)
            for number in range(PUBLISHERS)
        ]
        begun = time.monotonic()
        try:
            for each in crowd:
                each.start()
            _reach(crowd, MESSAGES // 4)
            services.kill("kafka")
            services.up("kafka")
            _reach(crowd, MESSAGES // 2)
            hub.kill()
            hub.start()
            _reach(crowd, share * PUBLISHERS)
            took_s = time.monotonic() - begun
        finally:
            for each in crowd:
                each.is_stopped = True
            hub.close()
        found = [value for _, _, value in records_of(services, f"{kafka.topic_prefix}.acme.telemetry")]

    print(
        f"{share * PUBLISHERS} messages in {took_s:.0f} s with two kills; {len(found)} records in the topic, "
        f"{len(found) - len(set(found))} of them again"
    )
    assert first_places(found) == {each.client_id: list(range(share)) for each in crowd}


def _reach(crowd: list[Publisher], count: int) -> None:
    until(lambda: sum(each.acknowledged for each in crowd) >= count, f"{count} acknowledged", LIMIT_S)
