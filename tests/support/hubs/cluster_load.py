"""A load at several hubs while a script strikes them or their network; the ledger judges, and so do clients that contend for one Client Identifier.

Knows no namespace and no server: a script does what it likes, and says what each blow was.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.clients.ledger import Ledger
from tests.support.clients.load import drained, settle, spawn
from tests.support.clients.packets import packet, string
from tests.support.clients.survivor import USERNAME, Plan
from tests.support.hubs.linked_hubs import Linked
from tests.support.hubs.two_hubs import pair_cast

MOVING = frozenset((0x03, 0x88, 0x89, 0x8B, 0x9C))  # unavailable (3.1.1, 5.0), busy, shutting down, use another server
CONNACK_S = 30.0  # of a hub that is frozen for 12 s and then begins again
CONTENDED = 4  # Client Identifiers
ONE_LEFT_S = 30.0
_ANSWER_S = 5.0


@dataclass(frozen=True)
class Blow:
    """`back_s`: from its beginning until the hubs that were struck took clients again."""

    at_s: float
    what: str
    back_s: float


@dataclass
class Run:
    """What a script has in hand."""

    linked: Linked
    chance: random.Random
    ledger: Ledger
    blows: list[Blow] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    async def blow(
        self, what: str, act: Callable[[], Awaitable[None]], back: Callable[[], bool], limit_s: float
    ) -> None:
        """Strike, and wait until everybody concerned is well again; note how long that took."""
        begun = time.monotonic()
        await act()
        while not await asyncio.to_thread(back):
            if time.monotonic() - begun > limit_s:
                self.ledger.wrong("hubs", self.linked.trouble(f"not well {limit_s:g} s after: {what}"))
                break
            await asyncio.sleep(0.1)
        self.blows.append(Blow(begun - self.begun, what, time.monotonic() - begun))

    async def all_well(self, limit_s: float) -> None:
        """Wait until every hub is ready and sees all as up."""
        try:
            await asyncio.to_thread(self.linked.wait, limit_s)
        except AssertionError as error:
            self.ledger.wrong("hubs", str(error))


@dataclass
class Outcome:
    """What a run found; `wrong` is empty if the hubs kept their word."""

    ledger: Ledger
    wrong: list[str]
    blows: list[Blow]
    seed: int
    drain_s: float
    most_left: int

    def report(self) -> str:
        rows = [
            f"| {blow.at_s:7.1f} | {blow.what:<42} | {blow.back_s:7.1f} |"
            for blow in sorted(self.blows, key=lambda blow: blow.at_s)
        ]
        return "\n".join(
            [
                f"seed {self.seed}: {len(self.blows)} blows; {self.ledger.summary()}",
                f"drained in {self.drain_s:.1f} s; connections of one Client Identifier at the end: at most {self.most_left}",
                f"| at s    | {'blow':<42} | back s  |",
                f"| ------: | {'-' * 42} | ------: |",
                *rows,
                *(f"WRONG {each}" for each in self.wrong[:60]),
            ]
        )


async def under_load(
    linked: Linked, script: Callable[[Run], Awaitable[None]], *, seed: int, rate_per_s: float, drain_s: float = 120.0
) -> Outcome:
    """Start the hubs, begin the load, run the script, drain, judge."""
    await asyncio.to_thread(linked.start)
    ports = [hub.ports["tcp"] for hub in linked.hubs]
    run = Run(linked, random.Random(seed), Ledger())
    ledger, doors = run.ledger, random.Random(seed + 1)
    plan = Plan(ports[0], ledger, random.Random(seed + 2), connack_s=CONNACK_S, moving=MOVING)
    people = pair_cast(plan, rate_per_s)
    beside = spawn(_any_door(plan, ports, doors))
    listening = spawn(*(one.run() for one in people.subscribers))
    if not await settle(lambda: all(one.is_subscribed.is_set() for one in people.subscribers), 60):
        ledger.wrong("everybody", "not all subscribers could subscribe")
    speaking = spawn(*(one.run() for one in people.publishers))
    contenders = [
        Contender(f"contended-{number}", ports, random.Random(seed + 3 + number)) for number in range(CONTENDED)
    ]
    contending = spawn(*(one.run() for one in contenders))
    await script(run)
    await asyncio.sleep(1.0)
    for task in contending:
        task.cancel()
    plan.is_publishing, plan.is_draining = False, True
    begun = time.monotonic()
    if not await settle(lambda: all(task.done() for task in speaking), drain_s):
        ledger.wrong("publishers", f"never answered: { {one.client_id: len(one.open) for one in people.publishers} }")
    if not await drained(ledger, people.subscribers, drain_s):
        ledger.wrong("subscribers", f"not drained after {drain_s} s: {ledger.missing()} missing")
    took = time.monotonic() - begun
    await asyncio.sleep(max(0.0, ONE_LEFT_S - took))
    left = [await one.living() for one in contenders]
    if max(left) > 1:
        ledger.wrong("contenders", f"living connections of one Client Identifier each: {left}")
    plan.is_over = True
    for task in beside:
        task.cancel()
    await asyncio.wait([*listening, *speaking], timeout=10)
    for task in (*listening, *speaking):
        task.result() if task.done() else task.cancel()
    return Outcome(ledger, ledger.verdict(), run.blows, seed, took, max(left))


async def _any_door(plan: Plan, ports: list[int], doors: random.Random) -> None:
    """Clients connect to any hub, as behind a load balancer that knows nothing."""
    while True:
        plan.port = doors.choice(ports)
        await asyncio.sleep(0.02)


class Contender:
    """Connects again and again with one Client Identifier, to any hub, and closes nothing by itself."""

    def __init__(self, client_id: str, ports: list[int], chance: random.Random) -> None:
        self._names = string(client_id) + string(USERNAME) + string("secret")
        self._ports = ports
        self._chance = chance
        self._open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def run(self) -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._chance.choice(self._ports))
                self._open.append((reader, writer))
                writer.write(packet(0x10, string("MQTT") + b"\x04\xc2" + struct.pack("!H", 0) + self._names))
                with suppress(asyncio.IncompleteReadError, TimeoutError):
                    await asyncio.wait_for(reader.readexactly(4), _ANSWER_S)
            await asyncio.sleep(self._chance.uniform(0.1, 1.0))

    async def living(self) -> int:
        """Return how many of its connections a hub still answers."""
        answers = await asyncio.gather(*(_is_answered(*each) for each in self._open))
        return sum(answers)


async def _is_answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    try:
        writer.write(b"\xc0\x00")
        return (await asyncio.wait_for(reader.read(64), _ANSWER_S)).endswith(b"\xd0\x00")
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return False
    finally:
        writer.close()
