"""A hub with everything on HBase and Kafka, under load, while HBase is paused for longer than anybody waits.

The long form of what `tests/services/test_services.py` asks of ZooKeeper.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from ops.services.services import Services
from tests.support.clients.kills import run_kills, steady_cast
from tests.support.hubs.kafka_hub import readiness
from tests.support.hubs.server_hub import alarms, own_stores, server_hub
from tests.support.waiting import until

RATE_PER_S = 20
RECOVERY_S = 10.0


def _pid(services: Services) -> int | None:
    return next(report.pid for report in services.reports() if report.name == "hbase")


@pytest.mark.parametrize("pause_s", [30.0, 45.0])
def test_pause_loses_nothing(services: Services, tmp_path: Path, pause_s: float) -> None:
    """Publishers are held back, an alarm says why, the same HBase goes on, and the hub is ready within 10 s."""
    recovery_s: list[float] = []

    def strike() -> None:
        services.pause("hbase")
        began = time.monotonic()
        until(lambda: ("store_failed", "queues") in alarms(hub), "an alarm", pause_s)
        until(lambda: time.monotonic() - began > pause_s, "the end of the pause", pause_s + 5)
        assert not readiness(hub)[0]
        services.resume("hbase")
        resumed = time.monotonic()
        until(lambda: readiness(hub)[0], "the hub is ready again", RECOVERY_S)
        recovery_s.append(time.monotonic() - resumed)

    with own_stores(services) as stores:
        hub = server_hub(tmp_path, stores)
        before = _pid(services)
        try:
            outcome = run_kills(
                hub, 1, 3.0, rate_per_s=RATE_PER_S, drain_s=120, seed=7, strike=strike, casting=steady_cast
            )
            assert alarms(hub) == set()
        finally:
            services.resume("hbase")
            hub.close()
    sys.stdout.write(f"{outcome.report()}\nready {recovery_s} s after the pause of {pause_s:.0f} s\n")

    assert _pid(services) == before
    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 50
