"""$events/... of a running hub (`iothub.hub.composition.events`): for the tenant's own devices that have a rule for it, and for nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.support.clients.mqtt_clients import Client, Clients
from tests.support.clients.packets import Packet
from tests.support.hubs.hub import Hub
from tests.support.waiting import until

REFUSED = 0x87


def watch(hub: Hub, client: Client, *topic_filters: str) -> None:
    """Subscribe as soon as the rule is applied."""
    for topic_filter in topic_filters:
        until(lambda name=topic_filter: client.subscribe((name, 1)).codes == [1], f"{topic_filter} is allowed")


def until_event(client: Client, topic: str) -> tuple[dict[str, object], list[Packet]]:
    """Return the body of the next event with this Topic Name, and all that came before it."""
    before: list[Packet] = []
    while True:
        (packet,) = client.take()
        if packet.topic == topic:
            body: dict[str, object] = json.loads(packet.payload)
            return body, before
        before.append(packet)


def test_a_tenant_follows_its_own_clients(make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]) -> None:
    """Connects, refused logins, subscriptions and ends, each with its reason; only with a rule that names `$events`."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    watcher = join(5, "watcher")
    assert watcher.subscribe(("$events/#", 1)).codes == [REFUSED]
    hub.run("acl", "allow", "acme", "dev1", "subscribe", "$events/#")
    watch(hub, watcher, "$events/#")

    guest = join(5, "guest", device="dev2", keep=True)
    body, _ = until_event(watcher, "$events/client/connected/guest")
    assert (body["tenant"], body["device"], body["session_expiry_s"]) == ("acme", "dev2", 3600)

    guest.subscribe(("a/#", 1))
    assert until_event(watcher, "$events/subscription/added/guest")[0]["filter"] == "a/#"

    assert join.ask(5, "stranger", device="dev2", password="wrong").connack.code == REFUSED
    body, _ = until_event(watcher, "$events/client/connect_failed/stranger")
    assert (body["reason"], body["rule"]) == ("bad_credentials", "wrong_secret")

    guest.disconnect()
    body, _ = until_event(watcher, "$events/client/disconnected/guest")
    assert (body["reason"], body["code"]) == ("client", 0)

    assert watcher.publish("$events/client/connected/x", b"{}", 1).code == REFUSED  # type: ignore[union-attr]


def test_no_filter_of_another_tenant_sees_an_event(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """Not with a wildcard, not in a shared subscription, not under the other tenant's name."""
    hub = make_hub()
    hub.tenant("beta", "spy", "other")
    for tenant, device in (("acme", "dev1"), ("beta", "spy")):
        hub.run("acl", "allow", tenant, device, "subscribe", "$events/#")
    hub.start()
    join = clients(hub)
    own, spy = join(5, "own"), join(5, "spy", tenant="beta", device="spy")
    watch(hub, own, "$events/#")
    everything = ("#", "+/client/#", "+/#", "$share/g/#", "$events/#", "$share/g/$events/#", "$events/+/+/+")
    codes = spy.subscribe(*((topic_filter, 1) for topic_filter in everything)).codes
    assert codes == [1] * len(everything)

    join(5, "mine", device="dev2").disconnect()
    until_event(own, "$events/client/disconnected/mine")
    join(5, "theirs", tenant="beta", device="other").disconnect()
    _, before = until_event(spy, "$events/client/disconnected/theirs")

    tenants = {json.loads(packet.payload)["tenant"] for packet in before}
    assert tenants == {"beta"}
    assert all(packet.topic.startswith("$events/") for packet in before)


def test_a_persistent_session_gets_the_events_of_its_absence(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """Events are QoS 1: they wait in the queue, over a restart of the hub."""
    hub = make_hub()
    hub.run("acl", "allow", "acme", "dev1", "subscribe", "$events/#")
    hub.start()
    join = clients(hub)
    watcher = join(5, "watcher", keep=True)
    watch(hub, watcher, "$events/client/connected/+")
    watcher.disconnect()
    join(5, "guest", device="dev2")
    assert hub.stop() == 0
    hub.start()

    again = clients(hub)(5, "watcher", keep=True)
    assert until_event(again, "$events/client/connected/guest")[0]["client"] == "guest"
