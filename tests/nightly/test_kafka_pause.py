"""A hub on the real Kafka, which is paused for as long as the hub is patient: the long form of `tests/services/test_kafka_faults.py`."""

from __future__ import annotations

import time
from pathlib import Path

from ops.services.services import Services
from tests.support.hubs.kafka_hub import Subscribing, folded, kafka_hub, log_of, readiness
from tests.support.servers.kafka import own_topics
from tests.support.waiting import until

PAUSE_S = 30.0
CLIENTS = 10
FILTERS = 500


def test_pause_of_30_s_loses_nothing(services: Services, tmp_path: Path) -> None:
    """Under load: nothing is refused, everything is acknowledged afterwards, once, and the hub is ready within 10 s."""
    with own_topics(services) as kafka:
        hub = kafka_hub(tmp_path, kafka, queues__give_up="2m")
        hub.start()
        try:
            crowd = [Subscribing(hub.ports["tcp"], f"client-{number}", FILTERS) for number in range(CLIENTS)]
            for subscriber in crowd:
                subscriber.start()
            until(lambda: sum(len(each.granted) for each in crowd) > 500, "SUBACKs before the pause", 60)
            services.pause("kafka")
            begun = time.monotonic()
            until(lambda: time.monotonic() - begun > PAUSE_S, "the end of the pause", PAUSE_S + 5)
            assert not readiness(hub)[0]
            services.resume("kafka")
            until(lambda: readiness(hub)[0], "the hub is ready again", 10)
            for subscriber in crowd:
                subscriber.close()
        finally:
            services.resume("kafka")
            hub.close()
        events = log_of(kafka)
    sessions = folded(events)

    assert [len(each.granted) for each in crowd] == [FILTERS] * CLIENTS
    assert {client_id: len(state.subscriptions) for client_id, state in sessions.items()} == {
        each.client_id: FILTERS for each in crowd
    }
    assert sum(each.event.type.word == "session.subscribed" for each in events) == FILTERS * CLIENTS
