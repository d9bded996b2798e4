"""Ten minutes of everyday life: 500 clients, five reconnects and 500 messages a second; nothing may grow."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass, field

import pytest

from tests.support.clients.ledger import Ledger
from tests.support.clients.load import drained, settle, spawn
from tests.support.clients.publisher import Publisher
from tests.support.clients.subscriber import Subscriber
from tests.support.clients.survivor import Plan
from tests.support.clients.witness import DistantWitness, open_files, rss_bytes
from tests.support.hubs.hub import Hub

SECONDS = float(os.environ.get("IOTHUB_SOAK_S") or 600)
WARM_UP = 0.3  # of the time: caches fill, the allocator settles
SPEAKERS = 50
BUSY = 50
QUIET = 400
STAY_S = (30.0, 150.0)  # 450 subscribers: five reconnects a second
GROWTH_BYTES = 8 << 20  # over ten minutes; a leak of 100 bytes per message would be 30 MiB


@dataclass
class Samples:
    """What the hub's process cost, over time."""

    at_s: list[float] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def take(self, pid: int, begun: float) -> None:
        self.at_s.append(time.monotonic() - begun)
        self.rss.append(rss_bytes(pid))
        self.files.append(open_files(pid))

    def growth(self) -> float:
        """Bytes over the whole time, by the slope of a fitted line."""
        return statistics.linear_regression(self.at_s, self.rss).slope * SECONDS


@pytest.mark.timeout(SECONDS + 300)
def test_ten_minutes_do_not_make_the_hub_grow(hub: Hub) -> None:
    """Memory and descriptors are flat, nothing acknowledged is lost, a witness pair never waits a second."""
    hub.start()
    assert hub.process is not None

    with DistantWitness(hub):
        ledger, samples = asyncio.run(_soak(hub, hub.process.pid))
    sys.stdout.write(
        f"{ledger.summary()}; memory {min(samples.rss) >> 20}..{max(samples.rss) >> 20} MiB, "
        f"growth {samples.growth() / (1 << 20):.1f} MiB, descriptors {min(samples.files)}..{max(samples.files)}\n"
    )

    assert not ledger.verdict(), "\n".join(ledger.verdict()[:40])
    assert samples.growth() < GROWTH_BYTES
    assert max(samples.files) - min(samples.files) < 60  # those who are away now and those who are not
    assert "Traceback" not in hub.log


async def _soak(hub: Hub, pid: int) -> tuple[Ledger, Samples]:
    ledger = Ledger()
    plan = Plan(hub.ports["tcp"], ledger, random.Random(5))
    speakers = [
        Publisher(plan, f"p{number}", 4 + number % 2, is_persistent=True, qualities=(1 + number % 2,), rate_per_s=10)
        for number in range(SPEAKERS)
    ]
    listeners = [
        Subscriber(plan, f"s{number}", 4 + number % 2, filters=(f"load/p{number}/#",), stay_s=STAY_S)
        for number in range(BUSY)
    ] + [
        Subscriber(
            plan, f"q{number}", 4 + number % 2, is_persistent=number % 3 == 0, filters=("quiet/#",), stay_s=STAY_S
        )
        for number in range(QUIET)
    ]
    listening = spawn(*(one.run() for one in listeners))
    assert await settle(lambda: all(one.is_subscribed.is_set() for one in listeners), 60)
    speaking = spawn(*(one.run() for one in speakers))
    samples, begun = Samples(), time.monotonic()
    while time.monotonic() - begun < SECONDS:
        await asyncio.sleep(2.0)
        if time.monotonic() - begun > SECONDS * WARM_UP:
            samples.take(pid, begun)
    plan.is_publishing, plan.is_draining = False, True
    assert await settle(lambda: all(task.done() for task in speaking), 60)
    if not await drained(ledger, listeners, 60):
        ledger.wrong("subscribers", f"not drained: {ledger.missing()} missing")
    plan.is_over = True
    await asyncio.wait(listening, timeout=10)
    return ledger, samples
