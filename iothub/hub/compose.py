"""The composition root: configuration in, a running hub out. The only file that names concrete back ends.

Knows everybody and does little itself: it builds the rooms from the ground up, starts them in that order, stops them in the reverse one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from twisted.internet import epollreactor
from twisted.internet.defer import Deferred
from twisted.internet.main import installReactor
from twisted.python.failure import Failure

from iothub import hooks
from iothub.base import log
from iothub.base.clock import SystemClock
from iothub.base.errors import BackendError
from iothub.base.ids import MessageIds, TenantId
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.config.sections.stores import chosen_tenants, driver_of
from iothub.engine.plane import Plane
from iothub.engine.state import Session, TenantPlane
from iothub.hub import quota_ledger
from iothub.hub.cluster import SharedStores
from iothub.hub.drivers import Drivers, redis_client, shared_records, unused_files
from iothub.hub.from_settings import auth_settings, certificate_files, listener_infos, plane_limits
from iothub.hub.installation import Installation
from iothub.hub.metering import Metering
from iothub.hub.session_locks import LocalDirectory
from iothub.hub.start import Life
from iothub.hub.store_alarms import StoreAlarms, report_lost
from iothub.hub.stream_drivers import stream_drivers
from iothub.hub.streaming import Streaming
from iothub.hub.telemetry import AuthTelemetry, Telemetry
from iothub.hub.wait_for_servers import Waiting
from iothub.net.backend import select_backend
from iothub.net.listeners import Listeners
from iothub.net.ports import EnginePlane
from iothub.net.transports import make_transports
from iothub.records.events import Event, Topic
from iothub_services.auth.authenticator import Authenticator
from iothub_services.auth.policies import PolicyCache
from iothub_services.auth.port import TenantRecord
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.damaged import DamagedRecords
from iothub_services.events.journal import ThreadJournal
from iothub_services.events.statistics import StatisticsJournal, StatisticsThread, statistics_thread
from iothub_services.group_thread import Bounds, Patience
from iothub_services.hbase import from_settings
from iothub_services.hbase.caller import ThreadCaller
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.watch import Watch
from iothub_services.queues.routing import RoutingStore
from iothub_services.queues.writer import RETRY_S, QueueWriter
from iothub_services.quota.slots import SlotFile
from iothub_services.quota.usage import Usage, UsageStore
from iothub_services.sessions.manager import SessionManager
from iothub_services.sessions.port import Alone, Company
from iothub_services.sqlite.database import Database, Schema, open_database
from iothub_services.state.service import StateService, journal_thread
from iothub_services.threads import Threads
from iothub_tenants.accounts import installations, tenants
from iothub_tenants.accounts.bounds import bounds_of
from iothub_tenants.accounts.database import accounts_url
from iothub_tenants.accounts.generator import BlockSource, QueueIds
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.background.tasks import Upkeep
from iothub_tenants.broker.absent import rights_of
from iothub_tenants.broker.allowance import Allowance
from iothub_tenants.broker.broker import Shared, TenantBroker
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.plugging import plug_in
from iothub_tenants.broker.retaining import Retaining
from iothub_tenants.broker.sys_topics import SysTopics
from iothub_tenants.control.control import ControlPlane

if TYPE_CHECKING:
    from iothub.hub.health import NodeHealth
    from iothub.net.http import HttpFace
    from iothub_services.hbase.client import HBaseClient
    from iothub_services.quota.shared.service import SharedQuota
    from iothub_tenants.accounts.changes import ChangeWatcher


def serve(settings: Config, data_dir: DataDir, *, is_fail_fast: bool = False) -> int:
    """Run one hub on a data directory until SIGTERM or SIGINT; returns the exit code.

    `is_fail_fast`: do not wait for servers that must answer before the start.

    Raises: ConflictError (somebody else runs on it, future schema), UnavailableError (port in use, directory not writable), ConfigError.
    """
    data_dir.require_writable()
    lock = data_dir.lock("iothub serve")
    try:
        reactor = epollreactor.EPollReactor()  # type: ignore[no-untyped-call]
        installReactor(reactor)  # type: ignore[no-untyped-call]  # plug-ins that import the reactor get this one
        node = Node(settings, data_dir, reactor, is_fail_fast=is_fail_fast)
        return node.run(lock.announce)
    finally:
        lock.release()


class Node:
    """One hub process. Made, run once, thrown away."""

    def __init__(self, settings: Config, data_dir: DataDir, reactor: Any, *, is_fail_fast: bool = False) -> None:
        self.settings = settings
        self.data_dir = data_dir
        self.reactor = reactor
        self.clock = SystemClock()
        self.log = log.get(__name__)
        self.alarms = Alarms(self.clock)
        self.telemetry = Telemetry(self.alarms)
        self.version = version("iothub")
        self.backend = select_backend()
        self.started_at = self.clock.wall()
        self.is_fail_fast = is_fail_fast
        self.is_stopping = False
        self.http_port: Any = None
        self.http_face: HttpFace | None = None
        self.health: NodeHealth
        self.watcher: ChangeWatcher
        self.store_alarms = StoreAlarms(self.alarms)
        self._open_stores()
        self._compose()

    # --- building: stores, services, plane, control plane, doors

    def _open_stores(self) -> None:
        """Open every file; a damaged one is set aside and reported, a future one stops the start."""
        settings, data_dir = self.settings, self.data_dir
        self.hbase: HBaseClient | None = None  # where a store is on it: one for all rooms
        self.redis = redis_client(settings, self.reactor, self.telemetry.registry, self.alarms)
        url = accounts_url(settings.sql.url_file, data_dir.accounts)
        self.pepper = data_dir.pepper(settings.auth.pepper_file)
        self.accounts = AccountStore(
            url, pepper=self.pepper, clock=self.clock, bounds=bounds_of(settings.sql), is_checked=False
        )
        self.installation = Installation(settings, clock=self.clock)
        if not self.accounts.is_on_server:  # else it is asked, and waited for, when everybody can see that
            self.know_accounts()
        self.drivers = Drivers(
            settings, data_dir, self._open, self._connect_hbase, lambda: self.installation, self._on_thread_alarm
        )
        report_lost(data_dir, self.store_alarms, unused_files(settings, data_dir))
        self.queues = self.drivers.queues()
        self.retained = self.drivers.retained()
        log, states = self.drivers.event_log(), self.drivers.states()
        self.damaged = DamagedRecords(self._on_thread_alarm)
        self.states = StateService(log, states, self._on_thread_alarm, self.drivers.checkpoints(), self.damaged)
        self.usage = Usage(
            UsageStore(data_dir.usage, self.clock, self.store_alarms),
            self.clock,
            SlotFile(data_dir.path / "usage.map"),
        )
        self.shared_quota: SharedQuota | None = None
        if settings.quota.ledger == "redis" and self.redis is not None:
            self.ledger = quota_ledger.Sharing(settings, self.installation.id, data_dir, self.alarms)
            self.shared_quota = self.ledger.quota(self.redis, self.clock, self.reactor.callLater, self.usage)
            quota_ledger.feed(self.telemetry.registry, self.shared_quota)

    def know_accounts(self) -> None:
        """See that the accounts can be used, and whose they are. Blocks. Raises UnavailableError, ConfigError, ConflictError."""
        self.accounts.probe().require()
        self.accounts.check()
        self.installation.id = installations.own(self.accounts)
        self.installation.check_directory(self.data_dir)
        if missing := tenants.missing(self.accounts, chosen_tenants(self.settings.queues)):
            self.log.warning(
                "queues.choices names tenants that do not exist: nobody gets these drivers", tenants=missing
            )

    def know_installation(self) -> None:
        """What this hub keeps in Redis is the installation's, which the accounts have told by now."""
        if self.shared_quota is not None:
            self.ledger.belongs_to(self.installation.id)
        if self.shared_records is not None:
            self.shared_records.begin_with(quota_ledger.ledger_keys(self.settings, self.installation.id).scope)

    def _open(self, path: Path, schema: Schema) -> Database:
        return open_database(path, schema, self.clock, self.store_alarms)

    def _connect_hbase(self) -> ThreadCaller:
        """Make the client; `Life` opens and closes it, because it works on the reactor's thread."""
        self.hbase = from_settings.client(self.settings.hbase, self.reactor, self.telemetry.registry)
        return ThreadCaller(self.hbase, self.reactor.callFromThread)

    def _compose(self) -> None:
        self._compose_writers()
        self._compose_plane()
        self._compose_control()
        self._compose_doors()

    def _compose_writers(self) -> None:
        """What blocks, and the threads that it does so in."""
        settings, clock = self.settings, self.clock
        call_in_reactor = self.reactor.callFromThread
        self.threads = Threads(
            self.reactor,
            {
                "accounts": 2,
                "auth": settings.auth.hash_pool,
                "usage": 1,
                "housekeeping": 1,
                "closing": 1,
                "members": 1,
                "sweep": 1,
            },
        )
        self.writer = QueueWriter(
            self.queues,
            self.retained,
            call_in_reactor,
            clock,
            bounds=Bounds(waiting_bytes=settings.queues.pending_bytes),
            patience=Patience(RETRY_S, settings.queues.give_up_s),
            on_alarm=self.store_alarms,
            on_retained=self._on_retained,
            on_commit=self.telemetry.committed,
        )
        self.writer.on_full = self.telemetry.queue_full
        self.writer.on_not_retained = self._on_not_retained
        self.writer.on_lost = self._on_lost
        self.journal_thread = journal_thread(
            self.states,
            call_in_reactor,
            clock,
            self.store_alarms,
            patience=Patience(RETRY_S, settings.queues.give_up_s),
            on_commit=self.telemetry.committed,
        )
        self.waiting = Waiting(self.threads.run, self.pause, is_fail_fast=self.is_fail_fast)
        self.hooks = hooks.load()
        self.journal = ThreadJournal(self.journal_thread, self._happened, self.reactor.callLater)
        self.statistics_log = self.drivers.statistics_log()
        self.statistics_thread: StatisticsThread | None = None
        self._record_statistics = self.journal.record
        if self.statistics_log is not None:
            self.statistics_thread = statistics_thread(self.statistics_log, call_in_reactor, clock, self.store_alarms)
            self._record_statistics = StatisticsJournal(self.statistics_thread, self._happened).record

    def _compose_plane(self) -> None:
        """The message plane, and the sessions that it serves."""
        settings, clock, call_in_reactor = self.settings, self.clock, self.reactor.callFromThread
        self.control = ControlPlane()
        self.message_ids = MessageIds(clock, settings.node.number)
        connect = partial(stream_drivers, settings, self.installation, call_in_reactor)
        self.streaming = Streaming(settings, self.writer, clock, connect, self._on_streams)
        outlet = self.streaming.outlet
        self.plane = Plane(clock, self.control, outlet, plane_limits(settings), self.telemetry, self.message_ids)
        self.plane.call_soon = partial(self.reactor.callLater, 0)
        self.directory = LocalDirectory()
        self.shared_stores = SharedStores(self) if self.states.is_shared else None
        self.company: Company = self.shared_stores or Alone()
        self.queue_admin = AwaitedQueues(self.writer)
        self.retained_admin = AwaitedRetained(self.writer)
        self.incarnation = f"{settings.node.name}/{os.getpid()}/{time.time_ns()}"
        owner = self.incarnation.encode()
        self.sessions = SessionManager(
            self.plane, self.directory, self.queue_admin, self.journal, clock, owner, self.company
        )

    def _compose_control(self) -> None:
        """Accounts, tenants, and what the walks call."""
        settings, clock = self.settings, self.clock
        self.registry = Registry(self.accounts)
        self.shared_records = shared_records(settings, self.redis, self.installation.id, self.pepper, clock)
        self.authenticator = Authenticator(
            self.registry,
            self.threads.run,
            clock,
            self.pepper,
            AuthTelemetry(self.telemetry),
            auth_settings(settings),
            self.shared_records,
        )
        self.block_source = BlockSource(self.accounts)
        self.brokers = Brokers(self._make_broker, self._put_away)
        self.metering = Metering(
            self.brokers,
            self.telemetry,
            self.queues.tenant_usage,
            self._record_statistics,
            clock,
            self.incarnation,
            settings.events.usage_interval_s,
        )
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
            message_ids=self.message_ids,
            counters=self.telemetry,
            later=self.reactor.callLater,
            company=self.company,
        )
        self.control.attach(self.hub)
        self.sys_topics = SysTopics(self.plane, self.brokers, self.queues.tenant_usage)
        self.shared = Shared(
            settings,
            clock,
            self.plane,
            self.sessions,
            self.journal,
            self.telemetry,
            self.threads.run,
            self.sys_topics,
            self.reactor.callLater,
            partial(rights_of, self.hub),
        )

    def _compose_doors(self) -> None:
        """What is outside: listeners, regular duties, and an eye on the machine."""
        settings, clock = self.settings, self.clock
        sockets_plane = cast("EnginePlane", self.plane)  # its Protocols speak of channels, the plane's of transports
        transports = make_transports(self.backend, sockets_plane, clock, self.reactor)
        self.listeners = Listeners(listener_infos(settings), sockets_plane, clock, transports, self.reactor)
        self.upkeep = Upkeep(self.reactor.callLater)
        certificates = certificate_files(settings)
        levels, memory_limit = settings.alarms, settings.overload.memory_limit
        self.watch = Watch(self.alarms, levels, memory_limit, self.data_dir.path, certificates, clock)

    async def _make_broker(self, record: TenantRecord) -> TenantBroker:
        plane = TenantPlane(record.id, record.name)
        own = await self.threads.run("accounts.limits", self.registry.device_limits, record.id)
        allowance = Allowance(
            record,
            plane,
            self.clock,
            self.telemetry,
            self.usage,
            own,
            backlog_bytes=self.settings.overload.session_backlog_bytes,
            shared=self.shared_quota,
        )
        if isinstance(self.queues, RoutingStore):
            self.queues.choose(record.id, driver_of(self.settings.queues, record.name))
        limits = allowance.limits  # in force before anything that is stored later; a disk that fails keeps nobody out
        bounded = self.queue_admin.set_tenant_limits(record.id, limits.queued_messages, limits.queued_bytes)
        Deferred.fromCoroutine(bounded).addErrback(_closed)
        retaining = Retaining(plane, self.plane, self.retained_admin, allowance.ledger, self.clock, self.damaged)
        try:
            await retaining.load()
        except BackendError:
            allowance.close()  # whoever asks again makes another one
            raise
        plane.may_retain = retaining.may_retain
        plug_in(self.hub.hooks, plane)
        queue_ids = QueueIds(TenantId(record.id), self.block_source)
        past = self.telemetry.past.of(record.id)
        broker = TenantBroker(record, self.shared, plane, allowance, queue_ids, retaining, past)
        self.streaming.book.attach(broker)
        return broker

    def _put_away(self, broker: TenantBroker) -> None:
        """A broker is dropped: what it has counted stays."""
        broker.allowance.close()
        self.metering.retire(broker)
        self.telemetry.past.keep(broker.tenant_id, broker.record.name, broker.traffic)

    def run(self, announce: Callable[[str], None]) -> int:
        """Live. Returns the exit code; raises what kept the hub from starting."""
        return Life(self).run(announce)

    def pause(self, seconds: float) -> Deferred[None]:
        """Wait on the reactor's clock."""
        pause: Deferred[None] = Deferred()
        self.reactor.callLater(seconds, pause.callback, None)
        return pause

    # --- what the parts tell

    def _on_thread_alarm(self, word: str, text: str) -> None:
        """The state service speaks in its own thread."""
        self.reactor.callFromThread(self.store_alarms, word, text)

    def _on_streams(self, trouble: str) -> None:
        self.alarms.set(AlarmName.STREAMS_FAILED, bool(trouble), detail=trouble)

    def _on_retained(self, tenant_id: int, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        broker = self.brokers.present(tenant_id)
        if broker is not None:
            broker.retained.changed(topic, version, expires_at_ms, size)

    def _on_lost(self, session: Session) -> None:
        broker = self.brokers.present(session.tenant.tenant_id)
        if broker is not None:
            self.sessions.queue_lost(broker, session)

    def _on_not_retained(self, tenant_id: int, topic: bytes) -> None:
        broker = self.brokers.present(tenant_id)
        if broker is not None:
            broker.retained.failed(topic)

    def _happened(self, event: Event) -> None:
        """Count an event of a session, and tell the plug-ins."""
        self.telemetry.happened(event)
        if self.hooks.lifecycle is None or event.type.topic is not Topic.SESSIONS:
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

    def hub_happened(self, name: str) -> None:
        if self.hooks.lifecycle is not None:
            self.hooks.lifecycle(hooks.Happening(name, at=self.clock.wall()))

    def felt(self, late_s: float) -> None:
        """A heartbeat was this late."""
        self.watch.ticked(late_s)
        self.telemetry.ticked(late_s)


def _closed(failure: Failure) -> None:
    """The store has been closed; nothing will be stored any more."""
    if not isinstance(failure.value, BackendError):
        failure.raiseException()
