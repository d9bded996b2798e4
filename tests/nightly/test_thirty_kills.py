"""Thirty kills -9 in five minutes under QoS 1 and 2 load: nothing acknowledged is lost, and no QoS 2 message arrives twice."""

from __future__ import annotations

import os
import sys

from tests.support.clients.kills import run_kills
from tests.support.hubs.hub import Hub


def test_thirty_kills_lose_nothing_acknowledged(hub: Hub) -> None:
    """Subscribers online and coming and going with Receive Maximum 1, 3 and 20, one that withholds its answers."""
    seed = int(os.environ.get("IOTHUB_KILLS_SEED") or int.from_bytes(os.urandom(4)))

    outcome = run_kills(hub, 30, 230.0, rate_per_s=20, drain_s=120, seed=seed)
    sys.stdout.write(outcome.report() + "\n")

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 5000, outcome.report()
