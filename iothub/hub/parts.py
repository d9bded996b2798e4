"""The parts of one hub, as `iothub.hub.composition.compose` has made them: what start, stop and reload work with.

Frozen, and without behaviour: whoever needs a part gets that part by its constructor, so nobody but start, stop and reload takes these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iothub.base.clock import Clock
from iothub.base.errors import ConflictError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.engine.plane import Plane
from iothub.hub.cluster.cluster import HubCluster
from iothub.hub.cluster.node_commands import Nodes
from iothub.hub.cluster.peer_links import PeerLinks
from iothub.hub.late import LateBound
from iothub.hub.lifecycle_hooks import LifecycleHooks
from iothub.hub.monitoring.health import Health
from iothub.hub.monitoring.metering import Metering
from iothub.hub.monitoring.reactor_lag import ReactorLag
from iothub.hub.monitoring.telemetry import Telemetry
from iothub.hub.periodic_tasks import PeriodicTasks
from iothub.hub.phase import Phase
from iothub.hub.quota_ledger import QuotaLedger
from iothub.hub.stores.drivers import Drivers
from iothub.hub.stores.hub_file import HubFile
from iothub.hub.stores.installation import Installation
from iothub.hub.stores.store_alarms import StoreAlarms
from iothub.hub.stores.wait_for_servers import Pause, Waiting
from iothub.hub.streaming import Streaming
from iothub.hub.webhooks import Webhooks
from iothub.net.backend import Backend
from iothub.net.descriptors import Descriptors
from iothub.net.http import HttpFactory
from iothub.net.listeners import Listeners
from iothub.peers.cluster_clock import ClusterClock
from iothub.records.admin_commands import Json, Verbs
from iothub_services.auth.shared import SharedRecords
from iothub_services.awaited import AwaitedQueues, AwaitedRetained
from iothub_services.connections.log import ConnectionLog
from iothub_services.events.journal import ThreadJournal
from iothub_services.events.statistics import StatisticsLog, StatisticsThread
from iothub_services.group_thread import GroupThread
from iothub_services.metrics.alarms import Alarms
from iothub_services.metrics.watch import Watch
from iothub_services.queues.port import QueueStore
from iothub_services.queues.writer import QueueWriter
from iothub_services.quota.shared.service import SharedQuota
from iothub_services.quota.usage import Usage
from iothub_services.retained.port import RetainedStore
from iothub_services.sqlite.commit_lock import CommitLock
from iothub_services.state.service import StateOp, StateService
from iothub_services.threads import Threads
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.background.session_recovery import SessionRecovery
from iothub_tenants.broker.event_topics import EventTopics
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.queue_bounds import QueueBounds
from iothub_tenants.broker.sys_topics import SysTopics
from iothub_tenants.control.control import ControlPlane

if TYPE_CHECKING:
    from iothub_services.hbase.client import HBaseClient
    from iothub_services.redis.client import RedisClient


Brief = Callable[[], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Process:
    """The process that a hub is. `twin`: compiled or plain; `incarnation`: this run of it, unlike any other.

    `clock` goes by the linked hubs' time if there are any: it is `cluster_clock` then. None: this hub has no links.
    """

    settings: Config
    data_dir: DataDir
    reactor: Any
    clock: Clock
    cluster_clock: ClusterClock | None
    pause: Pause
    version: str
    twin: Backend
    started_at: float
    incarnation: str
    phase: Phase
    hub_file: HubFile
    descriptors: Descriptors
    threads: Threads
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What is counted and raised, and an eye on machine and reactor."""

    alarms: Alarms
    store_alarms: StoreAlarms
    telemetry: Telemetry
    connection_log: ConnectionLog
    watch: Watch
    lag: ReactorLag


@dataclass(frozen=True, slots=True)
class Stores:
    """What is kept, and the clients of the servers where it is. None: not used by these settings.

    `commits`: under it the hub commits to each of its SQLite files but the accounts.
    """

    commits: CommitLock
    accounts: AccountStore
    pepper: bytes
    installation: Installation
    drivers: Drivers
    queues: QueueStore
    retained: RetainedStore
    states: StateService
    statistics_log: StatisticsLog | None
    usage: Usage
    hbase: HBaseClient | None
    redis: RedisClient | None
    shared_records: SharedRecords | None
    ledger: QuotaLedger | None
    shared_quota: SharedQuota | None


@dataclass(frozen=True, slots=True)
class Writers:
    """What writes to the stores in threads of its own, and the awaitable ways there."""

    writer: QueueWriter
    queues: AwaitedQueues
    retained: AwaitedRetained
    journal_thread: GroupThread[StateOp, object]
    journal: ThreadJournal
    statistics_thread: StatisticsThread | None


@dataclass(frozen=True, slots=True)
class Control:
    """Message plane and control plane.

    `cluster`: None where no store is shared. `links`: None where `cluster.listen` is not set. `on_replaced`: what ends this hub when another
    one replaces it.
    """

    plane: Plane
    control_plane: ControlPlane
    hub: Hub
    registry: Registry
    sys_topics: SysTopics
    event_topics: EventTopics
    webhooks: Webhooks
    queue_bounds: QueueBounds
    recovery: SessionRecovery
    streaming: Streaming
    metering: Metering
    lifecycle: LifecycleHooks
    cluster: HubCluster | None
    links: PeerLinks | None
    on_replaced: LateBound[Callable[[ConflictError], None]]


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where others reach the hub. `http`: None: it is off. `verbs`: what the parts answer to administrators; `brief`: what `iothub status` gets."""

    listeners: Listeners
    health: Health
    http: HttpFactory | None
    verbs: Verbs
    nodes: Nodes
    brief: Brief


@dataclass(frozen=True, slots=True)
class Parts:
    """One hub, made and not started."""

    process: Process
    monitoring: Monitoring
    stores: Stores
    writers: Writers
    control: Control
    tasks: PeriodicTasks
    sockets: Sockets
