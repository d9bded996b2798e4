"""Hubs that share a cache of accounts, without a reactor: their directories, one log of changes, and Redis at will."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed

from iothub.testing.accounts import MemoryAccounts
from iothub.testing.clock import ManualClock
from iothub_services.auth.change_watermark import ChangePosition, ChangeWatermark, Line
from iothub_services.auth.directory import Directory, DirectorySettings
from iothub_services.auth.lru import LruSettings
from iothub_services.auth.port import DeviceRecord, TenantRecord
from iothub_services.auth.shared import SharedRecords, SharedSettings
from iothub_services.redis.calls import Call, RedisUnavailableError, Reply

T = TypeVar("T")

PEPPER = b"p" * 32
CACHE_S = 60.0


class DictRedis:
    """GET and SET over a dictionary. `is_down`: every call fails; `hold`: answers wait until `answer` is called."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.ages_ms: dict[bytes, int] = {}
        self.is_down = False
        self.is_held = False
        self.asked: list[str] = []
        self.held: list[tuple[Call, Deferred[list[Reply]]]] = []

    def run_many(self, calls: Sequence[Call]) -> Awaitable[list[Reply]]:
        (call,) = calls
        self.asked.append(str(call.arguments[0]))
        if self.is_down:
            return succeed([RedisUnavailableError("Redis: down")])
        if not self.is_held:
            return succeed([self._do(call)])
        answer: Deferred[list[Reply]] = Deferred()
        self.held.append((call, answer))
        return answer

    def answer(self, place: int = 0) -> None:
        """Do a call that waits; they may be done in any order."""
        call, answer = self.held.pop(place)
        answer.callback([RedisUnavailableError("Redis: down")] if self.is_down else [self._do(call)])

    def _do(self, call: Call) -> Reply:
        place = call.arguments[1]
        assert isinstance(place, bytes)
        if call.arguments[0] == "GET":
            return self.entries.get(place)
        octets, age_ms = call.arguments[2], call.arguments[4]
        assert isinstance(octets, bytes)
        assert isinstance(age_ms, int)
        self.entries[place], self.ages_ms[place] = octets, age_ms
        return b"OK"


@dataclass
class Accounts(MemoryAccounts):
    """SQL: records, and the log of their changes."""

    log: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        MemoryAccounts.__init__(self)
        self.noted(99)  # a tenant that nobody asks about

    def noted(self, tenant_id: int, device: str | None = None, tenant_name: str = "") -> None:
        change = len(self.log) + 1
        self.log.append(Line(ChangePosition(change, change * 10), tenant_id, device, tenant_name))

    def change_device(self, tenant_id: int, name: str, record: DeviceRecord | None) -> None:
        if record is None:
            self.devices.pop((tenant_id, name), None)
        else:
            self.devices[tenant_id, name] = record
        self.noted(tenant_id, name)

    def change_tenant(self, record: TenantRecord) -> None:
        self.tenants[record.name] = record
        self.noted(record.id, tenant_name=record.name)


class Threads:
    """Calls to SQL: made at once, or when `finish` says so."""

    def __init__(self) -> None:
        self.is_held = False
        self.calls: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def __call__(self, _name: str, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.calls.append((lambda: call(*args, **kwargs), answer))
        if not self.is_held:
            self.finish()
        return answer

    def read(self, place: int = 0) -> None:
        """Make a call whose answer comes later."""
        call, answer = self.calls[place]
        result = call()
        self.calls[place] = (lambda: result), answer

    def finish(self, place: int = 0) -> None:
        call, answer = self.calls.pop(place)
        try:
            answer.callback(call())
        except Exception as error:  # as a pool of threads does
            answer.errback(error)


class Hub:
    """One hub's directory. `look`: as following does, a poll and what it applies."""

    def __init__(self, accounts: Accounts, redis: DictRedis, clock: ManualClock, pepper: bytes = PEPPER) -> None:
        self.accounts = accounts
        self.clock = clock
        self.threads = Threads()
        self.failures: list[str] = []
        self.seen = len(accounts.log)
        watermark = ChangeWatermark(clock, CACHE_S)
        watermark.begin(accounts.log, clock.monotonic())
        self.shared = SharedRecords(redis, watermark, pepper, clock, SharedSettings(lambda: "iothub:ab:"), lambda: 0.0)
        settings = DirectorySettings(LruSettings(ttl_s=CACHE_S), LruSettings(ttl_s=CACHE_S))
        self.directory = Directory(
            accounts, self.threads, clock, lambda call, _error: self.failures.append(call), settings, self.shared
        )

    def look(self) -> None:
        looked_at = self.shared.watermark.now()
        lines, self.seen = self.accounts.log[self.seen :], len(self.accounts.log)
        self.shared.watermark.saw(lines, looked_at)
        for line in lines:
            if line.tenant_id:
                self.directory.invalidate(line.tenant_id, line.device)

    def tenant(self, name: str) -> list[Any]:
        return begun(self.directory.tenant(name))

    def device(self, tenant: TenantRecord, name: str) -> list[Any]:
        return begun(self.directory.device(tenant, name))


def begun(coroutine: Coroutine[Any, Any, T]) -> list[Any]:
    """Run until it waits; its result, or its error, comes into the list."""
    results: list[Any] = []
    Deferred.fromCoroutine(coroutine).addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results
