"""`iothub client` beside a real hub: who is connected, which client is slow, and what becomes of one that is kicked."""

from __future__ import annotations

import json
from collections.abc import Callable

import paho.mqtt.client as paho
import pytest

from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Clients
from tests.support.clients.packets import DISCONNECT
from tests.support.hubs.hub import Hub
from tests.support.waiting import until

MakeHub = Callable[..., Hub]
MakeClients = Callable[..., Clients]


def listed(hub: Hub) -> dict[str, dict[str, object]]:
    return {str(row["name"]): dict(row) for row in hub.rows("client", "list", "acme")}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_kicked_client_hears_why_and_may_come_again(make_hub: MakeHub, clients: MakeClients, version: int) -> None:
    """3.x has no packet for it. A persistent session stays; what is away is no client."""
    hub = make_hub()
    hub.start()
    join = clients(hub)
    kept = join(version, "kept", keep=True, keep_alive=90)
    kept.subscribe(("rooms/#", 1))
    row = listed(hub)["kept"]
    assert (row["device"], row["listener"], row["keep_alive_s"], row["subscriptions"]) == ("dev1", "tcp", 90, 1)
    assert str(row["address"]).startswith("127.0.0.1:")

    hub.run("client", "kick", "acme", "kept", "--yes")

    assert [(packet.kind, packet.code) for packet in kept.expect_closed()] == [(DISCONNECT, 0x98)] * (version == 5)
    assert listed(hub) == {}
    away = hub.run("client", "show", "acme", "kept", check=False)
    assert (away.returncode, "its session is kept" in away.stderr) == (3, True)
    shown = json.loads(hub.run("-o", "json", "session", "show", "acme", "kept").stdout)
    assert shown["disconnect_reason"] == "administrative_action"
    assert join(version, "kept", keep=True).connack.session_present == (version > 3)  # 3.1 has no such flag
    assert listed(hub)["kept"]["subscriptions"] == 1
    assert [row["action"] for row in hub.rows("audit", "list", "--tenant", "acme") if row["kind"] == "client"] == [
        "kicked"
    ]


def test_will_of_a_kicked_client_is_published(make_hub: MakeHub, clients: MakeClients) -> None:
    """It did not ask to go [MQTT-3.1.2-8]. It comes again by itself, as clients do."""
    hub = make_hub()
    hub.start()
    witness = clients(hub)(5, "witness", device="dev2")
    witness.subscribe(("wills/#", 0))
    leaves: list[paho.ReasonCode] = []
    mortal = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="mortal", protocol=paho.MQTTv5)
    mortal.username_pw_set("acme/dev1", "secret")
    mortal.will_set("wills/mortal", b"gone", 0)
    mortal.on_disconnect = lambda _client, _data, _flags, reason, _properties: leaves.append(reason)
    mortal.connect("127.0.0.1", hub.ports["tcp"])
    mortal.loop_start()
    until(lambda: "mortal" in listed(hub), "the client in the list")

    hub.run("client", "kick", "acme", "mortal", "--yes")

    assert witness.payloads() == [b"gone"]
    until(lambda: [reason.value for reason in leaves] == [0x98], "DISCONNECT")
    until(lambda: "mortal" in listed(hub), "the client in the list again")
    mortal.disconnect()
    mortal.loop_stop()


def test_client_that_does_not_acknowledge_is_on_top(make_hub: MakeHub, clients: MakeClients) -> None:
    hub = make_hub()
    hub.start()
    join = clients(hub)
    slow = join(5, "slow", keep=True, props=[(names.RECEIVE_MAXIMUM, 2)])
    slow.subscribe(("rooms/#", 1))
    other = join(5, "other", device="dev2")
    for number in range(5):
        other.publish("rooms/1", b"x", 1, number + 1)

    (row,) = hub.rows("client", "top", "acme")

    assert (row["name"], row["queued_messages"], row["in_flight_messages"]) == ("slow", 3, 2)
    assert [row["name"] for row in hub.rows("client", "top", "acme", "--by", "in-flight")] == ["slow"]
