"""Several hubs' halves of the shared quota ledger over one ledger, with time that is set: no thread, no waiting.

Knows the ledger's inside only as far as a hub does: turns, room, limits.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import resolve_texts
from iothub_services.quota.shared.keys import Keys
from iothub_services.quota.shared.service import Mode, SharedQuota
from iothub_services.quota.shared.tenant import SharedTenant
from iothub_services.quota.usage import Usage, UsageStore
from iothub_services.redis.calls import Call, RedisUnavailableError, Reply
from tests.support.in_process.ledgers import Ledger
from tests.support.servers.lua_redis import LuaRedis

SCOPE = "iothub:test:"


class Silent:
    """Observes refusals, by quota."""

    def __init__(self) -> None:
        self.refusals: list[Quota] = []

    def refused(self, tenant_id: int, quota: Quota) -> None:
        self.refusals.append(quota)

    def would_refuse(self, tenant_id: int, quota: Quota) -> None: ...

    def unbalanced(self, tenant_id: int, quota: Quota) -> None:
        raise AssertionError(f"{quota.value} of tenant {tenant_id} was given back twice")


class World:
    """One ledger, and the time of all."""

    def __init__(self, make: Callable[[], Ledger] = LuaRedis, now: float = 1_800_000_000.0) -> None:
        self.now = now
        self.is_away = False
        self.calls = 0
        self.ledger = make()

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now - 1_799_999_000.0

    def flush(self) -> None:
        self.ledger.flush()

    async def call(self, call: Call) -> Reply:
        if self.is_away:
            raise RedisUnavailableError("away")
        self.calls += 1
        assert call.script is not None
        self.ledger.now_us = round(self.now * 1_000_000)
        count, *arguments = call.arguments[2:]
        return self.ledger.eval(call.script, int(count), *arguments)


class _NoStore:
    def load(self) -> list[Any]:
        return []


class HubHalf:
    """What one hub has of the ledger. It takes its turns when it is told to; what it puts off is done by `run_soon`."""

    def __init__(self, world: World, place: str, folder: Path | None = None) -> None:
        """Without a folder its calendar windows are kept nowhere."""
        self.world = world
        self.observer = Silent()
        self.modes: list[Mode] = []
        self.soon: list[Callable[[], object]] = []
        self.late: list[Deferred[None]] | None = None  # answers that were given and are not heard yet
        store: Any = _NoStore() if folder is None else UsageStore(folder / f"{place}.db", world, lambda *_: None)
        self.usage = Usage(store, world, is_shared=True)
        self.shared = SharedQuota(
            self._call,
            Keys(lambda: SCOPE),
            place,
            world,
            self._later,
            self.usage,
            lambda mode, _: self.modes.append(mode),
        )
        self.is_cut_off = False

    async def _call(self, call: Call) -> Reply:
        if self.is_cut_off:
            raise RedisUnavailableError("cut off")
        reply = await self.world.call(call)
        if self.late is not None:
            self.late.append(Deferred())
            await self.late[-1]
        return reply

    def _later(self, delay: float, call: Callable[[], object]) -> None:
        if delay == 0:
            self.soon.append(call)

    def run_soon(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def hear_one(self) -> None:
        """The first answer that is late arrives now."""
        assert self.late
        self.late.pop(0).callback(None)

    def hear(self) -> None:
        """All that is late arrives, and nothing is late any more."""
        late, self.late = self.late or [], None
        for each in late:
            each.callback(None)
        self.run_soon()

    def turn_without_answer(self) -> None:
        """Begin a turn whose questions reach Redis and whose answers are not heard until `hear`."""
        self.late = []
        Deferred.fromCoroutine(self.shared._turn())

    def turn(self) -> None:
        """Take a turn, as the service's own loop would: trouble is not the caller's."""
        done(self.shared._turn())
        self.run_soon()

    def tenant(self, limits: str, tenant_id: int = 7) -> SharedTenant:
        return SharedTenant(tenant_id, resolve_texts(limits), self.observer, self.shared, self.world)

    def enter(self, tenant: SharedTenant, count: int = 1) -> Deferred[bool]:
        """Begin to wait for room for connections, and take them at once."""

        async def walk() -> bool:
            await tenant.room((Quota.CONNECTIONS, count))
            return tenant.ledger.reserve(Quota.CONNECTIONS, count)

        answer = Deferred.fromCoroutine(walk())
        self.run_soon()
        return answer


def done(work: Coroutine[Deferred[Any], Any, Any]) -> Any:
    """Return what a coroutine returned, which does not wait for anything."""
    outcomes: list[Any] = []
    failures: list[Any] = []
    Deferred.fromCoroutine(work).addCallbacks(outcomes.append, failures.append)
    if failures:
        failures[0].raiseException()
    assert outcomes, "it still waits"
    return outcomes[0]


def turns(world: World, *hubs: HubHalf, seconds: float = 0.1, step_s: float = 0.1) -> None:
    """Let time pass, with a turn of every hub in each step."""
    for _ in range(max(round(seconds / step_s), 1)):
        world.now += step_s
        for hub in hubs:
            hub.turn()
