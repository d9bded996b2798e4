"""A whole hub with its queues on the real Redis: what clients see when either of them dies, what commands and the doctor say, an emptied Redis."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.units import Endpoint
from iothub.config.sections import Redis
from iothub_services.redis.blocking import BlockingRedis
from iothub_services.redis.from_settings import blocking
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.hubs.server_hub import alarms
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until

DATABASE = 42  # nobody else's: it is emptied
PREFIX = f"hub-{uuid.uuid4().hex[:8]}"


def connection(services: Services) -> BlockingRedis:
    return blocking(Redis(addresses=(Endpoint(HOST, services.ports.redis),), database=DATABASE), "iothub-test")


@pytest.fixture
def hub(redis_server: Services, tmp_path: Path) -> Iterator[Hub]:
    with closing(connection(redis_server)) as redis:
        redis.run("FLUSHDB")
    hub = fresh_hub(tmp_path / "hub")
    hub.environment = {
        "IOTHUB_QUEUES__DRIVER": "redis",
        "IOTHUB_REDIS__ADDRESSES": f"{HOST}:{redis_server.ports.redis}",
        "IOTHUB_REDIS__DATABASE": str(DATABASE),
        "IOTHUB_REDIS__PREFIX": PREFIX,
    }
    hub.ports = {"tcp": free_port(), "http": free_port()}
    hub.start()
    yield hub
    hub.close()


@pytest.fixture
def clients(hub: Hub) -> Iterator[Clients]:
    clients = Clients(Listener(hub, "tcp"))
    yield clients
    clients.leave()


def keep(clients: Clients, client_id: str) -> None:
    """Leave a session behind that wants everything."""
    subscriber = clients(5, client_id, keep=True)
    subscriber.subscribe(("room/#", 2))
    subscriber.disconnect()


def test_offline_session_gets_everything_once_and_in_order(hub: Hub, clients: Clients, redis_server: Services) -> None:
    """QoS 1 and 2, while the hub is killed, while Redis is."""
    keep(clients, "offline")
    sent = []
    for number in range(12):
        if number == 4:
            hub.kill()
            hub.start()
        if number == 8:
            redis_server.kill("redis")
            redis_server.up("redis")
        sent.append(b"%d" % number)
        publisher = clients(5, "publisher", device="dev2", keep=True)
        publisher.publish("room/temperature", sent[-1], qos=1 + number % 2)
        publisher.disconnect()

    back = clients(5, "offline", keep=True)

    assert back.connack.session_present
    assert back.payloads(12) == sent
    back.nothing()


def test_tenant_with_a_driver_of_its_own_keeps_it(hub: Hub, clients: Clients) -> None:
    """Queues of one tenant are in the file, of the other one on Redis; a tenant that has queues stays where they are."""
    assert hub.stop() == 0
    hub.tenant("beta", "dev1", "dev2")
    hub.environment["IOTHUB_QUEUES__CHOICES"] = '[{driver = "sqlite", tenants = ["beta"]}]'
    hub.start()
    drivers = {"acme": "redis", "beta": "sqlite"}
    for tenant in drivers:
        subscriber = clients(5, "offline", tenant=tenant, keep=True)
        subscriber.subscribe(("room", 2))
        subscriber.disconnect()
        publisher = clients(5, "publisher", tenant=tenant, device="dev2", keep=True)
        for number in range(4):
            publisher.publish("room", b"%d" % number, qos=1 + number % 2)
        publisher.disconnect()

    hub.kill()
    del hub.environment["IOTHUB_QUEUES__CHOICES"]
    hub.start()

    for tenant, driver in drivers.items():
        assert {row["driver"] for row in hub.rows("queue", "list", tenant)} == {driver}
        assert clients(5, "offline", tenant=tenant, keep=True).payloads(4) == [b"0", b"1", b"2", b"3"]
    assert "the tenant's queues stay with the driver that has them" in hub.log


def test_commands_and_doctor_look_at_the_same_queues(hub: Hub, clients: Clients) -> None:
    """No other accounts may."""
    keep(clients, "away")
    clients(device="dev2").publish("room/1", b"x", qos=1)
    (row,) = hub.rows("queue", "list", "acme")
    assert (row["name"], row["messages"]) == ("away", 1)
    assert "acknowledged messages are on disk" in hub.run("doctor", check=False).stdout
    hub.run("queue", "purge", "acme", "away", "--yes")
    assert hub.rows("queue", "list", "acme")[0]["messages"] == 0

    stranger = Hub(hub.data_dir.parent / "stranger", environment=hub.environment)
    stranger.init()
    stranger.tenant("acme")
    refused = stranger.run("doctor", check=False)
    assert f"Redis's queues {PREFIX}:queue:*: belongs to installation" in refused.stdout


def test_emptied_redis_is_an_alarm(hub: Hub, clients: Clients, redis_server: Services) -> None:
    """The session's queue is gone; nobody makes a new one in silence."""
    keep(clients, "robbed")
    clients(device="dev2").publish("room/1", b"x", qos=1)
    with closing(connection(redis_server)) as redis:
        redis.run("FLUSHDB")

    until(lambda: ("store_lost", "queues") in alarms(hub), "the alarm about lost queues")

    assert hub.rows("queue", "list", "acme") == []
    assert hub.stop() == 0


def test_hub_does_not_start_on_a_redis_that_keeps_nothing(hub: Hub, redis_server: Services) -> None:
    """It says which setting is wrong."""
    assert hub.stop() == 0
    with closing(connection(redis_server)) as redis:
        redis.run("CONFIG", "SET", "appendfsync", "everysec")
        try:
            words = hub.command()[3:]
            refused = hub.run(*words, "--fail-fast", check=False)
            output = hub.run("doctor", check=False)
        finally:
            redis.run("CONFIG", "SET", "appendfsync", "always")

    assert refused.returncode != 0
    for text in (refused.stderr, output.stdout):
        assert 'Redis does not keep queues safely: appendfsync is "everysec"' in text


def test_damaged_queue_costs_its_own_session_alone(hub: Hub, clients: Clients, redis_server: Services) -> None:
    """The alarm names it, its session ends where the hub comes upon it, and others get their messages."""
    blind = clients(5, "blind", keep=True)
    blind.subscribe(("room/#", 2))
    keep(clients, "well")
    queue_id = next(row["queue_id"] for row in hub.rows("queue", "list", "acme") if row["name"] == "blind")
    with closing(connection(redis_server)) as redis:
        redis.run("HSET", f"{PREFIX}:queue:{{{queue_id}}}:m", "tail", "many", "epoch", "many")

    publisher = clients(5, "publisher", device="dev2", keep=True)
    sent = [publisher.publish(*each) for each in (("room/1", b"1", 1), ("room/2", b"2", 2), ("garden/3", b"3", 2))]

    assert [answer and answer.code for answer in sent] == [0, 0, 0x10]
    blind.refused(0x98)
    assert alarms(hub) == {("store_corrupt", "queue_lost")}
    well = clients(5, "well", keep=True)
    assert well.payloads(2) == [b"1", b"2"]
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/readyz", timeout=PATIENCE_S) as answer:
        assert json.load(answer)["ready"]
    assert f"queue {queue_id} is damaged and lost" in hub.run("status").stdout
    assert not clients(5, "blind", keep=True).connack.session_present
    with closing(connection(redis_server)) as redis:
        until(lambda: redis.run("KEYS", f"{PREFIX}:queue:{{{queue_id}}}:*") == [], "the queue's keys to go")


def test_session_of_a_queue_that_was_damaged_while_no_hub_ran_ends_at_the_start(
    hub: Hub, clients: Clients, redis_server: Services
) -> None:
    """Nothing of the queue is left behind."""
    keep(clients, "blind")
    queue_id = next(row["queue_id"] for row in hub.rows("queue", "list", "acme") if row["name"] == "blind")
    assert hub.stop() == 0
    with closing(connection(redis_server)) as redis:
        redis.run("HSET", f"{PREFIX}:queue:{{{queue_id}}}:m", "tail", "many")

        hub.start()

        assert alarms(hub) == {("store_corrupt", "queue_lost")}
        assert redis.run("KEYS", f"{PREFIX}:queue:{{{queue_id}}}:*") == []
    assert not clients(5, "blind", keep=True).connack.session_present
