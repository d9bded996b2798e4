"""Kill a hub, or strike what it needs, at random moments under load, and judge by the ledger.

Knows how long, how often and with whom; what right and wrong are is the ledger's.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.clients.ledger import Ledger
from tests.support.clients.load import drained, settle, spawn
from tests.support.clients.packets import PUBLISH
from tests.support.clients.publisher import Publisher
from tests.support.clients.raw import RawClient
from tests.support.clients.subscriber import Subscriber
from tests.support.clients.survivor import Plan
from tests.support.hubs.hub import Hub
from tests.support.waiting import PATIENCE_S

KILLED_STARTS = 0.25


@dataclass
class Outcome:
    """What a run found."""

    ledger: Ledger
    wrong: list[str]
    kills: int
    starts_s: list[float]
    drain_s: float
    seed: int

    def report(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}: {self.kills} kills; {self.ledger.summary()}",
                f"starts took {', '.join(f'{start:.1f}' for start in self.starts_s)} s; the drain {self.drain_s:.1f} s",
                *self.wrong[:60],
            ]
        )


@dataclass
class Cast:
    """Who takes part: QoS 1 and 2, three kinds of coming and going, both versions, one that withholds."""

    publishers: list[Publisher]
    subscribers: list[Subscriber]


def cast(plan: Plan, rate_per_s: float) -> Cast:
    publishers = [
        Publisher(plan, "p-v4", 4, is_persistent=True, rate_per_s=rate_per_s),
        Publisher(plan, "p-v5", 5, is_persistent=True, rate_per_s=rate_per_s),
        Publisher(plan, "p-v5-b", 5, is_persistent=True, rate_per_s=rate_per_s, window=3),
        Publisher(plan, "p-v4-transient", 4, is_persistent=False, rate_per_s=rate_per_s / 2),
        Publisher(plan, "p-v5-transient", 5, is_persistent=False, rate_per_s=rate_per_s / 2),
        Publisher(plan, "p-deaf-v4", 4, is_persistent=True, rate_per_s=rate_per_s, is_deaf_at_times=True),
        Publisher(plan, "p-deaf-v5", 5, is_persistent=True, rate_per_s=rate_per_s, is_deaf_at_times=True),
        Publisher(plan, "p-retained", 5, is_persistent=True, rate_per_s=rate_per_s / 2, is_retained=True),
    ]
    going = (0.3, 3.0)
    subscribers = [
        Subscriber(plan, "s-online-v4", 4),
        Subscriber(plan, "s-online-v5", 5, filters=("load/#", "state/#")),
        Subscriber(plan, "s-going-v4", 4, stay_s=going),
        Subscriber(plan, "s-rm1", 5, receive_maximum=1, stay_s=going, filters=("load/p-v5/#",)),
        Subscriber(plan, "s-rm3", 5, receive_maximum=3, stay_s=going, filters=("load/p-v4/#", "load/p-v5-b/#")),
        Subscriber(plan, "s-rm20", 5, receive_maximum=20, stay_s=going),
        Subscriber(plan, "s-withholding", 5, receive_maximum=8, stay_s=(1.0, 4.0), is_withholding=True),
        Subscriber(plan, "s-transient", 5, is_persistent=False, stay_s=going),
    ]
    return Cast(publishers, subscribers)


def steady_cast(plan: Plan, rate_per_s: float) -> Cast:
    """Clients that stay: while a store is away nobody can resume a session, and says so."""
    publishers = [
        Publisher(plan, "p-steady-v4", 4, is_persistent=True, rate_per_s=rate_per_s),
        Publisher(plan, "p-steady-v5", 5, is_persistent=True, rate_per_s=rate_per_s),
        Publisher(plan, "p-steady-v5-transient", 5, is_persistent=False, rate_per_s=rate_per_s),
        Publisher(plan, "p-steady-retained", 5, is_persistent=True, rate_per_s=rate_per_s, is_retained=True),
    ]
    subscribers = [
        Subscriber(plan, "s-steady-v4", 4),
        Subscriber(plan, "s-steady-v5", 5, filters=("load/#", "state/#")),
        Subscriber(plan, "s-steady-rm3", 5, receive_maximum=3, filters=("load/p-steady-v4/#",)),
    ]
    return Cast(publishers, subscribers)


def run_kills(
    hub: Hub,
    kills: int,
    seconds: float,
    *,
    rate_per_s: float,
    drain_s: float,
    seed: int,
    strike: Callable[[], None] | None = None,
    casting: Callable[[Plan, float], Cast] = cast,
) -> Outcome:
    """`kills` kills of the hub (or strikes) spread at random over `seconds`; then stop publishing, drain, judge."""
    return asyncio.run(_run(hub, kills, seconds, rate_per_s, drain_s, seed, strike, casting))


async def _run(
    hub: Hub,
    kills: int,
    seconds: float,
    rate_per_s: float,
    drain_s: float,
    seed: int,
    strike: Callable[[], None] | None,
    casting: Callable[[Plan, float], Cast],
) -> Outcome:
    await asyncio.to_thread(hub.start)
    chance = random.Random(seed)
    ledger = Ledger()
    plan = Plan(hub.ports["tcp"], ledger, random.Random(seed + 1))
    people = casting(plan, rate_per_s)
    listening = spawn(*(one.run() for one in people.subscribers))
    if not await settle(lambda: all(one.is_subscribed.is_set() for one in people.subscribers), PATIENCE_S):
        ledger.wrong("everybody", "not all subscribers could subscribe")
    speaking = spawn(*(one.run() for one in people.publishers))
    mean_s = seconds / kills
    starts = [
        await (_death(hub, chance, mean_s) if strike is None else _struck(strike, chance, mean_s)) for _ in range(kills)
    ]
    await asyncio.sleep(1.0)
    plan.is_publishing, plan.is_draining = False, True
    begun = time.monotonic()
    if not await settle(lambda: all(task.done() for task in speaking), drain_s):
        waiting = {one.client_id: len(one.open) for one in people.publishers if one.open}
        ledger.wrong("publishers", f"never answered: {waiting}")
    if not await drained(ledger, people.subscribers, drain_s):
        held = {one.client_id: len(one.held) for one in people.subscribers if one.held and one.is_persistent}
        ledger.wrong("subscribers", f"not drained after {drain_s} s: {ledger.missing()} missing, unreleased {held}")
    took = time.monotonic() - begun
    plan.is_over = True
    await asyncio.wait([*listening, *speaking], timeout=10)
    for task in (*listening, *speaking):
        if task.done():
            task.result()
        else:
            task.cancel()
    await asyncio.to_thread(_judge_retained, hub, ledger)
    return Outcome(ledger, ledger.verdict(), kills, starts, took, seed)


async def _death(hub: Hub, chance: random.Random, mean_s: float) -> float:
    """Let the hub live for a while, kill it, start it again; one start in four is killed as well, at any stage of its recovery."""
    await asyncio.sleep(mean_s * chance.uniform(0.3, 1.7))
    await asyncio.to_thread(hub.kill)
    if chance.random() < KILLED_STARTS:
        await asyncio.to_thread(hub.launch)
        await asyncio.sleep(chance.uniform(0.1, 2.5))
        await asyncio.to_thread(hub.kill)
    begun = time.monotonic()
    await asyncio.to_thread(hub.start)
    return time.monotonic() - begun


async def _struck(strike: Callable[[], None], chance: random.Random, mean_s: float) -> float:
    """Let everything run for a while, then do what is to be lived through; returns how long that took."""
    await asyncio.sleep(mean_s * chance.uniform(0.3, 1.7))
    begun = time.monotonic()
    await asyncio.to_thread(strike)
    return time.monotonic() - begun


def _judge_retained(hub: Hub, ledger: Ledger) -> None:
    """The Retained Message is the last that was acknowledged, or a later one."""
    with RawClient(hub.ports["tcp"], 5) as client:
        client.connect("s-after-all", "acme/dev1")
        client.subscribe(("state/#", 0))
        streams = [one for one in ledger.streams.values() if one.topic.startswith("state/") and one.acknowledged]
        kept: dict[str, int] = {}
        with contextlib.suppress(TimeoutError):
            while len(kept) < len(streams):
                found = client.expect(PUBLISH)
                kept[found.topic] = int(found.payload.split(b"|", 1)[0])
    for stream in streams:
        last = max(stream.acknowledged)
        if kept.get(stream.topic, 0) < last:
            ledger.wrong("retained", f"{stream.topic} holds {kept.get(stream.topic)}, {last} was acknowledged")
