"""What one hub does regularly: which tasks there are, and how often each is done.

Knows what each task needs and no more; how tasks are run, and what happens when one fails, is `iothub_tenants.background.tasks`'s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from iothub.base.clock import Clock
from iothub.base.errors import UnavailableError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.engine.plane import Plane
from iothub.engine.state import Session
from iothub.hub.body_sweep import LOOK_INTERVAL_S as SWEEP_INTERVAL_S
from iothub.hub.body_sweep import BodySweep
from iothub.hub.monitoring.broker_figures import BrokerFigures
from iothub.hub.monitoring.metering import LOOK_INTERVAL_S, Metering
from iothub.hub.queue_expiry import EXPIRY_INTERVAL_S, QueueExpiry
from iothub.hub.streaming import LOOK_INTERVAL_S as STREAMS_INTERVAL_S
from iothub.hub.streaming import Streaming
from iothub.hub.tenant_deletion import TenantDeletion
from iothub.hub.webhooks import LOOK_INTERVAL_S as WEBHOOKS_INTERVAL_S
from iothub.hub.webhooks import Webhooks
from iothub.jobs.watch import LOOK_INTERVAL_S as JOBS_INTERVAL_S
from iothub.jobs.watch import JobWatch
from iothub.net.descriptors import Descriptors
from iothub.net.listeners import Listeners
from iothub_services.auth.authenticator import Authenticator
from iothub_services.auth.port import Run, TenantRecord
from iothub_services.auth.shared import SharedRecords
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.events.journal import ThreadJournal
from iothub_services.events.retention import SLICE, TrimStatistics
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.disk_room import LOOK_INTERVAL_S as ROOM_INTERVAL_S
from iothub_services.metrics.disk_room import DiskRoom
from iothub_services.metrics.watch import Watch
from iothub_services.quota.usage import FLUSH_INTERVAL_S, Usage
from iothub_services.sessions.manager import SessionManager
from iothub_tenants.accounts import audit, bans, job_runs, marks
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.changes import trim as changes_trim
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.background.following import AccountFollower
from iothub_tenants.background.tasks import TaskRunner
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.event_topics import SUMMARY_INTERVAL_S, EventTopics
from iothub_tenants.broker.sys_topics import SysTopics
from iothub_tenants.broker.tracing import Tracing
from iothub_tenants.control.connect_timeout import ConnectTimeouts

TAILS = "tails"
_SYS = "$SYS"
TAIL_SLICE = 512
WATCH_INTERVAL_S = 5.0
API_SILENT_S = 600.0  # for which the alarm lasts: the process is up again long before
HOUSEKEEPING_INTERVAL_S = 60.0
CONNECT_TIMEOUTS_INTERVAL_S = 0.2
_SLICES = 20  # of the log for statistics that may go at a time


@dataclass(frozen=True, slots=True)
class AccountQuestions:
    """What other tasks ask the accounts, in a thread."""

    registry: Registry
    run: Run

    async def find_tenant(self, name: str) -> TenantRecord | None:
        return await self.run("accounts.tenant", self.registry.find_tenant, name)

    async def device_limits(self, tenant_id: int) -> dict[str, str]:
        return await self.run("accounts.limits", self.registry.device_limits, tenant_id)

    async def tenants_on_plan(self, plan: str) -> list[int]:
        return await self.run("accounts.plan", self.registry.tenants_on_plan, plan)


@dataclass(frozen=True, slots=True)
class ForgottenDevices:
    """What is counted of devices, which another one of the same name does not get."""

    registry: Registry
    run: Run
    usage: Usage
    authenticator: Authenticator

    async def forget(self, tenant_id: int, names: Collection[str]) -> None:
        """What a deleted device had used of its rates, and the bans for its wrong credentials, are not its successor's."""
        self.usage.forget_devices(tenant_id, names)
        tenant = await self.run("accounts.tenant", self.registry.tenant_by_id, tenant_id)
        if tenant is not None:
            self.authenticator.failures.forget_devices(tenant.name, names)


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Jobs run elsewhere; their history is with the accounts."""

    watch: JobWatch
    accounts: AccountStore
    run: Run

    async def run_once(self) -> None:
        self.watch.update(await self.run("accounts.jobs", job_runs.overview, self.accounts))
        self.watch.take_marks(await self.run("accounts.marks", marks.moved, self.accounts))


@dataclass(frozen=True, slots=True)
class AccountChanges:
    """Applies what others change in the accounts."""

    following: AccountFollower
    streaming: Streaming
    jobs: JobHistory
    alarms: Alarms
    shared_records: SharedRecords | None

    async def run_once(self) -> None:
        try:
            await self.following.follow_changes()
            await self.streaming.refresh()
        except UnavailableError as error:
            self.alarms.raise_(AlarmName.ACCOUNTS_UNREACHABLE, detail=str(error))
            raise
        self.alarms.clear(AlarmName.ACCOUNTS_UNREACHABLE)

    async def catch_up(self, watcher: ChangeWatcher) -> None:
        """Apply what was changed while no hub ran here."""
        shared = self.shared_records
        await self.following.begin(watcher, None if shared is None else shared.watermark)
        await self.streaming.refresh()
        await self.jobs.run_once()


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """Shows that the hub lives, and looks at the machine that it runs on."""

    data_dir: DataDir
    alarms: Alarms
    watch: Watch
    descriptors: Descriptors
    shared_records: SharedRecords | None
    listeners: Listeners
    wall: Callable[[], float] = time.time

    async def run_once(self) -> None:
        """While the machine is short of memory, listeners let in only a few more, whose CONNECT is rejected (`Hub.is_short_of_memory`)."""
        self.data_dir.write_heartbeat()
        self.watch.sample()
        self._look_at_descriptors()
        self._look_at_api()
        if self.shared_records is not None:
            is_forged = self.shared_records.is_forged_lately
            self.alarms.set(
                AlarmName.CACHE_FORGED, is_forged, detail="an entry in Redis does not carry this hub's signature"
            )
        for gate in self.listeners.gates().values():
            gate.set_narrow(is_narrow=self.watch.is_overloaded)

    def _look_at_descriptors(self) -> None:
        found = self.descriptors
        found.measure()
        detail = (
            f"{found.clients} connections, {found.servable} possible with a limit of {found.limit} file descriptors"
        )
        self.alarms.set(AlarmName.DESCRIPTORS_LOW, found.is_low, detail=detail)

    def _look_at_api(self) -> None:
        """Of workers the first one does."""
        if self.data_dir.worker <= 1:
            cause = (self.data_dir.read_api() or {}).get("cause", "")
            silent_at = self.data_dir.read_api_restarts().get("silent_at")
            self.alarms.set(AlarmName.API_DOWN, bool(cause), detail=str(cause))
            is_silent = isinstance(silent_at, float) and self.wall() - silent_at < API_SILENT_S
            self.alarms.set(AlarmName.API_SILENT, is_silent, detail="it did not answer its last probes")


@dataclass(frozen=True, slots=True)
class QueueTails:
    """A lost notification must not strand a message: sessions that have caught up look at the tails of their queues.

    Those whose queue is lost have nothing else that would find it.
    """

    queues: AwaitedQueues
    brokers: Brokers
    plane: Plane
    on_lost: Callable[[Session], None]

    async def run_once(self) -> None:
        online = {
            session.queue_id: session
            for broker in self.brokers
            for session in broker.plane.sessions.awake.values()
            if session.is_persistent and session.connection is not None and not session.is_behind
        }
        ids = list(online)
        for start in range(0, len(ids), TAIL_SLICE):
            part = ids[start : start + TAIL_SLICE]
            tails = await self.queues.tails(part)
            for queue_id, tail in tails.items():
                self.plane.announce(online[queue_id], tail)
            missing = [queue_id for queue_id in part if queue_id not in tails]
            if missing:
                existing = await self.queues.existing(missing)
                for queue_id in set(missing).difference(existing):
                    self.on_lost(online[queue_id])


@dataclass(frozen=True, slots=True)
class RetainedExpiry:
    """Retained messages whose time is over leave the store, and the brokers that count them."""

    store: AwaitedRetained
    brokers: Brokers
    clock: Clock

    async def expire(self) -> None:
        for tenant_id, topic in await self.store.expire(int(self.clock.wall() * 1000), 1000):
            broker = self.brokers.present(tenant_id)
            if broker is not None:
                broker.retained.expired(topic)


@dataclass(frozen=True, slots=True)
class StatisticsTrim:
    """Removes old events for statistics from the file of the session events; Kafka does it by itself."""

    settings: Config
    accounts: AccountStore
    journal: ThreadJournal
    run: Run
    clock: Clock

    async def trim(self) -> None:
        settings = self.settings.events
        held = await self.run("accounts.marks", marks.least, self.accounts, "analytics")
        before_ms = int((self.clock.wall() - settings.analytics_retention_s) * 1000)
        wanted = TrimStatistics(before_ms, settings.analytics_most, held.get(0))
        for _ in range(_SLICES):
            if await self.journal.trim(wanted) < SLICE:
                return


class Housekeeping:
    """Drops idle brokers and old rows of the accounts. `bans`: in force, by kind, at the last look."""

    def __init__(self, brokers: Brokers, accounts: AccountStore, run: Run) -> None:
        self._brokers = brokers
        self._accounts = accounts
        self._run = run
        self.bans: dict[str, int] = {}

    async def tidy(self) -> None:
        self._brokers.drop_idle()
        await self._run("accounts.trim", changes_trim, self._accounts)
        await self._run("accounts.trim_audit", audit.trim, self._accounts)
        self.bans = await self._run("accounts.bans", bans.count_in_force, self._accounts)


@dataclass(frozen=True, slots=True)
class PeriodicTasks:
    """Every task of one hub. On the reactor thread. `sweep`: None where no queue is on HBase."""

    settings: Config
    runner: TaskRunner
    run: Run
    accounts: AccountChanges
    sessions: SessionManager
    connect_timeouts: ConnectTimeouts
    tails: QueueTails
    retained: RetainedExpiry
    usage: Usage
    expiry: QueueExpiry
    streaming: Streaming
    deletion: TenantDeletion
    metering: Metering
    sys_topics: SysTopics
    broker_figures: BrokerFigures | None
    event_topics: EventTopics
    webhooks: Webhooks
    machine: MachineCheck
    room: DiskRoom | None
    statistics: StatisticsTrim
    sweep: BodySweep | None
    traces: Tracing
    housekeeping: Housekeeping

    def start(self) -> None:
        """From here on all is done in its time."""
        settings, add = self.settings, self.runner.add
        add("accounts", settings.sql.poll_interval_s, self.accounts.run_once)
        add("deadlines", 0.2, self.sessions.run_deadlines)
        add("connect timeouts", CONNECT_TIMEOUTS_INTERVAL_S, self.connect_timeouts.reject_overdue)
        add(TAILS, settings.queues.poll_interval_s, self.tails.run_once)
        add("usage", FLUSH_INTERVAL_S, lambda: self.usage.flush(self.run))
        add("queue expiry", EXPIRY_INTERVAL_S, self.expiry.turn)
        add("retained expiry", 5.0, self.retained.expire)
        add("streams", STREAMS_INTERVAL_S, self.streaming.run_once)
        add("deletions", 1.0, self.deletion.finish)
        self.metering.begin()
        add("metering", LOOK_INTERVAL_S, self.metering.run_once)
        add(_SYS, settings.mqtt.sys_interval_s, self._publish_sys)
        add("$events", SUMMARY_INTERVAL_S, self.event_topics.summarise)
        add("webhooks", WEBHOOKS_INTERVAL_S, self.webhooks.run_once)
        if self.room is not None:
            add("room on the disk", ROOM_INTERVAL_S, self.room.look)
        add("watch", WATCH_INTERVAL_S, self.machine.run_once)
        if settings.events.driver == "sqlite":
            add("statistics", HOUSEKEEPING_INTERVAL_S, self.statistics.trim)
        if self.sweep is not None:
            add("bodies", SWEEP_INTERVAL_S, self.sweep.run_once, self.sweep.stop)
        add("jobs", JOBS_INTERVAL_S, self.accounts.jobs.run_once)
        add("traces", HOUSEKEEPING_INTERVAL_S, self.traces.expire)
        add("housekeeping", HOUSEKEEPING_INTERVAL_S, self.housekeeping.tidy)
        self.runner.start()
        self.runner.hurry(_SYS)  # a subscriber gets the figures of the last time at once: there must be some

    def stop(self) -> None:
        """Nothing more begins."""
        self.runner.stop()

    async def _publish_sys(self) -> None:
        if self.broker_figures is not None:
            await self.broker_figures.refresh()
        self.sys_topics.publish()
