"""A hub whose session log is on the real Kafka: the server is killed, paused, away at the start. What was acknowledged is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.config.sections import Kafka
from ops.services.services import Services
from tests.support.clients.packets import SUBACK
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import (
    PERSISTENT,
    Subscribing,
    folded,
    kafka_hub,
    log_of,
    readiness,
    subscribed,
)
from tests.support.night import at_night, by_day
from tests.support.waiting import PATIENCE_S, until

FILTERS = by_day(500, 1_000)
PAUSE_S = 6.0


@pytest.fixture
def hub(tmp_path: Path, kafka: Kafka) -> Iterator[Hub]:
    hub = kafka_hub(tmp_path, kafka, queues__give_up="2m")
    yield hub
    hub.close()


def is_ready(hub: Hub) -> bool:
    return readiness(hub)[0]


@pytest.mark.parametrize("clients", [4, *at_night(20)])
def test_kill_of_kafka_during_thousands_of_subscribes_loses_nothing(
    broker_alone: Services, kafka: Kafka, hub: Hub, clients: int
) -> None:
    """Every SUBACK's event is in the log, once; the hub goes on by itself; a hub that was killed finds all of it again."""
    hub.start()
    crowd = [Subscribing(hub.ports["tcp"], f"client-{number}", FILTERS) for number in range(clients)]
    for subscriber in crowd:
        subscriber.start()
    until(lambda: sum(len(each.granted) for each in crowd) > clients * FILTERS // 7, "SUBACKs before the kill")
    broker_alone.kill("kafka")
    until(lambda: not is_ready(hub), "the hub says that a store fails")
    before = sum(len(each.granted) for each in crowd)
    broker_alone.up("kafka")
    returned = time.monotonic()
    until(lambda: sum(len(each.granted) for each in crowd) > before, "SUBACKs after Kafka's return")
    until(lambda: is_ready(hub), "the hub is ready again")
    print(f"SUBACKs {before} before, ready {time.monotonic() - returned:.1f} s after Kafka's return")
    for subscriber in crowd:
        subscriber.close()
    hub.kill()

    events = log_of(kafka)
    sessions = folded(events)
    granted = {each.client_id: each.granted for each in crowd}
    assert sum(map(len, granted.values())) == clients * FILTERS
    for client_id, filters in granted.items():
        assert filters <= {topic_filter for _, topic_filter in sessions[client_id].subscriptions}
    assert len([1 for logged in events if logged.event.type.word == "session.subscribed"]) == clients * FILTERS
    hub.start(PATIENCE_S)
    rows = {str(row["name"]): row["subscriptions"] for row in hub.rows("session", "list", "acme")}
    assert rows == dict.fromkeys(granted, FILTERS)


def test_pause_of_kafka_holds_acknowledgements_back(broker_alone: Services, kafka: Kafka, hub: Hub) -> None:
    """No SUBACK without its event; an alarm; after the pause everything goes on, and the event is there once."""
    hub.start()
    with RawClient(hub.ports["tcp"], 5) as client:
        client.connect("c", "acme/dev1", clean=False, props=PERSISTENT)
        client.subscribe(("before", 1))
        broker_alone.pause("kafka")
        client.timeout = PAUSE_S
        with pytest.raises(TimeoutError):
            client.subscribe(("during", 1))
        ready, reasons = readiness(hub)
        assert not ready
        assert "a store refuses writes" in reasons
        broker_alone.resume("kafka")
        client.timeout = PATIENCE_S
        client.expect(SUBACK)
        client.subscribe(("after", 1))
        until(lambda: is_ready(hub), "the hub is ready again")

    events = log_of(kafka)
    assert [subscribed(events, name) for name in ("before", "during", "after")] == [1, 1, 1]


def test_subscription_that_was_refused_is_not_there_afterwards(
    broker_alone: Services, kafka: Kafka, tmp_path: Path
) -> None:
    """The producer had its event when the hub gave up, and writes it when Kafka is back; so another event has to undo it."""
    hub = kafka_hub(tmp_path, kafka, queues__give_up="2s")
    hub.start()
    try:
        with RawClient(hub.ports["tcp"], 5) as client:
            client.connect("c", "acme/dev1", clean=False, props=PERSISTENT)
            client.subscribe(("before", 1))  # after it, no event of the CONNECT is on its way
            broker_alone.pause("kafka")
            assert client.subscribe(("refused", 1)).codes == [0x80]
            broker_alone.resume("kafka")
            until(lambda: is_ready(hub), "the hub is ready again")
            assert client.subscribe(("granted", 1)).codes == [1]
    finally:
        broker_alone.resume("kafka")
        hub.close()

    events = log_of(kafka)
    assert subscribed(events, "refused") == 1
    assert list(folded(events)["c"].subscriptions) == [(None, "before"), (None, "granted")]


def test_hub_waits_for_kafka_at_the_start(broker_alone: Services, kafka: Kafka, hub: Hub) -> None:
    """With a reason that everybody can see; it goes on by itself; who does not want to wait says so; SIGTERM ends the wait."""
    broker_alone.down("kafka")
    refused = hub.start_impatiently()
    assert refused.returncode == 7
    assert refused.stderr.startswith("iothub: Kafka at 127.0.0.1:")
    for is_patient in (False, True):
        hub.launch()
        until(lambda: "waiting for Kafka" in readiness(hub)[1], "the reason on /readyz")
        assert not is_ready(hub)
        if not is_patient:
            assert hub.stop() == 0

    broker_alone.up("kafka")

    until(lambda: is_ready(hub), "the hub is ready")
    with RawClient(hub.ports["tcp"], 5) as client:
        client.connect("c", "acme/dev1", clean=False, props=PERSISTENT)
        client.subscribe(("a", 1))
    assert hub.stop() == 0
    assert "Traceback" not in hub.log
