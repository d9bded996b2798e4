"""Five kills -9 under load: what was acknowledged arrives, in order, QoS 2 once. The night runs thirty (tests/nightly)."""

from __future__ import annotations

import os

from tests.support.clients.kills import run_kills
from tests.support.hubs.hub import Hub


def test_five_kills_lose_nothing_acknowledged(hub: Hub) -> None:
    """PUBACK and PUBREC mean "survives kill -9"; sessions, identifiers and order survive it too."""
    seed = int(os.environ.get("IOTHUB_KILLS_SEED") or int.from_bytes(os.urandom(4)))

    outcome = run_kills(hub, 5, 10.0, rate_per_s=20, drain_s=30, seed=seed)

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 300, outcome.report()
