"""$SYS/tenant/... of a running hub."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.waiting import until


def test_tenant_reads_its_own_figures_and_nobody_elses(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """Another tenant's work moves nothing here; the rule that opens all topics does not open $SYS."""
    hub = make_hub(mqtt__sys_interval="1s")
    hub.tenant("beta", "dev1")
    hub.run("quota", "set", "acme", "connections=10")
    hub.start()
    join = clients(hub)
    beta = join(5, tenant="beta")
    beta.publish("a", b"x", 1)

    client = join(5)
    assert client.subscribe(("$SYS/tenant/#", 0)).codes == [0x87]
    hub.run("acl", "allow", "acme", "dev1", "subscribe", "$SYS/tenant/#")
    until(lambda: client.subscribe(("$SYS/tenant/#", 1)).codes == [1], "the rule is applied")
    figures = {packet.topic: packet.payload for packet in client.fence() if packet.topic}

    assert figures["$SYS/tenant/connections"] == b"1"
    assert figures["$SYS/tenant/quota/connections/limit"] == b"10"
    assert figures["$SYS/tenant/quota/connections/used"] == b"1"
    assert figures["$SYS/tenant/messages/received"] == b"0"
    assert figures["$SYS/tenant/dropped/queue_full"] == b"0"
    assert not [topic for topic in figures if not topic.startswith("$SYS/tenant/")]


def test_figures_come_again_every_interval(make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]) -> None:
    hub = make_hub(mqtt__sys_interval="1s")
    hub.run("acl", "allow", "acme", "dev1", "subscribe", "$SYS/#")
    hub.start()
    join = clients(hub)
    client = join(4)
    client.subscribe(("$SYS/tenant/connections", 0))

    first = client.get()[0]
    join(4, device="dev2")
    later = [client.get()[0]]
    while later[-1].payload == b"1" and len(later) < 10:  # the second client took longer than an interval to come in
        later.append(client.get()[0])

    assert (first.payload, first.retain) == (b"1", True)
    assert later[-1].payload == b"2"
    assert not any(figure.retain for figure in later)


def test_persistent_session_goes_on_reading_after_a_restart(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    hub = make_hub(mqtt__sys_interval="1s")
    hub.run("acl", "allow", "acme", "dev1", "subscribe", "$SYS/#")
    hub.start()
    join = clients(hub)
    join(5, "watcher", keep=True).subscribe(("$SYS/tenant/sessions", 1))
    assert hub.stop() == 0
    hub.start()

    assert join(5, "watcher", keep=True).get()[0].payload == b"1"


def test_nobody_publishes_below_sys(make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]) -> None:
    """Class 20: not even with a rule that names it."""
    hub = make_hub()
    hub.run("acl", "allow", "acme", "dev1", "both", "$SYS/#")
    hub.start()

    answer = clients(hub)(5).publish("$SYS/tenant/connections", b"9", 1)
    assert answer is not None
    assert answer.code == 0x87


def test_operator_reads_the_whole_hubs_figures_and_alarms(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """Mosquitto's names; a tenant that is not the operator's gets none of them, with the same rule."""
    hub = make_hub(mqtt__sys_interval="1s", tenancy__operator="ops")
    hub.tenant("ops", "watcher")
    for tenant, device in (("ops", "watcher"), ("acme", "dev1")):
        hub.run("acl", "allow", tenant, device, "subscribe", "$SYS/#")
    hub.start()
    join = clients(hub)
    operator, other = join(5, tenant="ops", device="watcher"), join(5)
    other.subscribe(("$SYS/broker/#", 0))
    operator.subscribe(("$SYS/broker/#", 0))

    figures: dict[str, bytes] = {}
    while "$SYS/broker/load/bytes/sent/15min" not in figures or figures["$SYS/broker/clients/connected"] != b"2":
        (packet,) = operator.get()
        figures[packet.topic] = packet.payload

    assert figures["$SYS/broker/uptime"].endswith(b" seconds")
    assert figures["$SYS/broker/version"].startswith(b"iothub version ")
    assert {"$SYS/broker/retained messages/count", "$SYS/broker/0/state"} <= set(figures)
    other.ping()
    assert {packet.topic for packet in other.fence() if packet.topic} <= {"$SYS/broker/0/state"}


def test_operator_gets_the_present_figures_with_the_subscription(
    make_hub: Callable[..., Hub], clients: Callable[[Hub], Clients]
) -> None:
    """Mosquitto's are retained; and a second subscriber is nothing to the first."""
    hub = make_hub(mqtt__sys_interval="1h", tenancy__operator="ops")
    hub.tenant("ops", "watcher")
    hub.run("acl", "allow", "ops", "watcher", "subscribe", "$SYS/#")
    hub.start()
    join = clients(hub)
    found = []
    for name in ("one", "two"):
        client = join(5, name, tenant="ops", device="watcher")
        client.subscribe(("$SYS/broker/version", 0))
        found.append(client)

    for client in found:
        (packet,) = client.get()
        assert (packet.topic, packet.retain) == ("$SYS/broker/version", True)
        assert [each for each in client.fence() if each.topic] == []
