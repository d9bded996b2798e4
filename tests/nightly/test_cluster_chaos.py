"""Any process of any hub is killed or frozen every few seconds, for minutes, under QoS 1 and 2 load with online and offline sessions.

| variable | default | what |
| --- | --- | --- |
| IOTHUB_CHAOS_SECONDS | 600 | how long |
| IOTHUB_CHAOS_EVERY | 5 | seconds from one blow to the next |
| IOTHUB_CHAOS_HUBS | 3 | hubs |
| IOTHUB_CHAOS_WORKERS | 2 | processes of each (`node.workers`); a blow is for any of them |
| IOTHUB_CHAOS_RATE | 10 | messages per second and publisher |
| IOTHUB_CHAOS_SEED | chance | repeats the choices of a run |
| IOTHUB_CHAOS_MACHINES | 0 | 1: each hub on a machine of its own (network namespace); needs root |
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ops.services.services import Services
from tests.support.hubs.cluster_load import Run, under_load
from tests.support.hubs.linked_hubs import LinkedHub, linked_hubs

SECONDS = float(os.environ.get("IOTHUB_CHAOS_SECONDS", "600"))
EVERY_S = float(os.environ.get("IOTHUB_CHAOS_EVERY", "5"))
HUBS = int(os.environ.get("IOTHUB_CHAOS_HUBS", "3"))
WORKERS = int(os.environ.get("IOTHUB_CHAOS_WORKERS", "2"))
RATE_PER_S = float(os.environ.get("IOTHUB_CHAOS_RATE", "10"))
SEED = int(os.environ.get("IOTHUB_CHAOS_SEED") or int.from_bytes(os.urandom(3)))
ON_MACHINES = os.environ.get("IOTHUB_CHAOS_MACHINES") == "1"
FREEZES_S = (0.5, 3.0, 12.0)  # a hiccup, a link that goes down, a hub that is declared gone
DEAD_S = (0.0, 1.0, 12.0)  # until it is started again
WELL_S = 60.0


async def strike(run: Run, hub: LinkedHub) -> None:
    """Kill or freeze one of its processes; bring it back later."""
    process, is_kill = run.chance.choice(hub.processes()), run.chance.random() < 0.5
    away_s = run.chance.choice(DEAD_S if is_kill else FREEZES_S)
    name = f"{'kill' if is_kill else 'freeze'} hub {hub.number} ({'first' if process.pid == hub.process.pid else 'further'} process), {away_s:g} s"  # type: ignore[union-attr]

    async def act() -> None:
        with suppress(psutil.NoSuchProcess):  # it has ended since
            process.send_signal(signal.SIGKILL if is_kill else signal.SIGSTOP)
        if is_kill:
            await asyncio.to_thread(hub.await_end, process)
        await asyncio.sleep(away_s)
        await asyncio.to_thread(hub.revive)

    await run.blow(name, act, hub.is_ready, away_s + WELL_S)


@pytest.mark.timeout(int(SECONDS) + 900)
def test_nothing_acknowledged_is_lost_whichever_process_dies(services: Services, tmp_path: Path) -> None:
    """0 acknowledged lost, 0 QoS 2 doubled, at most one living connection of each Client Identifier in the end."""

    async def script(run: Run) -> None:
        struck: dict[int, asyncio.Task[None]] = {}
        end = asyncio.get_running_loop().time() + SECONDS
        while asyncio.get_running_loop().time() < end:
            free = [hub for hub in run.linked.hubs if hub.number not in struck or struck[hub.number].done()]
            if free:
                hub = run.chance.choice(free)
                struck[hub.number] = asyncio.ensure_future(strike(run, hub))
            await asyncio.sleep(EVERY_S)
        await asyncio.gather(*struck.values())
        await run.all_well(WELL_S)

    with linked_hubs(tmp_path, services, HUBS, seed=SEED, workers=WORKERS, on_machines=ON_MACHINES) as linked:
        outcome = asyncio.run(under_load(linked, script, seed=SEED, rate_per_s=RATE_PER_S))
    sys.stdout.write(outcome.report() + "\n")

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > SECONDS, outcome.report()
