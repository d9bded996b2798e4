"""A whole hub on the real servers: queues, states and retained messages on HBase, session events on Kafka.

The settings are those of `make services`; the operator's commands are the ones that people use.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.base.units import Endpoint
from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import Tables
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.hbase.own_tables import caller_of, reopen_regions
from tests.support.hubs.hub import Hub
from tests.support.hubs.server_hub import alarms, own_stores, server_hub
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def hub(_servers: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """One for all tests: each has clients of its own."""
    with own_stores(_servers) as stores:
        hub = server_hub(tmp_path_factory.mktemp("hub"), stores)
        hub.start()
        yield hub
        hub.close()


@pytest.fixture
def caller(services: Services) -> Iterator[DirectCaller]:
    with DirectCaller([Endpoint(HOST, services.ports.thrift)]) as made:
        yield made


@pytest.fixture
def clients(hub: Hub) -> Iterator[Clients]:
    clients = Clients(Listener(hub, "tcp"))
    yield clients
    clients.leave()


def fetch(hub: Hub, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}{path}", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def again(hub: Hub, is_killed: bool) -> None:
    """End the hub, by a signal or by a kill, and start it again."""
    if is_killed:
        hub.kill()
    else:
        assert hub.stop() == 0
    hub.start()


def test_offline_sessions_get_everything_once_and_in_order(hub: Hub, clients: Clients) -> None:
    """QoS 1 and 2, through a clean restart and through kill -9; the retained message is there, too."""
    subscriber = clients(5, "offline", keep=True)
    subscriber.subscribe(("room/#", 2))
    subscriber.disconnect()
    sent = []
    for number in range(30):
        if number in (10, 20):
            again(hub, is_killed=number == 20)
        payload = f"{number}".encode()
        sent.append(payload)
        version, is_kept = 5 if number % 2 else 4, number % 3 == 0
        publisher = clients(version, f"p{number % 3}", device="dev2", keep=is_kept)
        publisher.publish("room/temperature", payload, qos=1 + number % 2, retain=number == 29)
        publisher.disconnect()

    back = clients(5, "offline", keep=True)
    late = clients(5)
    late.subscribe(("room/+", 1))
    assert back.connack.session_present
    assert back.payloads(30) == sent
    assert late.payloads() == [b"29"]
    back.nothing()


def test_second_connection_takes_the_session_over(clients: Clients) -> None:
    """What the first has not acknowledged comes to the second, with DUP; the first hears 0x8E."""
    first = clients(5, "taken", keep=True)
    first.subscribe(("a", 1))
    publisher = clients(device="dev2")
    for number in range(3):
        publisher.publish("a", f"{number}".encode(), qos=1)
    seen = [packet.payload for packet in first.get(3)]

    second = clients(5, "taken", keep=True)

    first.refused(0x8E)
    packets = second.take(3)
    assert seen == [packet.payload for packet in packets] == [b"0", b"1", b"2"]
    assert all(packet.dup for packet in packets)


def test_commands_show_what_is_on_the_servers(hub: Hub, clients: Clients) -> None:
    """The hub tells what its servers have, before a start and after it; without one the readers go where the settings say."""
    subscriber = clients(5, "meter-7", keep=True)
    subscriber.subscribe(("seen/#", 1))
    subscriber.disconnect()
    publisher = clients(device="dev2")
    publisher.publish("seen/a", b"21", qos=1, retain=True)
    publisher.publish("seen/b", b"22", qos=1)

    def shown() -> tuple[object, list[object], bool]:
        queue = json.loads(hub.run("-o", "json", "queue", "show", "acme", "meter-7").stdout)
        retained = [row["name"] for row in hub.rows("retain", "list", "acme", "--filter", "seen/#")]
        return queue["messages"], [message["payload"] for message in queue["oldest"]], retained == ["seen/a"]

    assert shown() == (2, ["21", "22"], True)
    assert hub.stop() == 0
    hub.run("events", "verify")
    assert {file.name for file in hub.data_dir.glob("*.db")} == {"accounts.db", "usage.db"}
    hub.start()
    assert shown() == (2, ["21", "22"], True)
    hub.run("queue", "purge", "acme", "meter-7", "--yes")
    hub.run("retain", "delete", "acme", "seen/a", "--yes")
    assert shown() == (0, [], False)
    hub.run("session", "discard", "acme", "meter-7", "--yes")
    assert "meter-7" not in [row["name"] for row in hub.rows("session", "list", "acme")]


def test_session_whose_queue_is_damaged_ends(hub: Hub, clients: Clients, services: Services) -> None:
    """The first message for it shows that its state in HBase is damaged: others have the message, and its client begins anew."""
    subscriber = clients(5, "meter-9", keep=True)
    subscriber.subscribe(("broken", 1))
    (row,) = (row for row in hub.rows("queue", "list", "acme") if row["name"] == "meter-9")
    (tenant_id,) = (int(str(row["id"])) for row in hub.rows("tenant", "list") if row["name"] == "acme")
    table = Tables(hub.environment["IOTHUB_HBASE__NAMESPACE"]).queues
    meta = keys.meta_row(keys.queue_key(int(str(row["queue_id"])), tenant_id))
    with caller_of(services) as caller:
        caller.call(calls.mutate_row(table, meta, {b"m:s": b"\x09nonsense"}))
    reopen_regions(services, table, 1)  # they keep the newest states in memory
    other = clients(5, "meter-10", keep=True)
    other.subscribe(("broken", 1))

    answer = clients(device="dev2").publish("broken", b"for the other", qos=1)

    assert answer is not None
    assert answer.code == 0
    assert other.payloads(1) == [b"for the other"]
    subscriber.refused(0x98)
    assert ("store_corrupt", "queue_lost") in alarms(hub)
    assert ("store_failed", "queues") not in alarms(hub)
    hub.run("session", "discard", "acme", "meter-10", "--yes")
    back = clients(5, "meter-9", keep=True)
    assert not back.connack.session_present
    back.subscribe(("broken", 1))
    clients(device="dev2").publish("broken", b"whole", qos=1)
    assert back.payloads(1) == [b"whole"]


def test_damaged_retained_message_is_passed_over_and_can_be_deleted(
    hub: Hub, clients: Clients, services: Services
) -> None:
    """It keeps neither the hub from starting nor the others away; one whose header alone is damaged is delivered."""
    publisher = clients(5)
    for topic in ("kept/body", "kept/header", "kept/whole"):
        publisher.publish(topic, topic.encode(), qos=1, retain=True)
    (tenant_id,) = (int(str(row["id"])) for row in hub.rows("tenant", "list") if row["name"] == "acme")
    table = Tables(hub.environment["IOTHUB_HBASE__NAMESPACE"]).retained
    with caller_of(services) as caller:
        for name, column in ((b"kept/body", b"r:b"), (b"kept/header", b"r:m")):
            key = keys.retained_key(tenant_id, name)
            row = caller.call(calls.get_row(table, key, (column,)))
            assert row is not None
            cell = row.cells[column]
            caller.call(calls.mutate_row(table, key, {column: b"\x09" + cell.value[1:]}, timestamp=cell.timestamp))
    again(hub, is_killed=False)

    new = clients(5, device="dev2")
    new.subscribe(("kept/#", 1))
    assert sorted(new.payloads(2)) == [b"kept/header", b"kept/whole"]
    new.nothing()
    assert ("record_damaged", "retained") in alarms(hub)
    assert 'iothub_damaged_records_total{store="retained"} 1' in fetch(hub, "/metrics")

    hub.run("retain", "delete", "acme", "kept/body", "--yes")
    publisher = clients(5)
    publisher.publish("kept/body", b"new", qos=1, retain=True)
    late = clients(5, device="dev2")
    late.subscribe(("kept/#", 1))
    assert sorted(late.payloads(3)) == [b"kept/header", b"kept/whole", b"new"]
    hub.run("retain", "delete", "acme", "#", "--yes")
    assert hub.rows("retain", "list", "acme") == []


def test_damaged_state_is_rebuilt_from_the_log(hub: Hub, clients: Clients, services: Services) -> None:
    """The commands pass over its row with a warning; a start has the session."""
    for name in ("meter-11", "meter-12"):
        clients(5, name, keep=True).subscribe(("states", 1))
    clients.leave()
    assert hub.stop() == 0
    (tenant_id,) = (int(str(row["id"])) for row in hub.rows("tenant", "list") if row["name"] == "acme")
    table, key = Tables(hub.environment["IOTHUB_HBASE__NAMESPACE"]).state, keys.state_key(tenant_id, "meter-11")
    with caller_of(services) as caller:
        row = caller.call(calls.get_row(table, key))
        assert row is not None
        cell = row.cells[b"s:r"]
        caller.call(calls.mutate_row(table, key, {b"s:r": b"\x09" + cell.value[1:]}, timestamp=cell.timestamp))

    verified = hub.run("state", "verify", check=False)
    assert verified.returncode == 1
    assert f"{tenant_id}/meter-11: damaged session state" in verified.stderr
    hub.start()
    assert 'iothub_damaged_records_total{store="state"} 1' in fetch(hub, "/metrics")
    assert ("record_damaged", "state") not in alarms(hub), "nothing is lost"
    for name in ("meter-11", "meter-12"):
        assert clients(5, name, keep=True).connack.session_present
    clients.leave()
    assert {"meter-11", "meter-12"} <= {str(row["name"]) for row in hub.rows("session", "list", "acme")}
    for name in ("meter-11", "meter-12"):
        hub.run("session", "discard", "acme", name, "--yes")


def test_metrics_tell_of_hbase(hub: Hub, clients: Clients) -> None:
    """Calls by verb and outcome, their durations, connections up."""
    subscriber = clients(5, "measured", keep=True)
    subscriber.subscribe(("a", 1))

    page = fetch(hub, "/metrics")

    assert 'iothub_hbase_connections{state="up"} 2' in page
    assert 'iothub_hbase_requests_total{op="append",result="answered"}' in page
    assert 'iothub_hbase_request_duration_seconds_count{op="append"}' in page


def test_doctor_finds_everything_in_order_beside_the_hub(hub: Hub) -> None:
    """Every server, table and topic that the settings name; and what is missing when it is."""
    again(hub, is_killed=False)  # what the tests before have done is over
    until(lambda: not alarms(hub), "nothing is wrong")
    rows = {str(row["name"]): row for row in hub.rows("doctor")}

    assert [
        row for name, row in rows.items() if name not in ("clock", "file descriptors") and row["state"] != "ok"
    ] == []
    assert rows["HBase queue coprocessor"]["text"] == "answers"
    assert {name.partition(" ")[0] for name in rows} >= {"accounts", "HBase", "Kafka", "pepper", "usage.db"}
    elsewhere = Hub(
        hub.data_dir,
        config_file=hub.config_file,
        environment={**hub.environment, "IOTHUB_HBASE__NAMESPACE": "nobodys"},
    )
    done = elsewhere.run("doctor", check=False)
    assert done.returncode == 1
    assert "FAIL  HBase table nobodys:state" in done.stdout
    assert "create them: iothub hbase create-tables" in done.stdout


def test_hub_with_other_accounts_is_refused(hub: Hub, tmp_path: Path) -> None:
    """Its first tenant has the number of acme: neither a hub nor a command gets to see acme's sessions."""
    stranger = Hub(tmp_path / "stranger", environment=hub.environment, config_file=hub.config_file)
    stranger.ports = {"tcp": free_port()}
    stranger.run("init")
    stranger.tenant("foreign", "dev1")

    stranger.launch()
    try:
        assert stranger.process is not None
        assert stranger.process.wait(timeout=PATIENCE_S) == 4
    finally:
        stranger.close()
    assert stranger.log.count("belongs to installation") == 1
    refused = stranger.run("state", "verify", check=False)
    assert (refused.returncode, refused.stderr.count("belongs to installation")) == (4, 1)
    output = stranger.run("doctor", check=False).stdout
    assert "FAIL  installation, HBase" in output
    assert "FAIL  installation, Kafka" in output
