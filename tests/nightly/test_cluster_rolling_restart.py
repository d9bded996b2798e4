"""Every hub of three is drained, stopped and started again, one after the other, by the commands of the guide's rolling upgrade, under load."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from ops.services.services import Services
from tests.support.hubs.cluster_load import Run, under_load
from tests.support.hubs.linked_hubs import LinkedHub, linked_hubs

HUBS, WORKERS, ROUNDS, RATE_PER_S = 3, 2, 2, 20.0
SEED = int(os.environ.get("IOTHUB_CHAOS_SEED") or int.from_bytes(os.urandom(3)))
WELL_S = 90.0


async def restarted(run: Run, hub: LinkedHub) -> None:
    """Drain it, stop it, start it, and wait until all hubs show all as up, as the guide has it."""

    async def act() -> None:
        drained = await asyncio.to_thread(hub.run, "cluster", "drain", "--self", check=False)
        if drained.returncode != 0:
            run.ledger.wrong("drain", drained.stdout + drained.stderr)
        if (code := await asyncio.to_thread(hub.stop)) != 0:
            run.ledger.wrong("stop", f"exit code {code}: {hub.log[-1000:]}")
        await asyncio.to_thread(hub.launch)

    await run.blow(f"restart hub {hub.number}", act, hub.is_ready, WELL_S)
    await run.all_well(WELL_S)


def test_a_rolling_restart_loses_and_doubles_nothing(services: Services, tmp_path: Path) -> None:
    async def script(run: Run) -> None:
        for hub in run.linked.hubs * ROUNDS:
            await restarted(run, hub)

    with linked_hubs(tmp_path, services, HUBS, seed=SEED, workers=WORKERS) as linked:
        outcome = asyncio.run(under_load(linked, script, seed=SEED, rate_per_s=RATE_PER_S))
    sys.stdout.write(outcome.report() + "\n")

    assert not outcome.wrong, outcome.report()
    assert len(outcome.blows) == HUBS * ROUNDS, outcome.report()
