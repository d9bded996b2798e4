"""The regular duties of one hub: which there are, and how often each is done.

Knows the node's parts by reference; how duties are run, and what happens when one fails, is `iothub_tenants.background.tasks`'s; how the
accounts are followed is `following`'s beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from iothub.base.errors import UnavailableError
from iothub.hub.body_sweep import LOOK_INTERVAL_S as SWEEP_INTERVAL_S
from iothub.hub.body_sweep import BodySweep
from iothub.hub.drivers import queue_drivers
from iothub.hub.metering import LOOK_INTERVAL_S
from iothub.hub.queue_expiry import EXPIRY_INTERVAL_S, QueueExpiry
from iothub.hub.streaming import LOOK_INTERVAL_S as STREAMS_INTERVAL_S
from iothub.hub.tenant_deletion import Deletions
from iothub.jobs.watch import LOOK_INTERVAL_S as JOBS_INTERVAL_S
from iothub.jobs.watch import JobWatch
from iothub_services.events.retention import SLICE, TrimStatistics
from iothub_services.metrics.alarms import AlarmName
from iothub_services.quota.usage import FLUSH_INTERVAL_S
from iothub_tenants.accounts import bans, commands, job_runs, marks
from iothub_tenants.accounts.changes import trim as changes_trim
from iothub_tenants.background.admin_commands import AdminCommands
from iothub_tenants.background.apply_changes import Obedience
from iothub_tenants.background.device_removal import Departures
from iothub_tenants.background.following import Following
from iothub_tenants.broker.queue_bounds import QueueBounds

if TYPE_CHECKING:
    from iothub.hub.compose import Node
    from iothub_services.auth.port import TenantRecord

TAIL_SLICE = 512
UNREAD_INTERVAL_S = 5.0
WATCH_INTERVAL_S = 5.0
HOUSEKEEPING_INTERVAL_S = 60.0
DOORSTEP_INTERVAL_S = 0.2
_SLICES = 20  # of the log for statistics that may go at a time


class Duties:
    """Plans and does them, on the reactor thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._run = node.threads.run
        later = node.reactor.callLater
        bounds = QueueBounds(node.queue_admin, node.brokers, later)
        others = None if node.shared_stores is None else node.shared_stores.others
        admin_commands = AdminCommands(node.hub, node.queue_admin, self._find_tenant, node.health.brief, others)
        admin_commands.streams = node.streaming.describe
        self._following = Following(
            node.accounts,
            self._run,
            node.data_dir,
            later,
            Departures(node.hub, self._forget_devices),
            Obedience(node.hub, bounds, self._limits_of_devices, self._tenants_on_plan),
            admin_commands,
            None if others is None else others.node,
        )
        self._following.heard = node.streaming.heard
        node.streaming.attach(node.hub, node.accounts, self._run, others)
        self._deletions = Deletions(node, self._run, node.telemetry.forget_tenant, node.streaming.delete_topics)
        self._expiry = QueueExpiry(node.queue_admin, node.brokers, node.plane, node.clock)
        self.jobs = JobWatch(node.settings, node.alarms, node.clock)
        self.bans: dict[str, int] = {}  # in force, by kind, at the last look

    def plan(self) -> None:
        """Tell the upkeep what there is to do."""
        node, settings, add = self._node, self._node.settings, self._node.upkeep.add
        add("accounts", settings.sql.poll_interval_s, self._look_at_accounts)
        add("deadlines", 0.2, node.sessions.run_deadlines)
        add("doorstep", DOORSTEP_INTERVAL_S, node.control.doorstep.look)
        add("tails", settings.queues.poll_interval_s, self._look_at_tails)
        add("usage", FLUSH_INTERVAL_S, lambda: node.usage.flush(self._run))
        add("queue expiry", EXPIRY_INTERVAL_S, self._expiry.turn)
        add("retained expiry", 5.0, self._expire_retained)
        add("streams", STREAMS_INTERVAL_S, node.streaming.look)
        add("deletions", 1.0, self._deletions.finish)
        node.metering.begin()
        add("metering", LOOK_INTERVAL_S, node.metering.look)
        add("$SYS", settings.mqtt.sys_interval_s, self._publish_sys)
        add("watch", WATCH_INTERVAL_S, self.watch)
        if settings.events.driver == "sqlite":
            add("statistics", HOUSEKEEPING_INTERVAL_S, self._trim_statistics)
        if settings.hbase.sweep_interval_s and "hbase" in queue_drivers(settings, node.data_dir):
            sweep = BodySweep(settings.hbase, self._run, node.telemetry.registry, node.clock)
            add("bodies", SWEEP_INTERVAL_S, sweep.look, sweep.stop)
        add("jobs", JOBS_INTERVAL_S, self.look_at_jobs)
        add("housekeeping", HOUSEKEEPING_INTERVAL_S, self._tidy)

    async def _find_tenant(self, name: str) -> TenantRecord | None:
        return await self._run("accounts.tenant", self._node.registry.find_tenant, name)

    async def _limits_of_devices(self, tenant_id: int) -> dict[str, str]:
        return await self._run("accounts.limits", self._node.registry.device_limits, tenant_id)

    async def _tenants_on_plan(self, plan: str) -> list[int]:
        return await self._run("accounts.plan", self._node.registry.tenants_on_plan, plan)

    async def _forget_devices(self, tenant_id: int, names: Collection[str]) -> None:
        """What a deleted device had used of its rates, and the bans for its wrong credentials, are not its successor's."""
        node = self._node
        node.usage.forget_devices(tenant_id, names)
        tenant = await self._run("accounts.tenant", node.registry.tenant_by_id, tenant_id)
        if tenant is not None:
            node.authenticator.failures.forget_devices(tenant.name, names)

    async def watch(self) -> None:
        """Live visibly, and look at the machine; while it is short of memory whoever comes hears no, and a flood is not even heard."""
        node = self._node
        node.data_dir.beat()
        node.watch.look()
        if node.shared_records is not None:
            is_forged = node.shared_records.is_forged_lately
            node.alarms.set(AlarmName.CACHE_FORGED, is_forged, detail="an entry in Redis has not this hub's seal")
        node.hub.is_short_of_memory = node.watch.is_overloaded
        for gate in node.listeners.gates().values():
            gate.set_narrow(is_narrow=node.watch.is_overloaded)

    async def _publish_sys(self) -> None:
        self._node.sys_topics.publish()

    async def _look_at_accounts(self) -> None:
        alarms = self._node.alarms
        try:
            await self._following.look()
            await self._node.streaming.refresh()
        except UnavailableError as error:
            alarms.raise_(AlarmName.ACCOUNTS_UNREACHABLE, detail=str(error))
            raise
        alarms.clear(AlarmName.ACCOUNTS_UNREACHABLE)

    async def catch_up(self) -> None:
        """Obey what was changed while no hub ran here."""
        shared = self._node.shared_records
        await self._following.begin(self._node.watcher, None if shared is None else shared.horizon)
        await self._node.streaming.refresh()
        await self.look_at_jobs()

    async def _look_at_tails(self) -> None:
        """A lost notification must not strand a message: caught-up sessions look at their tails (storage page, section 5)."""
        node = self._node
        online = {
            session.queue_id: session
            for broker in node.brokers
            for session in broker.plane.sessions.values()
            if session.is_persistent and session.connection is not None and not session.is_behind
        }
        ids = list(online)
        for start in range(0, len(ids), TAIL_SLICE):
            tails = await node.queue_admin.tails(ids[start : start + TAIL_SLICE])
            for queue_id, tail in tails.items():
                node.plane.announce(online[queue_id], tail)

    async def _expire_retained(self) -> None:
        node = self._node
        for tenant_id, topic in await node.retained_admin.expire(int(node.clock.wall() * 1000), 1000):
            broker = node.brokers.present(tenant_id)
            if broker is not None:
                broker.retained.gone(topic)

    async def _trim_statistics(self) -> None:
        """Kafka does it by itself."""
        node, settings = self._node, self._node.settings.events
        held = await self._run("accounts.marks", marks.least, node.accounts, "analytics")
        before_ms = int((node.clock.wall() - settings.analytics_retention_s) * 1000)
        wanted = TrimStatistics(before_ms, settings.analytics_most, held.get(0))
        for _ in range(_SLICES):
            if await node.journal.trim(wanted) < SLICE:
                return

    async def look_at_jobs(self) -> None:
        """Jobs run elsewhere; their history is with the accounts."""
        self.jobs.take(await self._run("accounts.jobs", job_runs.overview, self._node.accounts))
        self.jobs.take_marks(await self._run("accounts.marks", marks.moved, self._node.accounts))

    async def _tidy(self) -> None:
        node = self._node
        node.brokers.drop_idle()
        await self._run("accounts.sweep", commands.sweep, node.accounts)
        await self._run("accounts.trim", changes_trim, node.accounts)
        self.bans = await self._run("accounts.bans", bans.count_in_force, node.accounts)
