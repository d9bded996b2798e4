"""Two hubs on the same stores: a data directory and a node number each, one accounts database, one HBase and one Kafka.

Knows how clients come and go between them; what right and wrong are is the ledger's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.clients.kills import Cast, Outcome
from tests.support.clients.ledger import Ledger
from tests.support.clients.load import drained, settle, spawn
from tests.support.clients.publisher import Publisher
from tests.support.clients.subscriber import Subscriber
from tests.support.clients.survivor import Plan
from tests.support.hubs.hub import Hub
from tests.support.hubs.server_hub import Stores, server_hub, share_accounts, sister
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

UNAVAILABLE = frozenset((0x03, 0x88))  # 3.1.1, 5.0
LOOK_S = 1.0  # until a hub has read that another one is back


@dataclass
class Pair:
    """`first` has node number 1 and the accounts; `second` has number 2."""

    first: Hub
    second: Hub

    def start(self) -> None:
        self.first.start()
        self.second.start()


@contextmanager
def pair_of_hubs(directory: Path, stores: Stores) -> Iterator[Pair]:
    """Neither is started; what runs at the end is killed."""
    first = server_hub(directory, stores)
    share_accounts(first)
    second_dir = sister(first, directory)
    shared = dict(first.environment)
    first.environment = {**shared, **_links(), "IOTHUB_NODE__NUMBER": "1", "IOTHUB_NODE__NAME": "one"}
    second = Hub(
        second_dir,
        {"tcp": free_port(), "http": free_port()},
        environment={**shared, **_links(), "IOTHUB_NODE__NUMBER": "2", "IOTHUB_NODE__NAME": "two"},
        config_file=first.config_file,
    )
    pair = Pair(first, second)
    try:
        yield pair
    finally:
        first.close()
        second.close()


def _links() -> dict[str, str]:
    """Where a hub of this machine has its links."""
    return {"IOTHUB_CLUSTER__LISTEN": f"127.0.0.1:{free_port()}", "IOTHUB_CLUSTER__INSECURE": "true"}


class AnyDoor(Plan):
    """Clients connect to one hub or the other, as chance has it; when a hub is down they try again."""

    def choose(self, pair: Pair) -> None:
        self.port = self.random.choice((pair.first, pair.second)).ports["tcp"]


async def run_pair(pair: Pair, kills: int, seconds: float, *, rate_per_s: float, drain_s: float, seed: int) -> Outcome:
    """Clients that come and go at both hubs; one hub after the other is killed and started again; then drain, and judge.

    Who publishes and who reads meets at no hub in particular; while one is dead the other one accepts. Of a client whose key the dead one owns it
    may say that it is unavailable: after 5 s, which a start on a busy machine takes.
    """
    await asyncio.to_thread(pair.start)
    chance, ledger = random.Random(seed), Ledger()
    plan = AnyDoor(0, ledger, random.Random(seed + 1))
    plan.choose(pair)
    people = pair_cast(plan, rate_per_s)
    (choosing,) = spawn(_choose(plan, pair))
    listening = spawn(*(one.run() for one in people.subscribers))
    if not await settle(lambda: all(one.is_subscribed.is_set() for one in people.subscribers), PATIENCE_S):
        ledger.wrong("everybody", "not all subscribers could subscribe")
    speaking = spawn(*(one.run() for one in people.publishers))
    starts = []
    for number in range(kills):
        hub = (pair.first, pair.second)[number % 2]
        await asyncio.sleep(seconds / kills * chance.uniform(0.3, 0.7))
        plan.moving = UNAVAILABLE
        await asyncio.to_thread(hub.kill)
        await asyncio.sleep(seconds / kills * chance.uniform(0.3, 0.7))
        begun = time.monotonic()
        await asyncio.to_thread(hub.start)
        starts.append(time.monotonic() - begun)
        await asyncio.sleep(LOOK_S)
        plan.moving = frozenset()
    plan.is_publishing, plan.is_draining = False, True
    begun = time.monotonic()
    if not await settle(lambda: all(task.done() for task in speaking), drain_s):
        ledger.wrong("publishers", f"never answered: { {one.client_id: len(one.open) for one in people.publishers} }")
    if not await drained(ledger, people.subscribers, drain_s):
        ledger.wrong("subscribers", f"not drained after {drain_s} s: {ledger.missing()} missing")
    took = time.monotonic() - begun
    plan.is_over = True
    choosing.cancel()
    await asyncio.wait([*listening, *speaking], timeout=10)
    for task in (*listening, *speaking):
        task.result() if task.done() else task.cancel()
    return Outcome(ledger, ledger.verdict(), kills, starts, took, seed)


async def _choose(plan: AnyDoor, pair: Pair) -> None:
    while True:
        plan.choose(pair)
        await asyncio.sleep(0.02)


def pair_cast(plan: Plan, rate_per_s: float) -> Cast:
    """QoS 1 and 2, both versions; some stay, some come and go, and with it from hub to hub."""
    going = (0.5, 3.0)
    publishers = [
        Publisher(plan, "p-v4", 4, is_persistent=True, rate_per_s=rate_per_s),
        Publisher(plan, "p-v5", 5, is_persistent=True, rate_per_s=rate_per_s),
        Publisher(plan, "p-v5-transient", 5, is_persistent=False, rate_per_s=rate_per_s),
        Publisher(plan, "p-deaf-v5", 5, is_persistent=True, rate_per_s=rate_per_s, is_deaf_at_times=True),
    ]
    subscribers = [
        Subscriber(plan, "s-stays-v4", 4),
        Subscriber(plan, "s-stays-v5", 5),
        Subscriber(plan, "s-goes-v4", 4, stay_s=going),
        Subscriber(plan, "s-goes-rm3", 5, receive_maximum=3, stay_s=going, filters=("load/p-v4/#", "load/p-v5/#")),
        Subscriber(plan, "s-withholds", 5, receive_maximum=8, stay_s=(1.0, 4.0), is_withholding=True),
    ]
    return Cast(publishers, subscribers)
