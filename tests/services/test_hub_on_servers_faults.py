"""Faults of the servers under a hub that has everything on them, and hubs that die: nothing acknowledged is lost, and all goes on by itself."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services.services import Services
from tests.support.clients.clients import Listener
from tests.support.clients.kills import run_kills, steady_cast
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import readiness
from tests.support.hubs.server_hub import Stores, alarms, own_stores, server_hub, share_accounts, sister
from tests.support.night import by_day
from tests.support.waiting import PATIENCE_S, until

RATE_PER_S = 20
KILLS, KILLS_S = by_day((2, 6.0), (3, 9.0))  # to the other hub and back
STOP_TIMEOUT_S = 4
STOP_S = STOP_TIMEOUT_S + 10.0  # the machine may be busy


@pytest.fixture(scope="module")
def stores(_servers: Services) -> Iterator[Stores]:
    with own_stores(_servers) as made:
        yield made


@pytest.fixture(scope="module")
def made(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    return server_hub(tmp_path_factory.mktemp("hub"), stores)


@pytest.fixture
def hub(made: Hub, services: Services) -> Iterator[Hub]:
    """One for all tests, not started, and as it was made."""
    data_dir, environment, settings = made.data_dir, made.environment, dict(made.settings)
    yield made
    made.close()
    made.data_dir, made.environment, made.settings = data_dir, environment, settings
    services.up("kafka", "hbase")


@pytest.fixture
def emptied(hub: Hub, services: Services) -> Iterator[Hub]:
    """The same; what the test retained is gone before the next."""
    data_dir, environment = hub.data_dir, hub.environment
    yield hub
    hub.close()
    hub.data_dir, hub.environment = data_dir, environment
    services.up("kafka", "hbase")
    hub.start()
    until(lambda: nothing_is_retained(hub), "nothing is retained")


def nothing_is_retained(hub: Hub) -> bool:
    """Delete it. Exit code 3: nothing was there; 7: a hub that was killed a moment ago still counts as living."""
    return hub.run("retain", "delete", "acme", "#", "--yes", check=False).returncode in (0, 3)


def is_ready(hub: Hub) -> bool:
    return readiness(hub)[0]


def test_kill_of_hbase_under_publishers_loses_nothing(services: Services, emptied: Hub) -> None:
    """Publishers are held back, an alarm says why, and seconds after HBase's return everything goes on."""
    hub = emptied
    seen: list[set[tuple[str, str]]] = []
    recovery_s: list[float] = []

    def strike() -> None:
        services.kill("hbase")
        until(lambda: ("store_failed", "queues") in alarms(hub), "an alarm")
        seen.append(alarms(hub))
        assert not is_ready(hub)
        services.up("hbase")
        returned = time.monotonic()
        until(lambda: is_ready(hub), "the hub is ready again")
        recovery_s.append(time.monotonic() - returned)

    outcome = run_kills(hub, 1, 2.0, rate_per_s=RATE_PER_S, drain_s=60, seed=7, strike=strike, casting=steady_cast)
    sys.stdout.write(f"{outcome.report()}\nready {recovery_s} s after HBase's return\n")

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 50
    assert alarms(hub) == set()
    assert hub.stop() == 0


def test_another_hub_takes_over_from_one_that_was_killed(emptied: Hub, tmp_path: Path) -> None:
    """Two data directories, one accounts database, one HBase and Kafka: publishers and subscribers go on at the other hub (B39)."""
    hub, first = emptied, emptied.data_dir
    share_accounts(hub)
    hub.environment = {**hub.environment, "IOTHUB_NODE__NUMBER": "1"}
    directories = [first, sister(hub, tmp_path)]

    def strike() -> None:
        hub.kill()
        directories.reverse()
        hub.data_dir = directories[0]
        hub.environment = {**hub.environment, "IOTHUB_NODE__NUMBER": "1" if hub.data_dir == first else "2"}
        hub.start()

    outcome = run_kills(hub, KILLS, KILLS_S, rate_per_s=RATE_PER_S, drain_s=60, seed=39, strike=strike)
    sys.stdout.write(outcome.report() + "\n")

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 200


def test_hub_waits_for_hbase_at_the_start(services: Services, hub: Hub) -> None:
    """With a reason that everybody can see; it goes on by itself; who does not want to wait says so; SIGTERM ends the wait.

    A hub from under which HBase is taken stops, too, although something waits to be stored.
    """
    hub.settings["node.stop_timeout"] = f"{STOP_TIMEOUT_S}s"
    hub.start()
    clients = Clients(Listener(hub, "tcp"))
    clients(5, "s", keep=True).subscribe(("a", 1))
    services.kill("hbase")
    publisher = clients(5, device="dev2")
    publisher.send(publisher.publish_bytes("a", b"never acknowledged", 1, 1))
    publisher.ping()
    began = time.monotonic()
    assert hub.stop() == 0
    assert time.monotonic() - began < STOP_S
    clients.leave()
    refused = hub.start_impatiently()
    assert refused.returncode == 7
    assert refused.stderr.splitlines()[-1].startswith("iothub: HBase's gateway 127.0.0.1:")
    for is_patient in (False, True):
        hub.launch()
        until(lambda: "waiting for HBase" in readiness(hub)[1], "the reason on /readyz")
        if not is_patient:
            assert hub.stop() == 0

    services.up("hbase")

    until(lambda: is_ready(hub), "the hub is ready")
    assert clients(5, "s", keep=True).connack.session_present
    clients.leave()
    assert hub.stop() == 0
    assert "Traceback" not in hub.log


def test_hub_without_tables_says_what_to_do(hub: Hub, stores: Stores) -> None:
    """Exit code 3: waiting makes no table."""
    elsewhere = {**hub.whole_environment, "IOTHUB_HBASE__NAMESPACE": f"{stores.namespace}x"}

    done = subprocess.run(hub.command(), capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=elsewhere)

    assert done.returncode == 3
    assert "create them: iothub hbase create-tables" in done.stderr
