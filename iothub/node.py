"""The composition root: configuration in, a running hub out. The only file that names concrete back ends.

Knows everybody and does little itself: it builds the rooms from the ground up, starts them in that order, stops them in the reverse one.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from twisted.internet import epollreactor
from twisted.internet.defer import Deferred

from iothub import hooks, log
from iothub.clock import SystemClock
from iothub.datadir import DataDir
from iothub.engine.plane import Plane
from iothub.engine.tenant import TenantPlane
from iothub.errors import IotHubError
from iothub.from_settings import account_url, auth_settings, listener_infos, plane_limits, raise_file_limit
from iothub.health import NodeHealth
from iothub.ids import MessageIds, TenantId
from iothub.net import http
from iothub.net.backend import select_backend
from iothub.net.listeners import Listeners
from iothub.net.ports import EnginePlane
from iothub.net.transports import make_transports
from iothub.peers.directory import LocalDirectory
from iothub.reasons import Reason
from iothub.records.events import Event
from iothub.settings import Config
from iothub.telemetry import AuthTelemetry, Telemetry
from iothub_services.auth.authenticator import Authenticator
from iothub_services.auth.policies import PolicyCache
from iothub_services.auth.port import TenantRecord
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.events.journal import ThreadJournal
from iothub_services.events.sqlite import SCHEMA as EVENTS
from iothub_services.events.sqlite import SqliteEvents
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.queues.schema import SCHEMA as QUEUES
from iothub_services.queues.sqlite import SqliteQueues
from iothub_services.queues.writer import RETRY_S, QueueWriter
from iothub_services.quota.slots import SlotFile
from iothub_services.quota.usage import FLUSH_INTERVAL_S, Usage, UsageStore
from iothub_services.retained.sqlite import SCHEMA as RETAINED
from iothub_services.retained.sqlite import SqliteRetained
from iothub_services.sessions.manager import SessionManager
from iothub_services.sqlite.database import Database, Schema, open_database
from iothub_services.sqlite.group import Bounds, Patience
from iothub_services.state.service import StateService, journal_thread
from iothub_services.state.sqlite import SCHEMA as STATES
from iothub_services.state.sqlite import SqliteStates
from iothub_services.threads import Threads
from iothub_tenants import commands, tenants
from iothub_tenants.allowance import Allowance
from iothub_tenants.awakening import Awakening
from iothub_tenants.broker import Shared, TenantBroker
from iothub_tenants.brokers import Brokers
from iothub_tenants.changes import ChangeWatcher
from iothub_tenants.changes import trim as changes_trim
from iothub_tenants.control import ControlPlane
from iothub_tenants.errands import Errands
from iothub_tenants.generator import BlockSource, QueueIds
from iothub_tenants.hub import Hub
from iothub_tenants.obey import Obedience
from iothub_tenants.plugging import plug_in
from iothub_tenants.registry import Registry
from iothub_tenants.retaining import Retaining
from iothub_tenants.store import AccountStore, ChangeKind
from iothub_tenants.upkeep import Upkeep

OPEN_FILES = 1 << 20
TAIL_SLICE = 512
Later = Callable[[float, Callable[[], None]], object]


def serve(settings: Config, data_dir: DataDir) -> int:
    """Run one hub on a data directory until SIGTERM or SIGINT; returns the exit code.

    Raises: ConflictError (somebody else runs on it, future schema), UnavailableError (port in use, directory not writable), ConfigError.
    """
    data_dir.require_writable()
    lock = data_dir.lock("iothub serve")
    try:
        node = Node(settings, data_dir, epollreactor.EPollReactor())  # type: ignore[no-untyped-call]
        return node.run(lock.announce)
    finally:
        lock.release()


class Node:
    """One hub process. Made, run once, thrown away."""

    def __init__(self, settings: Config, data_dir: DataDir, reactor: Any) -> None:
        self.settings = settings
        self.data_dir = data_dir
        self.reactor = reactor
        self.clock = SystemClock()
        self.log = log.get(__name__)
        self.alarms = Alarms(self.clock)
        self.version = version("iothub")
        self.backend = select_backend()
        self.started_at = self.clock.wall()
        self.failure: IotHubError | None = None
        self.is_stopping = False
        self.http_port: Any = None
        self._open_stores()
        self._compose()

    # --- building: stores, services, plane, control plane, doors

    def _open_stores(self) -> None:
        """Open every file; a damaged one is set aside and reported, a future one stops the start."""
        settings, data_dir = self.settings, self.data_dir
        url = account_url(settings, data_dir)
        self.pepper = data_dir.pepper(settings.auth.pepper_file)
        self.accounts = AccountStore(url, pepper=self.pepper, clock=self.clock)
        self.queues = SqliteQueues(self._open(data_dir.queues, QUEUES))
        self.retained = SqliteRetained(self._open(data_dir.retained, RETAINED))
        log_file, states_file = self._open(data_dir.events, EVENTS), self._open(data_dir.state, STATES)
        self.states = StateService(SqliteEvents(log_file), SqliteStates(states_file), self._on_alarm)
        self.usage = Usage(
            UsageStore(data_dir.usage, self.clock, self._on_alarm),
            self.clock,
            SlotFile(data_dir.path / "usage.map"),
        )

    def _open(self, path: Path, schema: Schema) -> Database:
        return open_database(path, schema, self.clock, self._on_alarm)

    def _compose(self) -> None:
        settings, clock = self.settings, self.clock
        call_in_reactor = self.reactor.callFromThread
        self.threads = Threads(
            self.reactor, {"accounts": 2, "auth": settings.auth.hash_pool, "usage": 1, "housekeeping": 1}
        )
        self.writer = QueueWriter(
            self.queues,
            self.retained,
            call_in_reactor,
            clock,
            bounds=Bounds(waiting_bytes=settings.queues.pending_bytes),
            patience=Patience(RETRY_S, settings.queues.give_up_s),
            on_alarm=self._on_alarm,
            on_retained=self._on_retained,
        )
        self.journal_thread = journal_thread(self.states, call_in_reactor, clock, self._on_alarm)
        self.hooks = hooks.load()
        self.journal = ThreadJournal(self.journal_thread, self._happened if self.hooks.lifecycle is not None else None)
        self.control = ControlPlane()
        self.telemetry = Telemetry(self.alarms)
        message_ids = MessageIds(clock, settings.node.number)
        self.plane = Plane(clock, self.control, self.writer, plane_limits(settings), self.telemetry, message_ids)
        self.directory = LocalDirectory()
        self.queue_admin = AwaitedQueues(self.writer)
        self.retained_admin = AwaitedRetained(self.writer)
        owner = f"{settings.node.name}/{os.getpid()}/{time.time_ns()}".encode()
        self.sessions = SessionManager(self.plane, self.directory, self.queue_admin, self.journal, clock, owner)
        self.registry = Registry(self.accounts)
        self.authenticator = Authenticator(
            self.registry, self.threads.run, clock, self.pepper, AuthTelemetry(self.telemetry), auth_settings(settings)
        )
        self.block_source = BlockSource(self.accounts)
        self.brokers = Brokers(self._make_broker)
        self.hub = Hub(
            settings=settings,
            clock=clock,
            plane=self.plane,
            authenticator=self.authenticator,
            policies=PolicyCache(),
            brokers=self.brokers,
            sessions=self.sessions,
            directory=self.directory,
            journal=self.journal,
            hooks=self.hooks,
            message_ids=message_ids,
            counters=self.telemetry,
            later=self.reactor.callLater,
        )
        self.control.attach(self.hub)
        self.shared = Shared(settings, clock, self.plane, self.sessions, self.journal, self.telemetry, self.threads.run)
        sockets_plane = cast("EnginePlane", self.plane)  # its Protocols speak of channels, the plane's of transports
        transports = make_transports(self.backend, sockets_plane, clock, self.reactor)
        self.listeners = Listeners(listener_infos(settings), sockets_plane, clock, transports, self.reactor)
        self.upkeep = Upkeep(self.reactor.callLater)

    async def _make_broker(self, record: TenantRecord) -> TenantBroker:
        plane = TenantPlane(record.id, record.name)
        allowance = Allowance(record, plane, self.clock, self.telemetry, self.usage)
        await self.queue_admin.set_tenant_limits(
            record.id, allowance.limits.queued_messages, allowance.limits.queued_bytes
        )
        retaining = Retaining(record.id, self.plane, self.retained_admin, allowance.ledger, self.clock)
        await retaining.load()
        plane.may_retain = retaining.may_retain
        plug_in(self.hub.hooks, plane)
        queue_ids = QueueIds(TenantId(record.id), self.block_source)
        return TenantBroker(record, self.shared, plane, allowance, queue_ids, retaining)

    # --- life

    def run(self, announce: Callable[[str], None]) -> int:
        """Start, serve, stop. Raises what kept the hub from starting."""
        self._announce = announce
        raise_file_limit()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        self.threads.start()
        self.writer.start(cast("Any", self.plane))
        self.reactor.callWhenRunning(self._begin)
        self.reactor.run(installSignalHandlers=False)
        self._close_stores()
        if self.failure is not None:
            raise self.failure
        return 0

    def _signalled(self, number: int, _frame: object) -> None:
        """SIGTERM or SIGINT: stop cleanly; a second one stops at once."""
        if self.is_stopping:
            os._exit(128 + number)
        self.is_stopping = True
        self.reactor.callFromThread(self._stop, signal.Signals(number).name)

    def _begin(self) -> None:
        Deferred.fromCoroutine(self._start()).addErrback(self._failed)

    def _failed(self, failure: Any) -> None:
        """The start did not succeed: leave with the error that says why."""
        error = failure.value
        self.failure = error if isinstance(error, IotHubError) else IotHubError(f"the start failed: {error!r}")
        if not isinstance(error, IotHubError):
            self.log.error("defect at start", exc_info=error)
        self.listeners.close()
        self.reactor.stop()

    async def _start(self) -> None:
        """Load what is durable, then open the doors; only then is the hub ready."""
        run = self.threads.run
        await run("accounts.sweep", lambda: commands.sweep(self.accounts, is_starting=True))
        self.watcher = await run("accounts.watch", ChangeWatcher, self.accounts)
        awakening = Awakening(self.hub, self.registry, self.queue_admin, run)
        sessions = await awakening.load(await run("housekeeping.load", self.states.load))
        self.journal_thread.start()
        self.health = NodeHealth(self)
        if self.settings.http.port is not None:
            face = http.HttpFace(self.health, self.reactor)
            self.http_port = http.listen(self.reactor, face, self.settings.http.bind, self.settings.http.port)
        self.listeners.start()
        self._announce_addresses()
        self.telemetry.is_ready = True
        self._plan_upkeep()
        self.upkeep.start()
        gc.collect()
        gc.freeze()  # what lives as long as the hub is looked at no more
        gc.set_threshold(50_000, 20, 100)
        self._hub_happened("hub.started")
        self.log.info("ready", twin=self.backend, sessions=sessions, **self._addresses())

    def _addresses(self) -> dict[str, str]:
        addresses = {name: f"{host}:{port}" for name, (host, port) in self.listeners.addresses().items()}
        if self.http_port is not None:
            host = self.http_port.getHost()
            addresses["http"] = f"{host.host}:{host.port}"
        return addresses

    def _announce_addresses(self) -> None:
        addresses = self._addresses()
        doors = [address for name, address in addresses.items() if name != "http"]
        self._announce(", ".join(doors))
        facts = {"pid": os.getpid(), "version": self.version, "twin": self.backend, "started": self.started_at}
        self.data_dir.write_hub({**facts, **addresses})

    def _plan_upkeep(self) -> None:
        settings, add = self.settings, self.upkeep.add
        run = self.threads.run
        obedience = Obedience(self.hub, lambda plan: run("accounts.plan", self.registry.tenants_on_plan, plan))
        errands = Errands(self.hub, self.queue_admin, self._find_tenant, self.version)
        add("accounts", settings.sql.poll_interval_s, lambda: self._look_at_accounts(obedience, errands))
        add("deadlines", 0.2, self.sessions.run_deadlines)
        add("tails", settings.queues.poll_interval_s, self._look_at_tails)
        add("usage", FLUSH_INTERVAL_S, lambda: self.usage.flush(run))
        add("retained expiry", 5.0, self._expire_retained)
        add("deletions", 1.0, self._finish_deletions)
        add("housekeeping", 60.0, self._tidy)

    async def _find_tenant(self, name: str) -> TenantRecord | None:
        return await self.threads.run("accounts.tenant", self.registry.find_tenant, name)

    # --- regular duties

    async def _look_at_accounts(self, obedience: Obedience, errands: Errands) -> None:
        run = self.threads.run
        changes = await run("accounts.poll", self.watcher.poll)
        self.alarms.clear(AlarmName.ACCOUNTS_UNREACHABLE)
        await obedience.obey([change for change in changes if change.kind is not ChangeKind.COMMAND])
        if not any(change.kind is ChangeKind.COMMAND for change in changes):
            return

        async def answer(number: int, result: Mapping[str, object]) -> None:
            await run("accounts.answer", commands.answer, self.accounts, number, result)

        async def fail(number: int, error: IotHubError) -> None:
            await run("accounts.fail", commands.fail, self.accounts, number, error)

        await errands.run(await run("accounts.take", commands.take, self.accounts), answer, fail)

    async def _look_at_tails(self) -> None:
        """A lost notification must not strand a message: caught-up sessions look at their tails (storage page, section 5)."""
        online = {
            session.queue_id: session
            for broker in self.brokers
            for session in broker.plane.sessions.values()
            if session.is_persistent and session.connection is not None and not session.is_behind
        }
        ids = list(online)
        for start in range(0, len(ids), TAIL_SLICE):
            tails = await self.queue_admin.tails(ids[start : start + TAIL_SLICE])
            for queue_id, tail in tails.items():
                self.plane.announce(online[queue_id], tail)

    async def _expire_retained(self) -> None:
        for tenant_id, topic in await self.retained_admin.expire(int(self.clock.wall() * 1000), 1000):
            broker = self.brokers.present(tenant_id)
            if broker is not None:
                broker.retained.gone(topic)

    async def _finish_deletions(self) -> None:
        """Empty the stores of deleted tenants, then let their names go."""
        for deletion in await self.threads.run("accounts.deletions", tenants.pending_deletions, self.accounts):
            tenant_id = deletion.tenant_id
            broker = self.brokers.present(tenant_id)
            if broker is not None:
                await self._end_sessions(broker)
                self.brokers.drop(tenant_id)
            await self.queue_admin.drop_tenant(tenant_id)
            await self.retained_admin.drop_tenant(tenant_id)
            self.usage.forget_tenant(tenant_id)
            await self.threads.run("accounts.deleted", tenants.finish_deletion, self.accounts, tenant_id)

    async def _end_sessions(self, broker: TenantBroker) -> None:
        for client_id in list(broker.plane.sessions):
            await self.sessions.discard(broker, client_id, "tenant_deleted")

    async def _tidy(self) -> None:
        self.brokers.drop_idle()
        await self.threads.run("accounts.sweep", commands.sweep, self.accounts)
        await self.threads.run("accounts.trim", changes_trim, self.accounts)

    # --- what stores tell

    def _on_alarm(self, name: str, text: str) -> None:
        """A store's thread or file says that something is wrong, or (empty text) right again."""
        known = {"queue_records_corrupt": AlarmName.STORE_CORRUPT}
        alarm = known.get(name, AlarmName.STORE_FAILED if name.endswith("_failing") else AlarmName.STORE_CORRUPT)
        self.alarms.set(alarm, bool(text), subject=name, detail=text)

    def _on_retained(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        broker = self.brokers.present(tenant_id)
        if broker is not None:
            broker.retained.changed(topic, version, expires_at_ms, size)

    def _happened(self, event: Event) -> None:
        """Tell the plug-ins of an event of a session."""
        if self.hooks.lifecycle is None:
            return
        broker = self.brokers.present(event.tenant_id)
        session = broker.plane.sessions.get(event.client_id) if broker is not None else None
        self.hooks.lifecycle(
            hooks.Happening(
                event.type.value,
                broker.record.name if broker is not None else "",
                session.device if session is not None else str(event.facts.get("device", "")),
                event.client_id,
                str(event.facts.get("reason", "")),
                event.at_ms / 1000,
            )
        )

    def _hub_happened(self, name: str) -> None:
        if self.hooks.lifecycle is not None:
            self.hooks.lifecycle(hooks.Happening(name, at=self.clock.wall()))

    # --- the end

    def _stop(self, why: str) -> None:
        self.log.info("stopping", signal=why)
        self.telemetry.is_ready = False
        Deferred.fromCoroutine(self._shut_down()).addErrback(
            lambda failure: self.log.error("defect while stopping", exc_info=failure.value)
        ).addBoth(lambda _: self.reactor.stop())

    async def _shut_down(self) -> None:
        """Say goodbye, wait until what was promised is durable, close."""
        self._hub_happened("hub.stopping")
        self.upkeep.stop()
        self.listeners.stop_accepting()
        online = []
        for broker in self.brokers:
            for session in list(broker.plane.sessions.values()):
                if session.connection is not None:
                    online.append(session)
                    self.plane.close(session.connection, Reason.SERVER_SHUTDOWN)
        self.plane.settle_reservations([session for session in online if session.is_persistent])
        deadline = self.clock.monotonic() + self.settings.node.stop_timeout_s * 0.6
        while self.clock.monotonic() < deadline and self._is_busy():
            await self._pause(0.02)
        self.listeners.close()
        if self.http_port is not None:
            await self.http_port.stopListening()

    def _is_busy(self) -> bool:
        return bool(self.writer.waiting[0] or self.plane.connection_count or self.journal_thread.waiting)

    def _pause(self, seconds: float) -> Deferred[None]:
        pause: Deferred[None] = Deferred()
        self.reactor.callLater(seconds, pause.callback, None)
        return pause

    def _close_stores(self) -> None:
        """The reactor has stopped; answers that still come have nobody to go to."""
        timeout_s = self.settings.node.stop_timeout_s * 0.3
        self.writer.close(timeout_s)
        self.journal_thread.close(timeout_s)
        self.states.close()
        self.usage.close()
        self.threads.stop()
        self.accounts.close()
        self.data_dir.remove_hub()
