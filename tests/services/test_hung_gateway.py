"""Gateways of HBase that hang, under hubs and commands: the next one is asked, nothing that was acknowledged is lost, and a start waits visibly."""

from __future__ import annotations

import re
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from iothub.base.units import Endpoint
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.kills import run_kills, steady_cast
from tests.support.clients.mqtt_clients import Clients
from tests.support.hbase.hanging_gateway import HangingGateway
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import readiness
from tests.support.hubs.server_hub import Stores, own_stores, server_hub
from tests.support.night import at_night
from tests.support.waiting import PATIENCE_S, until

TIMEOUT_S = "10s"  # as by default: nobody waits for it here
NOTICE_S = 10.0
SESSIONS = 5
SHORT_S = 4  # of a hub that is to give calls up soon


@pytest.fixture(scope="module")
def stores(_servers: Services) -> Iterator[Stores]:
    with own_stores(_servers) as made:
        yield made


@pytest.fixture(scope="module")
def made(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """With sessions that are away, and queues of theirs."""
    hub = server_hub(tmp_path_factory.mktemp("hub"), stores)
    hub.environment = {**hub.environment, "IOTHUB_HBASE__TIMEOUT": TIMEOUT_S}
    hub.start()
    clients = Clients(Listener(hub, "tcp"))
    for number in range(SESSIONS):
        clients(5, f"s{number}", keep=True).subscribe((f"a/{number}", 1))
    clients.leave()
    assert hub.stop() == 0
    return hub


@pytest.fixture
def second(services: Services) -> Iterator[Endpoint]:
    """A second gateway, which the tests pause."""
    services.up("gateway")
    yield Endpoint(HOST, services.ports.second_thrift)
    services.kill("gateway")


@pytest.fixture
def hub(made: Hub, services: Services, second: Endpoint) -> Iterator[Hub]:
    """Not started; the second gateway is its first one."""
    alone = made.environment
    made.environment = listing(made, second, Endpoint(HOST, services.ports.thrift))
    yield made
    made.close()
    made.environment = alone


@pytest.fixture
def hanging(made: Hub, services: Services) -> Iterator[HangingGateway]:
    """The only gateway of the hub."""
    alone, gateway = made.environment, HangingGateway(Endpoint(HOST, services.ports.thrift))
    made.environment = {**listing(made, gateway.address), "IOTHUB_HBASE__TIMEOUT": f"{SHORT_S}s"}
    yield gateway
    made.close()
    made.environment = alone
    gateway.close()


def listing(hub: Hub, *gateways: Endpoint) -> dict[str, str]:
    return {**hub.environment, "IOTHUB_HBASE__THRIFT": "[" + ", ".join(f'"{each}"' for each in gateways) + "]"}


def scan_of(table: bytes) -> re.Pattern[bytes]:
    """A start asks for tables and owners first; it reads rows when it loads."""
    return re.compile(rb"scannerOpenWithScan.{0,64}:" + table, re.DOTALL)


def is_ready(hub: Hub) -> bool:
    return readiness(hub)[0]


def gateway_is_up(hub: Hub, gateway: Endpoint) -> bool:
    """As the metric says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics", timeout=PATIENCE_S) as answer:
        page = answer.read().decode()
    return f'iothub_hbase_gateway_up{{gateway="{gateway}"}} 1' in page


def sessions(hub: Hub) -> set[str]:
    return {str(row["name"]) for row in hub.rows("session", "list", "acme")}


def test_hub_starts_beside_a_gateway_that_hangs(services: Services, hub: Hub, second: Endpoint) -> None:
    """Log, metric and doctor name it, and its sessions are told of. When it is back it is used again."""
    services.pause("gateway")
    assert f"{second} has not answered" in hub.run("doctor", check=False).stdout

    began = time.monotonic()
    hub.start(PATIENCE_S)
    until(lambda: is_ready(hub), "the hub is ready")
    sys.stdout.write(f"ready after {time.monotonic() - began:.1f} s beside a gateway that hangs\n")

    assert not gateway_is_up(hub, second)
    assert f'"gateway": "{second}"' in hub.log
    assert {f"s{number}" for number in range(SESSIONS)} <= sessions(hub)
    assert len(hub.rows("queue", "list", "acme")) >= SESSIONS
    clients = Clients(Listener(hub, "tcp"))
    assert clients(5, "s0", keep=True).connack.session_present
    clients.leave()

    services.resume("gateway")

    until(lambda: gateway_is_up(hub, second), "the metric")
    assert hub.stop() == 0


def test_gateway_that_hangs_is_noticed_by_an_idle_hub(services: Services, hub: Hub, second: Endpoint) -> None:
    """Nobody has called, and nobody is kept waiting afterwards."""
    hub.start()
    until(lambda: is_ready(hub) and gateway_is_up(hub, second), "the hub is ready")

    services.pause("gateway")

    until(lambda: not gateway_is_up(hub, second), "the metric", NOTICE_S)
    assert is_ready(hub)
    clients = Clients(Listener(hub, "tcp"))
    began = time.monotonic()
    clients(5, "new", keep=True).subscribe(("b", 1))
    assert time.monotonic() - began < NOTICE_S / 2
    clients.leave()
    assert hub.stop() == 0


def test_gateway_that_hangs_under_publishers_loses_nothing(services: Services, hub: Hub) -> None:
    """At any moment; those whose calls it had hear of them when another one has done them."""
    hub.environment = {**hub.environment, "IOTHUB_HBASE__TIMEOUT": f"{SHORT_S}s"}

    def strike() -> None:
        services.pause("gateway")
        time.sleep(SHORT_S + 1.5)  # longer than a call waits for its answer
        services.resume("gateway")

    outcome = run_kills(hub, 2, 2.0, rate_per_s=20, drain_s=60, seed=9, strike=strike, casting=steady_cast)
    sys.stdout.write(f"{outcome.report()}\n")

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 50
    assert hub.stop() == 0


@pytest.mark.parametrize("table", [b"queue_index", *at_night(b"retained")])
def test_start_waits_when_the_only_gateway_hangs_in_the_middle_of_the_loading(
    made: Hub, hanging: HangingGateway, table: bytes
) -> None:
    """Everybody can see why; it goes on when the gateway does, and no session is there twice or half."""
    hub = made
    hanging.hang_at = scan_of(table)
    hub.launch()
    until(lambda: hanging.is_hung, "the loading has begun")
    until(lambda: f"HBase's gateway {hanging.address} has not answered" in readiness(hub)[1], "the reason")
    assert hub.is_running()

    hanging.let_go()

    until(lambda: is_ready(hub), "the hub is ready")
    clients = Clients(Listener(hub, "tcp"))
    for number in range(SESSIONS):
        assert clients(5, f"s{number}", keep=True).connack.session_present
    clients.leave()
    assert hub.stop() == 0
    assert "Traceback" not in hub.log
    hub.run("state", "verify")


def test_hub_that_is_not_to_wait_ends_when_its_gateway_hangs_in_the_middle(made: Hub, hanging: HangingGateway) -> None:
    """Exit code 7."""
    hanging.hang_at = scan_of(b"queue_index")
    refused = made.start_impatiently()

    assert refused.returncode == 7
    assert refused.stderr.splitlines()[-1].startswith(f"iothub: HBase's gateway {hanging.address} has not answered")
