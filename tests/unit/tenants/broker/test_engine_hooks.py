"""Plug-ins between the engine's messages and the clients: they see, change a payload, or drop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iothub.base.reasons import Drop
from iothub.engine.state import TenantPlane
from iothub.hooks import Client, Hooks, Publication
from iothub_tenants.broker.engine_hooks import plug_in
from tests.support.in_process.control_harness import Harness, plugged

Make = Callable[..., Harness]


def test_nothing_is_put_in_front_without_plug_ins() -> None:
    plane = TenantPlane(7, "acme")
    plug_in(Hooks(), plane)

    assert (plane.publish_hook, plane.deliver_hook) == (None, None)


def test_publish_sees_client_and_message(make_harness: Make) -> None:
    seen: list[tuple[Client, Publication]] = []

    def look(client: Client, publication: Publication) -> Publication:
        seen.append((client, publication))
        return publication

    harness = make_harness(hooks=plugged(publish=look))
    client = harness.join()
    client.subscribe(("a", 0))
    client.publish("a", b"x", 1)

    assert seen == [
        (Client("acme", "dev1", "c", "192.0.2.1:4711", "tcp", 5), Publication("a", b"x", 1, is_retained=False))
    ]
    assert [packet.payload for packet in client.get()] == [b"x"]


def test_publish_changes_the_payload(make_harness: Make) -> None:
    """Topic, QoS and properties stay."""
    harness = make_harness(hooks=plugged(publish=lambda _client, publication: replace(publication, payload=b"blank")))
    client = harness.join()
    client.subscribe(("a", 1))
    client.publish("a", b"x", 1, props=[(0x03, "text/plain")])

    (packet,) = client.get()
    assert (packet.topic, packet.payload, packet.qos, packet.property(0x03)) == ("a", b"blank", 1, "text/plain")


def test_publish_drops(make_harness: Make) -> None:
    """Counted by name."""
    harness = make_harness(hooks=plugged(publish=lambda _client, _publication: None))
    client = harness.join()
    client.subscribe(("a", 0))
    client.publish("a", b"x", 1)

    assert client.fence() == []
    assert harness.acme.plane.counters.dropped[Drop.HOOK] == 1


def test_deliver_decides_for_each_receiver(make_harness: Make) -> None:
    def only_to_one(client: Client, publication: Publication) -> Any:
        return publication if client.client_id == "one" else None

    harness = make_harness(hooks=plugged(deliver=only_to_one))
    one, two = harness.join("one"), harness.join("two")
    one.subscribe(("a", 0))
    two.subscribe(("a", 0))
    harness.join("p").publish("a", b"x", 1)

    assert [packet.payload for packet in one.get()] == [b"x"]
    assert two.fence() == []
