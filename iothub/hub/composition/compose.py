"""The composition root: configuration in, the parts of a hub out. Which back end serves a port is up to `iothub.hub.stores.drivers`.

Knows everybody and starts nothing. Everybody gets what it needs by its constructor, in the order of these functions: from the stores up to the
sockets. Nothing is set on a part afterwards; what cannot be ordered so is in `iothub.hub.late`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from iothub.base.clock import Clock
from iothub.base.ids import MessageIds
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.config.sections.stores import driver_of
from iothub.engine.plane import Plane
from iothub.hub.admin_socket import NotedStates
from iothub.hub.admin_socket import driver_of as driver_of_queue
from iothub.hub.cluster.client_pages import ClientPages
from iothub.hub.cluster.cluster import HubCluster
from iothub.hub.cluster.draining import Draining
from iothub.hub.cluster.every_hub import EveryHub
from iothub.hub.cluster.node_commands import Nodes, OwnNode
from iothub.hub.cluster_members import ClusterMembers
from iothub.hub.composition import metric_sources
from iothub.hub.composition.broker_factory import BrokerFactory, LostQueues, StoredRetained
from iothub.hub.composition.cluster import (
    make_ban_announcer,
    make_cluster,
    make_directory,
    make_peer_commands,
    make_peer_retained,
    make_routes,
    make_turn_clock,
    make_will_keeper,
    receive_bans,
    watch_members,
)
from iothub.hub.composition.control import PlaneDependencies, Planes, compose_control
from iothub.hub.composition.events import figures_of, figures_of_registry, make_events
from iothub.hub.composition.foundation import Foundation
from iothub.hub.composition.stores import make_monitoring, make_process, on_thread_alarm, open_stores
from iothub.hub.composition.tasks import make_tasks
from iothub.hub.from_settings import auth_settings, listener_infos, plane_limits
from iothub.hub.monitoring.health import Health, Readiness
from iothub.hub.monitoring.metering import Metering
from iothub.hub.monitoring.telemetry import AuthTelemetry
from iothub.hub.monitoring.tenant_metrics import TenantMetrics
from iothub.hub.parts import Control, Monitoring, Parts, Process, Sockets, Stores, Writers
from iothub.hub.periodic_tasks import PeriodicTasks
from iothub.hub.phase import Phase
from iothub.hub.stores.stream_drivers import stream_drivers
from iothub.hub.streaming import Streaming, StreamParts, stream_parts
from iothub.hub.workers.every_worker import EveryWorker, OwnWorker
from iothub.jobs.watch import JobWatch
from iothub.net.http import HttpFactory
from iothub.net.listeners import Listeners
from iothub.net.ports import EnginePlane
from iothub.net.transports import make_transports
from iothub.records.admin_commands import Json, Verb, Verbs
from iothub_services.auth.authenticator import Authenticator
from iothub_services.auth.port import TenantRecord
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.damaged import DamagedRecords
from iothub_services.events.journal import ThreadJournal
from iothub_services.events.statistics import StatisticsJournal, statistics_thread
from iothub_services.group_thread import Bounds, RetryPolicy
from iothub_services.metrics import metrics
from iothub_services.metrics.alarms import AlarmName
from iothub_services.queues.listeners import StoreListeners
from iothub_services.queues.routing import RoutingStore
from iothub_services.queues.writer import RETRY_S, QueueWriter
from iothub_services.state.service import journal_thread
from iothub_tenants.accounts import streams
from iothub_tenants.background.admin_clients import AdminClients
from iothub_tenants.background.admin_commands import AdminCommands
from iothub_tenants.background.admin_explain import AdminExplain
from iothub_tenants.background.admin_publish import AdminPublish
from iothub_tenants.background.admin_queries import AdminQueries
from iothub_tenants.background.admin_subscriptions import AdminSubscriptions
from iothub_tenants.background.admin_traces import AdminTraces
from iothub_tenants.background.remote_sessions import RemoteSessions
from iothub_tenants.background.session_recovery import Retry, SessionRecovery, run_once
from iothub_tenants.broker.queue_bounds import QueueBounds

if TYPE_CHECKING:
    from iothub.engine.state import Session


def compose(
    settings: Config,
    data_dir: DataDir,
    reactor: Any,
    clock: Clock,
    phase: Phase | None = None,
    *,
    is_fail_fast: bool = False,
) -> Parts:
    """Make a hub on a data directory. Files are opened, servers are not asked anything, and no thread runs yet.

    `is_fail_fast`: a start does not wait for servers that must answer before it.

    Raises: ConflictError (files of other accounts, future schema), UnavailableError, ConfigError.
    """
    process = make_process(settings, data_dir, reactor, clock, phase or Phase(), is_fail_fast=is_fail_fast)
    monitoring = make_monitoring(process)
    damaged = DamagedRecords(on_thread_alarm(process, monitoring))
    stores = open_stores(process, monitoring, damaged)
    foundation = Foundation(process, monitoring, damaged, stores)
    writers = _writers(foundation)
    control = _control(foundation, writers)
    health = _health(foundation, writers, control)
    jobs = JobWatch(settings, monitoring.alarms, process.clock)
    listeners = foundation.listeners.bind(_listeners(process, monitoring, control.plane))
    tasks = make_tasks(foundation, writers, control, listeners, jobs)
    draining = _draining(foundation, control, listeners)
    verbs, nodes, every_worker = _verbs(foundation, writers, control, tasks, draining, health)
    foundation.all_figures.bind(every_worker.figures if every_worker else figures_of_registry(health.registry))
    sockets = _sockets(listeners, health, process, verbs, nodes, every_worker)
    _feed(foundation, writers, control, sockets, tasks, jobs)
    return Parts(process, monitoring, stores, writers, control, tasks, sockets)


# --- what blocks, in threads


def _writers(foundation: Foundation) -> Writers:
    process, monitoring, stores = foundation.process, foundation.monitoring, foundation.stores
    settings, clock, call_in_reactor = process.settings, process.clock, process.reactor.callFromThread
    telemetry, store_alarms = monitoring.telemetry, monitoring.store_alarms
    retained, retry_policy = StoredRetained(foundation.brokers), RetryPolicy(RETRY_S, settings.queues.give_up_s)
    writer = QueueWriter(
        stores.queues,
        stores.retained,
        call_in_reactor,
        clock,
        plane=cast("Any", foundation.plane),
        bounds=Bounds(waiting_bytes=settings.queues.pending_bytes),
        retry_policy=retry_policy,
        on_alarm=store_alarms,
        on_damage=foundation.damaged,
        listeners=StoreListeners(
            on_retained=retained.on_stored,
            on_not_retained=retained.on_not_stored,
            on_full=telemetry.queue_full,
            on_stale=lambda session: foundation.on_stale()(session),
            on_lost=lambda session: foundation.on_lost()(session),
        ),
        on_commit=telemetry.committed,
    )
    thread = journal_thread(
        stores.states,
        call_in_reactor,
        clock,
        store_alarms,
        retry_policy=retry_policy,
        on_commit=telemetry.committed,
    )
    journal = ThreadJournal(thread, foundation.on_event, process.reactor.callLater, foundation.members.signature)
    log = stores.statistics_log
    statistics = None if log is None else statistics_thread(log, call_in_reactor, clock, store_alarms)
    return Writers(writer, AwaitedQueues(writer), AwaitedRetained(writer), thread, journal, statistics)


# --- message plane and control plane


def _control(foundation: Foundation, writers: Writers) -> Control:
    streams_made = _streams(foundation, writers)
    planes = compose_control(_ground(foundation, writers, streams_made))
    foundation.plane.bind(planes.plane)
    foundation.remote_sessions.bind(_remote_sessions(foundation, planes))
    watch_members(foundation, planes.sys_topics.publish_hub_states)
    cluster = planes.hub.cluster if isinstance(planes.hub.cluster, HubCluster) else None
    foundation.on_stale.bind(_no_cluster if cluster is None else cluster.on_stale)
    foundation.on_lost.bind(LostQueues(foundation.brokers, planes.hub.sessions).end_session)
    metering = _metering(foundation, writers)
    foundation.factory.bind(_factory(foundation, writers, planes, streams_made, metering))
    process, stores, brokers = foundation.process, foundation.stores, foundation.brokers
    alarms = foundation.monitoring.alarms
    streaming = Streaming(
        streams_made,
        planes.hub,
        stores.accounts,
        process.threads.run,
        None if cluster is None else cluster.members,
        process.settings.kafka.topic_prefix,
        lambda trouble: alarms.set(AlarmName.STREAMS_FAILED, bool(trouble), detail=trouble),
    )
    queue_bounds = QueueBounds(writers.queues, brokers, process.reactor.callLater)
    return Control(
        plane=planes.plane,
        control_plane=planes.control_plane,
        hub=planes.hub,
        registry=foundation.registry,
        sys_topics=planes.sys_topics,
        event_topics=foundation.events(),
        webhooks=foundation.webhooks,
        queue_bounds=queue_bounds,
        recovery=_recovery(foundation, writers, planes, queue_bounds),
        streaming=streaming,
        metering=metering,
        lifecycle=foundation.lifecycle,
        cluster=cluster,
        links=foundation.links,
        on_replaced=foundation.on_replaced,
    )


def _recovery(foundation: Foundation, writers: Writers, planes: Planes, queue_bounds: QueueBounds) -> SessionRecovery:
    process = foundation.process
    return SessionRecovery(
        planes.hub,
        foundation.registry,
        writers.queues,
        queue_bounds,
        process.threads.run,
        last_heartbeat=process.data_dir.last_heartbeat(),
        retry=_retry(process, foundation.stores),
    )


def _retry(process: Process, stores: Stores) -> Retry:
    """Loading is repeated if a server fails in the middle. Where all stores are files, a failure ends the start."""
    has_servers = stores.drivers.needed or stores.accounts.is_on_server
    return partial(process.waiting.until_loaded, "the stores") if has_servers else run_once


def _remote_sessions(foundation: Foundation, planes: Planes) -> RemoteSessions:
    members, run = foundation.members, foundation.process.threads.run
    on_connected = _no_cluster if foundation.links is None else foundation.queued().connected
    return RemoteSessions(
        planes.hub, foundation.registry, run, members.signature, members.number, on_connected=on_connected
    )


def _streams(foundation: Foundation, writers: Writers) -> StreamParts:
    """Make the store of the message plane that also writes to streams, above the queues."""
    process, stores = foundation.process, foundation.stores
    living = partial(streams.living, stores.accounts)
    drivers = stream_drivers(process.settings, stores.installation, process.reactor.callFromThread, living)
    return stream_parts(process.settings, writers.writer, drivers, process.clock, foundation.plane)


def _ground(foundation: Foundation, writers: Writers, streams_made: StreamParts) -> PlaneDependencies:
    process, stores, telemetry = foundation.process, foundation.stores, foundation.monitoring.telemetry
    settings, clock, later, run = process.settings, process.clock, process.reactor.callLater, process.threads.run
    watch = foundation.monitoring.watch
    authenticator = Authenticator(
        foundation.registry,
        run,
        clock,
        stores.pepper,
        AuthTelemetry(telemetry),
        auth_settings(settings),
        stores.shared_records,
        make_ban_announcer(foundation),
    )
    receive_bans(foundation, authenticator)
    return PlaneDependencies(
        settings=settings,
        clock=clock,
        later=later,
        call_soon=partial(later, 0),
        run=run,
        hooks=foundation.hooks,
        observer=telemetry,
        connection_log=foundation.monitoring.connection_log,
        authenticator=authenticator,
        store=streams_made.sink_store,
        limits=plane_limits(settings),
        message_ids=MessageIds(clock, settings.node.number),
        brokers=foundation.brokers,
        queues=writers.queues,
        queued=stores.queues.tenant_usage,
        journal=writers.journal,
        owner=process.incarnation.encode(),
        make_cluster=partial(make_cluster, foundation),
        is_short_of_memory=lambda: watch.is_overloaded,
        make_routes=partial(make_routes, foundation, later),
        hub_states=foundation.hub_states.all,
        broker_figures=figures_of(settings.tenancy.operator, foundation.broker_figures),
        make_directory=partial(make_directory, foundation),
        make_traces=foundation.make_traces,
        make_events=partial(make_events, foundation),
        will_keeper=make_will_keeper(foundation),
        turn_clock=make_turn_clock(foundation),
    )


def _no_cluster(_session: Session) -> None:
    """No other hub can have the session."""


def _metering(foundation: Foundation, writers: Writers) -> Metering:
    process, thread = foundation.process, writers.statistics_thread
    record = writers.journal.record if thread is None else StatisticsJournal(thread, foundation.on_event).record
    return Metering(
        foundation.brokers,
        foundation.monitoring.telemetry,
        foundation.stores.queues.tenant_usage,
        record,
        process.clock,
        process.incarnation,
        process.settings.events.usage_interval_s,
    )


def _factory(
    foundation: Foundation, writers: Writers, planes: Planes, streams_made: StreamParts, metering: Metering
) -> BrokerFactory:
    stores, telemetry = foundation.stores, foundation.monitoring.telemetry
    queues, settings = stores.queues, foundation.process.settings

    def choose_driver(record: TenantRecord) -> None:
        if isinstance(queues, RoutingStore):
            queues.choose(record.id, driver_of(settings.queues, record.name))

    return BrokerFactory(
        shared=planes.shared,
        hooks=foundation.hooks,
        observer=telemetry,
        usage=stores.usage,
        past=telemetry.past,
        queues=writers.queues,
        retained=writers.retained,
        queue_ids=foundation.block_source,
        device_limits=foundation.questions.device_limits,
        backlog_bytes=lambda: planes.hub.settings.overload.session_backlog_bytes,
        damaged=foundation.damaged,
        shared_quota=stores.shared_quota,
        peer_retained=make_peer_retained(foundation, planes.hub.routes),
        before=choose_driver,
        on_made=streams_made.registry.attach_sinks,
        on_dropped=metering.retire,
    )


# --- what is outside


def _listeners(process: Process, monitoring: Monitoring, plane: Plane) -> Listeners:
    sockets_plane = cast("EnginePlane", plane)  # its Protocols speak of channels, the plane's of transports
    transports = make_transports(process.twin, sockets_plane, process.clock, process.reactor)
    return Listeners(
        listener_infos(process.settings),
        sockets_plane,
        process.clock,
        transports,
        process.reactor,
        process.descriptors,
        monitoring.connection_log.refused_unread,
    )


def _health(foundation: Foundation, writers: Writers, control: Control) -> Health:
    process, monitoring, stores = foundation.process, foundation.monitoring, foundation.stores
    settings, telemetry = process.settings, monitoring.telemetry
    readiness = Readiness(
        settings=settings,
        phase=process.phase,
        waiting=process.waiting,
        alarms=monitoring.alarms,
        store_alarms=monitoring.store_alarms,
        watch=monitoring.watch,
        plane=control.plane,
        writer=writers.writer,
        journal_thread=writers.journal_thread,
        hbase=stores.hbase,
        cluster=control.cluster,
    )
    queued, series_max = stores.queues.tenant_usage, settings.metrics.tenant_series_max
    return Health(
        version=process.version,
        twin=process.twin,
        number=settings.node.number,
        readiness=readiness,
        alarms=monitoring.alarms,
        registry=telemetry.registry,
        plane=control.plane,
        descriptors=process.descriptors,
        brokers=foundation.brokers,
        tenants=TenantMetrics(foundation.brokers, telemetry, queued, series_max, str(settings.node.number)),
        shared_quota=stores.shared_quota,
        cluster=control.cluster,
        links=control.links,
    )


def _sockets(
    listeners: Listeners, health: Health, process: Process, verbs: Verbs, nodes: Nodes, every_worker: EveryWorker | None
) -> Sockets:
    http = None if process.settings.http.port is None else HttpFactory(every_worker or health, process.reactor)

    async def brief() -> Json:
        return health.brief() if every_worker is None else await every_worker.brief()

    return Sockets(listeners, health, http, verbs, nodes, brief)


def _draining(foundation: Foundation, control: Control, listeners: Listeners) -> Draining:
    process, later = foundation.process, foundation.process.reactor.callLater

    def on_hub(name: str) -> None:
        foundation.lifecycle.on_hub(name)
        later(0, control.sys_topics.publish_hub_states, foundation.hub_states.own())

    return Draining(control.plane, foundation.brokers, listeners, process.phase, process.clock, later, on_hub)


def _verbs(
    foundation: Foundation,
    writers: Writers,
    control: Control,
    tasks: PeriodicTasks,
    draining: Draining,
    health: Health,
) -> tuple[Verbs, Nodes, EveryWorker | None]:
    """Make what answers administrators, here and at the other hubs; and what asks the other workers, if there are some."""
    process, stores, find_tenant = foundation.process, foundation.stores, foundation.questions.find_tenant
    queries = AdminQueries(
        find_tenant=find_tenant,
        brokers=foundation.brokers,
        queues=writers.queues,
        retained=writers.retained,
        catch_up=control.hub.cluster.catch_up,
        states_of=NotedStates(writers.journal, writers.journal_thread).of,
        driver_of=driver_of_queue(stores.queues, process.settings.queues.driver),
        rejected=foundation.monitoring.connection_log.rejected,
        run=process.threads.run,
    )
    commands = AdminCommands(
        control.hub,
        writers.queues,
        find_tenant,
        tasks.accounts.following.follow_changes,
        control.streaming.describe,
        process.pause,
        process.settings.node.number,
    )
    publish = AdminPublish(control.hub, tasks.accounts.following.follow_changes)
    here = {
        **commands.verbs,
        **_verbs_of_clients(foundation, control, tasks),
        Verb.ALARM_LIST: health.answer_alarms,
    }
    own_node = OwnNode(
        process.settings, draining, process.pause, lambda: "" if control.links is None else control.links.clock_fault
    )
    own_worker = _own_worker(process, health)
    of_worker = {} if own_worker is None else own_worker.verbs
    peers = make_peer_commands(foundation, {**here, **own_node.verbs, **of_worker})
    every_hub = EveryHub(here, peers, lambda: foundation.members.names)
    nodes = Nodes(own_node, peers, foundation.members.rows, lambda row: foundation.cluster().evict(row))
    every_worker = None if own_worker is None else EveryWorker(own_worker, peers, process.settings.node.workers)
    verbs = {
        **queries.verbs,
        **publish.verbs,
        **here,
        **every_hub.verbs,
        **ClientPages(every_hub.verbs).verbs,
        **nodes.verbs,
    }
    return verbs, nodes, every_worker


def _verbs_of_clients(foundation: Foundation, control: Control, tasks: PeriodicTasks) -> Verbs:
    """Make what answers for the clients that are connected here."""
    process, find_tenant = foundation.process, foundation.questions.find_tenant
    follow_changes, node = tasks.accounts.following.follow_changes, process.settings.node.number
    clients = AdminClients(
        brokers=foundation.brokers,
        plane=control.plane,
        find_tenant=find_tenant,
        apply_changes=follow_changes,
        run=process.threads.run,
        node=node,
    )
    subscriptions = AdminSubscriptions(
        foundation.brokers, find_tenant, control.hub.cluster.catch_up, process.threads.run
    )
    explain = AdminExplain(control.hub, follow_changes, node)
    traces = AdminTraces(foundation.traces(), foundation.trace_files, find_tenant, process.threads.run, node)
    return {**clients.verbs, **subscriptions.verbs, **explain.verbs, **traces.verbs}


def _own_worker(process: Process, health: Health) -> OwnWorker | None:
    """None: this hub has no workers."""
    data_dir = process.data_dir
    return OwnWorker(health, data_dir.worker, data_dir.run, process.pause) if data_dir.worker else None


# --- metrics


def _feed(
    foundation: Foundation,
    writers: Writers,
    control: Control,
    sockets: Sockets,
    tasks: PeriodicTasks,
    jobs: JobWatch,
) -> None:
    """Let the registry know where each number is."""
    process, monitoring, stores = foundation.process, foundation.monitoring, foundation.stores
    telemetry, watch, brokers, hub = monitoring.telemetry, monitoring.watch, foundation.brokers, control.hub
    registry, sources = telemetry.registry, metric_sources
    sources.feed_process(registry, process, monitoring)
    sources.feed_plane(registry, control.plane, watch)
    registry.feed(metrics.TRACES_ACTIVE, lambda: len(foundation.traces()))
    sources.feed_tenant_events(registry, foundation.events(), foundation.webhooks.deliverer)
    sources.feed_sockets(registry, sockets.listeners, process.descriptors, sockets.http, brokers)
    sources.feed_control(
        registry, hub, sockets.health.tenants, stores.shared_records, str(process.settings.node.number)
    )
    sources.feed_streams(registry, control.streaming)
    sources.feed_events(registry, writers.journal, foundation.damaged, control.metering)
    if control.links is not None:
        sources.feed_links(registry, control.links)
        registry.feed(metrics.CLUSTER_MEMBERS, ClusterMembers(process, control, sockets).counts)
    sources.feed_messages(registry, writers.writer, stores.queues, brokers)
    sources.feed_journal(registry, stores.drivers.journal_figures)
    housekeeping = tasks.housekeeping
    sources.feed_operations(registry, monitoring.alarms, watch, jobs, hub.authenticator, lambda: housekeeping.bans)
