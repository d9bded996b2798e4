"""A whole hub on the real servers: queues, states and retained messages on HBase, session events on Kafka.

The settings are those of `make services`; the operator's commands are the ones that people use.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services.house import Services
from tests.support.clients import Door
from tests.support.hub import Hub
from tests.support.party import Party
from tests.support.server_hub import Stores, own_stores, server_hub

DRIVERS = ["hbase", "hbase-plain"]


@pytest.fixture
def stores(services: Services, request: pytest.FixtureRequest) -> Iterator[Stores]:
    with own_stores(services, getattr(request, "param", "hbase")) as made:
        yield made


@pytest.fixture
def hub(tmp_path: Path, stores: Stores) -> Iterator[Hub]:
    hub = server_hub(tmp_path, stores)
    hub.start()
    yield hub
    hub.close()


@pytest.fixture
def party(hub: Hub) -> Iterator[Party]:
    party = Party(Door(hub, "tcp"))
    yield party
    party.leave()


def fetch(hub: Hub, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}{path}", timeout=5) as answer:
        return str(answer.read().decode())


def again(hub: Hub, is_killed: bool) -> None:
    """End the hub, with a goodbye or without, and start it again."""
    if is_killed:
        hub.kill()
    else:
        assert hub.stop() == 0
    hub.start()


@pytest.mark.parametrize("stores", DRIVERS, indirect=True)
def test_offline_session_gets_everything_once_and_in_order(hub: Hub, party: Party) -> None:
    """QoS 1 and 2, through a clean restart and through kill -9; the retained message is there, too."""
    subscriber = party(5, "s", keep=True)
    subscriber.subscribe(("room/#", 2))
    subscriber.disconnect()
    sent = []
    for number in range(30):
        if number in (10, 20):
            again(hub, is_killed=number == 20)
        publisher = party(5 if number % 2 else 4, f"p{number % 3}", device="dev2", keep=number % 3 == 0)
        payload = f"{number}".encode()
        publisher.publish("room/temperature", payload, qos=1 + number % 2, retain=number == 29)
        sent.append(payload)
        publisher.disconnect()

    back = party(5, "s", keep=True)
    late = party(5)
    late.subscribe(("room/+", 1))

    assert back.connack.session_present
    assert back.payloads(30) == sent
    assert late.payloads() == [b"29"]
    back.nothing()


def test_second_connection_takes_the_session_over(party: Party) -> None:
    """What the first has not acknowledged comes to the second, with DUP; the first hears 0x8E."""
    first = party(5, "s", keep=True)
    first.subscribe(("a", 1))
    publisher = party(device="dev2")
    for number in range(3):
        publisher.publish("a", f"{number}".encode(), qos=1)
    seen = [packet.payload for packet in first.get(3)]

    second = party(5, "s", keep=True)

    first.refused(0x8E)
    packets = second.take(3)
    assert seen == [packet.payload for packet in packets] == [b"0", b"1", b"2"]
    assert all(packet.dup for packet in packets)


def test_commands_show_what_is_on_the_servers(hub: Hub, party: Party, stores: Stores) -> None:
    """Beside a running hub, and while none runs: each command goes where the settings say."""
    subscriber = party(5, "meter-7", keep=True)
    subscriber.subscribe(("room/#", 1))
    subscriber.disconnect()
    publisher = party(device="dev2")
    publisher.publish("room/a", b"21", qos=1, retain=True)
    publisher.publish("room/b", b"22", qos=1)

    def shown() -> tuple[list[object], object, object, object]:
        sessions = [row["queued_messages"] for row in hub.rows("session", "list", "acme")]
        queue = json.loads(hub.run("-o", "json", "queue", "show", "acme", "meter-7").stdout)
        payloads = [message["payload"] for message in queue["oldest"]]
        retained = [row["name"] for row in hub.rows("retain", "list", "acme")]
        return sessions, queue["messages"], payloads, retained

    expected = ([2], 2, ["21", "22"], ["room/a"])
    assert shown() == expected
    assert hub.run("events", "verify").returncode == 0
    assert hub.stop() == 0
    assert shown() == expected
    assert {file.name for file in hub.data_dir.glob("*.db")} == {"accounts.db", "usage.db"}
    hub.run("queue", "purge", "acme", "meter-7", "--yes")
    hub.run("retain", "delete", "acme", "room/a", "--yes")
    assert shown() == ([0], 0, [], [])
    hub.run("session", "discard", "acme", "meter-7", "--yes")
    assert hub.rows("session", "list", "acme") == []


def test_metrics_tell_of_hbase(hub: Hub, party: Party) -> None:
    """Calls by verb and outcome, their durations, connections up."""
    subscriber = party(5, "s", keep=True)
    subscriber.subscribe(("a", 1))

    page = fetch(hub, "/metrics")

    assert 'iothub_hbase_connections{state="up"} 2' in page
    assert 'iothub_hbase_requests_total{op="append",result="answered"}' in page
    assert 'iothub_hbase_request_duration_seconds_count{op="append"}' in page


def test_doctor_finds_everything_in_order_beside_the_hub(hub: Hub) -> None:
    """Every server, table and topic that the settings name; and what is missing when it is."""
    rows = {str(row["name"]): row for row in hub.rows("doctor")}

    assert {row["state"] for name, row in rows.items() if name != "clock"} == {"ok"}
    assert rows["HBase queue coprocessor"]["text"] == "answers"
    assert {name.partition(" ")[0] for name in rows} >= {"accounts", "HBase", "Kafka", "listener", "http"}
    elsewhere = hub.environment
    hub.environment = {**elsewhere, "IOTHUB_HBASE__NAMESPACE": "nobodys"}
    done = hub.run("doctor", check=False)
    assert done.returncode == 1
    assert "FAIL  HBase table nobodys:state" in done.stdout
    assert "create them: iothub hbase create-tables" in done.stdout
