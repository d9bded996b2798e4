"""The regular duties of one hub: which there are, and how often each is done.

Knows the node's parts by reference; how duties are run, and what happens when one fails, is `iothub_tenants.duties.upkeep`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from iothub import log as logging
from iothub.deletion import Deletions
from iothub.errors import IotHubError
from iothub.expiry import EXPIRY_INTERVAL_S, QueueExpiry
from iothub_services.metrics.alarms import AlarmName
from iothub_services.quota.usage import FLUSH_INTERVAL_S
from iothub_tenants.accounts import bans, commands
from iothub_tenants.accounts.changes import Change, deleted_devices
from iothub_tenants.accounts.changes import trim as changes_trim
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.broker.queue_bounds import QueueBounds
from iothub_tenants.duties.departures import Departures
from iothub_tenants.duties.errands import QUICK, Errands
from iothub_tenants.duties.obey import Obedience
from iothub_tenants.walks.aside import Aside

if TYPE_CHECKING:
    from iothub.node import Node
    from iothub_services.auth.port import TenantRecord

log = logging.get(__name__)

TAIL_SLICE = 512
WATCH_INTERVAL_S = 5.0
HOUSEKEEPING_INTERVAL_S = 60.0
DOORSTEP_INTERVAL_S = 0.2
PATIENCE_S = 0.3  # what waits for a disk does not keep rights from changing within a second


class CommandRows:
    """The command table as the errands write it, in a thread."""

    def __init__(self, node: Node) -> None:
        self._run = node.threads.run
        self._accounts = node.accounts

    async def answer(self, number: int, result: Mapping[str, object]) -> None:
        await self._run("accounts.answer", commands.answer, self._accounts, number, result)

    async def fail(self, number: int, error: IotHubError) -> None:
        await self._run("accounts.fail", commands.fail, self._accounts, number, error)

    async def progress(self, number: int, so_far: Mapping[str, object]) -> None:
        await self._run("accounts.progress", commands.progress, self._accounts, number, so_far)


class Duties:
    """Plans and does them, on the reactor thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._run = node.threads.run
        bounds = QueueBounds(node.queue_admin, node.brokers, node.reactor.callLater)
        self._obedience = Obedience(node.hub, bounds, self._limits_of_devices, self._tenants_on_plan)
        self._errands = Errands(node.hub, node.queue_admin, self._find_tenant, node.health.brief)
        self._deletions = Deletions(node)
        self._departures = Departures(node.hub, self._forget_devices)
        # rights that others lose do not wait for a disk
        self._departing = Aside("departures", node.reactor.callLater, PATIENCE_S)
        self._asked = Aside("errands", node.reactor.callLater, PATIENCE_S)
        self._asked_quick = Aside("quick errands", node.reactor.callLater, PATIENCE_S)
        self._obeyed = -1
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

    async def _forget_devices(self, tenant_id: int, names: Collection[str]) -> None:
        """What a deleted device had used of its rates, and the bans for its wrong credentials, are not its successor's."""
        node = self._node
        node.usage.forget_devices(tenant_id, names)
        tenant = await self._run("accounts.tenant", node.registry.tenant_by_id, tenant_id)
        if tenant is not None:
            node.authenticator.failures.forget_devices(tenant.name, names)

    async def watch(self) -> None:
        """Live visibly, and look at the machine; while it is overloaded nobody new comes in."""
        node = self._node
        node.data_dir.beat()
        node.watch.look()
        for gate in node.listeners.gates().values():
            gate.is_shut = node.watch.is_overloaded

    async def _publish_sys(self) -> None:
        self._node.sys_topics.publish()

    async def _look_at_accounts(self) -> None:
        node, rows = self._node, CommandRows(self._node)
        is_asked = await self._obey()
        while is_asked:
            taken = await self._run("accounts.take", commands.take, node.accounts)
            try:
                is_asked = await self._obey()  # what was changed before a command was given is obeyed before it is done
            finally:
                for aside, is_quick in ((self._asked_quick, True), (self._asked, False)):
                    errands = [command for command in taken if (command.verb in QUICK) is is_quick]
                    if errands:
                        await aside.do(partial(self._errands.run, errands, rows))

    async def _obey(self) -> bool:
        """Obey what was changed since the last look; whether there are commands, too."""
        node = self._node
        changes = await self._run("accounts.poll", node.watcher.poll)
        node.alarms.clear(AlarmName.ACCOUNTS_UNREACHABLE)
        await self.end_departed(changes)
        await self._obedience.obey([change for change in changes if change.kind is not ChangeKind.COMMAND])
        return any(change.kind is ChangeKind.COMMAND for change in changes)

    async def end_departed(self, changes: Iterable[Change]) -> None:
        """End the sessions of deleted devices, and note so when it is done: it is asked at the next start."""
        self._departures.note(changes)
        if not self._departing.is_busy:
            await self._departing.do(self._departures.turn)
        await self._note_obeyed(self._departures.settled)

    async def catch_up(self) -> None:
        """End the sessions of devices that were deleted while no hub ran here.

        What was obeyed and could not be noted is heard of again, and what was never noted from the log's beginning: it does no harm.
        """
        node = self._node
        obeyed = await self._run("housekeeping.obeyed", node.data_dir.read_obeyed) or 0
        await self.end_departed(await self._run("accounts.deleted", deleted_devices, node.accounts, obeyed))
        if not self._departures.is_pending:
            await self._note_obeyed(node.watcher.after)

    async def _note_obeyed(self, change: int) -> None:
        """Tried again at the next look when the disk is full: nothing else waits for it."""
        if change <= self._obeyed:
            return
        try:
            await self._run("housekeeping.obeyed", self._node.data_dir.write_obeyed, change)
        except IotHubError as error:
            log.warning("what was obeyed could not be noted", error=str(error))
        else:
            self._obeyed = change

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
