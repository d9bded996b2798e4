"""What everything above the stores of a hub is made with, while the hub is composed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from iothub import hooks
from iothub.base.errors import ConflictError
from iothub.engine.plane import Plane
from iothub.hub.cluster.cluster import HubCluster
from iothub.hub.cluster.member_events import HubStates
from iothub.hub.composition.control import late_brokers
from iothub.hub.composition.links import make_links
from iothub.hub.composition.webhooks import make_broker_figures, make_webhooks
from iothub.hub.late import LateBound
from iothub.hub.lifecycle_hooks import LifecycleHooks
from iothub.hub.monitoring.broker_figures import AllFigures
from iothub.hub.parts import Monitoring, Process, Stores
from iothub.hub.periodic_tasks import AccountQuestions
from iothub.net.listeners import Listeners
from iothub.peers.known import PeerPlaces
from iothub.peers.queued import QueuedPeers
from iothub.records.events import Event
from iothub_services.damaged import DamagedRecords
from iothub_tenants.accounts.generator import BlockSource
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.background.membership import Members
from iothub_tenants.background.remote_sessions import RemoteSessions
from iothub_tenants.broker.event_topics import EventTopics
from iothub_tenants.broker.trace_files import TraceFiles
from iothub_tenants.broker.tracing import Tracing

if TYPE_CHECKING:
    from iothub.engine.state import Session


class Foundation:
    """What all that is above the stores is made with; gone when the hub is composed.

    `brokers` and `members` come early because the threads below the planes report to them; what makes brokers, and what hears of overtaken
    claims and lost queues, comes with the planes (`factory`, `on_stale`, `on_lost`), as do the `plane` itself and the `remote_sessions` over it.
    Who ends a hub that was replaced is above all parts (`on_replaced`).
    """

    def __init__(self, process: Process, monitoring: Monitoring, damaged: DamagedRecords, stores: Stores) -> None:
        settings, clock, run = process.settings, process.clock, process.threads.run
        self.process = process
        self.monitoring = monitoring
        self.damaged = damaged
        self.stores = stores
        self.hooks = hooks.load()
        self.brokers, self.factory = late_brokers()
        self.lifecycle = LifecycleHooks(self.hooks, self.brokers, clock)
        self.members = Members(stores.accounts, run, clock, settings.node.number, settings.node.name, process.version)
        self.on_stale: LateBound[Callable[[Session], None]] = LateBound("what hears of overtaken claims")
        self.on_lost: LateBound[Callable[[Session], None]] = LateBound("what hears of lost queues")
        self.on_replaced: LateBound[Callable[[ConflictError], None]] = LateBound("what ends a hub that was replaced")
        self.plane: LateBound[Plane] = LateBound("the message plane")
        self.listeners: LateBound[Listeners] = LateBound("the listeners, whose sockets links use")
        self.remote_sessions: LateBound[RemoteSessions] = LateBound("the sessions of other hubs")
        self.cluster: LateBound[HubCluster] = LateBound("what knows the other hubs")
        self.places: LateBound[PeerPlaces] = LateBound("what says to other hubs how far the log is known here")
        self.queued: LateBound[QueuedPeers] = LateBound("what tells other hubs what is stored for them")
        self.traces: LateBound[Tracing] = LateBound("what traces clients and topics")
        self.webhooks = make_webhooks(process, stores, monitoring)
        self.events: LateBound[EventTopics] = LateBound("what publishes events to tenants")
        self.all_figures: LateBound[AllFigures] = LateBound("what reads the figures of all workers")
        self.broker_figures = make_broker_figures(process, monitoring, lambda: self.all_figures()())
        self.trace_files = TraceFiles(process.data_dir.own / "traces")
        self.registry = Registry(stores.accounts)
        self.block_source = BlockSource(stores.accounts)
        self.questions = AccountQuestions(self.registry, run)
        self.links = make_links(process, stores, monitoring, self.listeners)
        statuses = list if self.links is None else self.links.status
        events = None if self.links is None else self.links.events
        view = str if events is None else lambda: events.view
        self.hub_states = HubStates(settings.node.number, process.phase, statuses, view)
        self.event_listeners: list[Callable[[Event], None]] = [monitoring.telemetry.happened]
        if self.hooks.lifecycle is not None:
            self.event_listeners.append(self.lifecycle.on_event)

    def on_event(self, event: Event) -> None:
        """Count an event of a session, and notify plug-ins, subscribers and traces."""
        for listener in self.event_listeners:
            listener(event)

    def make_traces(self, plane: Plane) -> Tracing:
        """Make what traces clients and topics, over the message plane."""
        process = self.process
        later, run, number = process.reactor.callLater, process.threads.run, process.settings.node.number
        made = Tracing(plane, self.brokers, self.trace_files, process.clock, later, run, number)
        self.event_listeners.append(made.on_event)
        return self.traces.bind(made)
