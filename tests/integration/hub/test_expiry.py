"""Messages expire in the queues of clients that are away: they leave the store and the quota, counted by name, and nothing else is lost."""

from __future__ import annotations

import http.client
from collections.abc import Callable

from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S, until

SHORT = [(names.MESSAGE_EXPIRY, 1)]


def expired(hub: Hub) -> str:
    """The line of the metric."""
    connection = http.client.HTTPConnection("127.0.0.1", hub.ports["http"], timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    return next(line for line in page.splitlines() if 'reason="expired"' in line and not line.startswith("#"))


def queued(hub: Hub) -> int:
    return int(str(hub.rows("queue", "list", "acme")[0]["messages"]))


def test_messages_expire_while_their_client_is_away(
    make_hub: Callable[..., Hub], clients: Callable[..., Clients]
) -> None:
    """[MQTT-3.3.2-5]; the client got one message before, so that its positions are reserved far ahead. A full queue takes messages again."""
    hub = make_hub()
    hub.run("quota", "set", "acme", "session_queued_messages=5")
    hub.start()
    join = clients(hub)
    sleeper = join(5, "sleeper", keep=True)
    sleeper.subscribe(("a", 1))
    writer = join(5, device="dev2")
    writer.publish("a", b"first", 1)
    assert sleeper.payloads() == [b"first"]
    sleeper.disconnect()
    for payload in (b"short 1", b"short 2"):
        writer.publish("a", payload, 1, props=SHORT)
    writer.publish("a", b"long", 1)
    for payload in (b"short 3", b"short 4"):
        writer.publish("a", payload, 1, props=SHORT)

    until(lambda: queued(hub) == 1, "only what does not expire is left")

    assert float(expired(hub).rpartition(" ")[2]) == 4
    for number in range(4):
        answer = writer.publish("a", b"new %d" % number, 1)
        assert answer is not None
        assert answer.code == 0
    sleeper = join(5, "sleeper", keep=True)
    assert sleeper.connack.session_present
    assert sleeper.payloads(5) == [b"long", b"new 0", b"new 1", b"new 2", b"new 3"]
    sleeper.nothing()
