"""Message plane and control plane over what they stand on: composed here for the hub and, over doubles, for tests.

Knows no driver, no thread and no socket. The planes need each other, which `iothub.hub.late` resolves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from iothub.base.clock import Clock
from iothub.base.ids import MessageIds
from iothub.config.sections import Config
from iothub.engine.limits import PlaneLimits
from iothub.engine.plane import Plane
from iothub.engine.ports import Store
from iothub.hooks import Hooks
from iothub.hub.cluster.session_locks import SessionLocks
from iothub.hub.composition.broker_factory import BrokerFactory
from iothub.hub.late import LateBound, LateControl
from iothub_services.auth.authenticator import Authenticator
from iothub_services.auth.policies import PolicyCache
from iothub_services.auth.port import Run
from iothub_services.connections.log import ConnectionLog
from iothub_services.queues.port import TenantUsage
from iothub_services.sessions.manager import SessionManager
from iothub_services.sessions.port import Cluster, Journal, NoWillKeeper, QueueAdmin, SessionDirectory, WillKeeper
from iothub_tenants.broker.broker import Shared
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.hub import Hub, Later
from iothub_tenants.broker.offline_rights import rights_of
from iothub_tenants.broker.peer_routes import NoPeerRoutes, PeerRoutes
from iothub_tenants.broker.sys_topics import BrokerFiguresOf, SysTopics, no_figures
from iothub_tenants.broker.tenant_events import NoEvents, TenantEvents
from iothub_tenants.broker.tracing import NoTraces, Traces
from iothub_tenants.control.control import ControlPlane


def _one_hub(_sessions: Callable[[], SessionManager]) -> SessionDirectory:
    return SessionLocks()


def _no_traces(_plane: Plane) -> Traces:
    return NoTraces()


def _no_events(_plane: Plane, _routes: PeerRoutes) -> TenantEvents:
    return NoEvents()


def _no_peers(_plane: Plane) -> PeerRoutes:
    return NoPeerRoutes()


@dataclass(frozen=True, slots=True)
class PlaneDependencies:
    """What the planes stand on. `observer`: of message plane, control plane and quota; `make_cluster`: who else has the sessions' stores.

    `make_routes`: to the clients that those have; `make_directory`: of the sessions, which it asks to close a client for another hub.
    """

    settings: Config
    clock: Clock
    later: Later
    run: Run
    hooks: Hooks
    observer: Any
    connection_log: ConnectionLog
    authenticator: Authenticator
    store: Store
    limits: PlaneLimits
    message_ids: MessageIds
    brokers: Brokers
    queues: QueueAdmin
    queued: Callable[[int], TenantUsage]
    journal: Journal
    owner: bytes
    make_cluster: Callable[[Plane], Cluster]
    call_soon: Callable[[Callable[[], None]], object] | None = None
    is_short_of_memory: Callable[[], bool] = lambda: False
    make_routes: Callable[[Plane], PeerRoutes] = _no_peers
    hub_states: Callable[[], Mapping[str, str]] = dict
    broker_figures: BrokerFiguresOf = no_figures
    make_directory: Callable[[Callable[[], SessionManager]], SessionDirectory] = _one_hub
    make_traces: Callable[[Plane], Traces] = _no_traces
    make_events: Callable[[Plane, PeerRoutes], TenantEvents] = _no_events
    will_keeper: WillKeeper = field(default_factory=NoWillKeeper)
    turn_clock: Clock | None = None  # of the message plane; None: as everywhere


@dataclass(frozen=True, slots=True)
class Planes:
    """What was made of it. `shared`: what brokers are composed over."""

    plane: Plane
    control_plane: ControlPlane
    hub: Hub
    sys_topics: SysTopics
    shared: Shared


def late_brokers() -> tuple[Brokers, LateBound[BrokerFactory]]:
    """Return the brokers, and where what makes them is put: it needs the message plane, and what is below that asks for brokers."""
    factory: LateBound[BrokerFactory] = LateBound("the factory of brokers")
    return Brokers(lambda record: factory().make(record), lambda broker: factory().put_away(broker)), factory


def compose_control(ground: PlaneDependencies) -> Planes:
    """Make them, from the message plane up."""
    clock, later, journal, observer = ground.clock, ground.later, ground.journal, ground.observer
    control = LateControl()
    plane = Plane(
        ground.turn_clock or clock,
        control,
        ground.store,
        ground.limits,
        observer,
        ground.message_ids,
        ground.call_soon,
    )
    late_sessions: LateBound[SessionManager] = LateBound("the session manager")
    directory = ground.make_directory(late_sessions)
    cluster, routes = ground.make_cluster(plane), ground.make_routes(plane)
    sessions = SessionManager(
        plane, directory, ground.queues, journal, clock, ground.owner, cluster, ground.will_keeper
    )
    late_sessions.bind(sessions)
    hub = Hub(
        settings=ground.settings,
        clock=clock,
        plane=plane,
        authenticator=ground.authenticator,
        policies=PolicyCache(),
        brokers=ground.brokers,
        sessions=sessions,
        directory=directory,
        journal=journal,
        hooks=ground.hooks,
        message_ids=ground.message_ids,
        counters=observer,
        connection_log=ground.connection_log,
        later=later,
        cluster=cluster,
        routes=routes,
        is_short_of_memory=ground.is_short_of_memory,
        traces=ground.make_traces(plane),
        events=ground.make_events(plane, routes),
    )
    control_plane = ControlPlane(hub)
    control.bind(control_plane)
    sys_topics = SysTopics(plane, ground.brokers, ground.queued, ground.hub_states, ground.broker_figures)
    shared = Shared(
        ground.settings,
        clock,
        plane,
        sessions,
        journal,
        observer,
        ground.run,
        sys_topics,
        later,
        partial(rights_of, hub),
        routes,
        hub.events,
    )
    return Planes(plane, control_plane, hub, sys_topics, shared)
