"""What a hub does together with others: composed here, over the links and below the planes.

Each function makes one thing that travels over the links, and registers it there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import IotHubError
from iothub.engine.plane import Plane
from iothub.engine.waking import WakingClock
from iothub.hub.cluster.cluster import HubCluster
from iothub.hub.cluster.cluster_parts import ClusterParts
from iothub.hub.cluster.peer_wills import PeerWills
from iothub.hub.cluster.session_directory import PeerDirectory
from iothub.hub.cluster.session_locks import SessionLocks
from iothub.hub.composition.foundation import Foundation
from iothub.peers.account_hints import HINT_TYPES, AccountHints
from iothub.peers.announced_bans import BAN_TYPES, BanAnnouncer, BanReceiver
from iothub.peers.commands import TYPES, LinkCommands, NoPeers, PeerCommands
from iothub.peers.directory import DIRECTORY_TYPES
from iothub.peers.known import PLACE_TYPES, PeerPlaces
from iothub.peers.queued import QUEUED_TYPES, QueuedPeers
from iothub.peers.retained import RETAINED_TYPES, RetainedPeers
from iothub.peers.routed_peer import ROUTE_TYPES
from iothub.peers.routes import MESSAGE_TYPES, Routes
from iothub.peers.will_copies import WILL_TYPES
from iothub.records.admin_commands import Verbs
from iothub_services.auth.authenticator import Authenticator, OnBan
from iothub_services.auth.port import TenantRecord
from iothub_services.metrics import metrics
from iothub_services.sessions.manager import SessionManager
from iothub_services.sessions.port import Cluster, NoWillKeeper, SessionDirectory, SingleHub, WillKeeper
from iothub_tenants.accounts.changes import Change
from iothub_tenants.background.following import OnChanges
from iothub_tenants.broker.hub import Later
from iothub_tenants.broker.peer_retained import NoPeerRetained, PeerRetained
from iothub_tenants.broker.peer_routes import NoPeerRoutes, PeerRoutes


def make_cluster(foundation: Foundation, plane: Plane) -> Cluster:
    """Make what a hub knows of the others that share its stores."""
    process, stores = foundation.process, foundation.stores
    if not stores.states.is_shared:
        return SingleHub()
    return foundation.cluster.bind(
        HubCluster(
            ClusterParts(
                settings=process.settings,
                data_dir=process.data_dir,
                reactor=process.reactor,
                clock=process.clock,
                boot_clock=SystemClock(),
                run=process.threads.run,
                pause=process.pause,
                members=foundation.members,
                states=stores.states,
                plane=plane,
                block_source=foundation.block_source,
                waiting=process.waiting,
                store_alarms=foundation.monitoring.store_alarms,
                damaged=foundation.damaged,
                followed_log=stores.drivers.followed_log,
                remote=foundation.remote_sessions,
                links=foundation.links,
                places=foundation.places if foundation.links is not None else _no_places,
                on_replaced=lambda error: foundation.on_replaced()(error),
            )
        )
    )


def _no_places() -> None:
    """A hub without links has nobody to say anything to."""


def make_turn_clock(foundation: Foundation) -> Clock | None:
    """Make the message plane's clock of a hub among others; None: nobody goes on without this one."""
    if foundation.links is None:
        return None
    return WakingClock(foundation.process.clock, SystemClock(), lambda: foundation.cluster().woken())


def make_routes(foundation: Foundation, later: Later, plane: Plane) -> PeerRoutes:
    """Make what routes between the clients of this hub and those of the hubs that are linked to it; above the cluster."""
    links = foundation.links
    if links is None:
        return NoPeerRoutes()
    cluster, call_soon = foundation.cluster(), partial(later, 0)
    routes = Routes(links, plane, call_soon, cluster.log_place)
    links.register(ROUTE_TYPES, routes, is_waited_for=True)
    links.register(MESSAGE_TYPES, routes)
    links.watch(routes.acknowledged)
    links.watch_members(routes.members)
    places = foundation.places.bind(PeerPlaces(cluster.log_place, routes, call_soon, later, cluster.peers_changed))
    links.register(PLACE_TYPES, places)
    routes.watch(places.tenant_closed_at, places.tenant_closed)
    routes.follow(places.place_of)
    links.register(QUEUED_TYPES, foundation.queued.bind(QueuedPeers(routes, plane, call_soon)))
    return routes


def make_directory(foundation: Foundation, sessions: Callable[[], SessionManager]) -> SessionDirectory:
    """Make what lets one hub at a time have a client."""
    links = foundation.links
    if links is None:
        return SessionLocks()
    members = foundation.members
    made = PeerDirectory(
        links,
        lambda: links.me,
        lambda: members.view.version,
        foundation.brokers,
        sessions,
        foundation.process.reactor,
        links.cluster_clock,
        on_view=lambda: foundation.cluster().look_soon(),
    )
    links.register(DIRECTORY_TYPES, made)
    foundation.monitoring.telemetry.registry.feed(metrics.CLIENTS_GIVEN_UP, lambda: made.given_up)
    links.watch_members(made.members)
    return made


def make_peer_retained(foundation: Foundation, routes: PeerRoutes) -> PeerRetained:
    """Make what tells the linked hubs which retained messages were written here, and asks them before a replay."""
    links = foundation.links
    if links is None or not isinstance(routes, Routes):
        return NoPeerRetained()
    made = RetainedPeers(routes)
    links.register(RETAINED_TYPES, made)
    return made


def make_account_hints(foundation: Foundation, look: Callable[[], Coroutine[Any, Any, None]]) -> OnChanges:
    """Make what announces account changes that were read here to the linked hubs; `look` reads those that another hub has announced."""
    links = foundation.links
    if links is None:
        return _no_hints
    made = AccountHints(links, lambda: Deferred.fromCoroutine(look()).addErrback(_look_later))
    links.register(HINT_TYPES, made)
    return lambda changes: made.note_read(changes[-1].id if changes else None)


def make_ban_announcer(foundation: Foundation) -> OnBan | None:
    """Make what announces to the linked hubs the bans that this one makes after failed logins."""
    return None if foundation.links is None else BanAnnouncer(foundation.links).announce_ban


def receive_bans(foundation: Foundation, authenticator: Authenticator) -> None:
    """Ban here, too, what linked hubs have banned after failed logins, and tell a hub that comes later."""
    links, failures = foundation.links, authenticator.failures
    if links is not None:
        links.register(BAN_TYPES, BanReceiver(links, failures.ban, failures.in_force))


def _no_hints(_changes: Sequence[Change]) -> None:
    """No other hub has to know."""


def _look_later(failure: Failure) -> None:
    """The accounts do not answer: the hub looks again by itself, and says so."""
    if not isinstance(failure.value, IotHubError):
        failure.raiseException()


def make_will_keeper(foundation: Foundation) -> WillKeeper:
    """Make what keeps Wills of other hubs' clients, and has this hub's kept by them."""
    links, run = foundation.links, foundation.process.threads.run
    if links is None:
        return NoWillKeeper()

    def find_tenant(tenant_id: int) -> Awaitable[TenantRecord | None]:
        return run("accounts.tenant", foundation.registry.tenant_by_id, tenant_id)

    made = PeerWills(links, lambda: links.me, foundation.brokers, find_tenant, foundation.process.reactor.callLater)
    foundation.monitoring.telemetry.registry.feed(metrics.WILLS_GIVEN_UP, lambda: made.given_up)
    links.register(WILL_TYPES, made)
    links.watch_members(made.members)
    return made


def make_peer_commands(foundation: Foundation, own: Verbs) -> PeerCommands:
    """Make what asks other hubs, and answers them with what this hub alone has."""
    links = foundation.links
    if links is None:
        return NoPeers()
    made = LinkCommands(links, own, foundation.process.reactor.callLater)
    links.register(TYPES, made)
    return made


def watch_members(foundation: Foundation, publish: Callable[[Mapping[str, str]], None]) -> None:
    """Let plug-ins and `$SYS` hear of the other hubs. `publish`: gets the figures of `$SYS` that have changed."""
    links, states, later = foundation.links, foundation.hub_states, foundation.process.reactor.callLater
    if links is None:
        return
    links.events.watch(foundation.lifecycle.on_member)
    links.events.watch(lambda event: later(0, publish, states.after(event)))  # links report within a turn of the plane
