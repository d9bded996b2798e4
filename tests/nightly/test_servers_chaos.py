"""A hub with everything on HBase and Kafka, while it and its servers are killed and paused at random.

The long form of `tests/services/test_hub_on_servers_faults.py`.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.services.services import Services
from tests.support.clients.kills import run_kills, steady_cast
from tests.support.hubs.hub import Hub
from tests.support.hubs.kafka_hub import readiness
from tests.support.hubs.server_hub import alarms, own_stores, server_hub
from tests.support.waiting import until

STRIKES = 12
SECONDS = 120.0
NOTICE_S = 20.0
RECOVERY_S = 30.0  # of a hub that may have been killed with its server


def blows(hub: Hub, services: Services) -> list[Callable[[], None]]:
    """What may happen. Each has ended when it returns."""

    def kill_hub() -> None:
        hub.kill()
        hub.start()

    def kill(server: str) -> None:
        services.kill(server)
        until(lambda: bool(alarms(hub)), f"an alarm about {server}", NOTICE_S)
        services.up(server)

    def pause(server: str) -> None:
        services.pause(server)
        until(lambda: bool(alarms(hub)), f"an alarm about {server}", NOTICE_S)
        services.resume(server)

    def kill_servers() -> None:
        services.kill("kafka")
        services.kill("hbase")
        until(lambda: len({subject for _, subject in alarms(hub)}) > 1, "an alarm about each", NOTICE_S)
        services.up("hbase")
        services.up("kafka")

    def kill_both() -> None:
        services.kill("hbase")
        hub.kill()
        hub.launch()
        until(lambda: "waiting for HBase" in readiness(hub)[1], "the reason on /readyz", NOTICE_S)
        services.up("hbase")

    return [
        kill_hub,
        lambda: kill("hbase"),
        lambda: kill("kafka"),
        lambda: pause("hbase"),
        lambda: pause("kafka"),
        kill_servers,
        kill_both,
    ]


@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_whatever_dies(services: Services, tmp_path: Path) -> None:
    """QoS 1 and 2, retained messages; every blow is over when the hub is ready again by itself."""
    seed = int(os.environ.get("IOTHUB_KILLS_SEED") or int.from_bytes(os.urandom(4)))
    chance = random.Random(seed)
    with own_stores(services) as stores:
        hub = server_hub(tmp_path, stores)

        def strike() -> None:
            chance.choice(blows(hub, services))()
            until(lambda: readiness(hub)[0], "the hub is ready again", RECOVERY_S)

        try:
            outcome = run_kills(
                hub, STRIKES, SECONDS, rate_per_s=10, drain_s=120, seed=seed, strike=strike, casting=steady_cast
            )
        finally:
            hub.close()
    sys.stdout.write(outcome.report() + "\n")

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 500, outcome.report()
