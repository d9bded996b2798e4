"""How long the record of a device takes from each level: the hub's memory, Redis, SQL; one look-up at a time and fifty at once.

Run by hand, alone: `.venv/bin/python tests/bench/bench_auth.py`; servers of `make services` that do not run are started and stopped again, and one
that is not installed has no row. Latency is what one caller waits, CPU what this process spends for one look-up (of the servers' there is nothing).
Knows no CONNECT: what is asked for is the directory's answer, before any credential is checked.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool
from twisted.internet.defer import Deferred, DeferredList

from iothub.base.clock import SystemClock
from iothub.base.errors import IotHubError
from iothub.base.units import Endpoint
from iothub.config.sections import Redis
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.auth.change_watermark import ChangeWatermark
from iothub_services.auth.directory import Directory, DirectorySettings
from iothub_services.auth.lru import LruSettings
from iothub_services.auth.port import TenantRecord
from iothub_services.auth.secrets import hash_generated
from iothub_services.auth.shared import SharedRecords, SharedSettings
from iothub_services.redis import from_settings
from iothub_services.threads import Threads
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.changes import ChangeWatcher, latest, lines
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.devices import Credential, CredentialForm, insert_devices
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from ops.services.errors import ServicesError
from ops.services.hub_settings import sql_urls
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.servers.running import running

LEVELS = ("memory", "redis", "sqlite", "mariadb", "postgresql")
AT_ONCE = (1, 50)
DEVICES = 1_000
LIMIT_S = 120.0
_PEPPER = b"p" * 32
_NOTHING_REMEMBERED = LruSettings(entries=16)
_EVERYTHING_REMEMBERED = LruSettings(entries=DEVICES * 2, ttl_s=3600.0)

Row = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class Level:
    """A directory whose answers come from one level, on a reactor."""

    name: str
    directory: Directory
    tenant: TenantRecord
    turning: ReactorThread


def table(levels: Sequence[str], seconds: float) -> list[Row]:
    """Measure all levels; one that cannot be reached says why and has no row."""
    rows: list[Row] = []
    for name in levels:
        try:
            with ExitStack() as stack:
                rows += _measured(_opened(name, stack), seconds)
        except (ServicesError, IotHubError) as error:
            sys.stderr.write(f"bench: no row for {name}: {error}\n")
    return rows


def _opened(name: str, stack: ExitStack) -> Level:
    services = Services(say=lambda text: sys.stderr.write(f"{text}\n") and None)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    url = stack.enter_context(_own_database(services, name)) if name in sql_urls(services.ports) else None
    store = _filled(url or sqlite_url(folder / "accounts.db"))
    stack.callback(store.close)
    turning = stack.enter_context(ReactorThread())
    threads = Threads(turning.reactor, {"accounts": 2})
    turning.call(threads.start)
    stack.callback(threads.stop)
    shared = _shared(services, store, turning, stack) if name == "redis" else None
    remembered = _EVERYTHING_REMEMBERED if name == "memory" else _NOTHING_REMEMBERED
    options = DirectorySettings(_EVERYTHING_REMEMBERED, remembered)
    directory = Directory(Registry(store), threads.run, SystemClock(), _warn, options, shared)
    tenant = Registry(store).find_tenant("bench")
    assert tenant is not None
    return Level(name, directory, tenant, turning)


def _filled(url: str) -> AccountStore:
    store = init_store(url, pepper=_PEPPER)
    tenants.create(store, "bench", plan="unlimited")
    stored = Credential(CredentialForm.GENERATED, hash_generated("secret", _PEPPER))
    with store.write() as writer:
        owner = tenants.living(writer.connection, "bench")
        insert_devices(writer, owner.id, [(f"dev{number}", stored) for number in range(DEVICES)])
        writer.changed(owner.id, ChangeKind.DEVICE, "*")
    return store


def _shared(services: Services, store: AccountStore, turning: ReactorThread, stack: ExitStack) -> SharedRecords:
    stack.enter_context(running(services, "redis"))
    settings = Redis(addresses=(Endpoint(HOST, services.ports.redis),), prefix=f"bench-{uuid.uuid4().hex[:8]}")
    client = from_settings.client(settings, turning.reactor)
    turning.call(client.start)
    stack.callback(lambda: turning.call(client.close))
    watermark, watcher = ChangeWatermark(SystemClock(), 3600.0), ChangeWatcher(store)
    watermark.begin(lines(latest(store, watcher.after)), watcher.made_at)
    options = SharedSettings(lambda: from_settings.scope(settings, "bench"), ttl_s=600.0)  # gone by itself soon
    return SharedRecords(client, watermark, _PEPPER, SystemClock(), options)


@contextmanager
def _own_database(services: Services, server: str) -> Iterator[str]:
    with running(services, server):
        url, name = make_url(sql_urls(services.ports)[server]), f"b{uuid.uuid4().hex[:12]}"
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            yield url.set(database=name).render_as_string(hide_password=False)
        finally:
            with engine.connect() as connection:
                connection.execute(text(f"DROP DATABASE {name}"))


def _measured(level: Level, seconds: float) -> list[Row]:
    _turn(level, 50, DEVICES)  # warm: every level has every device once
    rows = []
    for at_once in AT_ONCE:
        cpu, wall, count = time.process_time(), time.perf_counter(), 0
        waited: list[float] = []
        while time.perf_counter() - wall < seconds:
            waited += _turn(level, at_once, max(at_once * 10, 100))
            count = len(waited)
        cpu_us = (time.process_time() - cpu) / count * 1e6
        rows.append(_row(level.name, at_once, waited, cpu_us))
    return rows


def _row(name: str, at_once: int, waited: list[float], cpu_us: float) -> Row:
    percentiles = statistics.quantiles(waited, n=100)
    return {
        "level": name,
        "at_once": at_once,
        "p50_us": percentiles[49] * 1e6,
        "p99_us": percentiles[98] * 1e6,
        "cpu_us": cpu_us,
    }


def _turn(level: Level, at_once: int, count: int) -> list[float]:
    """Make `count` look-ups of different devices, so many of them under way; return what each took."""
    waited: list[float] = []
    names = iter([f"dev{number % DEVICES}" for number in range(count)])

    async def ask() -> None:
        for name in names:
            began = time.perf_counter()
            if await level.directory.device(level.tenant, name) is None:
                raise AssertionError(f"{level.name} does not know {name}")
            waited.append(time.perf_counter() - began)

    whole = threading.Event()

    def begin() -> None:
        asking = DeferredList([Deferred.fromCoroutine(ask()) for _ in range(at_once)], fireOnOneErrback=True)
        asking.addBoth(lambda _: whole.set())

    level.turning.call(begin)
    if not whole.wait(LIMIT_S) or len(waited) != count:
        raise AssertionError(f"{level.name}: {len(waited)} of {count} look-ups were answered")
    return waited


def _warn(call: str, error: Exception) -> None:
    sys.stderr.write(f"bench: {call}: {error}\n")


def markdown(rows: Sequence[Row]) -> str:
    """Return the table for people."""
    head = ["| from | at once | p50 µs | p99 µs | CPU µs, this process |", "|---|--:|--:|--:|--:|"]
    body = [
        f"| {row['level']} | {row['at_once']} | {row['p50_us']:,.0f} | {row['p99_us']:,.0f} | {row['cpu_us']:,.1f} |"
        for row in rows
    ]
    return "\n".join([*head, *body])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure each level of the cache of accounts.")
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--seconds", type=float, default=3.0, help="for each level and number at once")
    given = parser.parse_args()
    sys.stdout.write(markdown(table(given.levels, given.seconds)) + "\n")


if __name__ == "__main__":
    main()
