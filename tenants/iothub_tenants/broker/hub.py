"""Holds the services that the packet handlers of the control plane call: made by `iothub.hub.composition.compose`, passed to every handler.

Knows no concrete back end and starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred

from iothub.base.clock import Clock
from iothub.base.ids import MessageIds
from iothub.base.reasons import Reason
from iothub.config.sections import Config
from iothub.engine.plane import Plane
from iothub.engine.ports import Policy
from iothub.engine.state import Connection, TenantPlane
from iothub.engine.turn import PAUSES_PUBLISHERS
from iothub.hooks import Client, HookedPolicy, Hooks
from iothub_services.auth.authenticator import Authenticated, Authenticator
from iothub_services.auth.policies import PolicyCache
from iothub_services.connections.log import ConnectionLog
from iothub_services.sessions.manager import SessionManager
from iothub_services.sessions.port import Cluster, Journal, SessionDirectory, SingleHub
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.peer_routes import NoPeerRoutes, PeerRoutes
from iothub_tenants.broker.tenant_events import NoEvents, TenantEvents
from iothub_tenants.broker.token_ends import TokenEnds
from iothub_tenants.broker.tracing import NoTraces, Traces


class Rights(Policy, Protocol):
    """A policy that is also asked about Topic Filters."""

    def may_subscribe(self, filter: bytes) -> bool: ...


class ControlCounters(Protocol):
    """What the control plane counts; the metrics service has it."""

    def closed(self, reason: Reason) -> None: ...

    def connected(self, listener: str, version: int, result: str) -> None: ...

    def denied(self, tenant_id: int, action: str) -> None: ...


Later = Callable[[float, Callable[[], None]], object]
"""`later(seconds, call)`: the reactor's `callLater`."""


@dataclass(slots=True)
class Hub:
    """Everything that a packet handler or a background task may use."""

    settings: Config
    clock: Clock
    plane: Plane
    authenticator: Authenticator
    policies: PolicyCache
    brokers: Brokers
    sessions: SessionManager
    directory: SessionDirectory
    journal: Journal
    hooks: Hooks
    message_ids: MessageIds
    counters: ControlCounters
    connection_log: ConnectionLog
    later: Later
    cluster: Cluster = field(default_factory=SingleHub)
    routes: PeerRoutes = field(default_factory=NoPeerRoutes)
    traces: Traces = field(default_factory=NoTraces)
    events: TenantEvents = field(default_factory=NoEvents)
    awaiting_peers: int = 0  # packets that are answered when other hubs know of them
    answered: set[Connection] = field(default_factory=set)  # refused, and not closed yet
    is_short_of_memory: Callable[[], bool] = lambda: False  # while it returns True every CONNECT is rejected
    token_ends: TokenEnds = field(init=False)

    def __post_init__(self) -> None:
        self.token_ends = TokenEnds(
            self.clock, self.later, lambda connection: self.plane.close(connection, Reason.CREDENTIAL_EXPIRED)
        )

    def apply(self, settings: Config) -> None:
        """Use other settings from the next packet on."""
        self.settings = settings
        for broker in self.brokers:
            broker.allowance.apply_backlog(settings.overload.session_backlog_bytes)

    def count_awaiting_peers(self, change: int) -> None:
        """One packet more, or less, is answered when other hubs know of it."""
        self.awaiting_peers += change

    def must_wait(self, tenant: TenantPlane) -> bool:
        """Whether clients of this tenant would wait if they published now, so that whoever publishes without a connection has to wait, too."""
        turn = self.plane.turn
        is_overloaded = turn.overload_level() >= PAUSES_PUBLISHERS
        return is_overloaded or turn.is_held(tenant) or turn.is_disk_short or turn.is_store_full()

    def breathe(self) -> Deferred[None]:
        """Let the reactor run other work before going on."""
        pause: Deferred[None] = Deferred()
        self.later(0.0, lambda: pause.callback(None))
        return pause

    def policy_of(self, proven: Authenticated, client_id: str, connection: Connection) -> Rights:
        """Return what this client may do: by the plug-ins first, if there are any, then by its tenant's rules."""
        policy = self.policies.policy(proven.tenant, proven.device, client_id)
        if self.hooks.authorise is None:
            return policy
        tenant, device, listener = proven.tenant.name, proven.device.name, connection.listener.name
        return self.behind_hooks(
            policy, Client(tenant, device, client_id, connection.peer, listener, connection.version)
        )

    def behind_hooks(self, policy: Rights, client: Client) -> Rights:
        """Return a policy with the plug-ins in front of it, if there are any."""
        authorise = self.hooks.authorise
        return policy if authorise is None else HookedPolicy(policy, authorise, client)
