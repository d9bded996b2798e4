"""The profiles of `iothub init` on the real servers, as an operator goes: init, addresses, doctor, init, tables, serve, a second hub."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ops.services.places import HOST
from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.hubs.server_hub import own_stores
from tests.support.ports import free_port
from tests.support.servers.kafka import own_topics
from tests.support.servers.sql_servers import own_database
from tests.support.waiting import until

OF_THE_MACHINE = {
    "clock",
    "file descriptors",
    "Redis memory",
    "disk sync",
}  # what `make services` and a machine at work may be warned of


def edit(file: Path, changes: Mapping[str, str]) -> None:
    """Put what is here in the place of what the profile has, line by line."""
    text = file.read_text()
    for line, other in changes.items():
        assert text.count(f"\n{line}") == 1, line
        text = text.replace(f"\n{line}", f"\n{other}")
    file.write_text(text)


def looks(hub: Hub) -> dict[str, tuple[str, str]]:
    """What the doctor finds: state and text by name."""
    done = hub.run("doctor", "-o", "json", check=False)
    assert done.returncode in (0, 1), done.stderr
    return {str(row["name"]): (str(row["state"]), str(row["text"])) for row in json.loads(done.stdout)}


def failures(hub: Hub) -> dict[str, tuple[str, str]]:
    return {name: found for name, found in looks(hub).items() if found[0] == "FAIL"}


def not_ok(hub: Hub) -> dict[str, tuple[str, str]]:
    return {name: found for name, found in looks(hub).items() if found[0] != "ok" and name not in OF_THE_MACHINE}


@pytest.fixture(scope="module")
def hubs(_servers: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Hub]]:
    """Two of a cluster: the first one's files edited, the second one's copied."""
    folder, ports = tmp_path_factory.mktemp("cluster"), _servers.ports
    with own_stores(_servers) as stores, own_database(_servers, "mariadb") as url:
        one, two = (Hub(folder / name, {"tcp": free_port(), "http": free_port()}) for name in ("one", "two"))
        one.run("init", "--profile", "cluster")
        (one.data_dir / "accounts.url").write_text(f"{url}\n")
        edit(
            one.data_dir / "iothub.toml",
            {
                'addresses = ["redis-1:6379"]': f'addresses = ["{HOST}:{ports.redis}"]',
                'thrift = ["hbase-1:9090", "hbase-2:9090"]': f'thrift = ["{HOST}:{ports.thrift}"]\nregions = 2',
                '# namespace = "iothub"': f'namespace = "{stores.namespace}"',
                '# admin_program = "hbase"': f'admin_program = "{_servers.places.folder / "hbase-java"}"',
                'brokers = ["kafka-1:9092", "kafka-2:9092", "kafka-3:9092"]': f'brokers = ["{HOST}:{ports.kafka}"]',
                "replication = 3": "replication = 1",
                "# [cluster]": "[cluster]\ninsecure = true",
                '# listen = "0.0.0.0:7883"': f'listen = "{HOST}:{free_port()}"',
                '# topic_prefix = "iothub"': f'topic_prefix = "{stores.environment["IOTHUB_KAFKA__TOPIC_PREFIX"]}"',
            },
        )
        assert set(failures(one)) == {"data directory", "accounts", *_tables(one)}, "the servers are there"
        one.run("init")
        one.run("hbase", "create-tables")
        one.tenant("acme", "dev1", "dev2")
        two.data_dir.mkdir()
        for name in ("iothub.toml", "accounts.url", "pepper"):
            shutil.copy(one.data_dir / name, two.data_dir)
        edit(
            two.data_dir / "iothub.toml",
            {
                'name = "hub-1"': 'name = "hub-2"',
                "number = 1": "number = 2",
                'listen = "': f'listen = "{HOST}:{free_port()}"  # "',
            },
        )
        two.run("init")
        yield [one, two]
        one.close()
        two.close()


def _tables(hub: Hub) -> set[str]:
    return {name for name in looks(hub) if name.startswith("HBase table ")}


def _begin(hubs: list[Hub]) -> None:
    """In whatever order the tests come."""
    for hub in hubs:
        if not hub.is_running():
            hub.start()


def test_cluster_is_in_order_before_and_beside_its_hubs(hubs: list[Hub]) -> None:
    """Accounts, Redis, HBase, Kafka, and whose they are: the doctor has a line for each, with its time."""
    assert set(not_ok(hubs[0])) <= {"quota ledger"}, "hubs of a test before may have ended while they filled it"

    _begin(hubs)

    until(lambda: not_ok(hubs[1]) == {}, "the ledger is whole")
    found = looks(hubs[1])
    assert set(found) >= {"accounts", "Redis", "Kafka", "HBase queue coprocessor", "streams", "installation, HBase"}
    assert "mysql" in found["accounts"][1]


def test_cluster_hands_a_session_from_hub_to_hub(hubs: list[Hub]) -> None:
    """What one hub accepts while a session is away reaches it at the other one; the devices are those of one set of accounts."""
    one, two = hubs
    _begin(hubs)
    at_one, at_two = Clients(Listener(one, "tcp")), Clients(Listener(two, "tcp"))
    reader = at_one(5, "reader", keep=True)
    reader.subscribe(("room/#", 1))
    reader.disconnect()

    at_two(5, "writer", device="dev2").publish("room/1", b"21.5", qos=1)

    assert at_two(5, "reader", keep=True).payloads(1) == [b"21.5"]
    at_one.leave()
    at_two.leave()


def test_single_server_is_in_order_and_outlives_its_servers(services: Services, tmp_path: Path) -> None:
    """With Kafka and Redis; then with neither: it starts, and keeps what is owed."""
    hub = Hub(tmp_path / "hub", {"tcp": free_port(), "http": free_port()})
    with own_topics(services) as kafka:
        hub.run("init", "--profile", "single-server")
        hub.tenant("acme", "dev1")
        file = hub.data_dir / "iothub.toml"
        there = {
            'brokers = ["127.0.0.1:9092"]': f'brokers = ["{HOST}:{services.ports.kafka}"]\ntopic_prefix = "{kafka.topic_prefix}"',
            'addresses = ["127.0.0.1:6379"]': f'addresses = ["{HOST}:{services.ports.redis}"]',
        }
        edit(file, there)
        hub.run("stream", "create", "acme", "telemetry", "room/#")
        assert set(not_ok(hub)) <= {"streams"}, "its topic comes with the hub"
        hub.start()
        until(lambda: not_ok(hub) == {}, "the stream has its topic")
        hub.stop()
        hub.run("stream", "delete", "acme", "telemetry", "--yes")

    edit(
        file,
        {
            f'brokers = ["{HOST}:{services.ports.kafka}"]': 'brokers = ["127.0.0.1:1"]',
            there['addresses = ["127.0.0.1:6379"]']: 'addresses = ["127.0.0.1:1"]',
        },
    )
    hub.start()
    clients = Clients(Listener(hub, "tcp"))
    try:
        clients(5, "reader", keep=True).subscribe(("room/#", 1))
        clients.leave()
        clients(5, "writer").publish("room/1", b"21.5", qos=1)
        assert clients(5, "reader", keep=True).payloads(1) == [b"21.5"]
        assert failures(hub) == {}, "the hub runs and refuses nothing"
        assert {"Kafka", "Redis"} <= set(not_ok(hub))
    finally:
        clients.leave()
        hub.close()
