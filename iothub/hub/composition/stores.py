"""The lowest parts of a hub: its process, what watches it, and its stores.

Knows concrete back ends, as `iothub.hub.composition.compose` does, and nobody who uses them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from iothub.base.clock import Clock, SystemClock
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.hub import quota_ledger
from iothub.hub.from_settings import certificate_files, connection_lines
from iothub.hub.monitoring.reactor_lag import ReactorLag
from iothub.hub.monitoring.telemetry import Telemetry
from iothub.hub.parts import Monitoring, Process, Stores
from iothub.hub.phase import Phase
from iothub.hub.quota_ledger import QuotaLedger
from iothub.hub.stores.choices import unused_files
from iothub.hub.stores.drivers import Drivers, needed_tables, redis_client, shared_records
from iothub.hub.stores.hub_file import HubFile
from iothub.hub.stores.installation import Installation
from iothub.hub.stores.needs import own_descriptors
from iothub.hub.stores.store_alarms import StoreAlarms, report_lost
from iothub.hub.stores.wait_for_servers import Waiting, pause
from iothub.net.backend import select_backend
from iothub.net.descriptors import Descriptors, file_limit
from iothub.peers.cluster_clock import ClusterClock
from iothub_services.connections.log import ConnectionLog
from iothub_services.damaged import DamagedRecords
from iothub_services.hbase import from_settings
from iothub_services.hbase.caller import ThreadCaller
from iothub_services.metrics.alarms import Alarms
from iothub_services.metrics.watch import Watch
from iothub_services.quota.shared.service import SharedQuota
from iothub_services.quota.slots import SlotFile
from iothub_services.quota.usage import Usage, UsageStore
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.sqlite.database import open_database
from iothub_services.state.service import StateService
from iothub_services.threads import Threads
from iothub_tenants.accounts.bounds import bounds_of
from iothub_tenants.accounts.database import accounts_url
from iothub_tenants.accounts.store import AccountStore

if TYPE_CHECKING:
    from iothub_services.hbase.client import HBaseClient


# --- the process and what watches it


def make_process(
    settings: Config, data_dir: DataDir, reactor: Any, clock: Clock, phase: Phase, *, is_fail_fast: bool
) -> Process:
    release, twin, started_at = version("iothub"), select_backend(), clock.wall()
    cluster_clock = ClusterClock(clock, SystemClock().boottime) if settings.cluster.listen else None
    hub_file = HubFile(data_dir, release, twin, started_at)
    pools = {
        "accounts": 2,
        "auth": settings.auth.hash_pool,
        "usage": 1,
        "housekeeping": 1,
        "backup": 1,
        "closing": 1,
        "members": 1,
        "links": 2,
        "sweep": 1,
        "quota": 1,
    }
    threads, rest = Threads(reactor, pools), partial(pause, reactor)
    return Process(
        settings=settings,
        data_dir=data_dir,
        reactor=reactor,
        clock=cluster_clock or clock,
        cluster_clock=cluster_clock,
        pause=rest,
        version=release,
        twin=twin,
        started_at=started_at,
        incarnation=f"{settings.node.name}/{os.getpid()}/{time.time_ns()}",
        phase=phase,
        hub_file=hub_file,
        descriptors=Descriptors(file_limit(), own=own_descriptors(settings)),
        threads=threads,
        waiting=Waiting(threads.run, rest, is_fail_fast=is_fail_fast, on_reason=hub_file.note_start),
    )


def make_monitoring(process: Process) -> Monitoring:
    settings, clock = process.settings, process.clock
    alarms = Alarms(clock)
    telemetry = Telemetry(alarms)
    memory_limit, certificates = settings.overload.memory_limit, certificate_files(settings, process.data_dir)
    watch = Watch(alarms, settings.alarms, memory_limit, process.data_dir.path, certificates, clock)

    def on_lag(late_s: float) -> None:
        watch.ticked(late_s)
        telemetry.ticked(late_s)

    lag = ReactorLag(process.reactor.callLater, clock, on_lag)
    connection_log = ConnectionLog(clock, process.reactor.callLater, connection_lines(settings.log))
    return Monitoring(alarms, StoreAlarms(alarms), telemetry, connection_log, watch, lag)


# --- what is kept


def open_stores(process: Process, monitoring: Monitoring, damaged: DamagedRecords) -> Stores:
    """Open every file; a damaged one is set aside and reported, a future one stops the start."""
    settings, data_dir, clock, reactor = process.settings, process.data_dir, process.clock, process.reactor
    alarms, store_alarms, registry = monitoring.alarms, monitoring.store_alarms, monitoring.telemetry.registry
    redis = redis_client(settings, reactor, registry, alarms)
    pepper = data_dir.pepper(settings.auth.pepper_file)
    accounts = _accounts(process, pepper)
    installation = Installation(settings, clock=clock)
    if not accounts.is_on_server:  # else it is asked, and waited for, when everybody can see that
        installation.learn(accounts, data_dir)
    hbase = _hbase(process, monitoring)

    alarm, commits = on_thread_alarm(process, monitoring), CommitLock()
    drivers = Drivers(
        settings,
        data_dir,
        lambda path, schema: open_database(path, schema, clock, store_alarms, commits),
        lambda: ThreadCaller(_required(hbase), reactor.callFromThread),
        lambda: installation,
        alarm,
        on_damage=damaged,
    )
    report_lost(data_dir, store_alarms, unused_files(settings, data_dir))
    queues, retained = drivers.queues(), drivers.retained()
    log, states, checkpoints = drivers.event_log(), drivers.states(), drivers.checkpoints()
    slots = SlotFile(data_dir.usage_slots)
    usage_store = UsageStore(data_dir.usage, clock, store_alarms, commits)
    ledger: QuotaLedger | None = None
    shared_quota: SharedQuota | None = None
    if settings.quota.ledger == "redis" and redis is not None:
        ledger = quota_ledger.on_redis(redis, settings, lambda: installation.id, data_dir, alarms)
    elif data_dir.worker:
        ledger = quota_ledger.on_store_process(process.threads.run, settings, data_dir, clock, alarms)
    if ledger is None:
        before = [row for worker in data_dir.workers() for row in quota_ledger.used_in(worker, clock)]
        usage = Usage(usage_store, clock, slots, before=before)
    else:
        usage = Usage(usage_store, clock, slots, is_shared=True)
        shared_quota = ledger.quota(clock, reactor.callLater, usage)
        quota_ledger.feed(registry, shared_quota)
    return Stores(
        commits=commits,
        accounts=accounts,
        pepper=pepper,
        installation=installation,
        drivers=drivers,
        queues=queues,
        retained=retained,
        states=StateService(log, states, alarm, checkpoints, damaged),
        statistics_log=drivers.statistics_log(),
        usage=usage,
        hbase=hbase,
        redis=redis,
        shared_records=shared_records(settings, redis, lambda: installation.id, pepper, clock),
        ledger=ledger,
        shared_quota=shared_quota,
    )


def on_thread_alarm(process: Process, monitoring: Monitoring) -> Callable[[str, str], None]:
    """Return what raises an alarm of a store from that store's thread."""
    return partial(process.reactor.callFromThread, monitoring.store_alarms)


def _accounts(process: Process, pepper: bytes) -> AccountStore:
    sql = process.settings.sql
    url = accounts_url(sql.url_file, process.data_dir.accounts)
    return AccountStore(url, pepper=pepper, clock=process.clock, bounds=bounds_of(sql), is_checked=False)


def _hbase(process: Process, monitoring: Monitoring) -> HBaseClient | None:
    """Return the one client of all stores on HBase. Start and stop open and close it: it works on the reactor's thread."""
    if not needed_tables(process.settings, process.data_dir):
        return None
    return from_settings.client(process.settings.hbase, process.reactor, monitoring.telemetry.registry)


def _required(hbase: HBaseClient | None) -> HBaseClient:
    if hbase is None:
        raise AssertionError("a store is on HBase, and no table of it is needed")
    return hbase
