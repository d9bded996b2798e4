"""Hubs' authentication over one SQLite file of accounts and one real Redis: no listeners and no sessions, and every query to SQL is counted."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from iothub.base.clock import SystemClock
from iothub.base.units import Endpoint
from iothub.config.sections import Redis
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.auth.authenticator import Authenticated, Authenticator, AuthSettings, Credentials, Refusal
from iothub_services.auth.change_watermark import ChangeWatermark
from iothub_services.auth.port import DeviceRecord, TenantRecord
from iothub_services.auth.secrets import hash_generated
from iothub_services.auth.shared import SharedRecords, SharedSettings
from iothub_services.redis import from_settings
from iothub_services.redis.client import RedisClient
from iothub_services.threads import Threads
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.changes import ChangeWatcher, latest, lines
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.devices import Credential, CredentialForm, insert_devices
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore, ChangeKind

PEPPER = b"p" * 32
SECRET = "secret"
TENANT = "acme"
CACHE_S = 60.0
TIMEOUT_S = 2.0  # a busy machine stands still for tenths of it
PATIENCE_S = 60.0


def settings_of(port: int, timeout_s: float = TIMEOUT_S, *others: Endpoint) -> Redis:
    """A prefix of its own: nobody else's keys are in the way."""
    prefix = f"test-{uuid.uuid4().hex[:8]}"
    return Redis(addresses=(Endpoint("127.0.0.1", port), *others), prefix=prefix, timeout_s=timeout_s)


def accounts_with(path: Path, devices: int) -> AccountStore:
    """One tenant with `dev0`, `dev1` and so on, all with the same secret."""
    store = init_store(sqlite_url(path), pepper=PEPPER)
    tenants.create(store, TENANT, plan="unlimited")
    with store.write() as writer:
        owner = tenants.living(writer.connection, TENANT)
        stored = Credential(CredentialForm.GENERATED, hash_generated(SECRET, PEPPER))
        insert_devices(writer, owner.id, [(f"dev{number}", stored) for number in range(devices)])
        writer.changed(owner.id, ChangeKind.DEVICE, "*")
    return store


@dataclass
class CountedRegistry:
    """The accounts; `asked`: questions, by what was asked for."""

    registry: Registry
    asked: Counter[str] = field(default_factory=Counter)

    def find_tenant(self, name: str) -> TenantRecord | None:
        self.asked["tenant"] += 1
        return self.registry.find_tenant(name)

    def find_device(self, tenant_id: int, name: str) -> DeviceRecord | None:
        self.asked["device"] += 1
        return self.registry.find_device(tenant_id, name)

    def find_devices(self, tenant_id: int, names: Collection[str]) -> dict[str, DeviceRecord]:
        self.asked["devices"] += 1
        return self.registry.find_devices(tenant_id, names)


class Watched:
    """Hears of nothing: the answers say it."""

    def proven(self, who: Authenticated) -> None: ...

    def refused(self, shown: Credentials, refusal: Refusal, *, is_ban: bool) -> None: ...

    def store_failed(self, call: str, error: Exception) -> None: ...


class CachedHub:
    """One hub's authenticator with a cold memory, on a reactor of its own."""

    def __init__(self, store: AccountStore, redis: Redis | None, turning: ReactorThread) -> None:
        self.turning = turning
        reactor, clock = turning.reactor, SystemClock()
        self.accounts = CountedRegistry(Registry(store))
        self.threads = Threads(reactor, {"accounts": 2, "auth": 1})
        self.states: list[str] = []
        self.client: RedisClient | None = None
        self.shared: SharedRecords | None = None
        self.watcher = ChangeWatcher(store)
        if redis is not None:
            self.client = from_settings.client(redis, reactor, on_state=self.states.append)
            scope = from_settings.scope(redis, "ab12")
            self.shared = SharedRecords(
                self.client, ChangeWatermark(clock, CACHE_S), PEPPER, clock, SharedSettings(lambda: scope)
            )
            self.shared.watermark.begin(lines(latest(store, self.watcher.after)), self.watcher.made_at)
        self.authenticator = Authenticator(
            self.accounts, self.threads.run, clock, PEPPER, Watched(), AuthSettings(), self.shared
        )
        turning.call(self._start)

    def _start(self) -> None:
        self.threads.start()
        if self.client is not None:
            self.client.start()

    def close(self) -> None:
        if self.client is not None:
            self.turning.call(self.client.close)
        self.threads.stop()

    def look(self) -> None:
        """As a running hub does four times a second."""
        looked_at = time.monotonic()
        changes = self.watcher.poll()
        shared = self.shared

        def apply_changes() -> None:
            if shared is not None:
                shared.watermark.saw(lines(changes), looked_at)
            for line in lines(changes):
                if line.tenant_id:
                    self.authenticator.invalidate(line.tenant_id, line.device)

        self.turning.call(apply_changes)

    def connect(self, *devices: str, secret: str = SECRET) -> list[Authenticated | Refusal]:
        """Authenticate all of them at once; return the answers, when what is to be kept in Redis is there."""
        answers = self.gather([partial(self._authenticate, name, secret) for name in devices])
        client = self.client
        if client is not None:
            self.turning.until(lambda: client.waiting == 0)
        return answers

    def _authenticate(self, name: str, secret: str) -> Coroutine[Any, Any, Authenticated | Refusal]:
        shown = Credentials(TENANT, name, secret.encode(), "127.0.0.1", client_id=name)
        return self.authenticator.authenticate(shown)

    def gather(self, calls: list[Callable[[], Coroutine[Any, Any, Any]]]) -> list[Any]:
        """Begin all in one turn of the reactor; return their results."""
        results: dict[int, Any] = {}

        def begin() -> None:
            for number, call in enumerate(calls):
                Deferred.fromCoroutine(call()).addBoth(partial(results.__setitem__, number))

        self.turning.call(begin)
        until = time.monotonic() + PATIENCE_S
        while len(results) < len(calls) and time.monotonic() < until:
            self.turning.until(lambda: True)
        return [results[number] for number in range(len(calls))]


@contextmanager
def hubs(store: AccountStore, redis: Redis | None, count: int = 2) -> Iterator[list[CachedHub]]:
    """Hubs with cold memories, on reactors of their own."""
    with _turning(count) as reactors:
        made: list[CachedHub] = []
        try:
            for turning in reactors:
                made.append(CachedHub(store, redis, turning))
            yield made
        finally:
            for hub in made:
                hub.close()


@contextmanager
def _turning(count: int) -> Iterator[list[ReactorThread]]:
    reactors = [ReactorThread() for _ in range(count)]
    for each in reactors:
        each.__enter__()
    try:
        yield reactors
    finally:
        for each in reactors:
            each.__exit__(None, None, None)
