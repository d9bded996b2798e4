"""The regular duties of one hub: which there are, and how often each is done.

Knows the node's parts by reference; how duties are run, and what happens when one fails, is `iothub_tenants.upkeep`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from iothub.deletion import Deletions
from iothub.errors import IotHubError
from iothub.expiry import EXPIRY_INTERVAL_S, QueueExpiry
from iothub_services.metrics.alarms import AlarmName
from iothub_services.quota.usage import FLUSH_INTERVAL_S
from iothub_tenants import bans, commands
from iothub_tenants.changes import trim as changes_trim
from iothub_tenants.errands import Errands
from iothub_tenants.obey import Obedience
from iothub_tenants.queue_bounds import QueueBounds
from iothub_tenants.store import ChangeKind

if TYPE_CHECKING:
    from iothub.node import Node
    from iothub_services.auth.port import TenantRecord

TAIL_SLICE = 512
WATCH_INTERVAL_S = 5.0
HOUSEKEEPING_INTERVAL_S = 60.0
DOORSTEP_INTERVAL_S = 0.2


class Duties:
    """Plans and does them, on the reactor thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._run = node.threads.run
        self._obedience = Obedience(
            node.hub, QueueBounds(node.queue_admin), self._limits_of_devices, self._tenants_on_plan
        )
        self._errands = Errands(node.hub, node.queue_admin, self._find_tenant, node.health.brief)
        self._deletions = Deletions(node)
        self._expiry = QueueExpiry(node.queue_admin, node.brokers, node.plane, node.clock)
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
        add("deletions", 1.0, self._deletions.finish)
        add("$SYS", settings.mqtt.sys_interval_s, self._publish_sys)
        add("watch", WATCH_INTERVAL_S, self.watch)
        add("housekeeping", HOUSEKEEPING_INTERVAL_S, self._tidy)

    async def _find_tenant(self, name: str) -> TenantRecord | None:
        return await self._run("accounts.tenant", self._node.registry.find_tenant, name)

    async def _limits_of_devices(self, tenant_id: int) -> dict[str, str]:
        return await self._run("accounts.limits", self._node.registry.device_limits, tenant_id)

    async def _tenants_on_plan(self, plan: str) -> list[int]:
        return await self._run("accounts.plan", self._node.registry.tenants_on_plan, plan)

    async def watch(self) -> None:
        """Look at the machine; while it is overloaded nobody new comes in."""
        node = self._node
        node.watch.look()
        for gate in node.listeners.gates().values():
            gate.is_shut = node.watch.is_overloaded

    async def _publish_sys(self) -> None:
        self._node.sys_topics.publish()

    async def _look_at_accounts(self) -> None:
        node, run = self._node, self._run
        changes = await run("accounts.poll", node.watcher.poll)
        node.alarms.clear(AlarmName.ACCOUNTS_UNREACHABLE)
        await self._obedience.obey([change for change in changes if change.kind is not ChangeKind.COMMAND])
        if not any(change.kind is ChangeKind.COMMAND for change in changes):
            return

        async def answer(number: int, result: Mapping[str, object]) -> None:
            await run("accounts.answer", commands.answer, node.accounts, number, result)

        async def fail(number: int, error: IotHubError) -> None:
            await run("accounts.fail", commands.fail, node.accounts, number, error)

        await self._errands.run(await run("accounts.take", commands.take, node.accounts), answer, fail)

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

    async def _tidy(self) -> None:
        node = self._node
        node.brokers.drop_idle()
        await self._run("accounts.sweep", commands.sweep, node.accounts)
        await self._run("accounts.trim", changes_trim, node.accounts)
        self.bans = await self._run("accounts.bans", bans.count_in_force, node.accounts)
